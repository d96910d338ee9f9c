//! A relay before the server that counts what it is asked.

use anyhow::{Result, anyhow};
use lockkeeper_lab::proxy::{Proxy, Reader, Step};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests by their number in the protocol.
type Counts = Arc<Mutex<HashMap<i32, usize>>>;

pub(crate) struct Tap {
    proxy: Proxy,
    counts: Counts,
}

impl Tap {
    pub(crate) fn before(upstream: &str) -> Result<Self> {
        let counts = Counts::default();
        let shared = counts.clone();
        let upstream = upstream.parse()?;
        // It has a runtime of its own, so it is started outside of ours.
        let start = move || Proxy::start_read(upstream, move || counting(shared.clone()));
        let started = std::thread::spawn(start).join();
        Ok(Self { proxy: started.map_err(|_| anyhow!("no proxy"))??, counts })
    }

    pub(crate) fn url(&self) -> String {
        format!("zookeeper://{}", self.proxy.address())
    }

    /// Forgets what was asked so far.
    pub(crate) fn clear(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How often it was asked to list children, in either way that there is.
    pub(crate) fn listings(&self) -> usize {
        self.count(8) + self.count(12)
    }

    pub(crate) fn deletes(&self) -> usize {
        self.count(2)
    }

    /// How often it was asked to catch up with the leader.
    pub(crate) fn syncs(&self) -> usize {
        self.count(9)
    }

    /// How often it was asked for the data of a node.
    pub(crate) fn reads(&self) -> usize {
        self.count(4)
    }

    /// How often it was asked to write to a node, alone or among other things.
    pub(crate) fn writes(&self) -> usize {
        self.count(5) + self.count(14)
    }

    fn count(&self, code: i32) -> usize {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&code).copied().unwrap_or_default()
    }
}

/// Counts the requests in what one client says.
fn counting(counts: Counts) -> Reader {
    let (mut said, mut greeted) = (Vec::new(), false);
    Box::new(move |piece| {
        said.extend_from_slice(piece);
        while let Some(length) = said.first_chunk().map(|length| u32::from_be_bytes(*length)) {
            let whole = 4 + usize::try_from(length).unwrap_or(usize::MAX - 4);
            if said.len() < whole {
                break;
            }
            let packet: Vec<u8> = said.drain(..whole).collect();
            let code = packet.get(8..).and_then(|rest| rest.first_chunk());
            // The greeting has no number.
            if let Some(code) = code.filter(|_| std::mem::replace(&mut greeted, true)) {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                *counts.entry(i32::from_be_bytes(*code)).or_default() += 1;
            }
        }
        Step::Pass
    })
}
