//! The network between one process and the store, through the lab's proxies.

use super::url;
use crate::proxy::{Framing, Proxy};
use anyhow::{Context, Result};
use std::net::SocketAddr;

/// One proxy for each host of the store. Each process has its own proxies, so that one process can
/// be cut off while the others are not.
#[derive(Debug)]
pub(crate) struct Network(Vec<Proxy>);

impl Network {
    pub(crate) fn before(hosts: &[SocketAddr], framing: Framing, seed: u64) -> Result<Self> {
        let proxies = (0..)
            .zip(hosts)
            .map(|(number, host)| Proxy::start_framed(*host, seed ^ (number << 56), framing));
        let proxies: std::io::Result<Vec<Proxy>> = proxies.collect();
        Ok(Self(proxies.context("cannot come between a process and the store")?))
    }

    pub(crate) fn before_url(store: &str, seed: u64) -> Result<Self> {
        Self::before_hosts(&url::hosts(store)?, store, seed)
    }

    /// Before hosts that speak what `store` does.
    pub(crate) fn before_hosts(hosts: &[SocketAddr], store: &str, seed: u64) -> Result<Self> {
        let framing = if url::speaks_resp(store) { Framing::Resp } else { Framing::Burst };
        Self::before(hosts, framing, seed)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|proxy| proxy.address()).collect()
    }

    pub(crate) fn each(&self, order: impl Fn(&Proxy)) {
        self.0.iter().for_each(order);
    }

    /// How often its faults had an effect so far.
    pub(crate) fn hits(&self) -> u64 {
        self.0.iter().map(|proxy| proxy.counters().hits()).sum()
    }

    pub(crate) fn replies_swallowed(&self) -> u64 {
        self.0.iter().map(|proxy| proxy.counters().replies_swallowed).sum()
    }
}
