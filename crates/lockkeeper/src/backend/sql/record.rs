//! A claim as it is stored, and the states it goes through.
//!
//! ```text
//!            ask, others there        head of the queue, other process        confirmed in time
//!   (none) ──────────────────► WAITING ───────────────────────────► HANDED ─────────────► HELD
//!     │                           └──────── head of the queue, this process ──────────────►│
//!     └─────────────────────────────── ask, nobody there ─────────────────────────────────►│
//!   (none) ◄── holder told ── BROKEN ◄── break ────────────────────────────────────────────┤
//!   (none) ◄── release ────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Times are microseconds since 1970 by the database's clock, spans are microseconds.

use crate::backend::{Claim, FencingToken, Mode, Moment};
use std::time::Duration;

/// Held, or released and staying for a while; see [`Record::stays`].
pub(super) const HELD: i16 = 1;
/// Granted to another process by the one that released, and not yet confirmed by it: until it is,
/// the claim expires soon, so that a dead process costs little. It keeps others out all the same,
/// because its process may confirm at any moment.
pub(super) const HANDED: i16 = 2;
/// Taken from its holder, which has not been told yet. Holds nothing.
pub(super) const BROKEN: i16 = 3;
/// In the queue, for as long as its process sends heartbeats. The largest, so that the primary key
/// keeps all who wait behind all who hold, and both in order.
pub(super) const WAITING: i16 = 9;

/// How long a waiter stays in the queue without a heartbeat of its process, and how long a claim
/// that was handed over may stay unconfirmed: the most that a dead waiter costs the one behind it.
pub(super) const WAITER_LEASE: Duration = Duration::from_secs(2);

/// A claim in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Its place in the queue of its name.
    pub(super) ticket: i64,
    pub(super) state: i16,
    pub(super) id: String,
    pub(super) owner: String,
    /// The keeper that looks after it; empty for a claim that stays after its release.
    pub(super) process: String,
    pub(super) mode: Mode,
    pub(super) token: i64,
    /// How long a hold lasts without renewal.
    pub(super) ttl: i64,
    /// When the claim was granted, or began to wait if it still does.
    pub(super) since: i64,
    /// From this time on the claim counts as gone; means nothing while it waits.
    pub(super) expires: i64,
    pub(super) identity: String,
    /// The holder's note; for a broken claim the reason, which its holder is told.
    pub(super) note: String,
}

impl Record {
    /// What a claim of this keeper looks like in this state.
    pub(super) fn of(claim: &Claim, process: &str, state: i16, ticket: i64, now: i64) -> Self {
        Self {
            ticket,
            state,
            id: claim.id.to_string(),
            owner: claim.owner.id().to_owned(),
            process: process.to_owned(),
            mode: claim.mode,
            token: ticket,
            ttl: micros(claim.ttl),
            since: now,
            expires: now + micros(claim.ttl),
            identity: claim.identity.to_string(),
            note: claim.note.to_string(),
        }
    }

    /// By what it is known again.
    pub(super) fn seen(&self) -> Seen {
        let Self { id, ticket, state, expires, .. } = self;
        Seen { id: id.clone(), ticket: *ticket, state: *state, expires: *expires }
    }

    /// Whether it keeps others out.
    pub(super) fn holds(&self) -> bool {
        matches!(self.state, HELD | HANDED)
    }

    /// Whether it was released, and only stays for the rest of its least time.
    pub(super) fn stays(&self) -> bool {
        self.state == HELD && self.process.is_empty()
    }

    /// Whether the claim's owner holds it here, and so may enter again. A claim that stays after
    /// its release is nobody's.
    pub(super) fn is_owned_by(&self, claim: &Claim) -> bool {
        self.holds() && self.owner == claim.owner.id() && !self.process.is_empty()
    }

    /// The token as the library knows it. A number that was never one reads as the smallest.
    pub(super) fn fencing_token(&self) -> FencingToken {
        token_of(self.token)
    }
}

/// A claim as somebody saw it. One that was granted, confirmed or asked for anew since then is another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) ticket: i64,
    pub(super) state: i16,
    pub(super) expires: i64,
}

/// A claim that holds its name.
#[derive(Debug, Clone)]
pub(super) struct Granted {
    pub(super) token: FencingToken,
    /// A moment before the database's clock was read that the expiry counts from.
    pub(super) sent: Moment,
    /// Whether it is one of several claims on its name, so that its release begins with a look at
    /// the others.
    pub(super) crowded: bool,
}

/// A token from its column.
pub(super) fn token_of(number: i64) -> FencingToken {
    let number = u64::try_from(number).unwrap_or(1).max(1);
    FencingToken::after(0, number)
}

/// As it is stored: 0 exclusive, -1 shared, n for a permit of n.
pub(super) fn code_of(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => -1,
        Mode::Permit { of } => i64::from(of),
    }
}

/// The reverse of [`code_of`]. A number that was never stored by us is read as a permit of one,
/// which lets in as few as possible.
pub(super) fn mode_of(code: i64) -> Mode {
    match code {
        0 => Mode::Exclusive,
        -1 => Mode::Shared,
        of => Mode::Permit { of: u32::try_from(of).unwrap_or(1) },
    }
}

/// A span in whole microseconds, rounded up: a claim must not end earlier in the store than its
/// holder counts on.
pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// Microseconds back to a span; nothing when negative, as for a time that has just passed.
pub(super) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_spans_come_back() {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { of: 7 }] {
            assert_eq!(mode_of(code_of(mode)), mode);
        }
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(span(-5), Duration::ZERO);
    }
}
