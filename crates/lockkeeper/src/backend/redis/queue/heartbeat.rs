//! The heartbeat of one name, shared by this keeper's waiters.
//!
//! Redis drops a waiter whose keeper has not been heard of for `LIFE`. All waiters of a keeper live
//! and die with it, so one heartbeat per name stands for all of them: one waiter sends it, and
//! another takes over when that one leaves. The answer to a heartbeat also tells what messages may
//! have missed (a *look* at the name), so that a lost message costs a heartbeat interval at most.
//!
//! Times, in ms: a heartbeat is due 600 after the last one, a keeper counts as alive for 2000, so
//! two can be lost. To ask for the name counts as a heartbeat, but tells nothing of other claims;
//! so a look is taken after 1000 at the latest. A look is taken sooner when a holder may expire,
//! and at once when messages may have been missed. After 600 without the heartbeat that was due,
//! another waiter sends it.
//!
//! ```text
//!   waiters of one name          Heartbeat                        Redis
//!   ───────────────────          ───────────────────              ─────
//!   A: holds `sender` ────────── due() ── heartbeat.lua ────────► "keeper lives"
//!   B: waits for `sender`                          ◄──────────── held, place, next expiry
//!   C: waits for `sender`        overdue_by(): B or C sends one when A's task is stuck
//! ```

use crate::backend::Moment;
use crate::backend::support::sync::lock;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, Notify};

/// When and by which waiter the heartbeat of one name is sent, and for which claims.
#[derive(Debug)]
pub(super) struct Heartbeat {
    /// Held by the waiter that sends the heartbeats.
    pub(super) sender: AsyncMutex<()>,
    /// The ids of the claims of this keeper that wait for the name.
    members: Mutex<HashSet<String>>,
    due: Mutex<Due>,
    /// Since when no heartbeat was answered.
    silent_since: Mutex<Option<Moment>>,
    /// Wakes the sender before the next heartbeat is due.
    sooner: Notify,
    /// When the members were last compared with the whole queue.
    audited: Mutex<Option<Moment>>,
    /// The largest token that Redis gave any of the members.
    last_token: AtomicU64,
}

/// When something is to be done for the members.
#[derive(Debug, Clone, Copy)]
struct Due {
    /// The next heartbeat.
    heartbeat: Moment,
    /// A look at the name, where there is a reason for one.
    look: Option<Moment>,
    /// When the name was looked at last.
    looked: Moment,
}

impl Due {
    /// After a look at the name just now.
    fn after_a_look(pause: Duration) -> Self {
        let looked = Moment::now();
        Self { heartbeat: looked + pause, look: None, looked }
    }

    /// Whichever comes first.
    fn first(self) -> Moment {
        self.look.map_or(self.heartbeat, |look| look.min(self.heartbeat))
    }
}

impl Heartbeat {
    /// The first heartbeat is due in `first`.
    pub(super) fn new(first: Duration) -> Self {
        Self {
            sender: AsyncMutex::new(()),
            members: Mutex::default(),
            due: Mutex::new(Due::after_a_look(first)),
            silent_since: Mutex::default(),
            sooner: Notify::new(),
            audited: Mutex::default(),
            last_token: AtomicU64::new(0),
        }
    }

    /// Notes that Redis granted the name to one of the members.
    pub(super) fn granted(&self, token: u64) {
        self.last_token.fetch_max(token, Ordering::AcqRel);
    }

    /// The largest token noted by [`granted`](Self::granted).
    pub(super) fn last_token(&self) -> u64 {
        self.last_token.load(Ordering::Acquire)
    }

    /// A claim begins to wait: it is kept alive, and woken by what a look finds.
    pub(super) fn join(&self, id: &str) {
        lock(&self.members).insert(id.to_owned());
    }

    /// A claim waits no more.
    pub(super) fn leave(&self, id: &str) {
        lock(&self.members).remove(id);
    }

    /// The claims that wait now.
    pub(super) fn members(&self) -> Vec<String> {
        lock(&self.members).iter().cloned().collect()
    }

    /// A request that counts as a heartbeat was sent: the next is due in `pause`, but not later than
    /// `longest` after the last look, since such requests do not tell of a grant whose message was
    /// missed.
    pub(super) fn sent(&self, pause: Duration, longest: Duration) {
        let mut due = lock(&self.due);
        due.heartbeat = (Moment::now() + pause).min(due.looked + longest);
    }

    /// Has the sender look at the name within `pause`.
    pub(super) fn look_within(&self, pause: Duration) {
        let look = Moment::now() + pause;
        let mut due = lock(&self.due);
        let sooner = look < due.first();
        if due.look.is_none_or(|before| look < before) {
            due.look = Some(look);
        }
        drop(due);
        if sooner {
            // Both: the sender waits for the notification now, or is about to.
            self.sooner.notify_waiters();
            self.sooner.notify_one();
        }
    }

    /// A look at the name is about to be taken, which is a heartbeat too.
    pub(super) fn looking(&self, pause: Duration) {
        *lock(&self.due) = Due::after_a_look(pause);
    }

    /// Has the sender look now, and compare the members with the whole queue.
    pub(super) fn look_now(&self) {
        *lock(&self.audited) = None;
        self.look_within(Duration::ZERO);
    }

    /// Resolves when the next heartbeat or look is due.
    pub(super) async fn due(&self) {
        loop {
            let due = lock(&self.due).first();
            if due.remaining().is_zero() {
                return;
            }
            tokio::select! {
                () = due.reached() => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Resolves, for one of the waiters that call it, when the heartbeat is overdue by `span`: the
    /// sender may be in a task that is busy with something else. The next is due in `next`.
    pub(super) async fn overdue_by(&self, span: Duration, next: Duration) {
        loop {
            let limit = lock(&self.due).first() + span;
            limit.reached().await;
            let mut due = lock(&self.due);
            if (due.first() + span).remaining().is_zero() {
                *due = Due::after_a_look(next);
                return;
            }
        }
    }

    /// Whether it is time for the caller to compare the members with the whole queue.
    pub(super) fn audit_due(&self, every: Duration) -> bool {
        let (now, mut last) = (Moment::now(), lock(&self.audited));
        let due = last.is_none_or(|last| now.since(last) >= every);
        if due {
            *last = Some(now);
        }
        due
    }

    /// A heartbeat was answered.
    pub(super) fn answered(&self) {
        *lock(&self.silent_since) = None;
    }

    /// For how long nothing was answered, counted from the first call after an answer.
    pub(super) fn silent_for(&self) -> Duration {
        let now = Moment::now();
        now.since(*lock(&self.silent_since).get_or_insert(now))
    }
}
