//! The driver: one thread per client that does what no caller can wait for.
//!
//! | what | when |
//! |---|---|
//! | requests that found the file busy | with growing pauses, until 5 s without a commit |
//! | heartbeats of this process's waiters | every half second while any claim waits |
//! | what other processes handed over or broke | at a message; without a socket, by polling |
//! | checkpoints of the write-ahead log | every 2000 pages |
//! | cleaning away old rows | every minute, by one process |
//!
//! With nothing to do it sleeps without end. It is a thread and not a task, because SQLite blocks.
//!
//! No lock depends on this thread for exclusion. If it is late, waiters of this process lose their
//! place and ask again, and a hand-over takes longer; a holder's claim is renewed by the engine.

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

/// How often the waiters of this process send a heartbeat: one transaction for all of them. A
/// quarter of [`WAITER_LEASE`], so that three heartbeats may be late before a place is lost.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// How often the driver polls for another process's commits while a claim here waits and there is
/// no socket: at first, before the pause grows. One look costs a few microseconds, whatever the
/// number of waiters.
const FIRST_POLL: Duration = Duration::from_micros(500);
/// The longest pause between two such polls, and so the longest that a hand-over goes unnoticed
/// there.
const LONGEST_POLL: Duration = Duration::from_millis(5);
/// How often the driver polls while something is held and nothing waits, to learn that a claim was
/// broken. A holder that never waited has no socket, and breaking is rare.
const HOLDER_POLL: Duration = Duration::from_millis(250);
/// How long the driver polls on after a caller last woke it, even if nothing is held: a program
/// that takes short locks one after another would otherwise have to wake it for each.
const STAYS_AWAKE: Duration = Duration::from_secs(2);

/// Starts the driver of `client`; it ends when the client is gone. The thread has a weak reference
/// only: with a strong one the client could not end while its driver sleeps.
pub(super) fn start(client: &Arc<Client>) -> std::io::Result<()> {
    let weak = Arc::downgrade(client);
    std::thread::Builder::new().name("lockkeeper-sqlite".into()).spawn(move || work(&weak))?;
    Ok(())
}

/// What the driver remembers between two looks. Lost with the thread, and none of it is in the
/// file.
struct Driver {
    /// The file's version number at the last look: it changes with every commit of another
    /// connection. `None` makes the next look read the table whatever the number is.
    version: Option<i64>,
    /// The pause between two polls where there is no socket; grows while nothing happens.
    poll: Duration,
    /// When the waiters need a heartbeat, or a claim ahead of one of them may have expired.
    next_beat: Moment,
    /// Before this the file is not checked for old rows.
    next_cleaning: Moment,
    /// Before this it does not sleep without a limit: locks that are held for a moment only would
    /// have to wake it each time.
    awake_until: Moment,
    /// The file was used since the last cleaning, so there may be something to clean.
    used: bool,
    /// There were waiters at the last look; the first one to come needs a socket.
    waited_for: bool,
    /// Since when no heartbeat has succeeded; `None` after one that did. Once it is longer ago than
    /// a row lasts, the rows of all waiters here have expired.
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
        // At once: there may be many processes, none of which lives for a minute.
        next_cleaning: now,
        used: true,
        waited_for: false,
        failing_since: None,
    };
    loop {
        let Some(client) = client.upgrade() else { return };
        driver.look_after(&client);
        let limit = driver.sleep(&client);
        // The thread sleeps on the wakeup alone, so that the client can be dropped meanwhile; its
        // `Drop` then wakes this thread through it.
        let wakeup = client.wakeup.clone();
        drop(client);
        if wakeup.wait(limit) {
            driver.awake_until = Moment::now() + STAYS_AWAKE;
        }
    }
}

