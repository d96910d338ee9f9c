#![doc = include_str!("../../../docs/etcd.md")]

mod checkup;
mod cleanup;
mod client;
mod driver;
mod error;
mod inspect;
mod keys;
mod lease;
mod loss;
mod options;
mod own;
mod protocol;
mod queue;
mod record;
mod requests;
mod sequence;
mod session;
mod waiters;

use crate::backend::{
    Backend, Background, Capability, Claim, FencingToken, Finding, Grant, Inspector, Lease,
    LockView, MultiAcquire, Name, Page, Patience, Reserve, Reserved, Sequencer, Ticket, Together,
};
use crate::error::Result;
use async_trait::async_trait;
use cleanup::Cleanup;
use client::Client;
use inspect::Inspection;
use keys::{KeyPool, KeyRange, probe_key};
use lease::Context;
pub use options::EtcdOptions;
use own::OwnLease;
use protocol::{RangeResponse, path};
use sequence::Numbers;
use session::Session;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use waiters::Watches;

/// The queue in etcd.
///
/// ```text
///   Etcd ──► queue ──► lease, own ──► session, watches, cleanup ──► requests ──► client
///                                                 ▲                  keys
///                                               driver               record
/// ```
///
/// An arrow means "uses". The type itself decides nothing; what all claims of a keeper share is in
/// the [`Context`].
#[derive(Debug)]
struct Etcd {
    context: Arc<Context>,
    numbers: Numbers,
}

impl Etcd {
    /// Connects, to know now whether we are let in: a wrong address or password is reported when
    /// the program starts. The probe is a read below the prefix. The session begins when it is
    /// needed, so a keeper that only looks costs etcd no lease.
    async fn open(options: EtcdOptions, background: &Background) -> Result<Self> {
        let client = Arc::new(Client::new(options.connecting()?, background.clone()));
        let EtcdOptions { prefix, session, .. } = options;
        let probe = probe_key(&prefix);
        let _: RangeResponse = client.call(path::RANGE, &requests::one(probe.clone())).await?;
        let cleanup = Arc::new(Cleanup::new(client.clone()));
        let driver = driver::starter(client.clone(), cleanup.clone(), background.clone());
        let numbers = Numbers::new(client.clone(), &prefix);
        let context = Context {
            session: Session::new(client.clone(), session, probe),
            watches: Watches::new(driver),
            cleanup,
            keys: KeyPool::default(),
            client,
            prefix,
        };
        Ok(Self { context: Arc::new(context), numbers })
    }

    /// What looks at all queues: it needs neither session nor driver, and so works beside any other
    /// client.
    fn inspection(&self) -> Inspection<'_> {
        Inspection { client: &self.context.client, prefix: &self.context.prefix }
    }
}

#[async_trait]
impl Backend for Etcd {
    fn capability(&self) -> Capability {
        crate::recipes::ETCD
    }

    /// A claim without patience leaves no trace in the queue; others wait in it.
    fn recipe(&self) -> &'static str {
        "queue"
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        if claim.by_id {
            queue::acquire_by_id(&self.context, claim, patience).await
        } else if patience.is_over() {
            queue::try_now(&self.context, claim).await
        } else {
            queue::acquire(&self.context, claim, patience).await
        }
    }

    /// Deletes what the claim may have left. Idempotent. Relies on what [`queue`] promises: a claim
    /// of which no deletion is scheduled has no key. For a claim that was granted one is scheduled,
    /// too.
    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let cleanup = &self.context.cleanup;
        match cleanup.of(claim.id) {
            Some(deletion) => cleanup.delete(claim.id, &deletion).await.map(|_| ()),
            // It never had a key, or has none any more.
            None => Ok(()),
        }
    }

    /// Ends the session, so that etcd forgets it at once; then the driver and the connection,
    /// unless a claim still needs them. A session that a claim lives on is left alone: to revoke it
    /// would delete the claim's key under its holder.
    async fn close(&self) -> Result<()> {
        let Context { session, cleanup, watches, client, .. } = &*self.context;
        cleanup.run_due().await;
        let closed = session.close(|lease| cleanup.any_on(lease)).await;
        // Also when the session could not be ended: it then ends by itself.
        if *closed.as_ref().unwrap_or(&true) && watches.close() {
            client.disconnect();
        }
        closed.map(|_| ())
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        Some(Box::new(OwnLease::of(&self.context, ticket)))
    }

    /// What every key of the name begins with: `etcdctl get --prefix` shows them all.
    fn keys(&self, name: &Name) -> Vec<String> {
        let range = KeyRange::new(&self.context.prefix, name);
        vec![String::from_utf8_lossy(&range.start()).into_owned()]
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        checkup::checkup(&self.context.client).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        checkup::round_trips(&self.context.client, &self.context.prefix, count).await
    }

    fn multi(&self) -> Option<&dyn MultiAcquire> {
        Some(self)
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }
}

#[async_trait]
impl MultiAcquire for Etcd {
    /// All names in one transaction, or none; see [`queue`].
    async fn acquire_all(&self, claims: &[Claim]) -> Result<Together> {
        queue::acquire_all(&self.context, claims).await
    }
}

#[async_trait]
impl Inspector for Etcd {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.inspection().list(prefix).await
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        self.inspection().list_page(prefix, after, limit).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        self.inspection().show(name).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        self.inspection().break_hold(name, token, reason).await
    }
}

#[async_trait]
impl Sequencer for Etcd {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        self.numbers.reserve(name, wish).await
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        self.numbers.read(name).await
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        self.numbers.write(name, value, expected).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        self.numbers.list(prefix).await
    }

    /// etcd counts changes, and tells nobody the time.
    async fn time(&self) -> Result<Option<SystemTime>> {
        Ok(None)
    }
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.context.client.shown())
    }
}
