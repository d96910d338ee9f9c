//! ZooKeeper.

use super::tls::Certificates;
use super::{Clock, Program};
use crate::server::handle::Server;
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::{JAVA, ZOOKEEPER};
use crate::server::wire;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::fmt::Write as _;

/// What the manifest of the jar forgets, which only encryption needs.
const NETTY: [&str; 3] =
    ["netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar"];

/// A ZooKeeper server, alone or one of several.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    tick: u32,
    tls: bool,
    asks_for_certificates: bool,
    /// Which one it is, and the ports of all, in an ensemble.
    ensemble: Option<(usize, Vec<u16>)>,
}

impl Default for ZooKeeper {
    fn default() -> Self {
        Self { tick: 500, tls: false, asks_for_certificates: false, ensemble: None }
    }
}

impl Plan<ZooKeeper> {
    /// The unit of its time, in milliseconds: sessions time out after two to twenty of them.
    pub fn tick(mut self, milliseconds: u32) -> Self {
        self.program.tick = milliseconds;
        self
    }

    /// Encrypts, with its [`Certificates`].
    pub fn tls(mut self) -> Self {
        self.program.tls = true;
        self
    }

    /// Encrypts, and lets in only who shows a certificate.
    pub fn client_certificates(mut self) -> Self {
        self.program.asks_for_certificates = true;
        self.tls()
    }

    /// Starts several that vote, and waits until each serves.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_ensemble(self, count: usize) -> Result<Vec<Server>> {
        // For clients, for followers, for elections.
        let each = 2 + self.program.ports();
        self.home.clone().ports.on_free(each * count, |ports| {
            let mut servers = Vec::new();
            for (number, own) in ports.chunks(each).enumerate() {
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

impl ZooKeeper {
    /// The ports of each in an ensemble.
    fn each<'a>(&self, ports: &'a [u16]) -> impl Iterator<Item = &'a [u16]> {
        ports.chunks(2 + self.ports())
    }

    /// The lab itself asks without encryption, on a port of its own.
    fn plain_port(&self, place: &Place) -> u16 {
        if self.tls { place.ports()[place.ports().len() - 1] } else { place.port() }
    }

    fn encryption(&self, place: &Place) -> Result<String> {
        if !self.tls {
            return Ok(String::new());
        }
        let made = Certificates::make(place)?;
        // It takes the key and the certificate from one file.
        let both = place.folder().join("both.pem");
        let parts = [std::fs::read(&made.key)?, std::fs::read(&made.certificate)?];
        std::fs::write(&both, parts.concat())?;
        Ok(format!(
            "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.trustStore.location={}\nssl.clientAuth={}\n",
            place.port(),
            both.display(),
            made.authority.display(),
            if self.asks_for_certificates { "need" } else { "none" },
        ))
    }
}

impl Program for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn ports(&self) -> usize {
        1 + usize::from(self.tls)
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        let mut text = format!(
            "tickTime={}\ninitLimit=20\nsyncLimit=10\ndataDir={}\n\
             clientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
             4lw.commands.whitelist=*\nadmin.enableServer=false\n\
             standaloneEnabled=true\npreAllocSize=64\n",
            self.tick,
            place.data().display(),
            self.plain_port(place),
        );
        text.push_str(&self.encryption(place)?);
        if let Some((number, ports)) = &self.ensemble {
            for (other, ports) in self.each(ports).enumerate() {
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
        // Without the first, it does not say why it fails.
        for other in ["slf4j-simple.jar"].into_iter().chain(NETTY) {
            classes.push(":");
            classes.push(jar.with_file_name(other));
        }
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
        let said = wire::line::ask(self.plain_port(place), "srvr")?;
        if said.lines().any(|line| line.starts_with("Mode:")) {
            return Ok(());
        }
        bail!("zookeeper said {said:?}")
    }

    fn url(&self, place: &Place) -> String {
        let ports = match &self.ensemble {
            Some((_, ports)) => self.each(ports).map(|ports| ports[0]).collect(),
            None => vec![place.port()],
        };
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let tls = if self.tls { "?tls=true" } else { "" };
        format!("zookeeper://{}{tls}", hosts.join(","))
    }

    fn clock(&self) -> Clock {
        Clock::Unsupported("it counts time with the monotonic clock")
    }
}
