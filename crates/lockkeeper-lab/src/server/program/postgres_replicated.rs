//! A PostgreSQL primary with a standby that can be promoted.

use super::postgres::Postgres;
use super::redis_replicated::patiently;
use crate::server::handle::Server;
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::PG_BASEBACKUP;
use crate::server::wire;
use anyhow::{Result, ensure};

/// A primary and its standby, which follows it asynchronously.
#[derive(Debug)]
pub struct PostgresPair {
    /// Takes the writes.
    pub primary: Server,
    /// Follows the primary until it is promoted.
    pub standby: Server,
}

impl Plan<Postgres> {
    /// Starts a primary and a standby, and waits until the standby follows.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_replicated(self) -> Result<PostgresPair> {
        let primary = self.clone().start()?;
        let standby = self.standby_of(primary.port()).start()?;
        patiently("the standby follows", || {
            let states = wire::postgres::query(
                primary.port(),
                "SELECT state FROM pg_stat_replication WHERE state = 'streaming'",
            )?;
            ensure!(!states.is_empty(), "nobody follows the primary");
            Ok(())
        })?;
        Ok(PostgresPair { primary, standby })
    }

    /// Makes it follow the server that is reached on this port: its own, or that of a proxy which
    /// can be cut.
    pub fn standby_of(mut self, port: u16) -> Self {
        self.program.primary = Some(port);
        self
    }
}

impl PostgresPair {
    /// Waits until the standby has replayed what the primary has committed so far.
    ///
    /// # Errors
    /// When the standby does not catch up.
    pub fn await_standby(&self) -> Result<()> {
        let position = wire::postgres::query(self.primary.port(), "SELECT pg_current_wal_lsn()")?;
        let caught_up = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", position.concat());
        patiently("the standby catches up", || {
            let said = wire::postgres::query(self.standby.port(), &caught_up)?;
            ensure!(said == ["t"], "the standby is behind");
            Ok(())
        })
    }

    /// Promotes the standby, and waits until it takes writes. The primary is left as it is: two
    /// servers take writes from now on unless it was killed.
    ///
    /// # Errors
    /// When the standby does not follow any more.
    pub fn promote(&self) -> Result<()> {
        promote(&self.standby)
    }
}

/// Promotes a standby, and waits until it takes writes.
///
/// # Errors
/// When it does not follow any more.
pub fn promote(standby: &Server) -> Result<()> {
    let said = wire::postgres::query(standby.port(), "SELECT pg_promote(false)")?;
    ensure!(said == ["t"], "the standby cannot be promoted: {said:?}");
    patiently("the standby takes writes", || {
        let said = wire::postgres::query(standby.port(), "SELECT pg_is_in_recovery()")?;
        ensure!(said == ["f"], "it still follows");
        Ok(())
    })
}

/// Fills the data folder of a standby with a copy of the primary on `port`.
pub(super) fn copy_of(port: u16, place: &Place) -> Result<()> {
    place.run(words![
        PG_BASEBACKUP.path()?,
        "--host=127.0.0.1",
        format!("--port={port}"),
        "--username=lockkeeper",
        "--checkpoint=fast",
        "--wal-method=stream",
        // Says in the copy whom to follow.
        "--write-recovery-conf",
        "--no-sync",
        "--pgdata",
        place.data(),
    ])
}
