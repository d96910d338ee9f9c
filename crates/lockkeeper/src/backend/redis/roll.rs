//! Which claims of this keeper wait, and which are held.

use super::tenure::{Bid, Candidate, Inheritance};
use super::vigil::Vigil;
use crate::backend::{Alarm, LossReason, Moment};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The claims of one keeper, by their ids.
#[derive(Debug, Default)]
pub(super) struct Roll {
    waiters: Mutex<HashMap<String, Waiter>>,
    alarms: Mutex<HashMap<String, Alarm>>,
}

#[derive(Debug)]
struct Waiter {
    vigil: Arc<Vigil>,
    bid: Arc<Bid>,
    seen: Option<Seen>,
    call: oneshot::Sender<Called>,
}

/// A request that found the claim waiting: what is granted to it was granted after that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// When the request left.
    pub(super) sent: Moment,
    /// A number below every token granted later. A message with a smaller one was under way for
    /// so long that what it tells of is over.
    pub(super) stamp: u64,
}

/// What a waiter is told.
#[derive(Debug)]
pub(super) enum Called {
    /// Granted, at some time after `seen`; and who of this keeper stands behind it in line.
    Granted { token: u64, seen: Moment, heirs: Vec<String> },
    /// Passed on by the one before, of this keeper too.
    Inherited(Inheritance),
    /// Found granted by a request sent then, with so much time left.
    Found { token: u64, sent: Moment, left: Duration },
    /// Our place may be lost, or the name free: ask again.
    AskAgain,
}

impl Roll {
    /// Enters a claim that is about to be asked for. `seen` is `None` when it was asked for
    /// before: then messages of the past may still be on their way.
    pub(super) fn expect(
        &self,
        id: &str,
        vigil: &Arc<Vigil>,
        bid: &Arc<Bid>,
        seen: Option<Seen>,
    ) -> oneshot::Receiver<Called> {
        let (call, called) = oneshot::channel();
        vigil.join(id);
        let waiter = Waiter { vigil: vigil.clone(), bid: bid.clone(), seen, call };
        lock(&self.waiters).insert(id.to_owned(), waiter);
        called
    }

    /// Notes that a request found the claim waiting.
    pub(super) fn seen_waiting(&self, id: &str, seen: Seen) {
        if let Some(waiter) = lock(&self.waiters).get_mut(id)
            && waiter.seen.is_none_or(|before| before.sent < seen.sent)
        {
            waiter.seen = Some(seen);
        }
    }

    /// As [`seen_waiting`](Self::seen_waiting), by a request that was not for this claim alone
    /// and says nothing of one whose own answer is still out.
    pub(super) fn still_waiting(&self, id: &str, seen: Seen) {
        if let Some(waiter) = lock(&self.waiters).get_mut(id)
            && waiter.seen.is_some_and(|before| before.sent < seen.sent)
        {
            waiter.seen = Some(seen);
        }
    }

    /// Passes on the message that a claim was granted.
    pub(super) fn granted(&self, id: &str, token: u64) {
        self.granted_since(id, token, None, Vec::new());
    }

    /// As [`granted`](Self::granted), after `since` if that is known, and who of this keeper is
    /// behind it.
    pub(super) fn granted_since(
        &self,
        id: &str,
        token: u64,
        since: Option<Moment>,
        heirs: Vec<String>,
    ) {
        let mut waiters = lock(&self.waiters);
        let Some(waiter) = waiters.get(id) else { return };
        let called = match waiter.seen {
            None => Called::AskAgain,
            Some(seen) if token <= seen.stamp => return,
            Some(seen) => {
                let seen = since.map_or(seen.sent, |since| since.max(seen.sent));
                Called::Granted { token, seen, heirs }
            }
        };
        if let Some(waiter) = waiters.remove(id) {
            waiter.end(id, Some(called));
        }
    }

    pub(super) fn tell(&self, id: &str, called: Called) {
        let mut waiters = lock(&self.waiters);
        if let Some(waiter) = waiters.remove(id) {
            waiter.end(id, Some(called));
        }
    }

    /// Takes one who waits off the roll, to be passed the name by the caller in this very moment:
    /// nobody else will tell it anything.
    pub(super) fn call_up(&self, id: &str, fits: impl Fn(&Bid) -> bool) -> Candidate<CalledUp> {
        let mut waiters = lock(&self.waiters);
        match waiters.get(id) {
            None => return Candidate::Left,
            Some(waiter) if !fits(&waiter.bid) => return Candidate::Unfit,
            Some(_) => {}
        }
        let Some(Waiter { vigil, bid, call, .. }) = waiters.remove(id) else {
            return Candidate::Left;
        };
        vigil.leave(id);
        Candidate::Ready(CalledUp { bid, call })
    }

    /// Whether it was there: if not, it was told something, or is being told.
    pub(super) fn forget(&self, id: &str) -> bool {
        let waiter = lock(&self.waiters).remove(id);
        let was_there = waiter.is_some();
        if let Some(waiter) = waiter {
            waiter.end(id, None);
        }
        was_there
    }

    /// Messages may have been missed: all who wait look again.
    pub(super) fn hurry(&self) {
        lock(&self.waiters).values().for_each(|waiter| waiter.vigil.hurry());
    }

    pub(super) fn watch(&self, id: &str, alarm: Alarm) {
        lock(&self.alarms).insert(id.to_owned(), alarm);
    }

    /// Whether it was watched until now, and not found lost.
    pub(super) fn unwatch(&self, id: &str) -> bool {
        lock(&self.alarms).remove(id).is_some()
    }

    pub(super) fn ring(&self, id: &str, reason: LossReason) {
        // Out of the map first: a lost hold may release, which comes back here.
        let alarm = lock(&self.alarms).remove(id);
        if let Some(alarm) = alarm {
            alarm.ring(reason);
        }
    }
}

/// One who waits, about to be told.
#[derive(Debug)]
pub(super) struct CalledUp {
    pub(super) bid: Arc<Bid>,
    pub(super) call: oneshot::Sender<Called>,
}

impl Waiter {
    fn end(self, id: &str, called: Option<Called>) {
        self.vigil.leave(id);
        if let Some(Called::Granted { token, .. } | Called::Found { token, .. }) = &called {
            self.vigil.granted(*token);
        }
        if let Some(called) = called {
            // One who is leaving in this moment finds out from the store.
            let _ = self.call.send(called);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks; were one poisoned, its content is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
