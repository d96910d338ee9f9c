//! One row of the table: a claim as it is stored.
//!
//! ```text
//!            ask                    head of the queue, other process        confirmed in time
//!   (none) ──────► WAITING ───────────────────────────────────► HANDED ─────────────────► HELD
//!     │                └──────────── head of the queue, this process ─────────────────────►│
//!     └─────────────────────────────── ask, nobody there ─────────────────────────────────►│
//!                                                                  break                   │
//!   (none) ◄── holder told ── BROKEN ◄─────────────────────────────────────────────────────┤
//!   FREE   ◄── release, the last row of its name ◄─────────────────────────────────────────┘
//! ```
//!
//! Times are milliseconds of the [`StoreClock`](super::time::StoreClock).

use super::client::transaction::Granted;
use crate::backend::{Claim, FencingToken, Mode, Moment};
use rusqlite::{Result, Row};
use std::time::Duration;

/// Nobody's: remembers the largest ticket of its name, of which it is the only row.
pub(super) const FREE: i64 = 0;
/// Held, or released and staying for a while; see [`Record::stays`].
pub(super) const HELD: i64 = 1;
/// In the queue; expires without heartbeats of its process.
pub(super) const WAITING: i64 = 2;
/// Granted to another process by the one that released, and not yet confirmed by it: until it is,
/// the row expires as a waiting one does, so that a dead process costs little. It keeps others out
/// all the same, because its process may confirm at any moment.
pub(super) const HANDED: i64 = 3;
/// Taken from its holder, whose process has not been told yet. Holds nothing.
pub(super) const BROKEN: i64 = 4;

/// How long a waiter stays in the queue without a heartbeat of its process, handed to or not: the
/// most that a dead waiter costs the one behind it. Four heartbeats: shorter, and a process that is
/// merely slow would lose its place.
pub(super) const WAITER_LEASE: Duration = Duration::from_secs(2);

/// A row. Times and spans are in milliseconds, on the clock of the file.
#[derive(Debug)]
pub(super) struct Record {
    /// The row's number below its name: its place in the queue.
    pub(super) ticket: i64,
    pub(super) state: i64,
    pub(super) id: String,
    pub(super) owner: String,
    /// The process that looks after it; empty for a claim that stays after its release.
    pub(super) process: String,
    pub(super) mode: Mode,
    pub(super) token: FencingToken,
    /// The largest ticket of the name that has no row any more, if this is its last row.
    pub(super) high: i64,
    /// How long a hold lasts without renewal; kept while the claim waits, for whichever process
    /// grants it.
    pub(super) ttl: i64,
    /// When the claim was granted, or began to wait if it still does.
    pub(super) since: i64,
    /// From this time on the row counts as gone, whether it has been deleted or not.
    pub(super) expires: i64,
    pub(super) identity: String,
    /// The holder's note; for a broken claim the reason, which its holder is told.
    pub(super) note: String,
}

impl Record {
    /// Reads a row of `ticket, state, id, owner, process, mode, token, high, ttl, since, expires,
    /// identity, note`.
    pub(super) fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            ticket: row.get(0)?,
            state: row.get(1)?,
            id: row.get(2)?,
            owner: row.get(3)?,
            process: row.get(4)?,
            mode: mode_of(row.get(5)?),
            token: token_of(row.get(6)?)?,
            high: row.get(7)?,
            ttl: row.get(8)?,
            since: row.get(9)?,
            expires: row.get(10)?,
            identity: row.get(11)?,
            note: row.get(12)?,
        })
    }

    /// Whether the claim's owner holds it here, and so may enter again. A claim that stays after
    /// its release is nobody's.
    pub(super) fn is_owned_by(&self, claim: &Claim) -> bool {
        self.holds() && self.owner == claim.owner.id() && !self.process.is_empty()
    }

    /// Whether it was released, and only stays for the rest of its least time.
    pub(super) fn stays(&self) -> bool {
        self.state == HELD && self.process.is_empty()
    }

    /// Whether it keeps others out.
    pub(super) fn holds(&self) -> bool {
        matches!(self.state, HELD | HANDED)
    }

    /// What its holder needs to know of it.
    pub(super) fn granted(&self, sent: Moment) -> Granted {
        Granted { id: self.id.clone(), ticket: self.ticket, token: self.token, sent }
    }
}

/// As it is stored: 0 exclusive, -1 shared, n for a permit of n. A number that was never stored by
/// us is read as a permit of one, which lets in as few as possible.
fn mode_of(code: i64) -> Mode {
    match code {
        0 => Mode::Exclusive,
        -1 => Mode::Shared,
        of => Mode::Permit { of: u32::try_from(of).unwrap_or(1) },
    }
}

/// The reverse of [`mode_of`].
pub(super) fn code_of(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => -1,
        Mode::Permit { of } => i64::from(of),
    }
}

/// A token from its column; an error for a number that was never one.
pub(super) fn token_of(number: i64) -> Result<FencingToken> {
    let token = u64::try_from(number).ok().and_then(FencingToken::new);
    token.ok_or(rusqlite::Error::IntegralValueOutOfRange(6, number))
}

/// A span in whole milliseconds, rounded up: a claim must not end earlier in the file than its
/// holder counts on.
pub(super) fn millis(span: Duration) -> i64 {
    const LONGEST: i64 = i64::MAX / 4;
    i64::try_from(span.as_micros().div_ceil(1000)).map_or(LONGEST, |millis| millis.min(LONGEST))
}

/// Milliseconds back to a span; nothing when negative, as for a time that has just passed.
pub(super) fn span(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Were a span rounded down, a claim with a ttl of a fraction of a millisecond would expire
    /// when it is made, and every other would end in the file up to a millisecond early.
    #[test]
    fn spans_round_up() {
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(span(-5), Duration::ZERO);
    }
}
