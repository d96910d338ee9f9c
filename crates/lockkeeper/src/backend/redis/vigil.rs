//! One name that claims of this keeper wait for.
//!
//! All of them live and die with the keeper, so one sign of life stands for all: whoever of them
//! has the watch gives it, and passes the watch on when it leaves.

use super::roll::lock;
use crate::backend::Moment;
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::{Mutex as Watch, Notify};

/// Where the waiters of one name take turns at the watch.
#[derive(Debug)]
pub(super) struct Vigil {
    /// Held by the one who has the watch.
    pub(super) watch: Watch<()>,
    members: Mutex<HashSet<String>>,
    due: Mutex<Moment>,
    /// Since when no sign of life was answered.
    silent_since: Mutex<Option<Moment>>,
    hurry: Notify,
}

impl Vigil {
    pub(super) fn new(first: Duration) -> Self {
        Self {
            watch: Watch::new(()),
            members: Mutex::default(),
            due: Mutex::new(Moment::now() + first),
            silent_since: Mutex::default(),
            hurry: Notify::new(),
        }
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

    /// The next sign of life is due in `pause`, or sooner if it was to be sooner.
    pub(super) fn due_within(&self, pause: Duration) {
        let due = Moment::now() + pause;
        let mut next = lock(&self.due);
        if due < *next {
            *next = due;
            self.hurry.notify_one();
        }
    }

    pub(super) fn next_in(&self, pause: Duration) {
        *lock(&self.due) = Moment::now() + pause;
    }

    /// Whoever has the watch looks now.
    pub(super) fn hurry(&self) {
        self.due_within(Duration::ZERO);
    }

    /// Resolves when the next sign of life is due.
    pub(super) async fn due(&self) {
        loop {
            let due = *lock(&self.due);
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
            let limit = *lock(&self.due) + span;
            limit.reached().await;
            let mut due = lock(&self.due);
            if (*due + span).remaining().is_zero() {
                *due = Moment::now() + next;
                return;
            }
        }
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
