//! Redis monitored by Sentinel.

use super::redis::Redis;
use super::redis_replicated::{Replicated, patiently};
use super::{Clock, Program};
use crate::server::handle::Server;
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::REDIS;
use crate::server::wire::resp::Resp;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::sync::Arc;

/// What the sentinels call the primary.
const NAME: &str = "lockkeeper";
const SENTINELS: usize = 3;

#[derive(Debug, Clone)]
pub(crate) struct Sentinel {
    primary: u16,
    password: Option<String>,
}

/// A primary, replicas, and three sentinels that promote a replica when the primary is gone.
#[derive(Debug)]
pub struct Sentinels {
    /// The initial primary.
    pub primary: Server,
    /// The initial replicas.
    pub replicas: Vec<Server>,
    /// The sentinels.
    pub sentinels: Vec<Server>,
}

impl Sentinels {
    /// The name under which clients ask the sentinels for the primary.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// The port of the primary, according to the sentinels that still answer.
    ///
    /// # Errors
    /// When no sentinel answers.
    pub fn primary_port(&self) -> Result<u16> {
        let asked = self.sentinels.iter().find_map(|sentinel| {
            let mut connection = Resp::connect(sentinel.port()).ok()?;
            connection.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()
        });
        let address = asked.context("no sentinel answers")?;
        let port = address.list().and_then(|address| address.get(1)?.text()?.parse().ok());
        port.with_context(|| format!("the sentinels said {address:?}"))
    }
}

impl Sentinels {
    /// Makes the first sentinel promote a replica, as if the primary were gone; the others learn of
    /// it.
    ///
    /// # Errors
    /// When it refuses.
    pub fn fail_over(&self) -> Result<()> {
        let first = self.sentinels.first().context("a sentinel")?;
        Resp::connect(first.port())?.ask(&["SENTINEL", "FAILOVER", NAME])?;
        Ok(())
    }
}

impl Plan<Redis> {
    /// Starts a primary with this many replicas and three sentinels, and waits until they know each
    /// other. A primary counts as down after a second.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_sentinel(self, replicas: usize) -> Result<Sentinels> {
        let (home, password) = (Arc::clone(&self.home), self.program.password.clone());
        let Replicated { primary, replicas } = self.start_replicated(replicas)?;
        let sentinel = Sentinel { primary: primary.program_port(), password };
        let sentinels = Plan::new(home, sentinel).start_many(SENTINELS)?;
        let expected = [
            ("num-slaves", replicas.len().to_string()),
            ("num-other-sentinels", (SENTINELS - 1).to_string()),
        ];
        for sentinel in &sentinels {
            patiently("the sentinels know everyone", || {
                let said = Resp::connect(sentinel.port())?.ask(&["SENTINEL", "MASTER", NAME])?;
                let pairs = said.list().context("a list")?;
                let knows = |name: &str, value: &str| {
                    pairs
                        .chunks(2)
                        .any(|pair| pair[0].text() == Some(name) && pair[1].text() == Some(value))
                };
                if expected.iter().all(|(name, value)| knows(name, value)) {
                    return Ok(());
                }
                bail!("a sentinel knows only {said:?}")
            })?;
        }
        Ok(Sentinels { primary, replicas, sentinels })
    }
}

impl Program for Sentinel {
    fn name(&self) -> &'static str {
        "sentinel"
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        let mut text = format!(
            "bind 127.0.0.1\nport {}\ndir \"{}\"\n\
             sentinel monitor {NAME} 127.0.0.1 {} {}\n\
             sentinel down-after-milliseconds {NAME} 1000\n\
             sentinel failover-timeout {NAME} 5000\n",
            place.port(),
            place.data().display(),
            self.primary,
            SENTINELS / 2 + 1,
        );
        if let Some(password) = &self.password {
            writeln!(text, "sentinel auth-pass {NAME} {password}")?;
        }
        std::fs::write(place.data().join("sentinel.conf"), text)?;
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        Ok(words![REDIS.path()?, place.data().join("sentinel.conf"), "--sentinel"])
    }

    fn ask(&self, place: &Place) -> Result<()> {
        Resp::connect(place.port())?.ask(&["PING"])?;
        Ok(())
    }

    fn url(&self, place: &Place) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{NAME}", place.port())
    }

    fn clock(&self) -> Clock {
        Clock::PreloadBeforeLibc
    }
}
