//! One task per keeper that attends to every hold when something is due there.
//!
//! A task per hold would do as well, but starting and waking it is most of the cost of a lock
//! that is held for a moment. Here a hold is an entry in an ordered map, and the task is woken
//! only when an entry is earlier than what it sleeps for.
//!
//! The task runs in the keeper's [`Background`](crate::background::Background): no runtime of a
//! caller that ends or stands still leaves a hold unattended.

use crate::backend::support::sync::lock;
use crate::clock::Moment;
use crate::engine::Engine;
use crate::hold::Hold;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The longest the task sleeps while anything is held, because timers stand still while the
/// machine sleeps and the clock of validity does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    schedule: Mutex<Schedule>,
    earlier: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Schedule {
    /// Keyed by when a visit is due, and by the hold's address to tell equals apart.
    due: BTreeMap<(Moment, usize), Arc<Hold>>,
    /// Until when the task sleeps; `None` when nothing at all is planned.
    asleep_until: Option<Moment>,
    /// Whether anything was entered since the task last looked.
    in_use: bool,
    /// Whether the task was started.
    is_started: bool,
}

impl Scheduler {
    /// Enters `hold` for a visit at `due` instead of at `previous`.
    pub(crate) fn put(&self, hold: &Arc<Hold>, previous: Option<Moment>, due: Moment) {
        let wake = {
            let mut schedule = self.schedule();
            if let Some(previous) = previous {
                schedule.due.remove(&(previous, address(hold)));
            }
            schedule.due.insert((due, address(hold)), hold.clone());
            schedule.in_use = true;
            schedule.asleep_until.is_none_or(|until| due < until)
        };
        if wake {
            self.earlier.notify_waiters();
        }
    }

    /// Strikes the visit of `hold` at `due`.
    pub(crate) fn strike(&self, hold: &Arc<Hold>, due: Moment) {
        let struck = self.schedule().due.remove(&(due, address(hold)));
        // Dropped here, outside the lock: a hold's end may reach back into the schedule.
        drop(struck);
    }

    /// Starts the task, with the first call.
    pub(crate) fn start(&self, engine: &Arc<Engine>) {
        if !std::mem::replace(&mut self.schedule().is_started, true) {
            engine.background.drive(run(Arc::downgrade(engine), self.earlier.clone()));
        }
    }

    /// Everything that is held.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.schedule().due.values().cloned().collect()
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.schedule().due.is_empty()
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }

    /// Takes out what is due, and plans the sleep until the next.
    fn next(&self) -> (Vec<Arc<Hold>>, Option<Moment>) {
        let now = Moment::now();
        let mut schedule = self.schedule();
        let later = schedule.due.split_off(&(now, usize::MAX));
        let due = std::mem::replace(&mut schedule.due, later).into_values().collect();
        let first = schedule.due.first_key_value().map(|((due, _), _)| *due);
        let soon = now + LONGEST_SLEEP;
        // A keeper whose locks come and go at once would find nobody planned to look, and wake the
        // task, with each of them: so the last one is waited for once more.
        let lately = std::mem::take(&mut schedule.in_use).then_some(soon);
        schedule.asleep_until = first.map(|first| first.min(soon)).or(lately);
        (due, schedule.asleep_until)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // So that the task sees that the keeper is gone.
        self.earlier.notify_waiters();
    }
}

fn address(hold: &Arc<Hold>) -> usize {
    Arc::as_ptr(hold) as usize
}

/// Ends when the keeper is gone; holds it only while visiting.
async fn run(engine: Weak<Engine>, earlier: Arc<Notify>) {
    loop {
        let mut woken = pin!(earlier.notified());
        // From here on no notice is missed, also those given while we visit.
        woken.as_mut().enable();
        let asleep_until = {
            let Some(engine) = engine.upgrade() else { return };
            let (due, asleep_until) = engine.scheduler.next();
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
