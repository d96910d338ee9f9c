//! The driver: one thread per keeper that does what no caller can wait for.
//!
//! | what | when |
//! |---|---|
//! | requests that found the file busy | with pauses that grow, until five seconds without a commit |
//! | heartbeats of this process's waiters | every half second while anyone waits |
//! | what other processes handed over or broke | when woken by a message; by polling where there is no socket |
//! | checkpoints of the write-ahead log | every 2000 pages |
//! | cleaning away old rows | every minute, by one process |
//!
//! With nothing to do it sleeps without end. It is a thread and not a task, because SQLite blocks.

use super::cleanup::{self, CLEANING};
use super::client::Client;
use super::record::{WAITER_LEASE, millis, span};
use super::requests::Queued;
use super::waiters::WaitEnd;
use crate::backend::LossReason;
use crate::clock::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the waiters of this process send a heartbeat.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// How often the driver polls for another process's commits while someone here waits and there is
/// no socket: at first, and at the most. One look costs a few microseconds, whatever the number of
/// waiters.
const FIRST_POLL: Duration = Duration::from_micros(500);
const LONGEST_POLL: Duration = Duration::from_millis(5);
/// The same while something is held, to learn that it was broken.
const HOLDER_POLL: Duration = Duration::from_millis(250);
/// How long the driver polls on after it was last woken.
const STAYS_AWAKE: Duration = Duration::from_secs(2);

/// Starts the driver of `client`; it ends when the client is gone.
pub(super) fn start(client: &Arc<Client>) -> std::io::Result<()> {
    let weak = Arc::downgrade(client);
    std::thread::Builder::new().name("lockkeeper-sqlite".into()).spawn(move || work(&weak))?;
    Ok(())
}

/// What the driver remembers between two looks.
struct Driver {
    /// The file's version number at the last look: it changes with every commit of others.
    version: Option<i64>,
    /// The pause between two polls where there is no socket; grows while nothing happens.
    poll: Duration,
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

/// The thread: looks after things, and sleeps until woken or until something is due.
fn work(client: &Weak<Client>) {
    let now = Moment::now();
    let mut driver = Driver {
        version: None,
        poll: FIRST_POLL,
        next_beat: now,
        awake_until: now,
        // At once: there may be many processes, none of which lives long.
        next_cleaning: now,
        used: true,
        waited_for: false,
        failing_since: None,
    };
    loop {
        let Some(client) = client.upgrade() else { return };
        driver.look_after(&client);
        let limit = driver.sleep(&client);
        // The wakeup must outlive the client while we sleep on it.
        let wakeup = client.wakeup.clone();
        drop(client);
        if wakeup.wait(limit) {
            driver.awake_until = Moment::now() + STAYS_AWAKE;
        }
    }
}

impl Driver {
    /// Does everything that is due. Each step may have to wait for the file, and none for long: a
    /// caller whose job is left over must not wait behind a checkpoint.
    fn look_after(&mut self, client: &Client) {
        #[cfg(test)]
        client.passes.fetch_add(1, Ordering::SeqCst);
        if client.checkpoint_due() {
            client.checkpoint();
        }
        client.serve_patiently();
        let in_use = client.waiters.has_waiters() || client.waiters.has_alarms();
        if in_use && let Err(error) = client.still_the_same_file() {
            client.waiters.fail_waiters(&error);
            if error.is_lasting() {
                // A process that opens the file that is there now sees none of our claims.
                for alarm in client.waiters.take_alarms() {
                    alarm.ring(LossReason::Gone);
                }
            } else {
                // The file may come back before the claims in it run out.
                client.endanger();
            }
        }
        let (waiters, alarms) = (client.waiters.has_waiters(), client.waiters.has_alarms());
        if waiters && !std::mem::replace(&mut self.waited_for, waiters) {
            // Their rows last longer than that.
            self.next_beat = Moment::now() + HEARTBEAT;
            Self::listen(client);
        }
        self.waited_for = waiters;
        if let Some(expiry) = client.waiters.take_first_expiry() {
            self.next_beat = self.next_beat.min(expiry);
        }
        self.used |= waiters || alarms;
        if waiters && self.next_beat.remaining().is_zero() {
            self.beat(client);
        } else if waiters || alarms {
            self.look_for_notices(client);
        }
        if self.used && self.next_cleaning.remaining().is_zero() {
            self.next_cleaning = Moment::now() + CLEANING;
            self.used = false;
            cleanup::clean(client);
        }
        // A caller that came while one of these had the connection left its job in the queue.
        client.serve_patiently();
    }

