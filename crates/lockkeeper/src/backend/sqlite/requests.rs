//! What can be asked of the table: every atomic request, each in the transaction it is given.
//!
//! A row is found by name and ticket, its primary key, and is ours if it has the claim's id too: so
//! no request here does anything to another's claim. All of them are idempotent but
//! [`ask`](Transaction::ask), which may add a row each time; an ask whose answer was lost is undone
//! by [`remove`](Transaction::remove), which takes every row with the claim's id.
//!
//! Which rows of a name hold is decided in [`queue`](super::queue); the two requests of a lock that
//! nobody else wants, [`take_free`](Transaction::ask) and [`release`](Transaction::release), do
//! without. Each of these two is a single change to a single row, and most locks need no other
//! request.

mod by_id;

use super::client::transaction::{Granted, Transaction};
use super::queue::Queue;
use super::record::{BROKEN, HELD, Record, WAITER_LEASE, WAITING, code_of, millis, token_of};
use crate::backend::{Claim, LossReason, Mode, Standing, queue};
use rusqlite::{Connection, OptionalExtension, Result, params};
use std::time::Duration;

/// What became of asking for a name.
#[derive(Debug)]
pub(super) enum Asked {
    /// It holds the name now: the name was free, or its owner held it already.
    Granted(Granted),
    /// Other claims are before it, and it was not to queue: nothing of it is in the file.
    Busy,
    /// Its row is at the end of the queue, and lasts as long as heartbeats come.
    Queued {
        /// Its place among those that wait, counted from 1.
        place: usize,
        /// Milliseconds until the first claim ahead expires, unless it is renewed: the driver looks
        /// again then.
        until_expiry: i64,
    },
    /// The owner holds the name in this mode, which does not cover what it asks for. Nothing was
    /// queued: the owner would wait for itself.
    Uncovered(Mode),
    /// The claim with this id was made in this mode and with this ttl, in milliseconds.
    OtherTerms(Mode, i64),
}

/// A waiter of this process whose row is in the file and was just extended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) ticket: i64,
}

/// What became of leaving the queue.
#[derive(Debug)]
pub(super) enum Left {
    /// Its place in the queue, counted from 1.
    From(usize),
    /// It had been granted meanwhile.
    Granted(Granted),
    /// It was not there, or no longer held: expired or broken. Nothing of it is left in the file.
    Gone,
}

