//! This keeper's claims that wait, and the alarms of those that are held.
//!
//! A waiting claim is told once, by a [`Wakeup`], and is off the list with that. Three ways lead
//! there: a message (a [`Notice`] of the subscriber), an answer to a request of this keeper, or the
//! next look of the [`Heartbeat`]. Messages can be late, lost or forged, so what a message says counts
//! only where the claim's [`LastSeen`] shows that it can be true; else it is a reason to ask Redis.
//!
//! What a message "granted" is checked for, and why:
//!
//! | check | otherwise |
//! |---|---|
//! | the claim waits | the grant is of a stray: it is removed |
//! | its token is above the stamp of the last request that found it waiting | the message is older than that request, and what it tells of is over |
//! | its token is not ahead of the server's clock, as far as that is known | nobody can have given it: ask |
//! | no grant of this claim can have been published before | others may know the id: ask |
//!
//! The validity of such a grant counts from the last request that found the claim waiting, since Redis
//! granted it after that. It is shorter than the truth and never longer.

use super::heartbeat::Heartbeat;
use super::local_handover::{Contact, Handover, Next};
use super::own_claims::OwnClaims;
use super::requests::Request;
use crate::backend::redis::client::Notice;
use crate::backend::support::alarms::Alarms;
use crate::backend::support::sync::lock;
use crate::backend::{LossReason, Moment};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// A heartbeat is sent this often: three fit into the time for which a keeper counts as alive.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(600);

/// A token further ahead of the server's clock than that is not believed when a message tells of it.
/// Not zero: clocks are set, and tokens may be ahead of them.
const AHEAD: Duration = Duration::from_secs(10);

/// The claims of one keeper, by their ids.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) claims: Arc<OwnClaims>,
    /// Of the claims that are held.
    pub(super) alarms: Alarms,
    waiting: Mutex<HashMap<String, Waiter>>,
    /// For every name that is waited for, by its key.
    heartbeats: Mutex<HashMap<String, Weak<Heartbeat>>>,
    /// The latest that is known of the server's clock.
    clock: Mutex<Option<LastSeen>>,
    /// How often messages or answers may have been missed. Local hand-over compares it before and
    /// after: see [`Waiters::is_unbroken_since`].
    breaks: AtomicU64,
    remove: OnceLock<Remove>,
}

/// Removes a stray claim from Redis, given the key of its name and its id. Set once, after the queue is
/// made, since it needs the queue's requests.
pub(super) struct Remove(pub(super) Box<RemoveClaim>);

/// Called with the key of a name and the id of a claim.
type RemoveClaim = dyn Fn(&str, &str) + Send + Sync;

/// A claim on the list.
#[derive(Debug)]
struct Waiter {
    heartbeat: Arc<Heartbeat>,
    request: Arc<Request>,
    seen: Option<LastSeen>,
    /// A grant of this claim may have been published before: then its id is known to others, who
    /// could forge another.
    exposed: bool,
    wake: oneshot::Sender<Wakeup>,
}

/// The latest request that found a claim waiting: what is granted to it was granted after that.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastSeen {
    /// When the request left.
    pub(super) sent: Moment,
    /// A number below every token granted later. A message with a smaller one was under way for
    /// so long that what it tells of is over.
    pub(super) stamp: u64,
}

impl LastSeen {
    /// Of a claim that is about to be asked for at `sent` for the first time: any grant is later.
    pub(super) fn unseen(sent: Moment) -> Self {
        Self { sent, stamp: 0 }
    }
}

/// What a waiter is told.
///
/// ```text
///   Granted     a message, or an answer to another claim of this keeper, says so;
///               valid from the waiter's last heartbeat on, so perhaps to be confirmed
///   HandedOver  a claim of this keeper gave the name to this one; Redis hears of it meanwhile
///   Found       a look at the name found the claim among the holders
///   AskAgain    anything else that needs an answer from Redis itself
/// ```
#[derive(Debug)]
pub(super) enum Wakeup {
    /// Granted, at some time after `seen`; and this keeper's claims that are behind it in the queue.
    Granted { token: u64, seen: Moment, successors: Vec<String> },
    /// Handed over by the claim before it, of this keeper too.
    HandedOver(Handover),
    /// Found granted by a request sent at `sent`, with `left` to go.
    Found { token: u64, sent: Moment, left: Duration },
    /// The place in the queue may be lost, or the name free.
    AskAgain,
}

impl Waiters {
    /// Says how to remove strays.
    pub(super) fn remove_by(&self, remove: Remove) {
        // Once, by the queue that made this.
        let _ = self.remove.set(remove);
    }

