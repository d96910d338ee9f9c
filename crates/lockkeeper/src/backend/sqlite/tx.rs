//! What can be asked of the table, each in the transaction it is given.

use super::entry::{BROKEN, HELD, WAITING, code_of, token_of};
use super::line::Line;
use super::time::millis;
use crate::backend::queue;
use crate::backend::{Claim, FencingToken, LossReason, Mode, Moment, Standing};
use rusqlite::{Connection, OptionalExtension, Result, params};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a waiter stays in the queue without a sign of life from its process, handed to or
/// not: the most that a dead waiter costs the one behind it.
pub(super) const WAITER_LEASE: Duration = Duration::from_secs(2);

/// One transaction, and what it needs to know.
#[derive(Debug)]
pub(super) struct Tx<'a> {
    pub(super) connection: &'a Connection,
    /// Which rows are ours.
    pub(super) process: &'a str,
    /// The file's time.
    pub(super) now: i64,
    pub(super) wall: i64,
    /// A moment before `now`: the validity of what is granted here counts from it.
    pub(super) sent: Moment,
    /// Waiters of this process that were granted their claim, to be woken after the commit.
    pub(super) granted: RefCell<Vec<(String, Turn)>>,
    /// Other processes that were handed something or had it broken, to be woken likewise.
    pub(super) concerned: RefCell<BTreeSet<String>>,
}

/// A claim that holds its name.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) id: String,
    pub(super) ticket: i64,
    pub(super) token: FencingToken,
    pub(super) sent: Moment,
}

/// What became of asking for a name.
#[derive(Debug)]
pub(super) enum Asked {
    Granted(Turn),
    Busy,
    Queued {
        place: usize,
        /// Milliseconds until someone ahead may be over.
        until_expiry: i64,
    },
    /// The owner holds the name in this mode, which does not cover what it asks for.
    Uncovered(Mode),
}

/// A waiter of this process whose row is in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) ticket: i64,
}

/// What became of leaving the queue.
#[derive(Debug)]
pub(super) enum Left {
    /// It was number so many.
    From(usize),
    /// It had been granted meanwhile.
    Granted(Turn),
    /// It was not there.
    Gone,
}

