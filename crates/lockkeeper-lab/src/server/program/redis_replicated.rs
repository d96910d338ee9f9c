//! A Redis primary with replicas.

use super::redis::Redis;
use crate::server::handle::Server;
use crate::server::plan::Plan;
use crate::server::process::{GLANCE, PATIENCE};
use anyhow::{Context, Result, bail, ensure};
use std::thread::sleep;
use std::time::Instant;

/// A primary and its replicas, which follow it.
#[derive(Debug)]
pub struct Replicated {
    /// Takes the writes.
    pub primary: Server,
    /// Follow the primary.
    pub replicas: Vec<Server>,
}

impl Plan<Redis> {
    /// Starts a primary with this many replicas, and waits until all of them follow.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_replicated(self, replicas: usize) -> Result<Replicated> {
        let primary = self.clone().start()?;
        let mut follower = self;
        follower.program.replica_of = Some(primary.program_port());
        let replicas = follower.start_many(replicas)?;
        for replica in &replicas {
            patiently("a replica follows its primary", || {
                let said = replica.redis()?.info("replication")?;
                linked(&said)
            })?;
        }
        // A replica gets no writes until its first acknowledgement, which takes up to a second.
        patiently("the replicas acknowledge", || {
            let mut redis = primary.redis()?;
            redis.ask(&["PUBLISH", "lab", "anyone?"])?;
            let there = redis.ask(&["WAIT", &replicas.len().to_string(), "100"])?.number();
            ensure!(there == i64::try_from(replicas.len()).ok(), "{there:?} acknowledge");
            Ok(())
        })?;
        Ok(Replicated { primary, replicas })
    }
}

impl Server {
    /// The port on which other Redis servers reach it.
    pub(crate) fn program_port(&self) -> u16 {
        self.program.redis().map_or(self.port(), |redis| redis.plain_port(&self.place))
    }
}

/// Whether the replication info of a replica says that it follows.
pub(crate) fn linked(info: &str) -> Result<()> {
    if info.lines().any(|line| line.trim() == "master_link_status:up") {
        return Ok(());
    }
    bail!("the replica has no link yet:\n{info}")
}

/// Retries until it works.
pub(crate) fn patiently<T>(what: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if Instant::now() > end => {
                return Err(error).with_context(|| format!("waited in vain until {what}"));
            }
            Err(_) => sleep(GLANCE),
            won => return won,
        }
    }
}