    /// Sees to it that other processes can wake this one. Before the file is looked at: what was
    /// handed over until then is found by that.
    fn listen(client: &Client) {
        if client.wakeup.socket().is_some_and(|socket| socket.is_there()) {
            return;
        }
        match client.sockets.open(&client.process) {
            Ok(socket) => client.wakeup.listen_at(socket),
            Err(error) => tracing::debug!(%error, "other processes cannot wake this one"),
        }
    }

    /// How long to sleep; `None` when there is nothing to look after.
    fn sleep(&mut self, client: &Client) -> Option<Duration> {
        if client.has_jobs() {
            return Some(Duration::ZERO);
        }
        // Before looking at the waiters: a caller that comes later sees it, and wakes us.
        client.wakeup.fast_asleep.store(true, Ordering::SeqCst);
        let soon = if client.waiters.has_waiters() {
            let beat = self.next_beat.remaining();
            if client.wakeup.socket().is_some() {
                // Woken when there is something to see. The heartbeat finds what was missed.
                Some(beat)
            } else {
                let poll = self.poll.min(beat);
                self.poll = (self.poll * 5 / 4).min(LONGEST_POLL);
                Some(poll)
            }
        } else {
            self.poll = FIRST_POLL;
            let awake = client.waiters.has_alarms() || !self.awake_until.remaining().is_zero();
            awake.then_some(HOLDER_POLL)
        };
        if soon.is_some() {
            client.wakeup.fast_asleep.store(false, Ordering::SeqCst);
            return soon;
        }
        self.used.then(|| self.next_cleaning.remaining())
    }

    /// Takes what was handed to this process, and learns what was broken.
    fn look_for_notices(&mut self, client: &Client) {
        let version = client.data_version();
        if !client.told_to_look() && version.is_some() && version == self.version {
            return;
        }
        self.version = version;
        if !client.has_notices() {
            return;
        }
        self.poll = FIRST_POLL;
        let notices = client.call_blocking(|tx| {
            tx.confirm()?;
            tx.broken()
        });
        match notices {
            Ok(broken) => self.tell_broken(client, broken),
            Err(_) => self.version = None,
        }
    }

    /// Tells the holders of broken claims, each of which is a name, an id and a reason.
    fn tell_broken(&mut self, client: &Client, broken: Vec<(String, String, String)>) {
        for (name, id, reason) in broken {
            // A claim that was granted just now is watched in a moment, and its holder told then.
            client.waiters.ring(&id, LossReason::Broken { reason });
            let removed = client.call_blocking(move |tx| tx.remove(&name, &id));
            if let Err(error) = removed {
                tracing::debug!(%error, "a broken claim stays until it expires");
            }
        }
    }

    /// Shows that the waiters here live, and moves their lines on should someone ahead have
    /// expired. Waiters whose rows are gone are told to queue anew; rows whose waiters are gone
    /// are removed.
    fn beat(&mut self, client: &Client) {
        #[cfg(test)]
        client.beats.fetch_add(1, Ordering::SeqCst);
        Self::listen(client);
        let waiting = client.waiters.waiting();
        let started = Moment::now();
        let outcome = client.call_blocking(move |tx| {
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
            let alive = queued.chain(granted.iter().map(|(_, granted)| &granted.id));
            let alive: BTreeSet<String> = alive.cloned().collect();
            Ok((in_queue, alive, tx.broken()?, next - tx.now))
        });
        let (in_queue, alive, broken, until_expiry) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.next_beat = Moment::now() + HEARTBEAT / 5;
                let failing_since = *self.failing_since.get_or_insert(started);
                if Moment::now().since(failing_since) >= WAITER_LEASE {
                    // Their rows have expired, and nobody knows when the file can be used again.
                    self.failing_since = None;
                    client.waiters.fail_waiters(&error);
                }
                return;
            }
        };
        self.failing_since = None;
        self.next_beat = Moment::now() + span(until_expiry.max(1)).min(HEARTBEAT);
        for (id, _) in waiting.into_iter().filter(|(id, _)| !alive.contains(id)) {
            client.waiters.tell(&id, WaitEnd::Dropped);
        }
        self.tell_broken(client, broken);
        // A waiter is on the waiters before its row is in the file, so these were left behind.
        let left_behind =
            in_queue.into_iter().filter(|queued| !client.waiters.is_waiting(&queued.id));
        for Queued { id, name, .. } in left_behind {
            let removed = client.call_blocking(move |tx| tx.remove_waiter(&name, &id));
            if let Err(error) = removed {
                tracing::debug!(%error, "a waiter without a task stays until the next heartbeat");
            }
        }
    }
}
