//! The claims on one name: the queue itself. Everything here happens inside one transaction.
//!
//! Which claims of the queue hold is for [`queue`](mod@crate::backend::queue) to say; here the
//! answer is written down, and kept: a row that holds goes on holding until it is released, broken
//! or expired.
//!
//! The largest ticket that a name ever had must survive its rows, or a later token could be
//! smaller. It stays in a free row while the name has no other, and in the column `high` of the
//! last row while it has; [`Queue::finish`] sees to that.
//!
//! True of a name's rows before and after each transaction: tickets grow in the order of asking; a
//! free row has no other beside it; rows of different owners that hold, and have not expired, fit
//! beside each other.

use super::client::transaction::{Granted, Transaction};
use super::record::{FREE, HANDED, HELD, Record, WAITER_LEASE, WAITING, code_of, millis};
use crate::backend::{Claim, FencingToken, Mode, queue};
use rusqlite::{Result, params};

/// The live records of one name, in order of asking. What is changed in it is written to the file
/// at once, except `high`: [`finish`](Queue::finish) must come last, also where nothing seems to
/// have changed, because loading may have removed rows.
pub(super) struct Queue<'a> {
    tx: &'a Transaction<'a>,
    name: &'a str,
    pub(super) records: Vec<Record>,
    /// The ticket of the free row, if that is all there is. The row is deleted when another takes
    /// its place.
    free: Option<i64>,
    /// The largest ticket the name ever had, as far as the file remembers.
    high: i64,
    /// Whether rows were removed since the last insertion, so that `high` must be kept elsewhere.
    removed: bool,
}

impl<'a> Queue<'a> {
    /// Reads the queue and drops what has expired. Does not let the next ones in: that is for
    /// [`advance`](Queue::advance), after the caller has made its own change.
    ///
    /// A name without any row begins above the largest token of all names whose rows were cleaned
    /// away.
    pub(super) fn load(tx: &'a Transaction<'a>, name: &'a str) -> Result<Self> {
        let mut statement = tx.connection.prepare_cached(
            "SELECT ticket, state, id, owner, process, mode, token, high, ttl, since, expires,
               identity, note
             FROM claim WHERE name = ?1 ORDER BY ticket",
        )?;
        let records = statement.query_map([name], Record::read)?.collect::<Result<Vec<_>>>()?;
        let high = records.iter().map(|record| record.ticket.max(record.high)).max();
        let high = match high {
            Some(high) => high,
            None => tx
                .connection
                .prepare_cached("SELECT value FROM meta WHERE key = 'token'")?
                .query_row([], |row| row.get(0))?,
        };
        let mut queue = Self { tx, name, records, free: None, high, removed: false };
        queue.free =
            queue.records.pop_if(|record| record.state == FREE).map(|record| record.ticket);
        queue.remove(|record| record.expires <= tx.now)?;
        Ok(queue)
    }

    /// Deletes the rows that match; what they kept out is let in by [`advance`](Queue::advance).
    pub(super) fn remove(&mut self, matches: impl Fn(&Record) -> bool) -> Result<()> {
        let gone: Vec<Record> = self.records.extract_if(.., |record| matches(record)).collect();
        for record in &gone {
            self.delete(record.ticket)?;
            self.removed = true;
        }
        Ok(())
    }

    /// Deletes one row of the file, and nothing in memory.
    fn delete(&self, ticket: i64) -> Result<()> {
        self.tx
            .connection
            .prepare_cached("DELETE FROM claim WHERE name = ?1 AND ticket = ?2")?
            .execute(params![self.name, ticket])?;
        Ok(())
    }

    /// Those that keep others out, by mode and token: claims of one owner share a token, so they
    /// count as one. Claims that were handed over and not confirmed are among them.
    pub(super) fn holders(&self) -> impl Iterator<Item = (Mode, FencingToken)> {
        self.records.iter().filter(|record| record.holds()).map(|e| (e.mode, e.token))
    }

