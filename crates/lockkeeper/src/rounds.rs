//! The keeper's rounds: a task that visits every hold when something is due there.
//!
//! A task per hold would do as well, but starting and waking it is most of the cost of a lock
//! that is held for a moment. Here a hold is an entry in an ordered map, and the task is woken
//! only when an entry is earlier than what it sleeps for.
//!
//! The task runs in the keeper's [`Background`](crate::background::Background): no runtime of a
//! caller that ends or stands still leaves a hold unattended.

use crate::clock::Moment;
use crate::core::Core;
use crate::hold::Hold;
use std::collections::BTreeMap;
use std::pin::pin;
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
    /// Whether anything was entered since the task last looked.
    in_use: bool,
    /// Whether the task was started.
    is_walked: bool,
}

impl Rounds {
    /// Enters `hold` for a visit at `due` instead of at `previous`.
    pub(crate) fn put(&self, hold: &Arc<Hold>, previous: Option<Moment>, due: Moment) {
        let wake = {
            let mut book = self.book();
            if let Some(previous) = previous {
                book.due.remove(&(previous, address(hold)));
            }
            book.due.insert((due, address(hold)), hold.clone());
            book.in_use = true;
            book.asleep_until.is_none_or(|until| due < until)
        };
        if wake {
            self.earlier.notify_waiters();
        }
    }

    /// Strikes the visit of `hold` at `due`.
    pub(crate) fn strike(&self, hold: &Arc<Hold>, due: Moment) {
        let struck = self.book().due.remove(&(due, address(hold)));
        // Dropped here, outside the lock: a hold's end may reach back into the book.
        drop(struck);
    }

    /// Has the rounds walked, from the first call on.
    pub(crate) fn start(&self, core: &Arc<Core>) {
        if !std::mem::replace(&mut self.book().is_walked, true) {
            core.background.drive(walk(Arc::downgrade(core), self.earlier.clone()));
        }
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.book().due.is_empty()
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
        let soon = now + LONGEST_SLEEP;
        // A keeper whose locks come and go at once would find nobody planned to look, and wake the
        // task, with each of them: so the last one is waited for once more.
        let lately = std::mem::take(&mut book.in_use).then_some(soon);
        book.asleep_until = first.map(|first| first.min(soon)).or(lately);
        (due, book.asleep_until)
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        // So that the task sees that the keeper is gone.
        self.earlier.notify_waiters();
    }
}

fn address(hold: &Arc<Hold>) -> usize {
    Arc::as_ptr(hold) as usize
}

/// Ends when the keeper is gone; holds it only while visiting.
async fn walk(core: Weak<Core>, earlier: Arc<Notify>) {
    loop {
        let mut woken = pin!(earlier.notified());
        // From here on no notice is missed, also those given while we visit.
        woken.as_mut().enable();
        let asleep_until = {
            let Some(core) = core.upgrade() else { return };
            let (due, asleep_until) = core.rounds.next();
            for hold in &due {
                hold.visit();
            }
            asleep_until
        };
        match asleep_until {
            None => woken.await,
            Some(until) => tokio::select! {
                () = until.reached() => {}
                () = woken => {}
            },
        }
    }
}
