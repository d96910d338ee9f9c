//! Which claims of this process wait, and which are held.

use super::desk::{again, lock};
use super::tx::Turn;
use crate::backend::support::alarms::Alarms;
use crate::backend::{Alarm, LossReason, Moment};
use crate::error::Error;
use std::collections::HashMap;
use std::sync::Mutex;
use tokio::sync::oneshot;

/// The claims of this process, by their ids.
#[derive(Debug, Default)]
pub(super) struct Roll {
    waiters: Mutex<HashMap<String, Waiter>>,
    alarms: Alarms,
    /// When a line must be looked at for those who came since the last look.
    first_expiry: Mutex<Option<Moment>>,
}

/// A claim of this process that waits for its turn.
#[derive(Debug)]
struct Waiter {
    name: String,
    /// Whether its row is known to be in the file.
    queued: bool,
    turn: oneshot::Sender<Called>,
}

/// What a waiter is told.
#[derive(Debug)]
pub(super) enum Called {
    Granted(Turn),
    /// Its row was dropped, because this process gave no sign of life for too long.
    Dropped,
    /// The file is gone, or has been out of reach for longer than a row lasts.
    Failed(Error),
}

impl Roll {
    pub(super) fn expect_turn(&self, id: &str, name: &str) -> oneshot::Receiver<Called> {
        let (turn, called) = oneshot::channel();
        let waiter = Waiter { name: name.to_owned(), queued: false, turn };
        lock(&self.waiters).insert(id.to_owned(), waiter);
        called
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

    pub(super) fn forget_waiter(&self, id: &str) {
        lock(&self.waiters).remove(id);
    }

    /// Whether there was anyone of that id to tell.
    pub(super) fn tell(&self, id: &str, called: Called) -> bool {
        let Some(waiter) = lock(&self.waiters).remove(id) else { return false };
        // One who is leaving in this moment finds his row granted, and sees to it.
        let _ = waiter.turn.send(called);
        true
    }

    /// Ends every wait with `error`.
    pub(super) fn fail_waiters(&self, error: &Error) {
        for (_, waiter) in std::mem::take(&mut *lock(&self.waiters)) {
            let _ = waiter.turn.send(Called::Failed(again(error)));
        }
    }

    pub(super) fn is_waiting(&self, id: &str) -> bool {
        lock(&self.waiters).contains_key(id)
    }

    /// The ids and names of this process's waiters whose rows are in the file.
    pub(super) fn waiting(&self) -> Vec<(String, String)> {
        let waiters = lock(&self.waiters);
        let queued = waiters.iter().filter(|(_, waiter)| waiter.queued);
        queued.map(|(id, waiter)| (id.clone(), waiter.name.clone())).collect()
    }

    /// When the lines of those who queued since this was last asked must be looked at.
    pub(super) fn take_first_expiry(&self) -> Option<Moment> {
        lock(&self.first_expiry).take()
    }

    pub(super) fn has_waiters(&self) -> bool {
        !lock(&self.waiters).is_empty()
    }

    pub(super) fn watch(&self, id: &str, alarm: Alarm) {
        self.alarms.watch(id, alarm);
    }

    pub(super) fn unwatch(&self, id: &str) {
        self.alarms.unwatch(id);
    }

    pub(super) fn ring(&self, id: &str, reason: LossReason) {
        self.alarms.ring(id, reason);
    }

    pub(super) fn take_alarms(&self) -> Vec<Alarm> {
        self.alarms.take()
    }

    pub(super) fn has_alarms(&self) -> bool {
        !self.alarms.is_empty()
    }
}
