//! `zookeeper://` — Apache ZooKeeper, version 3.5 or later.
//!
//! `zookeeper://[user:password@]host1[:2181],host2/node?option=…`: the hosts of one ensemble, and
//! the node that the locks are below, `/lockkeeper` if there is none in the URL.
//!
//! | option | | default |
//! |---|---|---|
//! | `recipe` | `fair`, `barging` or `ephemeral` | `fair` |
//! | `layout` | whose locks these are too: `curator`, `kazoo` or `latch` | `curator` |
//! | `session` | the session timeout to ask for; the server has the last word | `10s` |
//! | `timeout` | how long a request may take | a third of `session` |
//! | `connect_timeout` | how long one server may take to greet us | `2s` |
//! | `backoff` | the longest pause between two tries to connect | `1s` |
//! | `tries` | how often all servers are tried before a session is given up; `0` for no end | `0` |
//! | `acl` | who may touch the nodes: `open` to all, or their `creator` | `creator` with a user |
//! | `tls`, `ca`, `cert`, `key` | TLS, whom to trust, and what to show | the machine's own |
//!
//! # Layout
//! A lock is a node, called like the lock; a claim is a child of it that ends with the session,
//! with a number from ZooKeeper, and the smallest numbers hold. The names are those of Curator's
//! `InterProcessMutex` (for locks) and `InterProcessReadWriteLock` (for read-write locks), or of
//! kazoo's `Lock`, `ReadLock` and `WriteLock`, so that programs with those libraries share them.
//! `/` in a name is written `%2F`: for `orders/42` they lock the node `…/orders%2F42`.
//!
//! | with | we share |
//! |---|---|
//! | `layout=curator` | Curator's `InterProcessMutex`, `InterProcessMultiLock` and `LeaderSelector` (locks, elections), `InterProcessReadWriteLock` (read-write locks) |
//! | `layout=kazoo` | kazoo's `Lock` and `Election` (locks, elections), `ReadLock` and `WriteLock` (read-write locks) |
//! | `layout=latch` | Curator's `LeaderLatch` (locks, elections) |
//!
//! Among ourselves every mode excludes every other. Curator's mutex and its read-write lock do
//! not exclude each other on one node, and neither do kazoo's `Lock` and `ReadLock`: use the same
//! kind on both sides. Layouts do not exclude each other either, nor does any of them exclude
//! other recipes on the same node, such as Curator's `InterProcessSemaphoreV2` and
//! `InterProcessSemaphoreMutex` or kazoo's `Semaphore`. A lock whose node has children of another
//! layout or recipe is refused, with an error that says so; a holder beside whom such a one comes
//! later, which does not see it, loses the claim within two renewals
//! ([`LossReason::Broken`](crate::LossReason::Broken)). Permits are our own: they take turns with
//! Curator's mutex, and there are none in the other layouts.
//!
//! `recipe=barging` has the same nodes, but all who wait are woken when the first goes.
//! `recipe=ephemeral` has one child, `lock`, for whoever makes it first.
//!
//! # Numbers
//! ZooKeeper counts the claims ever made on a lock in 32 bits, for as long as the lock's node is
//! there, and at the end gives the same number to all. From 2^30 on the node is made anew when
//! nobody is below it, with the same data and rights; from 5·2^28 on new claims that would have to
//! wait hold back until then, and take their turns in any order. From 3·2^29 on none is granted
//! before: if other libraries keep the node in use, they are refused with an error that says so.
//!
//! # Sessions
//! A keeper has one session, and every claim lives in it. A claim is valid for its ttl, but for no
//! more than half of the session's timeout at a time: a server may have lost touch with the others
//! when it answers us, and they may end the session that much earlier. A renewal therefore asks
//! the leader. When the process dies, its claims go with the session, whatever their ttl; while
//! it lives, a claim that is not renewed is removed at its ttl.
//!
//! While there is no connection, what is held is
//! [in jeopardy](crate::Guard::is_in_jeopardy), neither lost nor safe. A claim whose node is
//! deleted by hand is lost at once. Tokens are the transaction that made the node, times 1024:
//! they grow across all locks, restarts and new leaders.

mod broken;
mod client;
mod driver;
mod estate;
mod jute;
mod known;
mod layout;
mod lease;
mod line;
mod numbers;
mod options;
mod path;
mod queue;
mod record;
mod request;
mod route;
mod session;
mod single;
mod tls;
mod trouble;
mod view;
mod vigil;
mod watchers;
mod wire;

use crate::address::Address;
use crate::backend::{
    Backend, Capability, Claim, FencingToken, Grant, Inspector, LockView, Mode, Name, Patience,
};
use crate::background::Background;
use crate::error::Result;
use crate::recipes::{ZOOKEEPER_BARGING, ZOOKEEPER_EPHEMERAL, ZOOKEEPER_FAIR};
use async_trait::async_trait;
use client::Client;
use layout::{Entry, Layout, NODE};
use options::{Options, Recipe};
use queue::Stop;
use request::{Access, Kind, Request};
use session::Session;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use trouble::{Fault, refusal};

/// Opens the recipe that the URL names.
pub(crate) async fn open(address: &Address, background: &Background) -> Result<Arc<dyn Backend>> {
    let Options { recipe, layout, root, access, door } = Options::read(address)?;
    let shown = door.shown.clone().into();
    let client = Client::new(door, background.clone());
    let session = client.session().await?;
    let shared = Shared { client, recipe, layout, root, access, shown };
    drop(session);
    Ok(Arc::new(ZooKeeper(shared)))
}

/// Locks in ZooKeeper; opened by [`connect`](crate::connect()).
#[derive(Debug)]
pub struct ZooKeeper(Shared);

