//! The claims of this process that wait or are held, and how the driver is woken for them.
//!
//! A waiter is entered here before its row is in the file, and taken out when its wait ends. So a
//! row of this process that has no waiter here was left behind and may be removed; and a waiter
//! whose row was in the file and is not found there was dropped, and asks again.
//!
//! Alarms are kept by claim id: a claim that another process broke is found by the driver, which
//! rings the alarm of that id.
//!
//! No function here does I/O or calls the client, so they may be called while the connection is
//! locked.

use super::client::transaction::Granted;
use super::error::copy_of;
use super::sockets::Socket;
use crate::backend::support::alarms::{Alarms, OwnAlarm};
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
    /// The earliest moment at which a claim ahead of a waiter may expire, of the waiters that came
    /// since the driver last asked.
    first_expiry: Mutex<Option<Moment>>,
}

/// A claim of this process that waits.
#[derive(Debug)]
struct Waiter {
    name: String,
    /// Whether its row is known to be in the file. Before that, a heartbeat that does not find the
    /// row must not take it for dropped.
    queued: bool,
    /// Used once: what ends a wait also takes the waiter out of the map.
    granted: oneshot::Sender<WaitEnd>,
}

/// What a waiter is told, exactly once.
#[derive(Debug)]
pub(super) enum WaitEnd {
    /// Its row holds, and the commit that made it so is done.
    Granted(Granted),
    /// Its row is gone, because this process sent no heartbeat for too long. The waiter may queue
    /// again, at the end.
    Dropped,
    /// The file is gone, or has been out of reach for longer than a row lasts.
    Failed(Error),
}

impl Waiters {
    /// Enters a waiter; what it is told arrives at the receiver. To be called before its row is
    /// written: from the commit on, any transaction may grant it.
    pub(super) fn expect(&self, id: &str, name: &str) -> oneshot::Receiver<WaitEnd> {
        let (granted, ended) = oneshot::channel();
        let waiter = Waiter { name: name.to_owned(), queued: false, granted };
        lock(&self.waiters).insert(id.to_owned(), waiter);
        ended
    }

    /// Says that the waiter's row is in the file, and that a claim ahead of it may expire at
    /// `expiry`. Does nothing to a waiter that was granted meanwhile and is no longer here.
    pub(super) fn waiter_is_queued(&self, id: &str, expiry: Moment) {
        let mut first = lock(&self.first_expiry);
        *first = Some(first.map_or(expiry, |first| first.min(expiry)));
        drop(first);
        if let Some(waiter) = lock(&self.waiters).get_mut(id) {
            waiter.queued = true;
        }
    }

    /// Takes a waiter out, however its wait ended; it may be gone already.
    pub(super) fn forget_waiter(&self, id: &str) {
        lock(&self.waiters).remove(id);
    }

    /// Tells the waiter of that id how its wait ended; whether there was one. If not, nobody would
    /// give back a grant, and the caller has to.
    pub(super) fn tell(&self, id: &str, ended: WaitEnd) -> bool {
        let Some(waiter) = lock(&self.waiters).remove(id) else { return false };
        // A waiter that is leaving at this moment does not read this. The transaction in which it
        // leaves finds the row granted, and the waiter takes the grant from there.
        let _ = waiter.granted.send(ended);
        true
    }

    /// Ends every wait with `error`. Rows that are still in the file have no waiter from here on,
    /// and are removed by the next heartbeat or expire.
    pub(super) fn fail_waiters(&self, error: &Error) {
        for (_, waiter) in std::mem::take(&mut *lock(&self.waiters)) {
            let _ = waiter.granted.send(WaitEnd::Failed(copy_of(error)));
        }
    }

    /// Whether there is a waiter for the row with this id, queued or about to be.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        lock(&self.waiters).contains_key(id)
    }

    /// The ids and names of this process's waiters whose rows are in the file, or were until they
    /// were dropped.
    pub(super) fn waiting(&self) -> Vec<(String, String)> {
        let waiters = lock(&self.waiters);
        let queued = waiters.iter().filter(|(_, waiter)| waiter.queued);
        queued.map(|(id, waiter)| (id.clone(), waiter.name.clone())).collect()
    }

    /// When the queues of waiters that came since this was last asked must be looked at.
    pub(super) fn take_first_expiry(&self) -> Option<Moment> {
        lock(&self.first_expiry).take()
    }

    /// Whether heartbeats are needed. Also true for a waiter whose row is just being written.
    pub(super) fn has_waiters(&self) -> bool {
        !lock(&self.waiters).is_empty()
    }

    /// Keeps the alarm; rings it at once if the claim was already said to be lost.
    pub(super) fn watch(&self, own: &mut OwnAlarm, id: &str, alarm: Alarm) {
        own.watch(&self.alarms, id, alarm);
    }

    /// Forgets the alarm of a lease: the claim is released or detached.
    pub(super) fn unwatch_own(&self, own: &mut OwnAlarm, id: &str) {
        own.unwatch(&self.alarms, id);
    }

    /// Forgets the alarm of a claim that is withdrawn.
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

    /// Whether any holder here is to be told of a loss.
    pub(super) fn has_alarms(&self) -> bool {
        !self.alarms.is_empty()
    }
}

/// Wakes the driver: from this process, and from others once it has a socket.
///
/// A thread can wait at a condition variable or at a socket, not at both. So the driver waits at
/// the socket once there is one, and callers in this process send it a message too. A wake-up that
/// comes while the driver is awake is remembered, and its next wait returns at once.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    state: Mutex<State>,
    condition: Condvar,
    /// Whether the driver sleeps for long, or is about to, and so must be woken for small things.
    /// Not under the mutex, because it is read for every lock that is taken.
    pub(super) fast_asleep: AtomicBool,
    /// How often a message ended the wait.
    #[cfg(test)]
    pub(super) messages: std::sync::atomic::AtomicU64,
}

/// What a caller must know to wake the driver where it sleeps.
#[derive(Debug, Default)]
struct State {
    /// The driver was woken since it last slept. Many wake-ups are one.
    requested: bool,
    /// The driver waits at the socket, where the condition variable does not reach it.
    at_socket: bool,
    socket: Option<Arc<Socket>>,
}

impl Wakeup {
    /// Wakes the driver, or keeps it from falling asleep. Cheap if it was woken already: no message
    /// is sent until it has slept again.
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

    /// Sleeps until woken, or for at most `limit`; whether this process woke it. A message of
    /// another process ends the sleep too, and is not counted as being woken: it is no sign that
    /// callers here are busy.
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
                // From now on the driver waits at the condition variable, and polls for other
                // processes.
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

    /// The socket to wait at, if there is one and no reason to stay awake. `at_socket` is set under
    /// the same lock under which `requested` was found unset: a wake-up that comes later sends a
    /// message, which the socket keeps until the driver reads it.
    fn start_waiting(&self) -> Option<Arc<Socket>> {
        let mut state = lock(&self.state);
        let socket = state.socket.clone().filter(|_| !state.requested);
        state.at_socket = socket.is_some();
        socket
    }

    /// Sleeps at the condition variable, where only this process can wake the driver. Returns at
    /// once if it was woken before.
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

    /// Where other processes wake this one. Called by the driver while it is awake, so nobody waits
    /// at the socket that is replaced.
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
