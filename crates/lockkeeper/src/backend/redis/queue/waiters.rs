//! Which claims of this keeper wait, and which are held.

use super::owned::Claims;
use super::tenure::{Bid, Candidate, Heard, Inheritance};
use super::vigil::Vigil;
use crate::backend::support::alarms::Alarms;
use crate::backend::{Alarm, LossReason, Moment};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// A grant that is told later than that after the server's clock would have it is not believed.
/// Clocks are set, and tokens may be ahead of them.
const AHEAD: Duration = Duration::from_secs(10);

/// The claims of one keeper, by their ids.
#[derive(Debug, Default)]
pub(super) struct Roll {
    pub(super) claims: Arc<Claims>,
    waiters: Mutex<HashMap<String, Waiter>>,
    alarms: Alarms,
    /// Where some wait, by the key of the name.
    vigils: Mutex<HashMap<String, Weak<Vigil>>>,
    /// The last that was heard of the server's clock.
    clock: Mutex<Option<Seen>>,
    /// How often messages or answers may have been missed.
    breaks: AtomicU64,
    remove: OnceLock<Remove>,
}

/// Removes a claim from the store that nobody has, given the key of its name and its id.
pub(super) struct Remove(pub(super) Box<RemoveClaim>);

type RemoveClaim = dyn Fn(&str, &str) + Send + Sync;

impl fmt::Debug for Remove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remove")
    }
}

#[derive(Debug)]
struct Waiter {
    vigil: Arc<Vigil>,
    bid: Arc<Bid>,
    seen: Option<Seen>,
    /// A grant of it may have been published before: then whoever heard that could forge another.
    exposed: bool,
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
        let exposed = seen.is_none();
        let waiter = Waiter { vigil: vigil.clone(), bid: bid.clone(), seen, exposed, call };
        lock(&self.waiters).insert(id.to_owned(), waiter);
        called
    }

    /// The vigil of the name with this key, shared by those of this keeper who wait for it.
    pub(super) fn vigil(&self, key: &str, new: impl FnOnce() -> Vigil) -> Arc<Vigil> {
        let mut vigils = lock(&self.vigils);
        if let Some(vigil) = vigils.get(key).and_then(Weak::upgrade) {
            return vigil;
        }
        if vigils.len() == vigils.capacity() {
            vigils.retain(|_, vigil| vigil.strong_count() > 0);
        }
        let vigil = Arc::new(new());
        vigils.insert(key.to_owned(), Arc::downgrade(&vigil));
        vigil
    }

    /// Says how to remove what nobody has.
    pub(super) fn remove_by(&self, remove: Remove) {
        // Once, by whoever made the roll.
        let _ = self.remove.set(remove);
    }

    /// The store has a claim with this key and id as this keeper's. If it is not, it is removed:
    /// where others wait for the name, with whatever else is like it.
    pub(super) fn named(&self, key: &str, id: &str) {
        if self.claims.has(id) {
            return;
        }
        let vigil = lock(&self.vigils).get(key).and_then(Weak::upgrade);
        match (vigil, self.remove.get()) {
            (Some(vigil), _) if !vigil.members().is_empty() => vigil.hurry(),
            (_, Some(Remove(remove))) => remove(key, id),
            _ => {}
        }
    }

    /// How things are, as of a request that is about to be sent: what its answer tells was so then.
    pub(super) fn hears(&self) -> Heard {
        Heard { sent: Moment::now(), breaks: self.breaks.load(Ordering::Acquire) }
    }

    /// Whether nothing may have been missed since.
    pub(super) fn is_unbroken_since(&self, heard: Heard) -> bool {
        self.breaks.load(Ordering::Acquire) == heard.breaks
    }

    fn tells_the_time(&self, seen: Seen) {
        let mut clock = lock(&self.clock);
        if clock.is_none_or(|before| before.sent < seen.sent) {
            *clock = Some(seen);
        }
    }

    /// Whether the server may have given such a token by now.
    fn is_plausible(&self, token: u64) -> bool {
        let clock = *lock(&self.clock);
        clock.is_some_and(|Seen { sent, stamp }| {
            let passed = (Moment::now().since(sent) + AHEAD).as_micros();
            token < 1 << 53 && u128::from(token) <= u128::from(stamp) + passed
        })
    }

    /// Notes that a request found the claim waiting.
    pub(super) fn seen_waiting(&self, id: &str, seen: Seen) {
        self.tells_the_time(seen);
        if let Some(waiter) = lock(&self.waiters).get_mut(id)
            && waiter.seen.is_none_or(|before| before.sent < seen.sent)
        {
            waiter.seen = Some(seen);
        }
    }

    /// As [`seen_waiting`](Self::seen_waiting), by a request that was not for this claim alone
    /// and says nothing of one whose own answer is still out.
    pub(super) fn still_waiting(&self, id: &str, seen: Seen) {
        self.tells_the_time(seen);
        if let Some(waiter) = lock(&self.waiters).get_mut(id)
            && waiter.seen.is_some_and(|before| before.sent < seen.sent)
        {
            waiter.seen = Some(seen);
        }
    }

    /// Passes on the message that a claim was granted. Anyone may send one; but nobody else knows
    /// the id of a claim before its grant is published. Where that may have been before, or the
    /// token is none that the server can have given, it is a reason to ask the server.
    pub(super) fn granted(&self, key: &str, id: &str, token: u64) {
        self.granted_since(key, id, token, None, Vec::new());
    }

    /// As [`granted`](Self::granted), by an answer of the server to a request sent at `since` if
    /// that is given, and who of this keeper is behind it.
    pub(super) fn granted_since(
        &self,
        key: &str,
        id: &str,
        token: u64,
        since: Option<Moment>,
        heirs: Vec<String>,
    ) {
        let mut waiters = lock(&self.waiters);
        let Some(waiter) = waiters.get(id) else {
            drop(waiters);
            return self.named(key, id);
        };
        let is_message = since.is_none();
        let called = match waiter.seen {
            None => Called::AskAgain,
            Some(seen) if token <= seen.stamp => return,
            _ if is_message && (waiter.exposed || !self.is_plausible(token)) => Called::AskAgain,
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
        self.breaks.fetch_add(1, Ordering::AcqRel);
        for waiter in lock(&self.waiters).values_mut() {
            waiter.exposed = true;
            waiter.vigil.hurry();
        }
    }

    pub(super) fn watch(&self, id: &str, alarm: Alarm) {
        self.alarms.watch(id, alarm);
    }

    /// Whether it was watched until now, and not found lost.
    pub(super) fn unwatch(&self, id: &str) -> bool {
        self.alarms.unwatch(id)
    }

    pub(super) fn ring(&self, id: &str, reason: LossReason) {
        self.alarms.ring(id, reason);
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
