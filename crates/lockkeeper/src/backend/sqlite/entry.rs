//! One row of the table.

use super::tx::Turn;
use crate::backend::{Claim, FencingToken, Mode, Moment};
use rusqlite::{Result, Row};

pub(super) const FREE: i64 = 0;
pub(super) const HELD: i64 = 1;
pub(super) const WAITING: i64 = 2;
pub(super) const HANDED: i64 = 3;
pub(super) const BROKEN: i64 = 4;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) ticket: i64,
    pub(super) state: i64,
    pub(super) id: String,
    pub(super) owner: String,
    pub(super) process: String,
    pub(super) mode: Mode,
    pub(super) token: FencingToken,
    pub(super) high: i64,
    pub(super) ttl: i64,
    pub(super) since: i64,
    pub(super) expires: i64,
    pub(super) identity: String,
    pub(super) note: String,
}

impl Entry {
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

    /// Whether the claim's owner holds it here, and so may enter again. One that lingers after
    /// its release is nobody's.
    pub(super) fn is_owned_by(&self, claim: &Claim) -> bool {
        self.holds() && self.owner == claim.owner.id() && !self.process.is_empty()
    }

    pub(super) fn holds(&self) -> bool {
        matches!(self.state, HELD | HANDED)
    }

    pub(super) fn turn(&self, sent: Moment) -> Turn {
        Turn { id: self.id.clone(), ticket: self.ticket, token: self.token, sent }
    }
}

fn mode_of(code: i64) -> Mode {
    match code {
        0 => Mode::Exclusive,
        -1 => Mode::Shared,
        of => Mode::Permit { of: u32::try_from(of).unwrap_or(1) },
    }
}

pub(super) fn code_of(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => -1,
        Mode::Permit { of } => i64::from(of),
    }
}

pub(super) fn token_of(number: i64) -> Result<FencingToken> {
    let token = u64::try_from(number).ok().and_then(FencingToken::new);
    token.ok_or(rusqlite::Error::IntegralValueOutOfRange(6, number))
}
