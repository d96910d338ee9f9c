//! The claims on one name, as they were read, and what is to become of them. Pure: no statement is
//! in here.
//!
//! A change is decided on what was read, and carried out only if nothing changed meanwhile: it is
//! made on condition of the [`Version`] that was read, and raises it. So no lock is held in the
//! database while a client thinks, is paused or is gone.
//!
//! The claims of a name are kept in one of two places. A claim that is alone on its name is in the
//! row of the name itself, where it is taken, extended and freed by one statement. As soon as there
//! are several, all are rows of the second table.
//!
//! Which claims of the queue hold is for [`queue`](mod@crate::backend::queue) to say; here the
//! answer is written down, and kept: a claim that holds goes on holding until it is released,
//! broken or expired. True before and after each change: tickets grow in the order of asking;
//! claims of different owners that hold, and have not expired, fit beside each other.

mod change;
#[cfg(test)]
mod tests;

pub(super) use change::{Change, Version};

use super::record::{BROKEN, HANDED, HELD, Record, Seen, WAITER_LEASE, WAITING, micros};
use crate::backend::{Claim, FencingToken, LossReason, Mode, Standing, queue};
use std::time::Duration;

/// How many of those who wait are read at once: those at the head of the queue.
pub(super) const LOADED: usize = 16;

/// Nobody is at the name.
pub(super) const FREE: i16 = 0;
/// One claim holds it, which is in the row of the name.
pub(super) const ALONE: i16 = 1;
/// Its claims are in the second table.
pub(super) const CROWD: i16 = 2;

/// A name as it was read: its row, and the claims that a change may concern.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    /// The database's clock when it was read.
    pub(super) now: i64,
    pub(super) version: Version,
    /// The largest ticket that the name ever had.
    pub(super) last: i64,
    /// How many wait, dead ones included.
    pub(super) waiting: i64,
    /// Where the claims are.
    pub(super) place: i16,
    /// What was read, to be compared with what is to be.
    stored: Vec<Record>,
    /// What is to be: the claims that do not wait, then those at the head of the waiting ones.
    pub(super) records: Vec<Record>,
    /// Other keepers that were handed something or had it broken: the keeper, and what it is told.
    pub(super) notices: Vec<(String, String)>,
    /// Claims of this keeper that were granted.
    pub(super) granted: Vec<Record>,
    /// The keeper that this is decided for.
    process: String,
    /// The token of the claim that this is about, where it is known.
    token: Option<FencingToken>,
}

/// What became of asking for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It holds the name now.
    Granted(FencingToken),
    /// Other claims are before it, and it was not to queue: nothing of it is stored.
    Busy,
    /// It is at the end of the queue.
    Queued {
        /// Its place among those that wait, counted from 1.
        place: usize,
        ticket: i64,
        /// Until the first of those that hold expires, unless it is renewed.
        until_expiry: Duration,
    },
    /// The owner holds the name in this mode, which does not cover what it asks for. Nothing was
    /// queued: the owner would wait for itself.
    Uncovered(Mode),
    /// The claim with this id was made in this mode and with this ttl, in microseconds.
    OtherTerms(Mode, i64),
}

/// What became of leaving the queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It was waiting, and is gone.
    From(usize),
    /// It had been granted meanwhile, and holds the name.
    Granted(FencingToken),
    /// It was not there, or no longer held. Nothing of it is left.
    Gone,
}