impl Transaction<'_> {
    /// Asks for the claim's name: grants it, queues the claim, or says that it is busy.
    ///
    /// A claim is granted here only if nobody waits. One that fits beside the holders but comes
    /// after a waiter queues behind it, or a stream of readers could keep a writer out for ever.
    /// The owner that holds the name already enters at once, with the token it has: to queue would
    /// be to wait for itself.
    pub(super) fn ask(&self, claim: &Claim, may_queue: bool) -> Result<Asked> {
        if let Some(granted) = self.take_free(claim)? {
            return Ok(Asked::Granted(granted));
        }
        let mut queue = Queue::load(self, claim.name.as_str())?;
        // What expired may have made room, and a waiter comes before this claim.
        queue.advance()?;
        if claim.by_id
            && let Some(asked) = self.found(&queue, claim, may_queue)?
        {
            queue.finish()?;
            return Ok(asked);
        }
        let mine = queue.records.iter().find(|record| record.is_owned_by(claim));
        let asked = if let Some((mode, token)) = mine.map(|record| (record.mode, record.token)) {
            match mode.covers(claim.mode) {
                true => Asked::Granted(queue.insert(claim, HELD, Some(token))?),
                false => Asked::Uncovered(mode),
            }
        } else if queue.waiting() == 0 && queue::fits(claim.mode, queue.holders()) {
            Asked::Granted(queue.insert(claim, HELD, None)?)
        } else if may_queue {
            let place = queue.waiting() + 1;
            let first = queue.records.iter().map(|record| record.expires).min();
            queue.insert(claim, WAITING, None)?;
            Asked::Queued { place, until_expiry: first.map_or(0, |first| first - self.now) }
        } else {
            Asked::Busy
        };
        queue.finish()?;
        Ok(asked)
    }

    /// The common case, without reading the queue: the name was used before and nobody is at it.
    ///
    /// A free row is the only row of its name, so no other needs to be looked at. It becomes the
    /// claim's row, with a new ticket above the old one: the memory of the largest ticket goes on
    /// in it.
    fn take_free(&self, claim: &Claim) -> Result<Option<Granted>> {
        let name = claim.name.as_str();
        let last: Option<i64> = self
            .connection
            .prepare_cached("SELECT ticket FROM claim WHERE name = ?1 AND state = 0")?
            .query_row([name], |row| row.get(0))
            .optional()?;
        let Some(last) = last else { return Ok(None) };
        let (ticket, token) = self.next_ticket(last);
        let id = claim.id.to_string();
        // Not one statement with RETURNING: that makes SQLite build a table to return it from,
        // which costs more than the rest.
        self.connection
            .prepare_cached(
                "UPDATE claim SET ticket = ?3, state = 1, id = ?4, owner = ?5, process = ?6,
                   mode = ?7, token = ?3, ttl = ?8, since = ?9, expires = ?10, identity = ?11,
                   note = ?12
                 WHERE name = ?1 AND ticket = ?2",
            )?
            .execute(params![
                name,
                last,
                ticket,
                id,
                claim.owner.id(),
                self.process,
                code_of(claim.mode),
                millis(claim.ttl),
                self.now,
                self.now + millis(claim.ttl),
                claim.identity,
                claim.note,
            ])?;
        Ok(Some(Granted { id, ticket, token, sent: self.sent }))
    }

    /// Extends the claim if it is still held, and never shortens it: another that has it may have been told
    /// more. How much is on record as its ttl, and bounds what is left of it should the clock go back. A
    /// claim that stays after its release has no holder, so a ticket that somebody kept does not extend it.
    ///
    /// An expired claim is not revived, even while its row is still there: for its holder the
    /// validity ended before, and the next transaction on the name may give it to another.
    pub(super) fn renew(
        &self,
        name: &str,
        row: Option<i64>,
        id: &str,
        ttl: Duration,
    ) -> Result<Standing> {
        let ticket = self.row_of(name, row, id)?;
        let extended = self
            .connection
            .prepare_cached(
                "UPDATE claim SET expires = max(?5 + ?4, min(expires, ?5 + ttl)), ttl = max(ttl, ?4)
                 WHERE name = ?1 AND ticket = ?2 AND id = ?3
                   AND state = 1 AND expires > ?5 AND process <> ''",
            )?
            .execute(params![name, ticket, id, millis(ttl), self.now])?;
        if extended == 1 {
            return Ok(Standing::Held);
        }
        let lost = self.lost(name, ticket, id)?;
        Ok(Standing::Lost(lost.unwrap_or(LossReason::Gone)))
    }

    /// Gives back the claim with this id, at once or after `stay`; why it was not held any more, if
    /// so. Leaves others' alone, and what was given back to stay. A second release finds nothing
    /// with the id, and reports the claim as gone.
    pub(super) fn release(
        &self,
        name: &str,
        row: Option<i64>,
        id: &str,
        stay: Duration,
    ) -> Result<Option<LossReason>> {
        let ticket = self.row_of(name, row, id)?;
        if stay.is_zero() {
            // The only row of its name becomes the free row, in place. Not if `high` is set, for
            // then the row's own ticket is not the largest that the name had, and the free row
            // would forget that one.
            let freed = self
                .connection
                .prepare_cached(
                    "UPDATE claim SET state = 0, id = '', expires = ?4 WHERE name = ?1
                       AND ticket = ?2 AND id = ?3 AND state = 1 AND high = 0 AND process <> ''
                       AND NOT EXISTS (SELECT 1 FROM claim WHERE name = ?1 AND ticket <> ?2)",
                )?
                .execute(params![name, ticket, id, self.now])?;
            if freed == 1 {
                return Ok(None);
            }
            // Before the removal, which deletes the row that the answer is read from.
            let lost = self.lost(name, ticket, id)?;
            self.remove_where(name, |record| record.id == id && !record.stays())?;
            return Ok(lost);
        }
        // Nobody looks after it from now on, so it is no process's any more: it cannot be renewed,
        // released or entered again, and goes on keeping others out until it expires.
        let kept = self
            .connection
            .prepare_cached(
                "UPDATE claim SET expires = ?4, process = '' WHERE name = ?1 AND ticket = ?2
                   AND id = ?3 AND state = 1 AND expires > ?5 AND process <> ''",
            )?
            .execute(params![name, ticket, id, self.now + millis(stay), self.now])?;
        if kept > 0 { Ok(None) } else { self.lost(name, ticket, id) }
    }

    /// The number of the row that the claim with this id has on the name, if it is not known; -1,
    /// which no row has, where there is none. Only tickets from elsewhere need it; a grant knows
    /// its row. One that was broken, and asked for again by its id, has two.
    fn row_of(&self, name: &str, row: Option<i64>, id: &str) -> Result<i64> {
        if let Some(row) = row {
            return Ok(row);
        }
        let found = self
            .connection
            .prepare_cached(
                "SELECT ticket FROM claim WHERE name = ?1 AND id = ?2 ORDER BY state = 4 LIMIT 1",
            )?
            .query_row([name, id], |row| row.get(0))
            .optional()?;
        Ok(found.unwrap_or(-1))
    }

    /// Why the claim is not held any more; `None` when it is. The reason of a break is in the row's
    /// note until the holder's process has been told and removes the row; after that the claim is
    /// just gone.
    fn lost(&self, name: &str, ticket: i64, id: &str) -> Result<Option<LossReason>> {
        let found: Option<(i64, i64, String, String)> = self
            .connection
            .prepare_cached(
                "SELECT state, expires, note, process FROM claim WHERE name = ?1 AND ticket = ?2
                   AND id = ?3",
            )?
            .query_row(params![name, ticket, id], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        Ok(match found {
            Some((HELD, expires, _, process)) if expires > self.now && !process.is_empty() => None,
            Some((BROKEN, _, reason, _)) => Some(LossReason::Broken { reason }),
            _ => Some(LossReason::Gone),
        })
    }

    /// Removes whatever the claim with this id has on the name, waiting or held, and lets the next
    /// ones in.
    pub(super) fn remove(&self, name: &str, id: &str) -> Result<()> {
        self.remove_where(name, |record| record.id == id)
    }

    /// Removes a broken claim whose holder has been told; not one that was asked for since then by the
    /// same id.
    pub(super) fn remove_broken(&self, name: &str, id: &str) -> Result<()> {
        self.remove_where(name, |record| record.id == id && record.state == BROKEN)
    }

    /// As [`remove`](Self::remove), of a claim that this process looks after; not if another has found it
    /// by its id since then.
    pub(super) fn remove_own(&self, name: &str, id: &str) -> Result<()> {
        self.remove_where(name, |record| record.id == id && record.process == self.process)
    }

    /// Removes rows and grants to the next in one transaction: between the two no other process can
    /// ask, so no claim overtakes the queue.
    fn remove_where(&self, name: &str, gone: impl Fn(&Record) -> bool) -> Result<()> {
        let mut queue = Queue::load(self, name)?;
        queue.remove(gone)?;
        queue.advance()?;
        queue.finish()
    }

    /// Takes the claim out of the queue, unless it was granted meanwhile.
    ///
    /// A grant that was handed over and not confirmed is confirmed here. So the caller always knows
    /// where it stands: it holds the name, or nothing of it is in the file.
    pub(super) fn leave(&self, name: &str, id: &str) -> Result<Left> {
        let mut queue = Queue::load(self, name)?;
        // Not where another process waits for the same claim by now, which was asked for by its id.
        let is_left = |record: &Record| {
            record.id == id && (record.state != WAITING || record.process == self.process)
        };
        // Beside one that was broken there may be one that was asked for again by the same id.
        let is_whole = |record: &Record| is_left(record) && record.state != BROKEN;
        let whole = queue.records.iter().position(is_whole);
        let Some(index) = whole.or_else(|| queue.records.iter().position(is_left)) else {
            queue.advance()?;
            queue.finish()?;
            return Ok(Left::Gone);
        };
        let record = &queue.records[index];
        let left = if record.state == WAITING {
            let ahead = queue.records[..index].iter().filter(|e| e.state == WAITING).count();
            queue.remove(|record| record.id == id && record.state == WAITING)?;
            queue.advance()?;
            Left::From(ahead + 1)
        } else if !record.holds() {
            // Of another process it is the word that its claim was broken.
            queue.remove(|record| record.id == id && record.process == self.process)?;
            Left::Gone
        } else {
            let (granted, ttl) = (record.granted(self.sent), record.ttl);
            self.connection
                .prepare_cached(
                    "UPDATE claim SET state = 1, expires = ?3 WHERE name = ?1 AND ticket = ?2",
                )?
                .execute(params![name, granted.ticket, self.now + ttl])?;
            Left::Granted(granted)
        };
        queue.finish()?;
        Ok(left)
    }

    /// Drops what has expired on `name`, lets the next ones in, and says when to look again: when
    /// the first of the remaining rows expires, unless it is extended.
    pub(super) fn advance(&self, name: &str) -> Result<Option<i64>> {
        let mut queue = Queue::load(self, name)?;
        queue.advance()?;
        let next = queue.records.iter().map(|record| record.expires).min();
        queue.finish()?;
        Ok(next)
    }

    /// Lets in the waiters that the claim ahead of the waiter with `ticket` no longer keeps out,
    /// and says when to look again.
    ///
    /// Behind another waiter that lives there is nothing to do: that one does the looking. So a
    /// queue of any length costs each of its waiters one row, and only the first reads it all.
    /// Should the waiter ahead die, its row expires, and this one looks past it at that time.
    pub(super) fn look_ahead(&self, name: &str, ticket: i64) -> Result<Option<i64>> {
        let ahead: Option<(i64, i64)> = self
            .connection
            .prepare_cached(
                "SELECT state, expires FROM claim WHERE name = ?1 AND ticket < ?2
                 ORDER BY ticket DESC LIMIT 1",
            )?
            .query_row(params![name, ticket], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match ahead {
            Some((WAITING, expires)) if expires > self.now => Ok(Some(expires)),
            _ => self.advance(name),
        }
    }

    /// The heartbeat of this process: extends the rows of its waiters, and returns them. A row that
    /// has expired is not revived, since another may have been let in before it.
    ///
    /// One statement for all of them, found by the partial index: the cost grows with the waiters
    /// of this process and not with the names in the file. `state > 1` is there for SQLite to see
    /// that the index applies.
    pub(super) fn beat(&self) -> Result<Vec<Queued>> {
        self.connection
            .prepare_cached(
                "UPDATE claim SET expires = ?2
                 WHERE process = ?1 AND state > 1 AND state = 2 AND expires > ?3
                 RETURNING id, name, ticket",
            )?
            .query_map(params![self.process, self.now + millis(WAITER_LEASE), self.now], |row| {
                Ok(Queued { id: row.get(0)?, name: row.get(1)?, ticket: row.get(2)? })
            })?
            .collect()
    }

    /// Takes a waiter out of the queue that nobody answers for, unless it was granted meanwhile: a
    /// grant is given back by the client, when it finds no waiter to tell.
    pub(super) fn remove_waiter(&self, name: &str, id: &str) -> Result<()> {
        let waits = |record: &Record| record.id == id && record.state == WAITING;
        self.remove_where(name, |record| waits(record) && record.process == self.process)
    }

    /// Whether something was handed to this process or broken. Takes a connection, because a single
    /// read needs no transaction.
    pub(super) fn has_notices(connection: &Connection, process: &str) -> Result<bool> {
        connection
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM claim
                 WHERE process = ?1 AND state > 1 AND state IN (3, 4))",
            )?
            .query_row([process], |row| row.get(0))
    }

    /// Confirms what was handed to this process in time: from now on the rows last for their ttl,
    /// and their waiters are told after the commit.
    ///
    /// What expired unconfirmed stays as it is. The next transaction on its name removes it, and
    /// the waiter is told to queue again by the next heartbeat.
    pub(super) fn confirm(&self) -> Result<()> {
        let mut statement = self.connection.prepare_cached(
            "UPDATE claim SET state = 1, since = ?2, expires = ?2 + ttl
             WHERE process = ?1 AND state > 1 AND state = 3 AND expires > ?2
             RETURNING id, ticket, token, name",
        )?;
        let confirmed = statement.query_map(params![self.process, self.now], |row| {
            let token = token_of(row.get(2)?)?;
            let granted = Granted { id: row.get(0)?, ticket: row.get(1)?, token, sent: self.sent };
            Ok((row.get(3)?, granted))
        })?;
        for granted in confirmed {
            self.granted.borrow_mut().push(granted?);
        }
        Ok(())
    }

    /// The broken claims of this process: name, id, and why. The rows stay until they are removed
    /// by [`remove`](Transaction::remove), so a notice that could not be delivered is found again.
    pub(super) fn broken(&self) -> Result<Vec<(String, String, String)>> {
        self.connection
            .prepare_cached(
                "SELECT name, id, note FROM claim WHERE process = ?1 AND state > 1 AND state = 4",
            )?
            .query_map([self.process], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect()
    }

    /// Breaks what is held with `token`; returns whether anything was.
    ///
    /// All entries of an owner have one token, and all of them are broken. A broken row holds
    /// nothing, so the next ones are let in in the same transaction; it stays only to tell its
    /// holder why.
    pub(super) fn break_hold(&self, name: &str, token: i64, reason: &str) -> Result<bool> {
        let broken = self
            .connection
            .prepare_cached(
                "UPDATE claim SET state = 4, note = ?3
                 WHERE name = ?1 AND token = ?2 AND state IN (1, 3) AND expires > ?4
                 RETURNING process",
            )?
            .query_map(params![name, token, reason, self.now], |row| row.get(0))?
            .collect::<Result<Vec<String>>>()?;
        self.advance(name)?;
        let found = !broken.is_empty();
        self.concerned.borrow_mut().extend(broken);
        Ok(found)
    }
}
