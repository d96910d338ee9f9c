//! `sqlite:` — a lock table in one file, shared by every process of one machine.
//!
//! `sqlite:path/to/locks.db` names the file; `sqlite:` alone means `lockkeeper/locks.db` in the
//! user's state directory (`$XDG_STATE_HOME` or `~/.local/state`; on macOS
//! `~/Library/Application Support`, on Windows `%LOCALAPPDATA%`).
//!
//! Each claim is a row with owner, ticket, token and expiry; the table is the queue. Release
//! hands the name to the next waiter in the same transaction. A waiter of this process is woken
//! at once, one of another process by a message to its socket in the folder `FILE-wake`, which
//! is open to those who may write the file. A message that is missed costs half a second; where
//! there can be no sockets (Windows, some file systems), waiters look at the file's version number
//! every few milliseconds, once per process. A free row remembers the last token and is cleaned away after a minute.
//!
//! The claims survive the end of any process. They do not survive a reboot, which no holder
//! does either. The file must be on a local disk: the locks that SQLite itself needs do not work
//! over network file systems. A process that is stopped in the microseconds of a transaction keeps
//! the file from everyone until it goes on or ends: others then get `Unavailable` after five
//! seconds in which nobody at all could write, and lose what they cannot renew. When the file is
//! deleted or replaced, everyone who holds or waits is told. Processes in containers can share it
//! if they share the machine's clock (no time namespace of their own).

mod bell;
mod clerk;
mod desk;
mod entry;
mod job;
mod line;
mod options;
mod roll;
mod schema;
mod sweep;
#[cfg(test)]
mod tests;
mod time;
mod tx;
mod view;
#[cfg(unix)]
mod wake;
#[cfg(not(unix))]
#[path = "wake_none.rs"]
mod wake;

use crate::backend::{
    Alarm, Backend, Capability, Claim, FencingToken, Grant, Inspector, Lease, LockView, Name,
    Patience, Release, Standing,
};
use crate::claim::ClaimIds;
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use desk::Desk;
pub use options::SqliteOptions;
use roll::Called;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tx::{Asked, Left, Turn};

/// The lock table in a file; opened by [`connect`](crate::connect()).
#[derive(Debug)]
pub struct Sqlite {
    desk: Arc<Desk>,
}

impl Sqlite {
    fn open(options: SqliteOptions) -> Result<Self> {
        let path = options.absolute_path()?;
        let process = ClaimIds::new()?.next().to_string();
        let desk = Arc::new(Desk::open(path, process)?);
        clerk::start(&desk).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot start a background thread").caused_by(error)
        })?;
        Ok(Self { desk })
    }

    fn grant(&self, claim: &Claim, turn: Turn) -> Grant {
        let (token, sent) = (Some(turn.token), turn.sent);
        let lease = SqliteLease {
            desk: self.desk.clone(),
            name: claim.name.clone(),
            id: turn.id.into(),
            ticket: turn.ticket,
            ttl: claim.ttl,
        };
        Grant { lease: Box::new(lease), token, sent, valid_for: claim.ttl }
    }

    /// One turn in the queue: `Err` with the reason to ask again.
    async fn wait(&self, claim: &Claim, patience: &Patience) -> Result<Option<Waited>> {
        let (id, name) = (claim.id.to_string(), claim.name.as_str());
        let mut called = self.desk.roll.expect_turn(&id, name);
        let _forget = Forget { desk: &self.desk, id: &id };
        let asked = claim.clone();
        match self.desk.call(move |tx| tx.ask(&asked, true)).await? {
            Asked::Granted(turn) => return Ok(Some(Waited::Granted(turn))),
            Asked::Busy => return Ok(None),
            Asked::Uncovered(mode) => return Err(mode.upgrade_refused(&claim.name, claim.mode)),
            Asked::Queued { place, until_expiry } => {
                patience.queued(place);
                self.desk.waiter_is_queued(&id, time::span(until_expiry));
            }
        }
        tokio::select! {
            biased;
            Ok(called) = &mut called => match called {
                Called::Granted(turn) => Ok(Some(Waited::Granted(turn))),
                Called::Dropped => Ok(Some(Waited::Dropped)),
                Called::Failed(error) => Err(error),
            },
            () = patience.over() => {
                let (leaving, at) = (id.clone(), claim.name.clone());
                match self.desk.call(move |tx| tx.leave(at.as_str(), &leaving)).await? {
                    Left::Granted(turn) => Ok(Some(Waited::Granted(turn))),
                    Left::From(place) => {
                        patience.queued(place);
                        Ok(None)
                    }
                    Left::Gone => Ok(None),
                }
            }
        }
    }
}

enum Waited {
    Granted(Turn),
    Dropped,
}

/// Takes a waiter off the desk's list, however its wait ends.
struct Forget<'a> {
    desk: &'a Desk,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.desk.roll.forget_waiter(self.id);
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn capability(&self) -> Capability {
        crate::recipes::SQLITE
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let asked = claim.clone();
        let first = self.desk.call(move |tx| tx.ask(&asked, false)).await?;
        match first {
            Asked::Granted(turn) => return Ok(Some(self.grant(claim, turn))),
            Asked::Uncovered(mode) => return Err(mode.upgrade_refused(&claim.name, claim.mode)),
            Asked::Busy | Asked::Queued { .. } => {}
        }
        while !patience.is_over() {
            match self.wait(claim, patience).await? {
                Some(Waited::Granted(turn)) => return Ok(Some(self.grant(claim, turn))),
                Some(Waited::Dropped) => {
                    tracing::debug!(name = claim.name.as_str(), "dropped from the queue");
                }
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let (name, id) = (claim.name.clone(), claim.id.to_string());
        self.desk.roll.unwatch(&id);
        self.desk.call(move |tx| tx.remove(name.as_str(), &id)).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }
}

impl fmt::Display for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.desk.path.display())
    }
}

#[derive(Debug)]
struct SqliteLease {
    desk: Arc<Desk>,
    name: Name,
    id: Arc<str>,
    ticket: i64,
    ttl: Duration,
}

#[async_trait]
impl Lease for SqliteLease {
    async fn renew(&mut self) -> Result<Standing> {
        let (name, id, ticket, ttl) = (self.name.clone(), self.id.clone(), self.ticket, self.ttl);
        self.desk.call(move |tx| tx.renew(name.as_str(), ticket, &id, ttl)).await
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let stay = how.stay();
        let (name, id, ticket) = (self.name.clone(), self.id.clone(), self.ticket);
        self.desk.roll.unwatch(&self.id);
        let release = self.desk.call(move |tx| tx.release(name.as_str(), ticket, &id, stay));
        match release.await? {
            None => Ok(()),
            Some(lost) => Err(lost.to_error()),
        }
    }

    fn watch(&mut self, alarm: Alarm) {
        self.desk.watch(&self.id, alarm);
    }
}

impl Drop for SqliteLease {
    fn drop(&mut self) {
        // A detached claim has no one left to alarm.
        self.desk.roll.unwatch(&self.id);
    }
}

#[async_trait]
impl Inspector for Sqlite {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let prefix = prefix.to_owned();
        self.desk.look(move |tx| view::list(tx, &prefix)).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        let name = name.clone();
        self.desk.look(move |tx| view::show(tx, &name)).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let (name, reason) = (name.clone(), reason.to_owned());
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let broken = self.desk.call(move |tx| tx.break_hold(name.as_str(), token, &reason)).await?;
        // A holder in this very process would not see the version number change.
        self.desk.look_for_mail();
        Ok(broken)
    }
}
