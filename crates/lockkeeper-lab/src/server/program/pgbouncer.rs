//! `PgBouncer`, which hands out sessions of PostgreSQL.

use super::{Clock, Program};
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::PGBOUNCER;
use crate::server::wire;
use anyhow::{Result, bail};
use std::ffi::OsString;

/// A `PgBouncer` in transaction mode: a client has a session for as long as a transaction takes, and
/// then perhaps another.
#[derive(Debug, Clone)]
pub struct PgBouncer {
    /// The port of the PostgreSQL behind it.
    server: u16,
    lines: Vec<String>,
}

impl PgBouncer {
    pub(crate) fn before(server: u16) -> Self {
        Self { server, lines: Vec::new() }
    }
}

impl Plan<PgBouncer> {
    /// Adds a line to the section `[pgbouncer]` of its configuration. Of two for one name the later
    /// counts.
    pub fn config(mut self, line: &str) -> Self {
        self.program.lines.push(line.to_owned());
        self
    }
}

impl Program for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    /// The one that owns the data of PostgreSQL: any user but root will do.
    fn user(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        let users = place.data().join("users.txt");
        std::fs::write(&users, "\"lockkeeper\" \"\"\n")?;
        let text = format!(
            "[databases]\n\
             lockkeeper = host=127.0.0.1 port={} dbname=lockkeeper\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {}\n\
             unix_socket_dir =\n\
             auth_type = trust\n\
             auth_file = {}\n\
             pool_mode = transaction\n\
             default_pool_size = 4\n\
             max_client_conn = 500\n\
             {}\n",
            self.server,
            place.port(),
            users.display(),
            self.lines.join("\n"),
        );
        std::fs::write(place.data().join("pgbouncer.ini"), text)?;
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        Ok(words![PGBOUNCER.path()?, place.data().join("pgbouncer.ini")])
    }

    /// Only through a session of the server behind it.
    fn ask(&self, place: &Place) -> Result<()> {
        let said = wire::postgres::query(place.port(), "SELECT 1")?;
        if said == ["1"] { Ok(()) } else { bail!("pgbouncer said {said:?}") }
    }

    fn url(&self, place: &Place) -> String {
        format!("postgres://lockkeeper@127.0.0.1:{}/lockkeeper", place.port())
    }

    fn clock(&self) -> Clock {
        Clock::Unsupported("it decides nothing by the time of day")
    }
}