#[derive(Debug)]
struct Shared {
    client: Client,
    recipe: Recipe,
    layout: Layout,
    root: String,
    access: Access,
    shown: Arc<str>,
}

#[async_trait]
impl Backend for ZooKeeper {
    fn capability(&self) -> Capability {
        let capability = match self.0.recipe {
            Recipe::Fair => ZOOKEEPER_FAIR,
            Recipe::Barging => ZOOKEEPER_BARGING,
            Recipe::Ephemeral => ZOOKEEPER_EPHEMERAL,
        };
        // What kazoo calls a semaphore has nodes elsewhere, which its locks do not look at.
        let permits = capability.permits && self.0.layout == Layout::Curator;
        let shared = capability.shared && self.0.layout != Layout::Latch;
        Capability { permits, shared, ..capability }
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let shared = &self.0;
        loop {
            let session = &shared.client.session().await?;
            let parent = path::of(&shared.root, &claim.name);
            let barging = shared.recipe == Recipe::Barging;
            let outcome = match shared.recipe {
                Recipe::Ephemeral => {
                    single::Attempt { shared, session, claim, parent }.run(patience).await
                }
                Recipe::Fair | Recipe::Barging => {
                    let attempt =
                        queue::Attempt { shared, session, claim, parent, patience, barging };
                    attempt.run().await
                }
            };
            match outcome {
                Ok(outcome) => return Ok(outcome),
                // Our node went with the session; with the next we begin anew.
                Err(Stop::Fault(Fault::Over)) => {}
                Err(Stop::Fault(fault)) => {
                    session.doom(claim.id);
                    return Err(shared.client.explain(&fault));
                }
                Err(Stop::Error(error)) => {
                    // Not left to the session alone: the error says that nothing is in doubt.
                    if shared.withdraw(session, claim).await.is_err() {
                        session.doom(claim.id);
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let session = self.0.client.session().await?;
        self.0.withdraw(&session, claim).await.map_err(|fault| self.0.client.explain(&fault))
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }
}

#[async_trait]
impl Inspector for ZooKeeper {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        view::list(&self.0, prefix).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        view::show(&self.0, name).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        view::break_hold(&self.0, name, token, reason).await
    }
}

/// What became of a node that was to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    There,
    /// We may not make it.
    NotByUs,
    /// One above it was removed meanwhile, as ZooKeeper does with containers that are empty.
    Vanished,
}

impl Shared {
    /// How long a claim is valid without a renewal.
    fn valid_for(&self, session: &Session, claim: &Claim) -> Duration {
        claim.ttl.min(session.certainty())
    }

    /// The claims among the children of a lock, in their order.
    fn entries(&self, children: Vec<String>) -> Result<Vec<Entry>> {
        if self.recipe != Recipe::Ephemeral {
            return self.layout.entries(children);
        }
        let only = children.into_iter().find(|child| child == NODE);
        let (mode, number, may_be_doubled) = (Mode::Exclusive, 0, false);
        Ok(only.map(|node| Entry { node, mode, number, may_be_doubled }).into_iter().collect())
    }

    /// Makes a node and all above it, as far as they are not there. ZooKeeper removes them some
    /// time after the last claim went.
    async fn make(&self, session: &Session, path: &str) -> Result<(), Fault> {
        /// How often one may vanish that was there.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            match self.make_once(session, path).await? {
                Made::There => return Ok(()),
                Made::Vanished => {}
                // It may well be there, though we may not make it.
                Made::NotByUs => {
                    return match session.call(Request::exists(path, false)).await {
                        Err(fault) if fault.is(refusal::NO_NODE) => {
                            Err(Fault::Refused(refusal::NO_AUTH))
                        }
                        other => other.map(drop),
                    };
                }
            }
        }
        Err(Fault::Unanswered("nodes that are made for a lock vanish at once".into()))
    }

    async fn make_once(&self, session: &Session, path: &str) -> Result<Made, Fault> {
        let nodes = path::ancestors(path).chain([path]);
        let make = |node| Request::create(node, &[], Kind::Container, self.access);
        let mut above = Made::There;
        for coming in session.ask_all(nodes.map(make)) {
            above = match session.answer(coming).await {
                Ok(_) => Made::There,
                Err(fault) if fault.is(refusal::NODE_EXISTS) => Made::There,
                // Whether it is there is not told to those who may not make it.
                Err(fault) if fault.is(refusal::NO_AUTH) => Made::NotByUs,
                // The one above is not there, or not any more.
                Err(fault) if fault.is(refusal::NO_NODE) => match above {
                    Made::NotByUs => return Err(Fault::Refused(refusal::NO_AUTH)),
                    Made::There | Made::Vanished => return Ok(Made::Vanished),
                },
                Err(fault) => return Err(fault),
            };
        }
        Ok(above)
    }

    async fn withdraw(&self, session: &Session, claim: &Claim) -> Result<(), Fault> {
        let parent = path::of(&self.root, &claim.name);
        if self.recipe == Recipe::Ephemeral {
            single::remove(session, &parent, claim.id).await.map(drop)?;
            session.strike_off(claim.id);
            return Ok(());
        }
        let start = self.layout.start(claim);
        let children = match session.call_surely(&parent, Request::children(&parent)).await {
            Ok(answer) => answer.children()?,
            Err(fault) if fault.is(refusal::NO_NODE) => Vec::new(),
            Err(fault) => return Err(fault),
        };
        for child in children.iter().filter(|child| child.starts_with(&start)) {
            match session.call(Request::delete(&format!("{parent}/{child}"))).await {
                Err(fault) if !fault.is(refusal::NO_NODE) => return Err(fault),
                _ => {}
            }
        }
        session.strike_off(claim.id);
        Ok(())
    }
}

impl fmt::Display for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.shown)
    }
}
