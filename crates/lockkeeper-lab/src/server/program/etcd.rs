//! etcd.

use super::{Clock, Program};
use crate::server::handle::Server;
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::ETCD;
use crate::server::wire;
use anyhow::{Result, bail};
use std::ffi::OsString;

/// For clients, for the other members.
const PORTS: usize = 2;

/// An etcd server, alone or one of several.
#[derive(Debug, Clone, Default)]
pub struct Etcd {
    /// Which one it is, and the ports of all, in a group.
    group: Option<(usize, Vec<u16>)>,
}

impl Plan<Etcd> {
    /// Starts several that vote, and waits until each serves.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_group(self, count: usize) -> Result<Vec<Server>> {
        self.home.clone().ports.on_free(PORTS * count, |ports| {
            let mut servers = Vec::new();
            for (number, own) in ports.chunks(PORTS).enumerate() {
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
    fn group<'a>(&'a self, place: &'a Place) -> (usize, &'a [u16]) {
        match &self.group {
            Some((number, ports)) => (*number, ports),
            None => (0, place.ports()),
        }
    }
}

impl Program for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn ports(&self) -> usize {
        PORTS
    }

    fn listens_on(&self, place: &Place) -> Vec<u16> {
        place.ports().to_vec()
    }

    fn prepare(&self, _place: &Place) -> Result<()> {
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        let (number, ports) = self.group(place);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let members: Vec<String> = ports
            .chunks(PORTS)
            .enumerate()
            .map(|(number, ports)| format!("member{number}={}", url(ports[1])))
            .collect();
        let (client, peer) = (url(place.ports()[0]), url(place.ports()[1]));
        Ok(words![
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
        ])
    }

    fn ask(&self, place: &Place) -> Result<()> {
        // The answer goes through a majority.
        let said = wire::http::get(place.port(), "/health")?;
        if said.contains("\"health\":\"true\"") { Ok(()) } else { bail!("etcd said {said:?}") }
    }

    fn url(&self, place: &Place) -> String {
        let (_, ports) = self.group(place);
        let hosts: Vec<String> =
            ports.chunks(PORTS).map(|ports| format!("127.0.0.1:{}", ports[0])).collect();
        format!("etcd://{}", hosts.join(","))
    }

    fn clock(&self) -> Clock {
        Clock::Unsupported("it is written in Go, which asks the kernel past any library")
    }
}