impl Queue {
    /// The queue that was read for `process`: the row of the name, and its claims with whether
    /// their processes live. What has expired, and who waits in a dead process, is dropped.
    pub(super) fn read(
        process: &str,
        (now, version, last, waiting, place): (i64, i64, i64, i64, i16),
        mut claims: Vec<(Record, bool)>,
    ) -> Self {
        claims.sort_by_key(|(record, _)| (record.state == WAITING, record.ticket));
        // A row may have been read twice, as one of the first and as the one that was asked for.
        claims.dedup_by_key(|(record, _)| (record.state, record.ticket));
        let stored: Vec<Record> = claims.iter().map(|(record, _)| record.clone()).collect();
        let alive = |(record, alive): &(Record, bool)| match record.state {
            WAITING => *alive,
            _ => record.expires > now,
        };
        let waits = |it: &&(Record, bool)| it.0.state == WAITING;
        let read = claims.iter().filter(waits).count();
        let dead = claims.iter().filter(waits).filter(|it| !it.1).count();
        // Where all of them were read, that is the number.
        let waiting = if read < LOADED { count(read) } else { waiting.max(count(read)) };
        let records: Vec<Record> =
            claims.into_iter().filter(alive).map(|(record, _)| record).collect();
        Self {
            now,
            version: Version { number: version, last },
            last,
            waiting: waiting - count(dead),
            place,
            stored,
            records,
            notices: Vec::new(),
            granted: Vec::new(),
            process: process.to_owned(),
            token: None,
        }
    }

    /// What comes next is about the grant with this token, and no other of the same id.
    pub(super) fn of(&mut self, token: Option<FencingToken>) -> &mut Self {
        self.token = token;
        self
    }

    /// Asks for the claim's name: grants it, queues the claim, or says that it is busy.
    ///
    /// A claim is granted here only if nobody waits. One that fits beside the holders but comes
    /// after a waiter queues behind it, or a stream of readers could keep a writer out for ever.
    /// The owner that holds the name already enters at once, with the token it has: to queue would
    /// be to wait for itself.
    pub(super) fn ask(&mut self, claim: &Claim, may_queue: bool) -> Asked {
        self.advance();
        if let Some(asked) = self.asked_before(claim, may_queue) {
            return asked;
        }
        let ticket = self.last.saturating_add(1).max(self.now);
        let owned = self.records.iter().find(|record| record.is_owned_by(claim));
        if let Some((mode, token)) = owned.map(|record| (record.mode, record.token)) {
            if !mode.covers(claim.mode) {
                return Asked::Uncovered(mode);
            }
            let record = Record { token, ..self.record(claim, HELD, ticket) };
            return Asked::Granted(self.insert(record));
        }
        if self.waiting == 0 && queue::fits(claim.mode, self.holders()) {
            let record = self.record(claim, HELD, ticket);
            return Asked::Granted(self.insert(record));
        }
        if !may_queue {
            return Asked::Busy;
        }
        let until_expiry = self.until_expiry();
        let record = self.record(claim, WAITING, ticket);
        self.insert(record);
        self.waiting += 1;
        let place = usize::try_from(self.waiting).unwrap_or(1);
        Asked::Queued { place, ticket, until_expiry }
    }

    /// What became of an earlier request for the same claim, whose answer was lost, or that was made
    /// under the same id elsewhere: then it is looked after by this keeper, which asked last.
    fn asked_before(&mut self, claim: &Claim, may_queue: bool) -> Option<Asked> {
        let id = &*claim.id.to_string();
        let at = self.position(id)?;
        let record = &mut self.records[at];
        if record.stays() || record.state == BROKEN {
            return None;
        }
        if claim.by_id {
            if (record.mode, record.ttl) != (claim.mode, micros(claim.ttl)) {
                return Some(Asked::OtherTerms(record.mode, record.ttl));
            }
            if record.state == WAITING && !may_queue {
                return Some(Asked::Busy);
            }
            record.process.clone_from(&self.process);
        }
        if self.records[at].state != WAITING {
            return self.confirm(id).map(Asked::Granted);
        }
        let place = self.records[..at].iter().filter(|it| it.state == WAITING).count() + 1;
        let (ticket, until_expiry) = (self.records[at].ticket, self.until_expiry());
        Some(Asked::Queued { place, ticket, until_expiry })
    }

    fn record(&self, claim: &Claim, state: i16, ticket: i64) -> Record {
        Record::of(claim, &self.process, state, ticket, self.now)
    }

    fn insert(&mut self, record: Record) -> FencingToken {
        let token = record.fencing_token();
        self.last = record.ticket;
        self.records.push(record);
        token
    }

