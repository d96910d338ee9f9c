//! The claims of this keeper that wait or are held, and who is told what.
//!
//! A waiter is entered here before its row is in the store, and taken out when its wait ends. So a
//! row of this keeper that has no waiter here was left behind and may be removed.
//!
//! Nothing here does I/O.

use super::record::Granted;
use crate::backend::support::alarms::{Alarms, OwnAlarm};
use crate::backend::support::sync::lock;
use crate::backend::{Alarm, LossReason, Moment};
use crate::error::Error;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, oneshot, watch};

/// What a waiter is told, exactly once.
#[derive(Debug)]
pub(super) enum WaitEnd {
    /// Its claim holds, and the commit that made it so is done.
    Granted(Granted),
    /// Its claim was handed over by another keeper, and is to be confirmed.
    Handed,
    /// Its row is gone, because this keeper sent no heartbeat for too long. The waiter may queue
    /// again, at the end.
    Dropped,
    /// The store has been out of reach for longer than a row lasts.
    Failed(Error),
}

#[derive(Debug)]
struct Waiter {
    name: String,
    /// Whether its row is known to be in the store: before that, a late heartbeat has not harmed
    /// it.
    queued: bool,
    /// Used once. The waiter stays entered after that until its wait is over, because what it was
    /// told may have to be confirmed first.
    end: Option<oneshot::Sender<WaitEnd>>,
}

/// The claims of this keeper, by their ids.
#[derive(Debug)]
pub(super) struct Waiters {
    waiters: Mutex<HashMap<String, Waiter>>,
    /// When to look at a name for which somebody waits; `None` while that is being done.
    looks: Mutex<HashMap<String, Option<Moment>>>,
    /// When the last waiter came.
    newest: Mutex<Moment>,
    alarms: Alarms,
    /// Counts answered heartbeats.
    beats: watch::Sender<u64>,
    /// Wakes the driver.
    pub(super) wake: Arc<Notify>,
    closing: AtomicBool,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            waiters: Mutex::default(),
            looks: Mutex::default(),
            newest: Mutex::new(Moment::now()),
            alarms: Alarms::default(),
            beats: watch::Sender::new(0),
            wake: Arc::default(),
            closing: AtomicBool::new(false),
        }
    }
}

impl Waiters {
    /// Enters a waiter; what it is told arrives at the receiver.
    pub(super) fn expect(&self, id: &str, name: &str) -> oneshot::Receiver<WaitEnd> {
        let (end, ended) = oneshot::channel();
        let waiter = Waiter { name: name.to_owned(), queued: false, end: Some(end) };
        lock(&self.waiters).insert(id.to_owned(), waiter);
        ended
    }

    /// Says that the waiter's row is in the store, and when its name is to be looked at.
    pub(super) fn queued(&self, id: &str, name: &str, look: Moment) {
        if let Some(waiter) = lock(&self.waiters).get_mut(id) {
            waiter.queued = true;
        }
        *lock(&self.newest) = Moment::now();
        // Behind others of this keeper the driver knows all there is to know: to wake it with every
        // turn would be one more thread to run between a release and the next holder.
        if self.look_at(name, look) {
            self.wake.notify_one();
        }
    }

    /// Takes a waiter out, however its wait ended; it may be gone already.
    pub(super) fn forget(&self, id: &str) {
        let mut waiters = lock(&self.waiters);
        let Some(gone) = waiters.remove(id) else { return };
        if !waiters.values().any(|waiter| waiter.name == gone.name) {
            lock(&self.looks).remove(&gone.name);
        }
    }

    /// Tells the waiter of that id how its wait ended; whether there was one. If not, nobody would
    /// give back a grant, and the caller has to.
    pub(super) fn tell(&self, id: &str, end: WaitEnd) -> bool {
        let mut waiters = lock(&self.waiters);
        let Some(waiter) = waiters.get_mut(id) else { return false };
        // A waiter that is leaving at this moment, or was told something else before, does not read
        // this. What it does next finds the claim granted, and it takes the grant from there.
        if let Some(told) = waiter.end.take() {
            let _ = told.send(end);
        }
        true
    }