    /// How many wait. Only an owner that enters again may be granted past them.
    pub(super) fn waiting(&self) -> usize {
        self.records.iter().filter(|record| record.state == WAITING).count()
    }

    /// Grants to those at the head of the queue that fit, and stops at the first that does not:
    /// nobody overtakes.
    ///
    /// A waiter of this process holds at once, and is told after the commit. A waiter of another
    /// process must confirm before what is left of its lease is over. So that lease is not extended
    /// here: all the waiters of a dead process expire together, and cost the next one that time
    /// once and not each.
    pub(super) fn advance(&mut self) -> Result<()> {
        let tx = self.tx;
        while let Some(next) = self.records.iter().position(|record| record.state == WAITING) {
            if !queue::fits(self.records[next].mode, self.holders()) {
                break;
            }
            let record = &mut self.records[next];
            let ours = record.process == tx.process;
            record.state = if ours { HELD } else { HANDED };
            if ours {
                record.expires = tx.now + record.ttl;
            }
            tx.connection
                .prepare_cached(
                    "UPDATE claim SET state = ?3, since = ?4, expires = ?5
                     WHERE name = ?1 AND ticket = ?2",
                )?
                .execute(params![self.name, record.ticket, record.state, tx.now, record.expires])?;
            if ours {
                tx.granted.borrow_mut().push((self.name.to_owned(), record.granted(tx.sent)));
            } else {
                tx.concerned.borrow_mut().insert(record.process.clone());
            }
        }
        Ok(())
    }

    /// Adds a row at the end, with a token of its own or that of the owner's first entry.
    ///
    /// A waiting row has its token from the start. Tokens then grow in the order of the queue, and
    /// to grant is to change the state only.
    pub(super) fn insert(
        &mut self,
        claim: &Claim,
        state: i64,
        token: Option<FencingToken>,
    ) -> Result<Granted> {
        let tx = self.tx;
        let (ticket, fresh) = tx.next_ticket(self.high);
        let token = token.unwrap_or(fresh);
        let lease = if state == WAITING { WAITER_LEASE } else { claim.ttl };
        let id = claim.id.to_string();
        if let Some(free) = self.free.take() {
            self.delete(free)?;
        }
        tx.connection
            .prepare_cached(
                "INSERT INTO claim(name, ticket, state, id, owner, process, mode, token, high,
                   ttl, since, expires, identity, note)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute(params![
                self.name,
                ticket,
                state,
                id,
                claim.owner.id(),
                tx.process,
                code_of(claim.mode),
                i64::try_from(token.get()).unwrap_or(i64::MAX),
                millis(claim.ttl),
                tx.now,
                tx.now + millis(lease),
                claim.identity,
                claim.note,
            ])?;
        // The new row has the largest ticket itself, so nothing is left for `finish` to keep.
        self.high = ticket;
        self.removed = false;
        Ok(Granted { id, ticket, token, sent: tx.sent })
    }

    /// Keeps the largest ticket where the next reader finds it: in the last row, or in a free row
    /// if there is none. Without it, the removal of the last row of a queue would let a later claim
    /// have a smaller token than one that was granted before.
    pub(super) fn finish(self) -> Result<()> {
        if !self.removed {
            return Ok(());
        }
        let connection = self.tx.connection;
        match self.records.last() {
            None => connection
                .prepare_cached(
                    "INSERT INTO claim(name, ticket, state, id, owner, process, mode, token,
                       high, ttl, since, expires, identity, note)
                     VALUES (?1, ?2, 0, '', '', '', 0, ?2, 0, 0, ?3, ?3, '', '')",
                )?
                .execute(params![self.name, self.high, self.tx.now])?,
            Some(last) => connection
                .prepare_cached("UPDATE claim SET high = ?3 WHERE name = ?1 AND ticket = ?2")?
                .execute(params![self.name, last.ticket, self.high])?,
        };
        Ok(())
    }
}