    /// Begins to wait for the name with this key. Nothing is expected until [`Waiting::expect`].
    pub(super) fn wait_for(&self, key: &str, id: &str, request: &Arc<Request>) -> Waiting<'_> {
        let heartbeat = self.heartbeat_of(key);
        let (id, request) = (id.to_owned(), request.clone());
        Waiting { waiters: self, heartbeat, id, request, has_ended: false }
    }

    /// The heartbeat of the name with this key, shared by this keeper's claims that wait for it.
    fn heartbeat_of(&self, key: &str) -> Arc<Heartbeat> {
        let mut heartbeats = lock(&self.heartbeats);
        if let Some(heartbeat) = heartbeats.get(key).and_then(Weak::upgrade) {
            return heartbeat;
        }
        if heartbeats.len() == heartbeats.capacity() {
            heartbeats.retain(|_, heartbeat| heartbeat.strong_count() > 0);
        }
        let heartbeat = Arc::new(Heartbeat::new(HEARTBEAT));
        heartbeats.insert(key.to_owned(), Arc::downgrade(&heartbeat));
        heartbeat
    }

    /// How things are, as of a request that is about to be sent: what its answer tells was so then.
    pub(super) fn contact(&self) -> Contact {
        Contact { sent: Moment::now(), breaks: self.breaks.load(Ordering::Acquire) }
    }

    /// Whether no message or answer may have been missed since.
    pub(super) fn is_unbroken_since(&self, contact: Contact) -> bool {
        self.breaks.load(Ordering::Acquire) == contact.breaks
    }

    /// Notes that a request found the claim waiting.
    pub(super) fn seen_waiting(&self, id: &str, seen: LastSeen) {
        self.note_clock(seen);
        if let Some(waiter) = lock(&self.waiting).get_mut(id)
            && waiter.seen.is_none_or(|before| before.sent < seen.sent)
        {
            waiter.seen = Some(seen);
        }
    }

    /// As [`seen_waiting`](Self::seen_waiting), by a request that was not for this claim alone
    /// and says nothing of one whose own answer is still out.
    pub(super) fn still_waiting(&self, id: &str, seen: LastSeen) {
        self.note_clock(seen);
        if let Some(waiter) = lock(&self.waiting).get_mut(id)
            && waiter.seen.is_some_and(|before| before.sent < seen.sent)
        {
            waiter.seen = Some(seen);
        }
    }

    /// Keeps the latest sight of the server's clock.
    fn note_clock(&self, seen: LastSeen) {
        let mut clock = lock(&self.clock);
        if clock.is_none_or(|before| before.sent < seen.sent) {
            *clock = Some(seen);
        }
    }

    /// Whether Redis may have given such a token by now.
    fn is_plausible(&self, token: u64) -> bool {
        let clock = *lock(&self.clock);
        clock.is_some_and(|LastSeen { sent, stamp }| {
            let passed = (Moment::now().since(sent) + AHEAD).as_micros();
            token < 1 << 53 && u128::from(token) <= u128::from(stamp) + passed
        })
    }

    /// Wakes a claim that was granted, by an answer of Redis to a request sent at `since`; or, if
    /// that is `None`, by a message. Anyone may send one, but nobody else knows the id of a claim
    /// before its grant is published. Where that may have been before, or the token is none that
    /// Redis can have given, the claim has to ask.
    pub(super) fn granted(
        &self,
        key: &str,
        id: &str,
        token: u64,
        since: Option<Moment>,
        successors: Vec<String>,
    ) {
        let mut waiting = lock(&self.waiting);
        let Some(waiter) = waiting.get(id) else {
            drop(waiting);
            return self.named(key, id);
        };
        let is_message = since.is_none();
        // Not seen waiting by any request yet: the grant is older than what is known, or the answer to
        // the first request is still out.
        let wakeup = match waiter.seen {
            None => Wakeup::AskAgain,
            Some(seen) if token <= seen.stamp => return,
            _ if is_message && (waiter.exposed || !self.is_plausible(token)) => Wakeup::AskAgain,
            Some(seen) => {
                let seen = since.map_or(seen.sent, |since| since.max(seen.sent));
                Wakeup::Granted { token, seen, successors }
            }
        };
        if let Some(waiter) = waiting.remove(id) {
            waiter.end(id, Some(wakeup));
        }
    }

    /// Wakes a claim, if it still waits.
    pub(super) fn wake(&self, id: &str, wakeup: Wakeup) {
        if let Some(waiter) = lock(&self.waiting).remove(id) {
            waiter.end(id, Some(wakeup));
        }
    }

    /// Takes a claim that `fits` off the list, to be handed the name by the caller at once: nobody
    /// else will wake it.
    pub(super) fn take(&self, id: &str, fits: impl Fn(&Request) -> bool) -> Next<Taken> {
        let mut waiting = lock(&self.waiting);
        match waiting.get(id) {
            None => return Next::Left,
            Some(waiter) if !fits(&waiter.request) => return Next::Unfit,
            Some(_) => {}
        }
        let Some(Waiter { heartbeat, request, wake, .. }) = waiting.remove(id) else {
            return Next::Left;
        };
        heartbeat.leave(id);
        Next::Ready(Taken { request, wake })
    }

    /// Takes a claim off the list. Whether it was there: if not, it was woken, or is being woken.
    fn forget(&self, id: &str) -> bool {
        let waiter = lock(&self.waiting).remove(id);
        let was_there = waiter.is_some();
        if let Some(waiter) = waiter {
            waiter.end(id, None);
        }
        was_there
    }

    /// Redis has a claim with this key and id as this keeper's. A stray is removed: by the next look
    /// where claims of this keeper wait for the name, which finds others like it; else directly.
    fn named(&self, key: &str, id: &str) {
        if self.claims.has(id) {
            return;
        }
        let heartbeat = lock(&self.heartbeats).get(key).and_then(Weak::upgrade);
        match (heartbeat, self.remove.get()) {
            (Some(heartbeat), _) if !heartbeat.members().is_empty() => heartbeat.look_now(),
            (_, Some(Remove(remove))) => remove(key, id),
            _ => {}
        }
    }

    /// What the subscriber has to say.
    pub(super) fn on_notice(&self, notice: Notice<'_>) {
        match notice {
            Notice::Message(text) => self.on_message(text),
            Notice::Disconnected => self.disconnected(),
            Notice::Subscribed => self.look_again(),
        }
    }

    /// A connection broke: answers or messages may be lost, and Redis be away.
    pub(super) fn disconnected(&self) {
        self.look_again();
        self.alarms.endanger();
    }

    /// Messages or answers may have been missed: all that wait look for themselves.
    fn look_again(&self) {
        self.breaks.fetch_add(1, Ordering::AcqRel);
        for waiter in lock(&self.waiting).values_mut() {
            waiter.exposed = true;
            waiter.heartbeat.look_now();
        }
    }

    /// `granted ID TOKEN KEY`, `broken ID REASON`, `try ID`, `whose ID KEY`.
    fn on_message(&self, message: &str) {
        let mut words = message.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("granted"), Some(id), Some(rest)) => {
                let (token, key) = rest.split_once(' ').unwrap_or((rest, ""));
                if let Ok(token) = token.parse() {
                    self.granted(key, id, token, None, Vec::new());
                }
            }
            (Some("whose"), Some(id), Some(key)) => self.named(key, id),
            (Some("broken"), Some(id), reason) => {
                let reason = reason.unwrap_or_default().to_owned();
                self.alarms.ring(id, LossReason::Broken { reason });
            }
            (Some("try"), Some(id), _) => self.wake(id, Wakeup::AskAgain),
            _ => tracing::debug!(message, "a message that is none of ours"),
        }
    }
}

