//! ZooKeeper.

use super::{Clock, Program};
use crate::server::handle::Server;
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::{JAVA, ZOOKEEPER};
use crate::server::wire;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::fmt::Write as _;

/// For clients, for followers, for elections.
const PORTS: usize = 3;

/// A ZooKeeper server, alone or one of several.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    tick: u32,
    /// Which one it is, and the ports of all, in an ensemble.
    ensemble: Option<(usize, Vec<u16>)>,
}

impl Default for ZooKeeper {
    fn default() -> Self {
        Self { tick: 500, ensemble: None }
    }
}

impl Plan<ZooKeeper> {
    /// The unit of its time, in milliseconds: sessions time out after two to twenty of them.
    pub fn tick(mut self, milliseconds: u32) -> Self {
        self.program.tick = milliseconds;
        self
    }

    /// Starts several that vote, and waits until each serves.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_ensemble(self, count: usize) -> Result<Vec<Server>> {
        self.home.clone().ports.on_free(PORTS * count, |ports| {
            let mut servers = Vec::new();
            for (number, own) in ports.chunks(PORTS).enumerate() {
                let mut plan = self.clone();
                plan.program.ensemble = Some((number, ports.to_vec()));
                servers.push(plan.launch(own)?);
            }
            for server in &servers {
                server.await_answer()?;
            }
            Ok(servers)
        })
    }
}

impl Program for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        let mut text = format!(
            "tickTime={}\ninitLimit=20\nsyncLimit=10\ndataDir={}\n\
             clientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
             4lw.commands.whitelist=*\nadmin.enableServer=false\n\
             standaloneEnabled=true\npreAllocSize=64\n",
            self.tick,
            place.data().display(),
            place.port(),
        );
        if let Some((number, ports)) = &self.ensemble {
            for (other, ports) in ports.chunks(PORTS).enumerate() {
                writeln!(text, "server.{}=127.0.0.1:{}:{}", other + 1, ports[1], ports[2])?;
            }
            std::fs::write(place.data().join("myid"), (number + 1).to_string())?;
        }
        std::fs::write(place.folder().join("zoo.cfg"), text)?;
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        let jar = ZOOKEEPER.path()?;
        let mut classes = jar.clone().into_os_string();
        classes.push(":");
        // Without it, it does not say why it fails.
        classes.push(jar.with_file_name("slf4j-simple.jar"));
        // Everything that makes a Java program start sooner, and eight of them fit the machine.
        Ok(words![
            JAVA.path()?,
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-XX:-UsePerfData",
            "-Djava.net.preferIPv4Stack=true",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dzookeeper.forceSync=no",
            "-cp",
            classes,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            place.folder().join("zoo.cfg"),
        ])
    }

    fn ask(&self, place: &Place) -> Result<()> {
        // `ruok` is also answered by a server without a majority.
        let said = wire::line::ask(place.port(), "srvr")?;
        if said.lines().any(|line| line.starts_with("Mode:")) {
            return Ok(());
        }
        bail!("zookeeper said {said:?}")
    }

    fn url(&self, place: &Place) -> String {
        let ports = match &self.ensemble {
            Some((_, ports)) => ports.chunks(PORTS).map(|ports| ports[0]).collect(),
            None => vec![place.port()],
        };
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    fn clock(&self) -> Clock {
        Clock::Unsupported("it counts time with the monotonic clock")
    }
}
