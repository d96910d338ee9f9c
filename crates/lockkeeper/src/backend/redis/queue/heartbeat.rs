//! One name that claims of this keeper wait for.
//!
//! All of them live and die with the keeper, so one sign of life stands for all: whoever of them
//! has the watch gives it, and passes the watch on when it leaves.

use super::roll::lock;
use crate::backend::Moment;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex as Watch, Notify};

/// Where the waiters of one name take turns at the watch.
#[derive(Debug)]
pub(super) struct Vigil {
    /// Held by the one who has the watch.
    pub(super) watch: Watch<()>,
    members: Mutex<HashSet<String>>,
    due: Mutex<Due>,
    /// Since when no sign of life was answered.
    silent_since: Mutex<Option<Moment>>,
    hurry: Notify,
    roll_called: Mutex<Option<Moment>>,
    /// The largest token that any of them was given by the store.
    last_token: AtomicU64,
}

/// When something is to be done for those who wait.
#[derive(Debug, Clone, Copy)]
struct Due {
    /// The next sign of life.
    sign: Moment,
    /// A look at the name, where there is a reason for one.
    look: Option<Moment>,
    /// When the name was looked at last.
    looked: Moment,
}

impl Due {
    fn after_a_look(pause: Duration) -> Self {
        let looked = Moment::now();
        Self { sign: looked + pause, look: None, looked }
    }

    fn first(self) -> Moment {
        self.look.map_or(self.sign, |look| look.min(self.sign))
    }
}

impl Vigil {
    pub(super) fn new(first: Duration) -> Self {
        Self {
            watch: Watch::new(()),
            members: Mutex::default(),
            due: Mutex::new(Due::after_a_look(first)),
            silent_since: Mutex::default(),
            hurry: Notify::new(),
            roll_called: Mutex::default(),
            last_token: AtomicU64::new(0),
        }
    }

    /// One of those who wait is given the name.
    pub(super) fn granted(&self, token: u64) {
        self.last_token.fetch_max(token, Ordering::AcqRel);
    }

    pub(super) fn last_token(&self) -> u64 {
        self.last_token.load(Ordering::Acquire)
    }

    pub(super) fn join(&self, id: &str) {
        lock(&self.members).insert(id.to_owned());
    }

    pub(super) fn leave(&self, id: &str) {
        lock(&self.members).remove(id);
    }

    pub(super) fn members(&self) -> Vec<String> {
        lock(&self.members).iter().cloned().collect()
    }

    /// A sign of life was given: the next is due in `pause`, but not later than `longest` after
    /// the last look. Signs alone would not tell of a grant whose message was missed.
    pub(super) fn next_sign_in(&self, pause: Duration, longest: Duration) {
        let mut due = lock(&self.due);
        due.sign = (Moment::now() + pause).min(due.looked + longest);
    }

    /// Whoever has the watch looks at the name within `pause`.
    pub(super) fn look_within(&self, pause: Duration) {
        let look = Moment::now() + pause;
        let mut due = lock(&self.due);
        let sooner = look < due.first();
        if due.look.is_none_or(|before| look < before) {
            due.look = Some(look);
        }
        drop(due);
        if sooner {
            // Whoever has the watch is among those who wait now, or is about to.
            self.hurry.notify_waiters();
            self.hurry.notify_one();
        }
    }

    /// A look at the name is about to be taken, which is a sign of life too.
    pub(super) fn looking(&self, pause: Duration) {
        *lock(&self.due) = Due::after_a_look(pause);
    }

    /// Whoever has the watch looks now, and calls the roll.
    pub(super) fn hurry(&self) {
        *lock(&self.roll_called) = None;
        self.look_within(Duration::ZERO);
    }

    /// Resolves when the next sign of life is due.
    pub(super) async fn due(&self) {
        loop {
            let due = lock(&self.due).first();
            if due.remaining().is_zero() {
                return;
            }
            tokio::select! {
                () = due.reached() => {}
                () = self.hurry.notified() => {}
            }
        }
    }

    /// Resolves for one of those who wait for it when the sign of life is overdue by so much:
    /// whoever has the watch may be in a task that does something else.
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

    /// Whether it is time to call the roll again, by the one who asks.
    pub(super) fn calls_the_roll(&self, every: Duration) -> bool {
        let (now, mut last) = (Moment::now(), lock(&self.roll_called));
        let due = last.is_none_or(|last| now.since(last) >= every);
        if due {
            *last = Some(now);
        }
        due
    }

    pub(super) fn answered(&self) {
        *lock(&self.silent_since) = None;
    }

    /// For how long nothing was answered, counted from the first time this is called.
    pub(super) fn silent_for(&self) -> Duration {
        let now = Moment::now();
        now.since(*lock(&self.silent_since).get_or_insert(now))
    }
}
