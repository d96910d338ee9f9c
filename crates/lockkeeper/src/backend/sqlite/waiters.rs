//! The claims of this process that wait or are held, and how the driver is woken for them.
//!
//! A waiter is entered here before its row is in the file, and taken out when its wait ends. So a
//! row of this process that has no waiter here was left behind and may be removed; and a waiter
//! whose row is in the file but not found there was dropped, and asks anew.
//!
//! Alarms are kept by claim id: a claim that another process broke is found by the driver, which
//! rings the alarm of that id.

use super::client::transaction::Granted;
use super::error::copy_of;
use super::sockets::Socket;
use crate::backend::support::alarms::Alarms;
use crate::backend::support::sync::lock;
use crate::backend::{Alarm, LossReason, Moment};
use crate::error::Error;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The claims of this process, by their ids.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiters: Mutex<HashMap<String, Waiter>>,
    alarms: Alarms,
    /// When the queue of a waiter that came since the last look must be looked at.
    first_expiry: Mutex<Option<Moment>>,
}

/// A claim of this process that waits.
#[derive(Debug)]
struct Waiter {
    name: String,
    /// Whether its row is known to be in the file.
    queued: bool,
    granted: oneshot::Sender<WaitEnd>,
}

/// What a waiter is told.
#[derive(Debug)]
pub(super) enum WaitEnd {
    Granted(Granted),
    /// Its row was dropped, because this process sent no heartbeat for too long.
    Dropped,
    /// The file is gone, or has been out of reach for longer than a row lasts.
    Failed(Error),
}

impl Waiters {
    /// Enters a waiter; what it is told arrives at the receiver.
    pub(super) fn expect(&self, id: &str, name: &str) -> oneshot::Receiver<WaitEnd> {
        let (granted, ended) = oneshot::channel();
        let waiter = Waiter { name: name.to_owned(), queued: false, granted };
        lock(&self.waiters).insert(id.to_owned(), waiter);
        ended
    }

    /// Says that the waiter's row is in the file.
    ///
    /// At `expiry` someone ahead of it may be over.
    pub(super) fn waiter_is_queued(&self, id: &str, expiry: Moment) {
        let mut first = lock(&self.first_expiry);
        *first = Some(first.map_or(expiry, |first| first.min(expiry)));
        drop(first);
        if let Some(waiter) = lock(&self.waiters).get_mut(id) {
            waiter.queued = true;
        }
    }

    /// Takes a waiter out, however its wait ended.
    pub(super) fn forget_waiter(&self, id: &str) {
        lock(&self.waiters).remove(id);
    }

    /// Whether there was anyone of that id to tell.
    pub(super) fn tell(&self, id: &str, ended: WaitEnd) -> bool {
        let Some(waiter) = lock(&self.waiters).remove(id) else { return false };
        // A waiter that is leaving in this moment finds its row granted, and takes the grant.
        let _ = waiter.granted.send(ended);
        true
    }

    /// Ends every wait with `error`.
    pub(super) fn fail_waiters(&self, error: &Error) {
        for (_, waiter) in std::mem::take(&mut *lock(&self.waiters)) {
            let _ = waiter.granted.send(WaitEnd::Failed(copy_of(error)));
        }
    }

    /// Whether anyone answers for the row with this id.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        lock(&self.waiters).contains_key(id)
    }

    /// The ids and names of this process's waiters whose rows are in the file.
    pub(super) fn waiting(&self) -> Vec<(String, String)> {
        let waiters = lock(&self.waiters);
        let queued = waiters.iter().filter(|(_, waiter)| waiter.queued);
        queued.map(|(id, waiter)| (id.clone(), waiter.name.clone())).collect()
    }

    /// When the queues of waiters that came since this was last asked must be looked at.
    pub(super) fn take_first_expiry(&self) -> Option<Moment> {
        lock(&self.first_expiry).take()
    }

    /// Whether heartbeats are needed.
    pub(super) fn has_waiters(&self) -> bool {
        !lock(&self.waiters).is_empty()
    }

    /// Keeps the alarm; rings it at once if the claim was already said to be lost.
    pub(super) fn watch(&self, id: &str, alarm: Alarm) {
        self.alarms.watch(id, alarm);
    }

    /// Forgets the alarm: the claim is released, withdrawn or detached.
    pub(super) fn unwatch(&self, id: &str) {
        self.alarms.unwatch(id);
    }

    /// Tells the holder that its claim is lost.
    pub(super) fn ring(&self, id: &str, reason: LossReason) {
        self.alarms.ring(id, reason);
    }

    /// Tells the holders that the file cannot be used.
    pub(super) fn endanger(&self) {
        self.alarms.endanger();
    }

    /// All alarms, to be rung: the file is gone.
    pub(super) fn take_alarms(&self) -> Vec<Alarm> {
        self.alarms.take()
    }

    /// Whether anyone is to be told of a loss.
    pub(super) fn has_alarms(&self) -> bool {
        !self.alarms.is_empty()
    }
}

/// Wakes the driver: from this process, and from others once it has a socket.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    state: Mutex<State>,
    condition: Condvar,
    /// Whether the driver sleeps for long, or is about to, and so must be woken for small things.
    pub(super) fast_asleep: AtomicBool,
    /// How often a message ended the wait.
    #[cfg(test)]
    pub(super) messages: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    requested: bool,
    /// The driver waits at the socket, where the condition variable does not reach it.
    at_socket: bool,
    socket: Option<Arc<Socket>>,
}

impl Wakeup {
    /// Wakes the driver, or keeps it from falling asleep.
    pub(super) fn wake(&self) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.requested, true) {
            return;
        }
        match &state.socket {
            Some(socket) if state.at_socket => socket.wake(),
            _ => self.condition.notify_one(),
        }
    }

    /// Sleeps until woken, or for at most `limit`; whether it was woken.
    pub(super) fn wait(&self, limit: Option<Duration>) -> bool {
        let requested = match self.start_waiting() {
            None => self.wait_here(limit),
            Some(socket) => {
                let waited = socket.wait(limit);
                let mut state = lock(&self.state);
                state.at_socket = false;
                #[cfg(test)]
                if let Ok(true) = waited {
                    self.messages.fetch_add(1, Ordering::SeqCst);
                }
                if let Err(error) = waited {
                    tracing::debug!(%error, "other processes cannot wake this one any more");
                    state.socket = None;
                }
                std::mem::take(&mut state.requested)
            }
        };
        self.fast_asleep.store(false, Ordering::SeqCst);
        requested
    }

    /// The socket to wait at, if there is one and no reason to stay awake.
    fn start_waiting(&self) -> Option<Arc<Socket>> {
        let mut state = lock(&self.state);
        let socket = state.socket.clone().filter(|_| !state.requested);
        state.at_socket = socket.is_some();
        socket
    }

    /// Sleeps where only this process can wake us.
    fn wait_here(&self, limit: Option<Duration>) -> bool {
        let state = lock(&self.state);
        let mut state = match limit {
            None => {
                let woken = self.condition.wait_while(state, |state| !state.requested);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
            Some(limit) => {
                let woken =
                    self.condition.wait_timeout_while(state, limit, |state| !state.requested);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        std::mem::take(&mut state.requested)
    }

    /// Where other processes wake this one. Called by the driver, while it is awake.
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
