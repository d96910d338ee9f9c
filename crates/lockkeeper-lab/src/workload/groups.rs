//! Redis in groups, and forged messages to its clients.

use super::breakable::Breakable;
use crate::server::{Cluster, Resp, Sentinels, Server};
use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The channels on which clients of the queue are told of their grants.
const CHANNELS: &str = "lockkeeper:keeper:*";
/// Longer than the interval at which a client asks the sentinels.
const SENTINELS_ASKED: Duration = Duration::from_millis(3500);
const PATIENCE: Duration = Duration::from_secs(30);

/// A primary with replicas and sentinels; and a separate former primary, which one sentinel can be
/// made to believe in.
#[derive(Debug)]
pub(crate) struct Guarded {
    group: Sentinels,
    past: Server,
}

impl Guarded {
    pub(crate) fn new(group: Sentinels, past: Server) -> Self {
        Self { group, past }
    }

    /// If `fails_over`, a claim counts only once a replica has it, else a failover could lose it.
    /// Otherwise `replicas` must not be set: the former primary has no replicas, and would grant
    /// nothing.
    pub(crate) fn url(&self, fails_over: bool) -> String {
        let hosts: Vec<_> = self.group.sentinels.iter().map(Server::address).collect();
        let options = if fails_over { "?replicas=1" } else { "" };
        format!("redis+sentinel://{}/{}{options}", hosts.join(","), self.group.name())
    }

    fn primary(&self) -> Result<&Server> {
        let port = self.group.primary_port()?;
        let mut servers = std::iter::once(&self.group.primary).chain(&self.group.replicas);
        servers.find(|server| server.port() == port).context("the primary is none of ours")
    }

    /// Makes one sentinel monitor this server.
    fn point(&self, to: &Server) -> Result<()> {
        let sentinel = self.group.sentinels.last().context("no sentinel")?;
        let mut asked = Resp::connect(sentinel.port())?;
        asked.ask(&["SENTINEL", "REMOVE", self.group.name()])?;
        let port = to.port().to_string();
        asked.ask(&["SENTINEL", "MONITOR", self.group.name(), "127.0.0.1", &port, "2"])?;
        asked.ask(&["SENTINEL", "SET", self.group.name(), "down-after-milliseconds", "1000"])?;
        Ok(())
    }
}

impl Breakable for Guarded {
    fn fail_over(&mut self) -> Result<()> {
        let before = self.primary()?;
        let port = before.port();
        before.kill()?;
        let begin = Instant::now();
        while self.group.primary_port()? == port {
            if begin.elapsed() > PATIENCE {
                bail!("the sentinels promote nobody");
            }
            sleep(Duration::from_millis(20));
        }
        before.restart()?;
        // Until it follows, the next failover has one replica less to choose from.
        while !before.redis()?.info("replication")?.contains("master_link_status:up") {
            if begin.elapsed() > PATIENCE {
                bail!("the former primary follows nobody");
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn mislead_sentinel(&mut self) -> Result<()> {
        self.point(&self.past)?;
        sleep(SENTINELS_ASKED);
        self.point(self.primary()?)
    }
}

/// A cluster. Each fault is done to one of its masters, the next one each time.
#[derive(Debug)]
pub(crate) struct Sharded {
    cluster: Cluster,
    victim: usize,
}

impl Sharded {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, victim: 0 }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.cluster.nodes.iter().map(Server::address).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The next node that is currently a master.
    fn next(&mut self) -> Result<&Server> {
        for _ in 0..self.cluster.nodes.len() {
            self.victim = (self.victim + 1) % self.cluster.nodes.len();
            let said = self.cluster.nodes[self.victim].redis()?.info("replication")?;
            if said.contains("role:master") {
                return Ok(&self.cluster.nodes[self.victim]);
            }
        }
        bail!("no node is a master")
    }

    fn healed(&self) -> Result<()> {
        self.cluster.await_all_slots(&self.cluster.nodes)
    }
}

impl Breakable for Sharded {
    fn kill(&mut self) -> Result<()> {
        self.next()?.kill()
    }

    fn restart(&mut self) -> Result<()> {
        self.cluster.nodes[self.victim].restart()?;
        self.healed()
    }

    fn pause(&mut self) -> Result<()> {
        self.next()?.pause()
    }

    fn resume(&mut self) -> Result<()> {
        self.cluster.nodes[self.victim].resume()?;
        self.healed()
    }
}

/// Tells every client that it was granted what others were granted, with various tokens, using only
/// what every subscriber can read. Returns whether there was anything to forge.
pub(crate) fn forge(server: &Server, length: Duration) -> Result<bool> {
    let mut heard = server.redis()?;
    heard.ask(&["PSUBSCRIBE", CHANNELS])?;
    let mut told = server.redis()?;
    let (mut ids, mut channels, mut lies) = (HashSet::new(), HashSet::new(), HashSet::new());
    let end = Instant::now() + length;
    while Instant::now() < end {
        // Publishes a message, so that reading does not block.
        told.ask(&["PUBLISH", "lockkeeper:keeper:", "lab"])?;
        let mut messages = Vec::new();
        loop {
            let said = heard.read()?;
            let Some([_, _, channel, text]) = said.list() else { continue };
            let (Some(channel), Some(text)) = (channel.text(), text.text()) else { continue };
            if text == "lab" {
                break;
            }
            // The subscription also delivers what was forged here; skip that.
            if !lies.contains(text) {
                messages.push((channel.to_owned(), text.to_owned()));
            }
        }
        for (channel, text) in messages {
            let mut words = text.split(' ');
            let (Some("granted"), Some(id), Some(token)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let rest: String = words.map(|word| format!(" {word}")).collect();
            ids.insert(id.to_owned());
            channels.insert(channel);
            let next = token.parse::<u64>().unwrap_or(0) + 1;
            for token in [token, &next.to_string(), "9007199254740991", "18446744073709551615"] {
                for id in &ids {
                    let lie = format!("granted {id} {token}{rest}");
                    for channel in &channels {
                        told.ask(&["PUBLISH", channel, &lie])?;
                    }
                    lies.insert(lie);
                }
            }
            if ids.len() > 20 {
                ids.clear();
            }
        }
        sleep(Duration::from_millis(5));
    }
    Ok(!lies.is_empty())
}
