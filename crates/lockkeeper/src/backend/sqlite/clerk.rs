//! The thread that looks after what no caller can wait for: other processes' commits, signs of
//! life, checkpoints, cleaning.

use super::desk::Desk;
use super::roll::Called;
use super::sweep::{self, CLEANING};
use super::time::{millis, span};
use super::tx::{Queued, WAITER_LEASE};
use crate::backend::LossReason;
use crate::clock::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often waiters of this process show that they live.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// How often the clerk looks for another process's commits while someone here waits: at first,
/// and at the most. One look costs a few microseconds, whatever the number of waiters.
const FIRST_GLANCE: Duration = Duration::from_micros(500);
const LONGEST_GLANCE: Duration = Duration::from_millis(5);
/// The same while something is held, to learn that it was broken.
const HOLDER_GLANCE: Duration = Duration::from_millis(250);
const STAYS_AWAKE: Duration = Duration::from_secs(2);

/// Starts the clerk of `desk`, who ends when the desk is gone.
pub(super) fn start(desk: &Arc<Desk>) -> std::io::Result<()> {
    let weak = Arc::downgrade(desk);
    std::thread::Builder::new().name("lockkeeper-sqlite".into()).spawn(move || work(&weak))?;
    Ok(())
}

struct Clerk {
    version: Option<i64>,
    glance: Duration,
    next_beat: Moment,
    next_cleaning: Moment,
    /// Until here it does not fall fast asleep: locks that are held for a moment only would have
    /// to wake it each time.
    awake_until: Moment,
    /// The file was used since the last cleaning.
    used: bool,
    /// There were waiters at the last look.
    waited_for: bool,
    /// Since when no heartbeat has succeeded.
    failing_since: Option<Moment>,
}

fn work(desk: &Weak<Desk>) {
    let now = Moment::now();
    let mut clerk = Clerk {
        version: None,
        glance: FIRST_GLANCE,
        next_beat: now,
        awake_until: now,
        // At once: there may be many processes, none of which lives long.
        next_cleaning: now,
        used: true,
        waited_for: false,
        failing_since: None,
    };
    loop {
        let Some(desk) = desk.upgrade() else { return };
        clerk.look_after(&desk);
        let limit = clerk.sleep(&desk);
        // The desk's bell must outlive the desk while we sleep on it.
        let bell = desk.bell.clone();
        drop(desk);
        if bell.wait(limit) {
            clerk.awake_until = Moment::now() + STAYS_AWAKE;
        }
    }
}

impl Clerk {
    fn look_after(&mut self, desk: &Desk) {
        #[cfg(test)]
        desk.passes.fetch_add(1, Ordering::SeqCst);
        if desk.checkpoint_due() {
            desk.checkpoint();
        }
        desk.serve_patiently();
        let in_use = desk.roll.has_waiters() || desk.roll.has_alarms();
        if in_use && let Err(error) = desk.still_the_same_file() {
            // Whoever opens the file that is there now sees none of our claims, and lets in none
            // of our waiters.
            desk.roll.fail_waiters(&error);
            for alarm in desk.roll.take_alarms() {
                alarm.ring(LossReason::Gone);
            }
        }
        let (waiters, alarms) = (desk.roll.has_waiters(), desk.roll.has_alarms());
        if waiters && !std::mem::replace(&mut self.waited_for, waiters) {
            // Their rows last longer than that.
            self.next_beat = Moment::now() + HEARTBEAT;
            Self::listen(desk);
        }
        self.waited_for = waiters;
        if let Some(expiry) = desk.roll.take_first_expiry() {
            self.next_beat = self.next_beat.min(expiry);
        }
        self.used |= waiters || alarms;
        if waiters && self.next_beat.remaining().is_zero() {
            self.beat(desk);
        } else if waiters || alarms {
            self.look_for_mail(desk);
        }
        if self.used && self.next_cleaning.remaining().is_zero() {
            self.next_cleaning = Moment::now() + CLEANING;
            self.used = false;
            sweep::clean(desk);
        }
        // Whoever came while one of these had the connection went away unserved.
        desk.serve_patiently();
    }

    /// Sees to it that other processes can wake this one. Before the file is looked at: what was
    /// handed over until then is found by that.
    fn listen(desk: &Desk) {
        if desk.bell.socket().is_some_and(|socket| socket.is_there()) {
            return;
        }
        match desk.sockets.open(&desk.process) {
            Ok(socket) => desk.bell.listen_at(socket),
            Err(error) => tracing::debug!(%error, "other processes cannot wake this one"),
        }
    }

