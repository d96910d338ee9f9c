//! Five servers of a case's own, with a proxy before each where the network is to be broken.

use anyhow::{Context, Result};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

/// The ttl of claims that are waited out.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// For what must come.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

/// Servers that were started just now vote.
pub(crate) const CALM: &str = "min_uptime=0s";

/// The servers.
pub(crate) struct Five {
    pub(crate) servers: Vec<Server>,
}

impl Five {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        Ok(Self { servers: lab.redis().start_many(5)? })
    }

    /// With clocks that can be set.
    pub(crate) fn with_clocks(lab: &Lab) -> Result<Self> {
        Ok(Self { servers: lab.redis().clock().start_many(5)? })
    }

    pub(crate) fn url(&self, options: &str) -> String {
        url_of(self.servers.iter().map(Server::address), options)
    }

    pub(crate) async fn keeper(&self, options: &str) -> Result<Keeper> {
        Ok(lockkeeper::connect(&self.url(options)).await?)
    }

    /// A proxy before each server.
    pub(crate) fn proxies(&self) -> Result<Vec<Proxy>> {
        let proxy = |server: &Server| Ok(Proxy::start(server.address().parse()?, 7)?);
        // Each has a runtime of its own, which cannot be started on the thread of another.
        std::thread::scope(|scope| {
            let all = scope.spawn(|| self.servers.iter().map(proxy).collect());
            all.join().unwrap_or_else(|_| anyhow::bail!("a proxy did not start"))
        })
    }

    /// How many servers have the key.
    pub(crate) fn taken(&self, key: &str) -> Result<usize> {
        let mut taken = 0;
        for server in self.servers.iter().filter(|server| server.answers().is_ok()) {
            taken += usize::from(server.redis()?.ask(&["EXISTS", key])?.number() == Some(1));
        }
        Ok(taken)
    }

    /// Waits until all servers have the key: a lock is held as soon as three do, and what happens to the
    /// others before they took it happens to no claim.
    pub(crate) async fn all_have(&self, key: &str) -> Result<()> {
        let all = async {
            while self.taken(key)? < self.servers.len() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENT, all).await.context("not all servers took it")?
    }
}

pub(crate) fn url_of(hosts: impl Iterator<Item = String>, options: &str) -> String {
    format!("redlock://{}?{options}", hosts.collect::<Vec<_>>().join(","))
}

/// Holds `a`.
pub(crate) async fn held(keeper: &Keeper) -> Result<Guard> {
    Ok(keeper.lock("a").ttl(TTL).acquire_within(PATIENT).await?)
}
