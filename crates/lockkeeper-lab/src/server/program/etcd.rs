//! etcd.

use super::tls::Certificates;
use super::{Clock, Program};
use crate::server::handle::Server;
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::ETCD;
use crate::server::wire;
use anyhow::{Result, bail};
use std::ffi::OsString;

/// An etcd server, alone or in a group.
#[derive(Debug, Clone, Default)]
pub struct Etcd {
    tls: bool,
    asks_for_certificates: bool,
    /// In a group: the index of this member, and the ports of all.
    group: Option<(usize, Vec<u16>)>,
}

impl Plan<Etcd> {
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

    /// Starts a voting group, and waits until each member serves.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_group(self, count: usize) -> Result<Vec<Server>> {
        let each = self.program.ports();
        self.home.clone().ports.on_free(each * count, |ports| {
            let mut servers = Vec::new();
            for (number, own) in ports.chunks(each).enumerate() {
                let mut plan = self.clone();
                plan.program.group = Some((number, ports.to_vec()));
                servers.push(plan.launch(own)?);
            }
            for server in &servers {
                server.await_answer()?;
            }
            Ok(servers)
        })
    }
}

impl Etcd {
    /// The index of this member, and the ports of each.
    fn group<'a>(&'a self, place: &'a Place) -> (usize, Vec<&'a [u16]>) {
        let (number, ports) = match &self.group {
            Some((number, ports)) => (*number, &ports[..]),
            None => (0, place.ports()),
        };
        (number, ports.chunks(self.ports()).collect())
    }

    /// TLS is for clients; members use plain connections among themselves.
    fn encryption(&self, place: &Place) -> Vec<OsString> {
        if !self.tls {
            return Vec::new();
        }
        let Certificates { authority, certificate, key, .. } =
            Certificates::in_folder(place.folder());
        let mut words = words!["--cert-file", certificate, "--key-file", key];
        words.extend(words!["--listen-metrics-urls", url(self.lab_port(place))]);
        if self.asks_for_certificates {
            words.extend(words!["--client-cert-auth", "--trusted-ca-file", authority]);
        }
        words
    }

    /// The lab itself connects without TLS, on a separate port.
    fn lab_port(&self, place: &Place) -> u16 {
        place.ports()[if self.tls { 2 } else { 0 }]
    }
}

impl Program for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    /// For clients, for the other members, and for the lab if clients use TLS.
    fn ports(&self) -> usize {
        2 + usize::from(self.tls)
    }

    fn listens_on(&self, place: &Place) -> Vec<u16> {
        place.ports().to_vec()
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        if self.tls {
            Certificates::make(place)?;
        }
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        let (number, ports) = self.group(place);
        let members = ports.iter().enumerate();
        let members = members.map(|(number, ports)| format!("member{number}={}", url(ports[1])));
        let members: Vec<String> = members.collect();
        let (client, peer) = (url(place.ports()[0]), url(place.ports()[1]));
        let client = if self.tls { client.replacen("http", "https", 1) } else { client };
        let mut words = words![
            ETCD.path()?,
            "--name",
            format!("member{number}"),
            "--data-dir",
            place.data().join("etcd"),
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
            "--initial-cluster",
            members.join(","),
            "--initial-cluster-token",
            "lockkeeper-lab",
            "--heartbeat-interval",
            "100",
            "--election-timeout",
            "1000",
        ];
        words.extend(self.encryption(place));
        Ok(words)
    }

    fn ask(&self, place: &Place) -> Result<()> {
        // The server answers only with a majority.
        let said = wire::http::get(self.lab_port(place), "/health")?;
        if said.contains("\"health\":\"true\"") { Ok(()) } else { bail!("etcd said {said:?}") }
    }

    fn url(&self, place: &Place) -> String {
        let (_, ports) = self.group(place);
        let hosts: Vec<String> =
            ports.iter().map(|ports| format!("127.0.0.1:{}", ports[0])).collect();
        let tls = if self.tls { "?tls=true" } else { "" };
        format!("etcd://{}{tls}", hosts.join(","))
    }

    fn clock(&self) -> Clock {
        Clock::Unsupported("it is written in Go, which asks the kernel past any library")
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