    /// How long to sleep; `None` when there is nothing to look after.
    fn sleep(&mut self, desk: &Desk) -> Option<Duration> {
        if desk.has_jobs() {
            return Some(Duration::ZERO);
        }
        // Before looking at the roll: who comes later sees it, and rings.
        desk.bell.fast_asleep.store(true, Ordering::SeqCst);
        let soon = if desk.roll.has_waiters() {
            let beat = self.next_beat.remaining();
            if desk.bell.socket().is_some() {
                // Woken when there is something to see. The heartbeat finds what was missed.
                Some(beat)
            } else {
                let glance = self.glance.min(beat);
                self.glance = (self.glance * 5 / 4).min(LONGEST_GLANCE);
                Some(glance)
            }
        } else {
            self.glance = FIRST_GLANCE;
            let awake = desk.roll.has_alarms() || !self.awake_until.remaining().is_zero();
            awake.then_some(HOLDER_GLANCE)
        };
        if soon.is_some() {
            desk.bell.fast_asleep.store(false, Ordering::SeqCst);
            return soon;
        }
        self.used.then(|| self.next_cleaning.remaining())
    }

    /// Takes what was handed to this process, and learns what was broken.
    fn look_for_mail(&mut self, desk: &Desk) {
        let version = desk.data_version();
        if !desk.told_to_look() && version.is_some() && version == self.version {
            return;
        }
        self.version = version;
        if !desk.has_mail() {
            return;
        }
        self.glance = FIRST_GLANCE;
        let mail = desk.call_blocking(|tx| {
            tx.confirm()?;
            tx.broken()
        });
        match mail {
            Ok(broken) => self.tell_broken(desk, broken),
            Err(_) => self.version = None,
        }
    }

    /// Tells the holders of broken claims, each of which is a name, an id and a reason.
    fn tell_broken(&mut self, desk: &Desk, broken: Vec<(String, String, String)>) {
        for (name, id, reason) in broken {
            // One that was granted just now has its holder on the roll in a moment, who is told then.
            desk.roll.ring(&id, LossReason::Broken { reason });
            let removed = desk.call_blocking(move |tx| tx.remove(&name, &id));
            if let Err(error) = removed {
                tracing::debug!(%error, "a broken claim stays until it expires");
            }
        }
    }

    /// Shows that the waiters here live, and moves their lines on should someone ahead have
    /// expired. Waiters whose rows are gone are told to queue anew; rows whose waiters are gone
    /// are removed.
    fn beat(&mut self, desk: &Desk) {
        #[cfg(test)]
        desk.beats.fetch_add(1, Ordering::SeqCst);
        Self::listen(desk);
        let waiting = desk.roll.waiting();
        let started = Moment::now();
        let outcome = desk.call_blocking(move |tx| {
            tx.confirm()?;
            let in_queue = tx.beat()?;
            let mut first: BTreeMap<&str, i64> = BTreeMap::new();
            for Queued { name, ticket, .. } in &in_queue {
                let first = first.entry(name).or_insert(*ticket);
                *first = (*first).min(*ticket);
            }
            let mut next = tx.now + millis(WAITER_LEASE);
            for (name, ticket) in first {
                next = tx.look_ahead(name, ticket)?.map_or(next, |expires| expires.min(next));
            }
            let granted = tx.granted.borrow();
            let queued = in_queue.iter().map(|queued| &queued.id);
            let alive = queued.chain(granted.iter().map(|(_, turn)| &turn.id));
            let alive: BTreeSet<String> = alive.cloned().collect();
            Ok((in_queue, alive, tx.broken()?, next - tx.now))
        });
        let (in_queue, alive, broken, until_expiry) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.next_beat = Moment::now() + HEARTBEAT / 5;
                let failing_since = *self.failing_since.get_or_insert(started);
                if Moment::now().since(failing_since) >= WAITER_LEASE {
                    // Their rows count for nothing any more, and who knows until when.
                    self.failing_since = None;
                    desk.roll.fail_waiters(&error);
                }
                return;
            }
        };
        self.failing_since = None;
        self.next_beat = Moment::now() + span(until_expiry.max(1)).min(HEARTBEAT);
        for (id, _) in waiting.into_iter().filter(|(id, _)| !alive.contains(id)) {
            desk.roll.tell(&id, Called::Dropped);
        }
        self.tell_broken(desk, broken);
        // A waiter is on the roll before its row is in the file, so these were left behind.
        let left_behind = in_queue.into_iter().filter(|queued| !desk.roll.is_waiting(&queued.id));
        for Queued { id, name, .. } in left_behind {
            let removed = desk.call_blocking(move |tx| tx.remove_waiter(&name, &id));
            if let Err(error) = removed {
                tracing::debug!(%error, "a waiter without a task stays until the next heartbeat");
            }
        }
    }
}
