//! ZooKeeper.

use super::tls::Certificates;
use super::{Clock, Program};
use crate::server::handle::Server;
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::{JAVA, OPENSSL, ZOOKEEPER};
use crate::server::wire;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Jars that the manifest omits; only TLS needs them.
const NETTY: [&str; 3] =
    ["netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar"];

/// A ZooKeeper server, alone or in an ensemble.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    tick: u32,
    tls: bool,
    asks_for_certificates: bool,
    synced: bool,
    /// In an ensemble: the index of this member, and the ports of all.
    ensemble: Option<(usize, Vec<u16>)>,
}

impl Default for ZooKeeper {
    fn default() -> Self {
        Self { tick: 500, tls: false, asks_for_certificates: false, synced: false, ensemble: None }
    }
}

impl Plan<ZooKeeper> {
    /// Its tick in milliseconds: sessions time out after two to twenty ticks.
    pub fn tick(mut self, milliseconds: u32) -> Self {
        self.program.tick = milliseconds;
        self
    }

    /// Syncs every change to disk before it is answered, as it does by default: the machine itself never
    /// goes down in a test, so that the lab leaves it out elsewhere.
    pub fn synced(mut self) -> Self {
        self.program.synced = true;
        self
    }

    /// Uses TLS, with its [`Certificates`].
    pub fn tls(mut self) -> Self {
        self.program.tls = true;
        self
    }

    /// Uses TLS, and accepts only clients with a certificate.
    pub fn client_certificates(mut self) -> Self {
        self.program.asks_for_certificates = true;
        self.tls()
    }

    /// Starts a voting ensemble, and waits until each member serves.
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
    /// The ports of each member of an ensemble.
    fn each<'a>(&self, ports: &'a [u16]) -> impl Iterator<Item = &'a [u16]> {
        ports.chunks(2 + self.ports())
    }

    /// The lab itself connects without TLS, on a separate port.
    fn plain_port(&self, place: &Place) -> u16 {
        if self.tls { place.ports()[place.ports().len() - 1] } else { place.port() }
    }

    /// Asks on the port that clients use, with the certificate that they show.
    ///
    /// A server that answers on the plain port has not loaded what TLS needs. It does so with the first
    /// handshake, which takes seconds while the machine is busy: longer than a client waits for one.
    fn ask_encrypted(&self, place: &Place) -> Result<String> {
        let Certificates { authority, client, client_key, .. } =
            Certificates::in_folder(place.folder());
        let address = format!("127.0.0.1:{}", place.port());
        // The limit is for a server that hangs; `-quiet` also makes it read on after its input's end.
        let mut asking = Command::new("timeout")
            .arg("20")
            .arg(OPENSSL.path()?)
            .args(["s_client", "-quiet", "-verify_return_error", "-connect", &address])
            .arg("-CAfile")
            .arg(authority)
            .arg("-cert")
            .arg(client)
            .arg("-key")
            .arg(client_key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        // Closed with this statement, so that the question has an end.
        asking.stdin.take().context("an input")?.write_all(b"srvr")?;
        Ok(String::from_utf8_lossy(&asking.wait_with_output()?.stdout).into_owned())
    }

    fn encryption(&self, place: &Place) -> Result<String> {
        if !self.tls {
            return Ok(String::new());
        }
        let made = Certificates::make(place)?;
        // ZooKeeper takes the key and the certificate from one file.
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

/// Whether the answer to `srvr` is that of a server that serves.
fn serves(said: &str) -> bool {
    said.lines().any(|line| line.starts_with("Mode:"))
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
        // Without slf4j-simple, it does not log why it fails.
        for other in ["slf4j-simple.jar"].into_iter().chain(NETTY) {
            classes.push(":");
            classes.push(jar.with_file_name(other));
        }
        // Options that make a JVM start faster, and small enough that eight fit on the machine.
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
            if self.synced { "-Dzookeeper.forceSync=yes" } else { "-Dzookeeper.forceSync=no" },
            "-cp",
            classes,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            place.folder().join("zoo.cfg"),
        ])
    }

    fn ask(&self, place: &Place) -> Result<()> {
        // A server without a majority also answers `ruok`.
        let mut said = wire::line::ask(self.plain_port(place), "srvr")?;
        if self.tls && serves(&said) {
            said = self.ask_encrypted(place)?;
        }
        if serves(&said) {
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
