//! How the clerk is woken: by its own process, and by others once it has a socket.

use super::desk::lock;
use super::wake::Socket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes the clerk.
#[derive(Debug, Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    sound: Condvar,
    /// Whether the clerk sleeps for long, or is about to, and so must be woken for small things.
    pub(super) fast_asleep: AtomicBool,
    /// How often a message ended the wait.
    #[cfg(test)]
    pub(super) woken: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    /// The clerk waits at the socket, where the condition variable does not reach it.
    at_socket: bool,
    socket: Option<Arc<Socket>>,
}

impl Bell {
    pub(super) fn ring(&self) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.rung, true) {
            return;
        }
        match &state.socket {
            Some(socket) if state.at_socket => socket.ring(),
            _ => self.sound.notify_one(),
        }
    }

    /// Sleeps until rung, or for at most `limit`; whether it was rung.
    pub(super) fn wait(&self, limit: Option<Duration>) -> bool {
        let rung = match self.start_waiting() {
            None => self.wait_here(limit),
            Some(socket) => {
                let waited = socket.wait(limit);
                let mut state = lock(&self.state);
                state.at_socket = false;
                #[cfg(test)]
                if let Ok(true) = waited {
                    self.woken.fetch_add(1, Ordering::SeqCst);
                }
                if let Err(error) = waited {
                    tracing::debug!(%error, "other processes cannot wake this one any more");
                    state.socket = None;
                }
                std::mem::take(&mut state.rung)
            }
        };
        self.fast_asleep.store(false, Ordering::SeqCst);
        rung
    }

    /// The socket to wait at, if there is one and no reason to stay awake.
    fn start_waiting(&self) -> Option<Arc<Socket>> {
        let mut state = lock(&self.state);
        let socket = state.socket.clone().filter(|_| !state.rung);
        state.at_socket = socket.is_some();
        socket
    }

    fn wait_here(&self, limit: Option<Duration>) -> bool {
        let state = lock(&self.state);
        let mut state = match limit {
            None => {
                let woken = self.sound.wait_while(state, |state| !state.rung);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
            Some(limit) => {
                let woken = self.sound.wait_timeout_while(state, limit, |state| !state.rung);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        std::mem::take(&mut state.rung)
    }

    /// Where other processes wake this one. Called by the clerk, while it is awake.
    pub(super) fn listen_at(&self, socket: Socket) {
        lock(&self.state).socket = Some(Arc::new(socket));
    }

    #[cfg(all(test, unix))]
    pub(super) fn is_at_socket(&self) -> bool {
        lock(&self.state).at_socket
    }

    /// The socket, where there is one.
    pub(super) fn socket(&self) -> Option<Arc<Socket>> {
        lock(&self.state).socket.clone()
    }
}