impl Tx<'_> {
    /// Asks for the claim's name.
    pub(super) fn ask(&self, claim: &Claim, may_queue: bool) -> Result<Asked> {
        if let Some(turn) = self.take_free(claim)? {
            return Ok(Asked::Granted(turn));
        }
        let mut line = Line::load(self, claim.name.as_str())?;
        line.advance()?;
        let mine = line.entries.iter().find(|entry| entry.is_owned_by(claim));
        let asked = if let Some((mode, token)) = mine.map(|entry| (entry.mode, entry.token)) {
            match mode.covers(claim.mode) {
                true => Asked::Granted(line.insert(claim, HELD, Some(token))?),
                false => Asked::Uncovered(mode),
            }
        } else if line.waiting() == 0 && queue::fits(claim.mode, line.holders()) {
            Asked::Granted(line.insert(claim, HELD, None)?)
        } else if may_queue {
            let place = line.waiting() + 1;
            let first = line.entries.iter().map(|entry| entry.expires).min();
            line.insert(claim, WAITING, None)?;
            Asked::Queued { place, until_expiry: first.map_or(0, |first| first - self.now) }
        } else {
            Asked::Busy
        };
        line.finish()?;
        Ok(asked)
    }

    /// The common case, without reading the line: the name was used before and nobody is at it.
    fn take_free(&self, claim: &Claim) -> Result<Option<Turn>> {
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
        Ok(Some(Turn { id, ticket, token, sent: self.sent }))
    }

    pub(super) fn next_ticket(&self, last: i64) -> (i64, FencingToken) {
        let unsigned = |number| u64::try_from(number).unwrap_or(0);
        let token = FencingToken::after(unsigned(last), unsigned(self.wall));
        (i64::try_from(token.get()).unwrap_or(i64::MAX), token)
    }

    /// Extends the claim if it is still held.
    pub(super) fn renew(
        &self,
        name: &str,
        ticket: i64,
        id: &str,
        ttl: Duration,
    ) -> Result<Standing> {
        let extended = self
            .connection
            .prepare_cached(
                "UPDATE claim SET expires = ?4 WHERE name = ?1 AND ticket = ?2 AND id = ?3
                   AND state = 1 AND expires > ?5",
            )?
            .execute(params![name, ticket, id, self.now + millis(ttl), self.now])?;
        if extended == 1 {
            return Ok(Standing::Held);
        }
        let lost = self.lost(name, ticket, id)?;
        Ok(Standing::Lost(lost.unwrap_or(LossReason::Gone)))
    }

    /// Gives back the claim with this id, at once or after `linger`; why it was not held any
    /// more, if so. Leaves others' alone.
    pub(super) fn release(
        &self,
        name: &str,
        ticket: i64,
        id: &str,
        linger: Duration,
    ) -> Result<Option<LossReason>> {
        if linger.is_zero() {
            let freed = self
                .connection
                .prepare_cached(
                    "UPDATE claim SET state = 0, id = '', expires = ?4 WHERE name = ?1
                       AND ticket = ?2 AND id = ?3 AND state = 1 AND high = 0
                       AND NOT EXISTS (SELECT 1 FROM claim WHERE name = ?1 AND ticket <> ?2)",
                )?
                .execute(params![name, ticket, id, self.now])?;
            if freed == 1 {
                return Ok(None);
            }
            let lost = self.lost(name, ticket, id)?;
            self.remove(name, id)?;
            return Ok(lost);
        }
        // Nobody looks after it from now on, so it is no process's any more.
        let kept = self
            .connection
            .prepare_cached(
                "UPDATE claim SET expires = ?4, process = '' WHERE name = ?1 AND ticket = ?2
                   AND id = ?3 AND state = 1 AND expires > ?5",
            )?
            .execute(params![name, ticket, id, self.now + millis(linger), self.now])?;
        if kept > 0 { Ok(None) } else { self.lost(name, ticket, id) }
    }

    /// Why the claim is not held any more; `None` when it is.
    fn lost(&self, name: &str, ticket: i64, id: &str) -> Result<Option<LossReason>> {
        let found: Option<(i64, i64, String)> = self
            .connection
            .prepare_cached(
                "SELECT state, expires, note FROM claim WHERE name = ?1 AND ticket = ?2
                   AND id = ?3",
            )?
            .query_row(params![name, ticket, id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        Ok(match found {
            Some((HELD, expires, _)) if expires > self.now => None,
            Some((BROKEN, _, reason)) => Some(LossReason::Broken { reason }),
            _ => Some(LossReason::Gone),
        })
    }

    /// Removes whatever the claim with this id has on the name, and lets the next ones in.
    pub(super) fn remove(&self, name: &str, id: &str) -> Result<()> {
        let mut line = Line::load(self, name)?;
        line.remove(|entry| entry.id == id)?;
        line.advance()?;
        line.finish()
    }

    /// Takes the claim out of the queue, unless it was granted meanwhile.
    pub(super) fn leave(&self, name: &str, id: &str) -> Result<Left> {
        let mut line = Line::load(self, name)?;
        let Some(index) = line.entries.iter().position(|entry| entry.id == id) else {
            line.advance()?;
            line.finish()?;
            return Ok(Left::Gone);
        };
        let entry = &line.entries[index];
        let left = if entry.state == WAITING {
            let ahead = line.entries[..index].iter().filter(|e| e.state == WAITING).count();
            line.remove(|entry| entry.id == id)?;
            line.advance()?;
            Left::From(ahead + 1)
        } else if !entry.holds() {
            line.remove(|entry| entry.id == id)?;
            Left::Gone
        } else {
            let (turn, ttl) = (entry.turn(self.sent), entry.ttl);
            self.connection
                .prepare_cached(
                    "UPDATE claim SET state = 1, expires = ?3 WHERE name = ?1 AND ticket = ?2",
                )?
                .execute(params![name, turn.ticket, self.now + ttl])?;
            Left::Granted(turn)
        };
        line.finish()?;
        Ok(left)
    }

    /// Drops what has expired on `name`, lets the next ones in, and says when to look again.
    pub(super) fn advance(&self, name: &str) -> Result<Option<i64>> {
        let mut line = Line::load(self, name)?;
        line.advance()?;
        let next = line.entries.iter().map(|entry| entry.expires).min();
        line.finish()?;
        Ok(next)
    }

    /// Lets in whomever the claim ahead of the waiter with `ticket` no longer keeps out, and says
    /// when to look again.
    ///
    /// Behind another waiter that lives there is nothing to do: that one does the looking. So a
    /// queue of any length costs each of its waiters one row, and only the first reads it all.
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

    /// Shows that this process's waiters live: those in the queue.
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

    /// Takes a waiter out of the queue that nobody answers for, unless it was granted meanwhile.
    pub(super) fn remove_waiter(&self, name: &str, id: &str) -> Result<()> {
        let mut line = Line::load(self, name)?;
        line.remove(|entry| entry.id == id && entry.state == WAITING)?;
        line.advance()?;
        line.finish()
    }

    /// Whether something was handed to this process or broken.
    pub(super) fn has_mail(connection: &Connection, process: &str) -> Result<bool> {
        connection
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM claim
                 WHERE process = ?1 AND state > 1 AND state IN (3, 4))",
            )?
            .query_row([process], |row| row.get(0))
    }

    /// Confirms what was handed to this process in time.
    pub(super) fn confirm(&self) -> Result<()> {
        let mut statement = self.connection.prepare_cached(
            "UPDATE claim SET state = 1, since = ?2, expires = ?2 + ttl
             WHERE process = ?1 AND state > 1 AND state = 3 AND expires > ?2
             RETURNING id, ticket, token, name",
        )?;
        let confirmed = statement.query_map(params![self.process, self.now], |row| {
            let token = token_of(row.get(2)?)?;
            let turn = Turn { id: row.get(0)?, ticket: row.get(1)?, token, sent: self.sent };
            Ok((row.get(3)?, turn))
        })?;
        for turn in confirmed {
            self.granted.borrow_mut().push(turn?);
        }
        Ok(())
    }

    /// The broken claims of this process: name, id, and why.
    pub(super) fn broken(&self) -> Result<Vec<(String, String, String)>> {
        self.connection
            .prepare_cached(
                "SELECT name, id, note FROM claim WHERE process = ?1 AND state > 1 AND state = 4",
            )?
            .query_map([self.process], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect()
    }

    /// Breaks what is held with `token`; returns whether anything was.
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