    /// Where the claim with this id is. One that was broken and asked for again by the same id is there
    /// twice, until the holder that lost it has been told: then the token tells them apart, and where it
    /// is not known, it is the second that counts.
    fn position(&self, id: &str) -> Option<usize> {
        let is_whole = |record: &Record| self.is_it(record, id) && record.state != BROKEN;
        let whole = self.records.iter().position(is_whole);
        whole.or_else(|| self.records.iter().position(|record| self.is_it(record, id)))
    }

    fn is_it(&self, record: &Record, id: &str) -> bool {
        record.id == id && self.token.is_none_or(|token| token == record.fencing_token())
    }

    fn find(&mut self, id: &str) -> Option<&mut Record> {
        self.position(id).map(|at| &mut self.records[at])
    }

    /// Extends the claim if it is still held, and never shortens it: another that has it may have been told
    /// more. How much is on record as its ttl, and bounds what is left of it should the clock go back. A
    /// claim that stays after its release has no holder, so a ticket that somebody kept does not extend it.
    /// One that expired is gone already.
    pub(super) fn renew(&mut self, id: &str, ttl: Duration) -> Standing {
        let (now, ttl) = (self.now, micros(ttl));
        match self.find(id) {
            Some(record) if record.state == HELD && !record.process.is_empty() => {
                record.expires = record.expires.min(now + record.ttl).max(now + ttl);
                record.ttl = record.ttl.max(ttl);
                Standing::Held
            }
            _ => Standing::Lost(self.lost(id).unwrap_or(LossReason::Gone)),
        }
    }

    /// As [`renew`](Self::renew), of a claim that this keeper looks after from now on.
    pub(super) fn take_over(&mut self, id: &str, ttl: Duration) -> Standing {
        let standing = self.renew(id, ttl);
        let process = self.process.clone();
        if standing == Standing::Held
            && let Some(record) = self.find(id)
        {
            record.process = process;
        }
        standing
    }

    /// Gives back the claim with this id, at once or after `stay`, and lets the next ones in; why
    /// it was not held any more, if so.
    pub(super) fn release(&mut self, id: &str, stay: Duration) -> Option<LossReason> {
        let lost = self.lost(id);
        if stay.is_zero() || lost.is_some() {
            let token = self.token;
            self.take_out(|record| {
                let is_it = token.is_none_or(|token| token == record.fencing_token());
                record.id == id && is_it && !record.stays()
            });
        } else if let (expires, Some(record)) = (self.now + micros(stay), self.find(id)) {
            // Nobody looks after it from now on: it cannot be renewed, released or entered again,
            // and goes on keeping others out until it expires.
            record.expires = expires;
            record.process.clear();
        }
        self.advance();
        lost
    }

    /// Why the claim is not held any more; `None` when it is.
    fn lost(&self, id: &str) -> Option<LossReason> {
        match self.position(id).map(|at| &self.records[at]) {
            Some(record) if record.holds() && !record.process.is_empty() => None,
            Some(record) if record.state == BROKEN => {
                Some(LossReason::Broken { reason: record.note.clone() })
            }
            _ => Some(LossReason::Gone),
        }
    }

    /// Removes whatever the claim with this id has on the name, and lets the next ones in.
    pub(super) fn remove(&mut self, id: &str) {
        self.take_out(|record| record.id == id);
        self.advance();
    }

    /// Removes a broken claim whose holder has been told.
    pub(super) fn remove_broken(&mut self, id: &str) {
        self.take_out(|record| record.id == id && record.state == BROKEN);
        self.advance();
    }

    /// Removes a claim that nobody looks after, if it is still as it was seen; and lets the next
    /// ones in. One that was granted, confirmed or asked for anew since then has somebody.
    pub(super) fn remove_as_seen(&mut self, seen: &Seen) {
        self.take_out(|record| record.seen() == *seen);
        self.advance();
    }

