//! The thread that looks after what no caller can wait for: other processes' commits, signs of
//! life, checkpoints, cleaning.

use super::desk::Desk;
use super::roll::Called;
use super::time::{millis, span};
use super::tx::{Tx, WAITER_LEASE};
use crate::backend::LossReason;
use crate::clock::Moment;
use rusqlite::{Result, params};
use std::collections::BTreeSet;
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
/// How often, and how long after their release, free rows are cleaned away.
const CLEANING: Duration = Duration::from_secs(60);
const CLEANED_AT_ONCE: i64 = 500;

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
    /// The file was used since the last cleaning.
    used: bool,
}

fn work(desk: &Weak<Desk>) {
    let now = Moment::now();
    let mut clerk = Clerk {
        version: None,
        glance: FIRST_GLANCE,
        next_beat: now,
        next_cleaning: now + CLEANING,
        used: true,
    };
    loop {
        let Some(desk) = desk.upgrade() else { return };
        clerk.look_after(&desk);
        let limit = clerk.sleep(&desk);
        // The desk's bell must outlive the desk while we sleep on it.
        let bell = desk.bell.clone();
        drop(desk);
        bell.wait(limit);
    }
}

impl Clerk {
    fn look_after(&mut self, desk: &Desk) {
        if desk.checkpoint_due() {
            desk.checkpoint();
            self.used = true;
        }
        desk.serve_patiently();
        let (waiters, alarms) = (desk.roll.has_waiters(), desk.roll.has_alarms());
        if waiters || alarms {
            self.used = true;
            let version = desk.data_version();
            if desk.told_to_look() || version != self.version || version.is_none() {
                self.version = version;
                if desk.has_mail() {
                    self.fetch_mail(desk);
                }
            }
        }
        if let Some(expiry) = desk.roll.take_first_expiry() {
            self.next_beat = self.next_beat.min(expiry);
        }
        if waiters && self.next_beat.remaining().is_zero() {
            self.beat(desk);
        }
        if self.used && self.next_cleaning.remaining().is_zero() {
            self.next_cleaning = Moment::now() + CLEANING;
            self.used = false;
            clean(desk);
        }
        // Whoever came while one of these had the connection went away unserved.
        desk.serve_patiently();
    }

    /// How long to sleep; `None` when there is nothing to look after.
    fn sleep(&mut self, desk: &Desk) -> Option<Duration> {
        if desk.roll.has_waiters() {
            let glance = self.glance.min(self.next_beat.remaining());
            self.glance = (self.glance * 5 / 4).min(LONGEST_GLANCE);
            return Some(glance);
        }
        self.glance = FIRST_GLANCE;
        if desk.roll.has_alarms() {
            return Some(HOLDER_GLANCE);
        }
        self.used.then(|| self.next_cleaning.remaining().max(HOLDER_GLANCE))
    }

    /// Takes what was handed to this process, and learns what was broken.
    fn fetch_mail(&mut self, desk: &Desk) {
        let mail = desk.call_blocking(|tx| {
            tx.confirm()?;
            tx.collect_broken()
        });
        for (id, reason) in mail.unwrap_or_default() {
            if let Some(alarm) = desk.roll.unwatch(&id) {
                alarm.ring(LossReason::Broken { reason });
            }
        }
        self.glance = FIRST_GLANCE;
    }

    /// Shows that the waiters here live, and moves their lines on should someone ahead have
    /// expired. Waiters whose rows are gone are told to queue anew.
    fn beat(&mut self, desk: &Desk) {
        let waiting = desk.roll.waiting();
        let names: BTreeSet<String> = waiting.iter().map(|(_, name)| name.clone()).collect();
        let outcome = desk.call_blocking(move |tx| {
            tx.confirm()?;
            let mut alive = tx.beat()?;
            let mut next = tx.now + millis(WAITER_LEASE);
            for name in &names {
                next = tx.advance(name)?.map_or(next, |expires| expires.min(next));
            }
            alive.extend(tx.granted.borrow().iter().map(|turn| turn.id.clone()));
            Ok((alive, next - tx.now))
        });
        let Ok((alive, until_expiry)) = outcome else {
            self.next_beat = Moment::now() + HEARTBEAT / 5;
            return;
        };
        self.next_beat = Moment::now() + span(until_expiry.max(1)).min(HEARTBEAT);
        for (id, _) in waiting {
            if !alive.contains(&id) {
                desk.roll.tell(&id, Called::Dropped);
            }
        }
    }
}

/// Removes free rows of names that nobody has used for a while, a few at a time. Correctness
/// does not depend on it: it keeps the file small.
fn clean(desk: &Desk) {
    let mut from = String::new();
    while let Ok(Some(last)) = {
        let from = from.clone();
        desk.call_blocking(move |tx| sweep(tx, &from))
    } {
        from = last;
    }
}

/// Cleans up to so many names after `from`; the last one it saw, or `None` at the end.
pub(super) fn sweep(tx: &Tx<'_>, from: &str) -> Result<Option<String>> {
    let long_ago = tx.now - millis(CLEANING);
    let mut names = tx
        .connection
        .prepare_cached("SELECT DISTINCT name FROM claim WHERE name > ?1 ORDER BY name LIMIT ?2")?;
    let names: Vec<String> = names
        .query_map(params![from, CLEANED_AT_ONCE], |row| row.get(0))?
        .collect::<Result<_>>()?;
    for name in &names {
        // Turns a line of which everything has expired into one free row.
        tx.advance(name)?;
    }
    let Some(last) = names.last() else { return Ok(None) };
    let range = params![from, last, long_ago];
    tx.connection
        .prepare_cached(
            "UPDATE meta SET value = max(value, coalesce((SELECT max(ticket) FROM claim
               WHERE name > ?1 AND name <= ?2 AND state = 0 AND expires <= ?3), 0))
             WHERE key = 'token'",
        )?
        .execute(range)?;
    tx.connection
        .prepare_cached(
            "DELETE FROM claim WHERE name > ?1 AND name <= ?2 AND state = 0 AND expires <= ?3",
        )?
        .execute(params![from, last, long_ago])?;
    Ok(Some(last.clone()))
}
