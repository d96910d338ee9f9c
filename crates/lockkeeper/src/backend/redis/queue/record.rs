//! A claim as it is written in Redis, and read back for the inspector.
//!
//! | line | what |
//! |---|---|
//! | id | of the claim, 32 hexadecimal digits |
//! | token | 0 while it waits |
//! | since | when it began to wait or to hold, in ms of the server's clock; 0 if the token tells it |
//! | keeper | whose claim it is: where messages about it go, and whose heartbeat keeps it in the queue; in capitals when others keep it by its ticket, so that this keeper is not asked for it; zeros when it was handed out |
//! | mode | `x`, `s`, or `p3` for one of three permits |
//! | ttl | in ms: what a renewal, or its turn, gives it |
//! | owner | who may enter again; its own id if none was named; empty if it only stays |
//! | identity, note | for people |
//!
//! The scripts read the lines up to the owner; the rest is for people, and may be missing in what
//! others wrote. Requests write the record from the keeper on (`Requests::request`); the scripts
//! put id, token and since before it.

use crate::backend::redis::error::beginning;
use crate::backend::{FencingToken, HolderView, Mode, Owner, WaiterView};
use std::time::Duration;

/// `id, token, since, keeper, mode, ttl, owner, identity, note`, a line each.
#[derive(Debug)]
pub(super) struct Record<'a> {
    token: Option<FencingToken>,
    since: u64,
    mode: Mode,
    owner: Owner,
    identity: &'a str,
    note: &'a str,
}

/// The longest that is shown of a text; none of ours is longer.
const LONGEST: usize = 4096;

impl<'a> Record<'a> {
    /// `None` for what is no record.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let mut lines = text.splitn(9, '\n');
        let (_id, token, since) = (lines.next()?, lines.next()?, lines.next()?);
        let (_keeper, mode, _ttl) = (lines.next()?, lines.next()?, lines.next()?);
        let owner = lines.next()?;
        // What was released but stays for its shortest time has no owner.
        let owner = if owner.is_empty() { "-" } else { owner };
        let (token, since): (u64, u64) = (token.parse().ok()?, since.parse().ok()?);
        Some(Self {
            token: FencingToken::new(token),
            // A token is the time of its grant, in microseconds.
            since: if since == 0 { token / 1000 } else { since },
            mode: mode_of(mode)?,
            owner: Owner::from_id(owner.to_owned()),
            // Only for people to read: a record that others wrote without them holds the name too.
            identity: beginning(lines.next().unwrap_or_default(), LONGEST),
            note: beginning(lines.next().unwrap_or_default(), LONGEST),
        })
    }

    /// Whose claim it is; `-` for one that was released and stays for its shortest time.
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The claim as a holder, at `now` by the server's clock.
    pub(super) fn holder(&self, now: u64, expires_in: Duration) -> HolderView {
        HolderView {
            owner: self.owner.clone(),
            identity: self.identity.to_owned(),
            note: self.note.to_owned(),
            mode: self.mode,
            token: self.token,
            count: 1,
            held_for: Duration::from_millis(now.saturating_sub(self.since)),
            expires_in,
        }
    }

    /// The claim as a waiter, at `now` by the server's clock.
    pub(super) fn waiter(&self, now: u64) -> WaiterView {
        WaiterView {
            owner: self.owner.clone(),
            identity: self.identity.to_owned(),
            note: self.note.to_owned(),
            mode: self.mode,
            waiting_for: Duration::from_millis(now.saturating_sub(self.since)),
        }
    }
}

/// How a mode is written in Redis.
pub(super) fn code_of(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Shared => "s".to_owned(),
        Mode::Permit { of } => format!("p{of}"),
    }
}

/// The mode that [`code_of`] wrote; `None` for anything else.
pub(super) fn mode_of(code: &str) -> Option<Mode> {
    match code.split_at_checked(1)? {
        ("x", "") => Some(Mode::Exclusive),
        ("s", "") => Some(Mode::Shared),
        ("p", of) => Some(Mode::Permit { of: of.parse().ok()? }),
        _ => None,
    }
}
