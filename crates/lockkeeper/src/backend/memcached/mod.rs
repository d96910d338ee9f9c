#![doc = include_str!("../../../docs/memcached.md")]

// The rooms of this folder. Nothing here refers back to this file.
//
//   options ─► add ─► lease ─► requests ─► client ─► protocol
//                │                │          │
//                └──► waiters ◄───┘          └ link, handshake, ticks, dump
//
//   keys, record: what is written in memcached, pinned by tests
//   inspect: list, show, break; sequence: numbers and records
//
mod add;
mod checkup;
mod client;
mod error;
mod inspect;
mod keys;
mod lease;
mod options;
mod protocol;
mod record;
mod requests;
mod sequence;
mod waiters;

pub use options::MemcachedOptions;

use crate::backend::support::alarms::Alarms;
use crate::backend::{
    Backend, Capability, Claim, FencingToken, Finding, Grant, Inspector, Lease, LockView, Name,
    Page, Patience, Reserve, Reserved, Sequencer, Ticket,
};
use crate::background::Background;
use crate::error::Result;
use crate::recipes::MEMCACHED_ADD;
use async_trait::async_trait;
use client::Client;
use futures_util::future::join_all;
use lease::MemcachedLease;
use requests::{Held, Locks, seconds};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use waiters::Waiters;

/// Connects to the servers.
///
/// # Errors
/// Options that make no sense; a server that is no memcached, too old, or refuses the login; and
/// servers none of which can be reached. One that cannot be reached while others can is no error: the
/// names of the others can be locked.
async fn open(options: MemcachedOptions, background: &Background) -> Result<Arc<dyn Backend>> {
    let alarms = Arc::new(Alarms::default());
    let endangered = alarms.clone();
    let connect = options.connect_options()?;
    let locks = Locks {
        client: Client::new(&connect, background, move || endangered.endanger()),
        keys: options.keys()?,
        waiters: Waiters::default(),
        alarms,
        shown: options.to_string(),
    };
    let servers = 0..locks.client.servers();
    let reached = join_all(servers.map(async |server| {
        let reached = locks.client.reach(server).await;
        reached.map_err(|failure| failure.explain(&locks.client.shown(server)))
    }));
    let (mut reachable, mut silent) = (0, None);
    for outcome in reached.await {
        match outcome {
            Ok(_) => reachable += 1,
            Err(error) if error.is_outage() => silent = Some(error),
            Err(error) => return Err(error),
        }
    }
    match silent {
        Some(error) if reachable == 0 => Err(error),
        _ => Ok(Arc::new(Memcached(Arc::new(locks)))),
    }
}

/// Locks in memcached.
#[derive(Debug)]
struct Memcached(Arc<Locks>);

impl Memcached {
    /// Whether keys of ours can be told from those of others.
    fn is_apart(&self) -> bool {
        !self.0.keys.prefix().is_empty()
    }
}

#[async_trait]
impl Backend for Memcached {
    /// Without a prefix a lock looks like anything else in the cache, so that none can be listed.
    fn capability(&self) -> Capability {
        Capability { inspects: self.is_apart(), ..MEMCACHED_ADD }
    }

    fn recipe(&self) -> &'static str {
        "add"
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        add::acquire(&self.0, claim, patience).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let (place, id) = (self.0.keys.of(&claim.name), claim.id.to_string());
        let mut held = Held::by_id(place, id, seconds(claim.ttl)?, None);
        let removed = held.remove(&self.0, Duration::ZERO).await;
        removed.map_err(|failure| self.0.explain(&failure, &held.place))?;
        self.0.waiters.released(&held.place.key);
        Ok(())
    }

    /// Ends the connections, with their tasks.
    async fn close(&self) -> Result<()> {
        self.0.client.close();
        Ok(())
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.is_apart().then_some(self as &dyn Inspector)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }

    /// Nothing for a ttl that no claim here has.
    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        let (place, id) = (self.0.keys.of(&ticket.name), ticket.id.to_string());
        // A ttl that cannot be is refused before anything is kept for it; to give back takes none.
        let seconds = seconds(ticket.ttl).unwrap_or_default();
        let held = Held::by_id(place, id, seconds, ticket.token);
        Some(Box::new(MemcachedLease::new(self.0.clone(), held, ticket.ttl)))
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        vec![self.0.keys.of(name).key]
    }

    /// Of all servers: what any of them forgot is gone.
    async fn incarnation(&self) -> Result<Option<String>> {
        let mut lives = Vec::new();
        for server in 0..self.0.client.servers() {
            let life = self.0.client.reach(server).await;
            let life = life.map_err(|failure| failure.explain(&self.0.client.shown(server)))?;
            lives.push(format!("{}-{}", life.started, life.process));
        }
        Ok(Some(lives.join(",")))
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        checkup::checkup(&self.0.client).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        checkup::round_trips(&self.0.client, count).await
    }
}

#[async_trait]
impl Inspector for Memcached {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        inspect::list(&self.0, prefix).await
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        inspect::list_page(&self.0, prefix, after, limit).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        inspect::show(&self.0, name.clone()).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        inspect::break_hold(&self.0, name, token, reason).await
    }
}

#[async_trait]
impl Sequencer for Memcached {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        sequence::reserve(&self.0, name, wish).await
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        sequence::read(&self.0, name).await
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        sequence::write(&self.0, name, value, expected).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        sequence::list(&self.0, prefix).await
    }

    async fn time(&self) -> Result<Option<SystemTime>> {
        sequence::time(&self.0).await
    }
}

impl fmt::Display for Memcached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.shown)
    }
}