    /// Ends every wait whose row is in the store.
    pub(super) fn tell_all(&self, end: impl Fn() -> WaitEnd) {
        let ids: Vec<String> = {
            let waiters = lock(&self.waiters);
            waiters.iter().filter(|(_, it)| it.queued).map(|(id, _)| id.clone()).collect()
        };
        for id in ids {
            self.tell(&id, end());
        }
    }

    /// Whether there is a waiter with this id, queued or about to be.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        lock(&self.waiters).contains_key(id)
    }

    /// When the last waiter came.
    pub(super) fn newest(&self) -> Moment {
        *lock(&self.newest)
    }

    /// Whether there is a waiter with this id that was told nothing yet.
    pub(super) fn is_untold(&self, id: &str) -> bool {
        lock(&self.waiters).get(id).is_some_and(|waiter| waiter.end.is_some())
    }

    /// Those who wait for the name, have a row in the store, and were told nothing yet.
    pub(super) fn queued_for(&self, name: &str) -> Vec<String> {
        let waiters = lock(&self.waiters);
        let queued = waiters.iter().filter(|(_, it)| it.queued && it.end.is_some());
        queued.filter(|(_, it)| it.name == name).map(|(id, _)| id.clone()).collect()
    }

    /// Has the driver end as soon as it has nothing to do.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Has it linger again: the keeper is in use.
    pub(super) fn reopen(&self) {
        self.closing.store(false, Ordering::Relaxed);
    }

    /// Whether the driver is to end as soon as it has nothing to do.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Whether heartbeats are needed.
    pub(super) fn has_waiters(&self) -> bool {
        !lock(&self.waiters).is_empty()
    }

    /// Whether a claim of this keeper waits for the name, or is about to.
    pub(super) fn expects(&self, name: &str) -> bool {
        lock(&self.waiters).values().any(|waiter| waiter.name == name)
    }

    /// Whether a claim of this keeper is in the queue of the name.
    pub(super) fn waits_for(&self, name: &str) -> bool {
        lock(&self.looks).contains_key(name)
    }

    /// The names that are waited for.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            lock(&self.waiters).values().map(|it| it.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Has the name looked at no later than at this moment; whether that is earlier than planned.
    pub(super) fn look_at(&self, name: &str, moment: Moment) -> bool {
        let mut looks = lock(&self.looks);
        let planned = looks.get(name).copied().flatten();
        if planned.is_some_and(|planned| planned <= moment) {
            return false;
        }
        looks.insert(name.to_owned(), Some(moment));
        true
    }

    /// As [`look_at`](Self::look_at), unless nobody waits for the name any more.
    pub(super) fn look_again(&self, name: &str, moment: Moment) {
        if lock(&self.looks).contains_key(name) {
            self.look_at(name, moment);
        }
    }

    /// The names to be looked at now, which are being looked at from here on; and when the next
    /// are.
    pub(super) fn due(&self) -> (Vec<String>, Option<Moment>) {
        let now = Moment::now();
        let mut looks = lock(&self.looks);
        let mut due = Vec::new();
        for (name, next) in looks.iter_mut() {
            if next.take_if(|next| *next <= now).is_some() {
                due.push(name.clone());
            }
        }
        (due, looks.values().flatten().min().copied())
    }

    /// Has every name looked at now, as when messages may have been missed.
    pub(super) fn look_at_all(&self) {
        for name in self.names() {
            self.look_at(&name, Moment::now());
        }
    }

    /// Says that a heartbeat was answered.
    pub(super) fn beaten(&self) {
        self.beats.send_modify(|count| *count += 1);
    }

    /// Changes with every heartbeat that is answered.
    pub(super) fn beats(&self) -> watch::Receiver<u64> {
        self.beats.subscribe()
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

    /// Whether any holder here is to be told of a loss.
    pub(super) fn has_alarms(&self) -> bool {
        !self.alarms.is_empty()
    }
}