    /// Takes the claim out of the queue, unless it was granted meanwhile: then it holds the name
    /// from here on, confirmed.
    pub(super) fn leave(&mut self, id: &str) -> Left {
        let waiting = |record: &&Record| record.state == WAITING;
        let ahead = self.records.iter().filter(waiting).take_while(|record| record.id != id);
        let ahead = ahead.count();
        let waits = |record: &Record| record.id == id && record.state == WAITING;
        // Not where another keeper waits for the same claim by now, which was asked for by its id.
        if self.records.iter().any(|it| waits(it) && it.process != self.process) {
            return Left::Gone;
        }
        if self.records.iter().any(waits) {
            self.take_out(waits);
            self.advance();
            return Left::From(ahead + 1);
        }
        match self.confirm(id) {
            Some(token) => Left::Granted(token),
            None => {
                // Of another keeper it is the word that its claim was broken.
                let process = self.process.clone();
                self.take_out(|record| record.id == id && record.process == process);
                self.advance();
                Left::Gone
            }
        }
    }

    /// Makes a claim that was granted a held one, for its whole ttl from now on.
    pub(super) fn confirm(&mut self, id: &str) -> Option<FencingToken> {
        let now = self.now;
        self.advance();
        let record = self.find(id)?;
        if !record.holds() || record.process.is_empty() {
            return None;
        }
        record.state = HELD;
        record.expires = now + record.ttl;
        let token = record.fencing_token();
        self.granted.retain(|record| record.id != id);
        Some(token)
    }

    /// Breaks every claim of the holder with this token, and lets the next ones in; whether there
    /// was one. The broken ones stay, holding nothing, until their holders have been told.
    pub(super) fn break_hold(&mut self, token: FencingToken, reason: &str) -> bool {
        let mut found = false;
        for record in &mut self.records {
            if record.fencing_token() != token || !record.holds() {
                continue;
            }
            found = true;
            record.state = BROKEN;
            record.note = reason.to_owned();
            if !record.process.is_empty() {
                self.notices.push((record.process.clone(), format!("broken {}", record.id)));
            }
        }
        // Those that only stayed have nobody to tell.
        self.take_out(|record| record.state == BROKEN && record.process.is_empty());
        self.advance();
        found
    }

    /// Grants to those at the head of the queue that fit, and stops at the first that does not:
    /// nobody overtakes.
    ///
    /// A waiter of this keeper holds at once, and is told after the commit. A waiter of another
    /// must confirm before a short time is over, so that a dead one costs little.
    pub(super) fn advance(&mut self) {
        while let Some(next) = self.records.iter().position(|record| record.state == WAITING) {
            if !queue::fits(self.records[next].mode, self.holders()) {
                break;
            }
            let ours = self.records[next].process == self.process;
            let record = &mut self.records[next];
            record.since = self.now;
            self.waiting -= 1;
            if ours {
                record.state = HELD;
                record.expires = self.now + record.ttl;
                self.granted.push(record.clone());
            } else {
                record.state = HANDED;
                record.expires = self.now + micros(WAITER_LEASE);
                let told = format!("handed {}", record.id);
                self.notices.push((record.process.clone(), told));
            }
        }
    }

    /// Those that keep others out, by mode and token: claims of one owner share a token, so they
    /// count as one.
    fn holders(&self) -> impl Iterator<Item = (Mode, i64)> {
        self.records.iter().filter(|record| record.holds()).map(|it| (it.mode, it.token))
    }

    /// Until the first of those that hold expires, unless it is renewed.
    pub(super) fn until_expiry(&self) -> Duration {
        let holding = self.records.iter().filter(|record| record.state != WAITING);
        let first = holding.map(|record| record.expires).min();
        super::record::span(first.map_or(0, |first| first - self.now))
    }

    /// Whether some who wait were not read, although all that were read have been let in or
    /// dropped: then there may be more to let in.
    pub(super) fn is_short(&self) -> bool {
        self.waiting > 0 && !self.records.iter().any(|record| record.state == WAITING)
    }

    fn take_out(&mut self, matches: impl Fn(&Record) -> bool) {
        let gone = self.records.extract_if(.., |record| matches(record));
        self.waiting -= count(gone.filter(|record| record.state == WAITING).count());
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