impl Driver {
    /// Does everything that is due, in an order that matters:
    ///
    /// - A due checkpoint comes first, because callers leave their jobs in the queue until it is
    ///   made. The jobs wait for it; their callers' threads do not.
    /// - Then the jobs, so that those in the queue do not wait for a heartbeat or a cleaning.
    /// - The file is checked before the heartbeat: waiters at a file that is gone are told at once,
    ///   and not after two seconds of heartbeats that fail.
    /// - Jobs again at the end, for callers that found the connection taken by one of these steps.
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
                // A process that opens the file that is there now sees none of our claims, so what
                // is held here excludes nobody any more.
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
            // Not at once: their rows are new, and last longer than a heartbeat.
            self.next_beat = Moment::now() + HEARTBEAT;
            Self::listen(client);
        }
        self.waited_for = waiters;
        // If a claim ahead of a new waiter expires soon, the heartbeat is brought forward to that
        // moment: it moves the queue on.
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

    /// Makes a socket through which other processes wake this one, if there is none or its name was
    /// removed. Must come before a look at the file: what was handed over before the socket was
    /// there is found by that look, and what is handed over later sends a message. Without a socket
    /// the driver polls.
    fn listen(client: &Client) {
        if client.wakeup.socket().is_some_and(|socket| socket.is_there()) {
            return;
        }
        match client.sockets.open(&client.process) {
            Ok(socket) => client.wakeup.listen_at(socket),
            Err(error) => tracing::debug!(%error, "other processes cannot wake this one"),
        }
    }

    /// How long to sleep; `None` when there is nothing to look after. Called at the end of a pass,
    /// when a job may have come since the queue was last looked at.
    fn sleep(&mut self, client: &Client) -> Option<Duration> {
        if client.has_jobs() {
            return Some(Duration::ZERO);
        }
        // Before looking at the waiters and alarms: a caller that enters an alarm later sees the
        // flag, and wakes the driver. In the other order an alarm could come between the look and
        // the flag, and its holder would not be told of a break for as long as the driver sleeps.
        client.wakeup.fast_asleep.store(true, Ordering::SeqCst);
        let soon = if client.waiters.has_waiters() {
            let beat = self.next_beat.remaining();
            if client.wakeup.socket().is_some() {
                // A message arrives when there is something to see. The heartbeat finds what was
                // missed.
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

    /// Confirms what was handed to this process, and learns what was broken.
    ///
    /// Three steps, each dearer than the one before: the version number, a read, a transaction that
    /// writes. Most commits of other processes concern other names and end at the second.
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
            // The notices are still in the file: look again, even if nobody else commits.
            Err(_) => self.version = None,
        }
    }

    /// Tells the holders of broken claims, each of which is a name, an id and a reason, and removes
    /// their rows. The holder is told first: a crash in between leaves the row, which expires like
    /// any other.
    fn tell_broken(&mut self, client: &Client, broken: Vec<(String, String, String)>) {
        for (name, id, reason) in broken {
            // A claim that was granted just now may have no alarm yet; the loss is remembered, and
            // the alarm rings as soon as it is entered.
            client.waiters.ring(&id, LossReason::Broken { reason });
            let removed = client.call_blocking(move |tx| tx.remove_broken(&name, &id));
            if let Err(error) = removed {
                tracing::debug!(%error, "a broken claim stays until it expires");
            }
        }
    }

    /// The heartbeat: extends the rows of the waiters here, and moves their queues on if a claim
    /// ahead has expired. A waiter whose row is gone is told to queue again; a row whose waiter is
    /// gone is removed.
    ///
    /// Both comparisons rest on the order in which things happen. A waiter is entered in
    /// [`waiters`](super::waiters) before its row is written, and marked as queued after the
    /// commit. So the list of queued waiters is taken before the transaction: each of them had a
    /// row by then. If the transaction does not find the row, it was dropped; or it was granted
    /// before, and then the waiter has been told and is not told again. And rows are compared with
    /// the waiters after the transaction: each row had a waiter when it was written, and if there
    /// is none now, it was left behind.
    fn beat(&mut self, client: &Client) {
        #[cfg(test)]
        client.beats.fetch_add(1, Ordering::SeqCst);
        Self::listen(client);
        let waiting = client.waiters.waiting();
        let started = Moment::now();
        let outcome = client.call_blocking(move |tx| {
            tx.confirm()?;
            let in_queue = tx.beat()?;
            // Per name only the first waiter of this process looks ahead; the others are behind it.
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
            // What this very transaction granted is in no queue any more, and its waiter is told
            // after the commit.
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
                    // Their rows have expired, and nobody knows when the file can be used again:
                    // better an error that the engine can act on than a wait without a place in the
                    // queue.
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
        // Left behind, for example by a caller whose runtime ended in the middle of its wait.
        // Heartbeats would go on extending such a row while any other claim of this process waits.
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