/// A claim while it asks and waits; off the list when dropped.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    waiters: &'a Waiters,
    pub(super) heartbeat: Arc<Heartbeat>,
    id: String,
    request: Arc<Request>,
    has_ended: bool,
}

impl Waiting<'_> {
    /// Puts the claim on the list, before Redis is asked: the wakeup may come before the answer.
    /// `seen` is `None` when it was asked for before: then messages of the past may still be on
    /// their way.
    pub(super) fn expect(&self, seen: Option<LastSeen>) -> oneshot::Receiver<Wakeup> {
        let (wake, woken) = oneshot::channel();
        self.heartbeat.join(&self.id);
        let (heartbeat, request) = (self.heartbeat.clone(), self.request.clone());
        let waiter = Waiter { heartbeat, request, seen, exposed: seen.is_none(), wake };
        lock(&self.waiters.waiting).insert(self.id.clone(), waiter);
        woken
    }

    /// Takes the claim off the list; whether it was still there.
    pub(super) fn forget(&self) -> bool {
        self.waiters.forget(&self.id)
    }

    /// Says that the claim is done by itself, however that ended. One that is dropped without (its
    /// task ended with its runtime) may have left something in Redis, which the waiters of the same
    /// name then look for.
    pub(super) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.forget();
        if !self.has_ended {
            self.heartbeat.look_now();
        }
    }
}

/// A waiter that is about to be handed the name.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) request: Arc<Request>,
    pub(super) wake: oneshot::Sender<Wakeup>,
}

impl Waiter {
    /// Takes it out of the heartbeat, and wakes it if there is something to tell.
    fn end(self, id: &str, wakeup: Option<Wakeup>) {
        self.heartbeat.leave(id);
        if let Some(Wakeup::Granted { token, .. } | Wakeup::Found { token, .. }) = &wakeup {
            self.heartbeat.granted(*token);
        }
        if let Some(wakeup) = wakeup {
            // A waiter that is leaving at this moment finds out from Redis.
            let _ = self.wake.send(wakeup);
        }
    }
}

impl fmt::Debug for Remove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remove")
    }
}
