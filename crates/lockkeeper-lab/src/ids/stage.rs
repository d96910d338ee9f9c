//! What a run about ids needs: stores, a folder, and how its processes are started.

use super::scheme::Scheme;
use super::{IdsArguments, STORES_VARIABLE};
use crate::server::{Clock, FakeClock, Kind, Lab};
use crate::workload::{Breakable, Fault, Member, Needs, Network, now, start_server, url};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where a run takes place.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) servers: Vec<Box<dyn Breakable>>,
    pub(crate) stores: Vec<String>,
    pub(crate) folder: PathBuf,
    // Dropped after the servers, whose folders are in its own.
    _lab: Option<Lab>,
}

impl Stage {
    pub(crate) fn set(arguments: &IdsArguments) -> Result<Self> {
        admit(arguments)?;
        let lab = if arguments.server.is_some() { Some(Lab::open()?) } else { None };
        let (mut servers, mut stores) = (Vec::new(), arguments.store.clone());
        if let (Some(lab), Some(kind)) = (&lab, arguments.server) {
            for _ in 0..arguments.kind.stores() {
                // The clock that jumps is that of a process, not the server's.
                let (server, store) = start_server(lab, kind)?;
                servers.push(server);
                stores.push(store);
            }
        }
        let folder = arguments.out.clone().unwrap_or_else(|| {
            let name = format!("lockkeeper-lab-ids-{}-{}", std::process::id(), now());
            std::env::temp_dir().join(name)
        });
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let empty = std::fs::read_dir(&folder)?.next().is_none();
        ensure!(empty, "{} is not empty: name another folder", folder.display());
        Ok(Self { servers, stores, folder, _lab: lab })
    }

    pub(crate) fn file(&self, process: u64) -> PathBuf {
        self.folder.join(format!("process-{process}.ids"))
    }

    /// What the clocks of the stores are off by themselves: memcached tells whole seconds, and counts them
    /// by a timer of its own.
    pub(crate) fn coarse(&self) -> Duration {
        let memcached = self.stores.iter().any(|store| store.starts_with("memcached"));
        Duration::from_secs(if memcached { 2 } else { 0 })
    }

    pub(crate) fn floor_file(&self) -> PathBuf {
        self.folder.join("floor")
    }

    /// Starts a process that takes ids.
    pub(crate) fn start(
        &self,
        arguments: &IdsArguments,
        process: u64,
        seed: u64,
    ) -> Result<(Member, Option<FakeClock>)> {
        let networked = arguments.fault.iter().any(|fault| fault.needs() == Needs::Network);
        let network = if networked { Some(self.network(seed ^ process)?) } else { None };
        let stores = match &network {
            Some(network) => self.behind(network)?,
            None => self.stores.clone(),
        };
        let clock = match arguments.fault.contains(&Fault::ClockJump) {
            true => Some(FakeClock::new("a process", Clock::Preload, &self.clock(process)?)?),
            false => None,
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("take-ids").args(["--scheme", arguments.kind.word()]);
        command.arg("--file").arg(self.file(process));
        command.arg("--floor-file").arg(self.floor_file());
        command.args(["--window-ms", &arguments.window_ms.to_string()]);
        command.args(["--seed", &(seed ^ (process << 8)).to_string()]);
        if let Some(count) = arguments.count {
            command.args(["--count", &count.to_string()]);
        }
        if let Some(clock) = &clock {
            // Every other process sees a wrong monotonic clock, too.
            command.arg("--faked").envs(clock.environment(process.is_multiple_of(2)));
        }
        // Not an argument, because every user of the machine can read those.
        let child = command.env(STORES_VARIABLE, stores.join(" ")).stdin(Stdio::piped()).spawn();
        let child = child.context("cannot start a process of the run")?;
        Ok((Member::process(process.to_string(), network, child), clock))
    }

    fn clock(&self, process: u64) -> Result<PathBuf> {
        let folder = self.folder.join(format!("clock-{process}"));
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Proxies before each host of each store.
    fn network(&self, seed: u64) -> Result<Network> {
        let hosts: Result<Vec<_>> = self.stores.iter().map(|store| url::hosts(store)).collect();
        Network::before_hosts(&hosts?.concat(), &self.stores[0], seed)
    }

    fn behind(&self, network: &Network) -> Result<Vec<String>> {
        let addresses = network.addresses();
        let mut rest = addresses.as_slice();
        let mut stores = Vec::new();
        for store in &self.stores {
            let (own, others) = rest.split_at(url::hosts(store)?.len());
            stores.push(url::with_hosts(store, own)?);
            rest = others;
        }
        Ok(stores)
    }
}

/// Refuses what makes no sense, and says what to do instead.
fn admit(arguments: &IdsArguments) -> Result<()> {
    let IdsArguments { kind, store, server, fault, .. } = arguments;
    let stores = kind.stores();
    if server.is_none() && store.len() != stores {
        bail!("--kind {} takes {stores} --store, not {}", kind.word(), store.len());
    }
    if *server == Some(Kind::Redlock) {
        bail!("a quorum keeps no count: name another --server");
    }
    let column = |store: &String| !store.starts_with("redis") && !store.starts_with("etcd");
    if *kind == Scheme::AutoIncrement && !store.iter().all(column) {
        bail!("only databases have an auto-increment column");
    }
    for fault in fault {
        let word = fault.word();
        match (fault, fault.needs()) {
            (Fault::ClockJump | Fault::Kill | Fault::Pause, _) => {}
            (_, Needs::Network)
                if server.is_some() || store.iter().all(|it| url::has_hosts(it)) => {}
            (_, Needs::Network) => bail!("--fault {word} needs a store with a host in its URL"),
            (Fault::ServerKill | Fault::ServerRestartEmpty | Fault::ServerPause, _)
                if server.is_some() => {}
            (_, Needs::Server) if server.is_none() => {
                bail!("--fault {word} breaks the server itself: use --server instead of --store")
            }
            _ => bail!("--fault {word} is none of ids: see lab run"),
        }
    }
    if fault.contains(&Fault::ServerRestartEmpty)
        && matches!(kind, Scheme::AutoIncrement | Scheme::Striped)
    {
        bail!(
            "a database that is emptied begins its column, or its stripe, again: no fault of ids"
        );
    }
    Ok(())
}

/// Removes the folder of a run that passed.
pub(crate) fn clear(folder: &Path) {
    // What cannot be removed stays: it is in a folder for temporary files.
    let _ = std::fs::remove_dir_all(folder);
}
