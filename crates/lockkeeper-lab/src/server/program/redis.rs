//! Redis.

use super::tls::Certificates;
use super::{Clock, Program};
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::REDIS;
use crate::server::wire::resp::Resp;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fmt::Write as _;

/// A Redis server.
#[derive(Debug, Clone, Default)]
pub struct Redis {
    pub(crate) password: Option<String>,
    pub(crate) tls: bool,
    pub(crate) lines: Vec<String>,
    pub(crate) replica_of: Option<u16>,
    pub(crate) cluster: bool,
}

impl Plan<Redis> {
    /// Asks clients for a password. The URL contains it.
    pub fn password(mut self, password: &str) -> Self {
        self.program.password = Some(password.to_owned());
        self
    }

    /// Uses TLS, with its [`Certificates`].
    pub fn tls(mut self) -> Self {
        self.program.tls = true;
        self
    }

    /// Syncs every write to disk before it is answered, so that a restart keeps it.
    pub fn durable(self) -> Self {
        self.config("appendonly yes").config("appendfsync always")
    }

    /// Adds a line to the configuration, such as `maxmemory 2mb` or `user app on >secret ~* +@all`.
    pub fn config(mut self, line: &str) -> Self {
        self.program.lines.push(line.to_owned());
        self
    }
}

impl Redis {
    fn configuration(&self, place: &Place) -> Result<String> {
        let mut text = String::from(
            "bind 127.0.0.1\nsave \"\"\ndaemonize no\n\
             repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n",
        );
        writeln!(text, "port {}", self.plain_port(place))?;
        writeln!(text, "dir \"{}\"", place.data().display())?;
        if self.tls {
            let certificates = Certificates::make(place)?;
            writeln!(text, "tls-port {}\ntls-auth-clients no", place.port())?;
            writeln!(text, "tls-cert-file \"{}\"", certificates.certificate.display())?;
            writeln!(text, "tls-key-file \"{}\"", certificates.key.display())?;
            writeln!(text, "tls-ca-cert-file \"{}\"", certificates.authority.display())?;
        }
        if let Some(password) = &self.password {
            writeln!(text, "requirepass \"{password}\"\nmasterauth \"{password}\"")?;
        }
        if let Some(primary) = self.replica_of {
            writeln!(text, "replicaof 127.0.0.1 {primary}")?;
        }
        if self.cluster {
            let bus = place.ports().last().context("a port for the bus")?;
            writeln!(text, "cluster-enabled yes\ncluster-node-timeout 1000\ncluster-port {bus}")?;
            // A replica that was disconnected for a moment may still be promoted.
            writeln!(text, "cluster-replica-validity-factor 0")?;
        }
        for line in &self.lines {
            writeln!(text, "{line}")?;
        }
        Ok(text)
    }

    /// The lab itself connects without TLS, on a separate port.
    pub(crate) fn plain_port(&self, place: &Place) -> u16 {
        place.ports()[usize::from(self.tls)]
    }
}

impl Program for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn ports(&self) -> usize {
        1 + usize::from(self.tls) + usize::from(self.cluster)
    }

    fn listens_on(&self, place: &Place) -> Vec<u16> {
        place.ports().to_vec()
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        // In the data folder: Redis rewrites the file when roles change.
        std::fs::write(place.data().join("redis.conf"), self.configuration(place)?)?;
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        Ok(words![REDIS.path()?, place.data().join("redis.conf")])
    }

    fn ask(&self, place: &Place) -> Result<()> {
        match connect(self, place)?.ask(&["PING"])?.text() {
            Some("PONG") => Ok(()),
            other => bail!("redis said {other:?} to PING"),
        }
    }

    fn url(&self, place: &Place) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let secret = self.password.as_ref().map(|word| format!(":{word}@")).unwrap_or_default();
        format!("{scheme}://{secret}127.0.0.1:{}", place.port())
    }

    fn clock(&self) -> Clock {
        Clock::PreloadBeforeLibc
    }

    fn redis(&self) -> Option<&Redis> {
        Some(self)
    }
}

pub(crate) fn connect(program: &Redis, place: &Place) -> Result<Resp> {
    let mut connection = Resp::connect(program.plain_port(place))?;
    if let Some(password) = &program.password {
        connection.ask(&["AUTH", password])?;
    }
    Ok(connection)
}
