//! Free ports, as far as that can be known.

use anyhow::{Result, bail};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fmt;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

/// How often other ports are tried.
const ATTEMPTS: usize = 5;
const LOWEST: u16 = 10_240;

/// Another process took a port between its choice and its use.
#[derive(Debug)]
pub struct PortTaken(pub(crate) String);

impl fmt::Display for PortTaken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: a port it needs is taken", self.0)
    }
}

impl std::error::Error for PortTaken {}

/// The ports that a lab has given out.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    given: Mutex<HashSet<u16>>,
}

impl Ports {
    /// Picks below the ephemeral port range instead of using port 0: a server that is down must get
    /// its port back, and a client that keeps trying to connect to it could be given that very port
    /// as its source port.
    pub(crate) fn pick(&self, count: usize) -> Result<Vec<u16>> {
        let mut picked = Vec::new();
        let highest = lowest_outgoing().max(LOWEST + 1024);
        let range = u64::from(highest - LOWEST);
        let mut given = self.given.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for _ in 0..10_000 {
            if picked.len() == count {
                return Ok(picked);
            }
            let port = LOWEST + u16::try_from(random() % range)?;
            if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                given.insert(port);
                picked.push(port);
            }
        }
        bail!("there are no free ports between {LOWEST} and {highest}")
    }

    /// Retries on other ports as long as the chosen ones turn out to be taken.
    pub(crate) fn on_free<T>(
        &self,
        count: usize,
        mut attempt: impl FnMut(&[u16]) -> Result<T>,
    ) -> Result<T> {
        for _ in 1..ATTEMPTS {
            match attempt(&self.pick(count)?) {
                Err(error) if error.is::<PortTaken>() => {}
                other => return other,
            }
        }
        attempt(&self.pick(count)?)
    }
}

fn lowest_outgoing() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    range.ok().and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(32_768)
}

/// Only needs to differ between processes and calls.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// Whether this process listens on the port. An answer alone does not prove it: another server
/// could have answered, while ours is failing because the port is taken.
pub(crate) fn listens(pid: Pid, port: u16) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let sockets: HashSet<String> = descriptors
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    ["tcp", "tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let local = columns.get(1).and_then(|address| address.rsplit_once(':'));
            let here = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            // 0A is LISTEN.
            here == Some(port)
                && columns.get(3) == Some(&"0A")
                && columns.get(9).is_some_and(|inode| sockets.contains(*inode))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_ports_are_tried_while_they_are_taken() {
        let ports = Ports::default();
        let mut tried = Vec::new();
        let won = ports.on_free(2, |ports| {
            tried.push(ports.to_vec());
            if tried.len() < 3 { Err(PortTaken("it".into()).into()) } else { Ok(ports[0]) }
        });
        assert_eq!(won.expect("the third attempt wins"), tried[2][0]);
        let different: HashSet<u16> = tried.iter().flatten().copied().collect();
        assert_eq!(different.len(), 6);
    }

    #[test]
    fn another_error_is_not_tried_again() {
        let mut tried = 0;
        let failed: Result<()> = Ports::default().on_free(1, |_| {
            tried += 1;
            bail!("broken")
        });
        assert_eq!((failed.expect_err("broken").to_string(), tried), ("broken".to_owned(), 1));
    }

    #[test]
    fn a_port_in_use_is_not_picked() {
        let ports = Ports::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert!(listens(Pid::this(), port));
        assert!(!listens(Pid::parent(), port));
        let picked = ports.pick(100).expect("free ports");
        assert!(picked.iter().all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()));
    }
}
