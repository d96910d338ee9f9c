//! The keeper's rounds: one task that visits every hold when something is due there.
//!
//! A task per hold would do as well, but starting and waking it is most of the cost of a lock
//! that is held for a moment. Here a hold is an entry in an ordered map, and the task is woken
//! only when an entry is earlier than what it sleeps for.

use crate::clock::Moment;
use crate::core::Core;
use crate::hold::Hold;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The longest the task sleeps while anything is held, because timers stand still while the
/// machine sleeps and the clock of validity does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Rounds {
    book: Mutex<Book>,
    earlier: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Book {
    /// Keyed by when a visit is due, and by the hold's address to tell equals apart.
    due: BTreeMap<(Moment, usize), Arc<Hold>>,
    /// Until when the task sleeps; `None` when nothing at all is planned.
    asleep_until: Option<Moment>,
    walking: bool,
}

impl Rounds {
    /// Enters `hold` for a visit at `due` instead of at `previous`.
    pub(crate) fn put(&self, hold: &Arc<Hold>, previous: Option<Moment>, due: Moment) {
        let (start, wake) = {
            let mut book = self.book();
            if let Some(previous) = previous {
                book.due.remove(&(previous, address(hold)));
            }
            book.due.insert((due, address(hold)), hold.clone());
            let start = !std::mem::replace(&mut book.walking, true);
            (start, book.asleep_until.is_none_or(|until| due < until))
        };
        if start {
            let (core, earlier) = (Arc::downgrade(hold.core()), self.earlier.clone());
            hold.core().spawn_untracked(walk(core, earlier));
        } else if wake {
            self.earlier.notify_one();
        }
    }

    /// Strikes the visit of `hold` at `due`.
    pub(crate) fn strike(&self, hold: &Arc<Hold>, due: Moment) {
        let struck = self.book().due.remove(&(due, address(hold)));
        // Dropped here, outside the lock: a hold's end may reach back into the book.
        drop(struck);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what is due, and plans the sleep until the next.
    fn next(&self) -> (Vec<Arc<Hold>>, Option<Moment>) {
        let now = Moment::now();
        let mut book = self.book();
        let later = book.due.split_off(&(now, usize::MAX));
        let due = std::mem::replace(&mut book.due, later).into_values().collect();
        let first = book.due.first_key_value().map(|((due, _), _)| *due);
        book.asleep_until = first.map(|first| first.min(now + LONGEST_SLEEP));
        (due, book.asleep_until)
    }
}

fn address(hold: &Arc<Hold>) -> usize {
    Arc::as_ptr(hold) as usize
}

/// Ends when the keeper is gone; holds it only while visiting.
async fn walk(core: Weak<Core>, earlier: Arc<Notify>) {
    loop {
        let asleep_until = {
            let Some(core) = core.upgrade() else { return };
            let (due, asleep_until) = core.rounds.next();
            for hold in &due {
                hold.visit();
            }
            // Visits put their holds back, perhaps earlier than what was planned before them;
            // `put` has left a permit with `earlier` then.
            asleep_until
        };
        match asleep_until {
            None => earlier.notified().await,
            Some(until) => tokio::select! {
                () = until.reached() => {}
                () = earlier.notified() => {}
            },
        }
    }
}
