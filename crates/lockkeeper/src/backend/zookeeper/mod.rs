#![doc = include_str!("../../../docs/zookeeper.md")]

// The rooms of this folder. Nothing here refers back to this file.
//
//   options ─► context ─► recipes (fair, barging, ephemeral) ─► lease
//                 │               │                               │
//                 │               └──► session ◄──────────────────┘
//                 │                      │  cleanup: nodes we own, and what is due about each
//                 │                      │  gone: nodes known to be gone
//                 └──► client ◄──────────┘  sessions, requests, watches; no word of locks
//
//   keys, layout, record, break_note: what is written in ZooKeeper, pinned by tests
//   lock_node: the lock's own node; inspect: list, show, break; sequence: numbers and records
//
mod barging;
mod break_note;
mod checkup;
mod cleanup;
mod client;
mod context;
mod ephemeral;
mod error;
mod fair;
mod gone;
mod inspect;
mod keys;
mod layout;
mod lease;
mod lock_node;
mod options;
mod record;
mod sequence;
mod session;

pub use client::Access;
pub use layout::Layout;
pub use options::{ZooKeeperOptions, ZooKeeperRecipe};

use crate::backend::support::contended::Gates;
use crate::backend::{
    Backend, Capability, Claim, FencingToken, Finding, Grant, HolderView, Inspector, LockView,
    Name, Page, Patience, Reserve, Reserved, Sequencer,
};
use crate::background::Background;
use crate::error::Result;
use crate::recipes::{ZOOKEEPER_BARGING, ZOOKEEPER_EPHEMERAL, ZOOKEEPER_FAIR};
use async_trait::async_trait;
use client::{Client, Failure};
use context::Context;
use error::Stop;
use fair::Watched;
use layout::SINGLE_NODE;
use session::Session;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Opens a session with the ensemble.
///
/// # Errors
/// Options that make no sense, a server that cannot be reached, or credentials that it refuses.
async fn open(options: ZooKeeperOptions, background: &Background) -> Result<Arc<dyn Backend>> {
    let connect = options.connect_options()?;
    let context = Context {
        recipe: options.recipe,
        layout: options.layout,
        root: options.normalised_root()?,
        access: options.effective_access()?,
        shown: connect.shown.as_str().into(),
        client: Client::new(connect, background.clone()),
    };
    // So that a wrong host or password is reported now.
    context.session().await?;
    Ok(Arc::new(ZooKeeper(context, Gates::default())))
}

/// Locks in ZooKeeper.
#[derive(Debug)]
struct ZooKeeper(Context, Gates);

#[async_trait]
impl Backend for ZooKeeper {
    /// What the recipe promises, less what the layout has no node names for.
    fn capability(&self) -> Capability {
        let capability = match self.0.recipe {
            ZooKeeperRecipe::Fair => ZOOKEEPER_FAIR,
            ZooKeeperRecipe::Barging => ZOOKEEPER_BARGING,
            ZooKeeperRecipe::Ephemeral => ZOOKEEPER_EPHEMERAL,
        };
        // kazoo's semaphore has its nodes elsewhere, where kazoo's locks do not look.
        let permits = capability.permits && self.0.layout == Layout::Curator;
        let shared = capability.shared && self.0.layout != Layout::Latch;
        Capability { permits, shared, ..capability }
    }

    /// One attempt in each session until there is an outcome.
    ///
    /// A session that ends under an attempt takes the claim's node with it, so nothing is in doubt
    /// and the next attempt begins from nothing. After any other failure the node may exist: the
    /// driver deletes it, and the engine calls [`withdraw`](Self::withdraw) as well, which does not
    /// depend on this session.
    fn recipe(&self) -> &'static str {
        match self.0.recipe {
            ZooKeeperRecipe::Fair => "fair",
            ZooKeeperRecipe::Barging => "barging",
            ZooKeeperRecipe::Ephemeral => "ephemeral",
        }
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let context = &self.0;
        loop {
            let session = &context.session().await?;
            let outcome = match context.recipe {
                ZooKeeperRecipe::Fair => {
                    fair::acquire(context, session, claim, patience, Watched::TheNearest).await
                }
                ZooKeeperRecipe::Barging => {
                    barging::acquire(context, session, claim, patience).await
                }
                ZooKeeperRecipe::Ephemeral => {
                    ephemeral::acquire(context, session, claim, patience).await
                }
            };
            match outcome {
                Ok(outcome) => return Ok(outcome),
                // Our node went with the session: begin again in the next one.
                Err(Stop::Failure(Failure::SessionEnded)) => {}
                Err(Stop::Failure(failure)) => {
                    session.delete_soon(claim.id);
                    return Err(context.explain(&failure));
                }
                Err(Stop::Error(error)) => {
                    // Now, and not by the driver alone: this error says that nothing is in doubt.
                    if self.withdraw_from(session, claim).await.is_err() {
                        session.delete_soon(claim.id);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Looks for the claim's node by name, in whatever session, and deletes it.
    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let session = self.0.session().await?;
        let withdrawn = self.withdraw_from(&session, claim).await;
        withdrawn.map_err(|failure| self.0.explain(&failure))
    }

    /// Closes the session, unless a claim is held or waits: its nodes live in it.
    async fn close(&self) -> Result<()> {
        self.0.client.close().await;
        Ok(())
    }

    /// The lock's node, whose children are the claims, and the child where there is only one.
    fn keys(&self, name: &Name) -> Vec<String> {
        let lock = self.0.path_of(name);
        match self.0.recipe {
            ZooKeeperRecipe::Fair | ZooKeeperRecipe::Barging => vec![lock],
            ZooKeeperRecipe::Ephemeral => vec![format!("{lock}/{SINGLE_NODE}"), lock],
        }
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        checkup::checkup(&self.0).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        checkup::round_trips(&self.0, count).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }
}

impl ZooKeeper {
    /// As [`withdraw`](Backend::withdraw), in one session.
    async fn withdraw_from(&self, session: &Session, claim: &Claim) -> Result<(), Failure> {
        match self.0.recipe {
            ZooKeeperRecipe::Fair | ZooKeeperRecipe::Barging => {
                fair::withdraw(&self.0, session, claim).await
            }
            ZooKeeperRecipe::Ephemeral => ephemeral::withdraw(&self.0, session, claim).await,
        }
    }
}

#[async_trait]
impl Inspector for ZooKeeper {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        inspect::list(&self.0, prefix).await
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        inspect::list_page(&self.0, prefix, after, limit).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        inspect::show(&self.0, name).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<HolderView>> {
        inspect::holders(&self.0, name).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        inspect::break_hold(&self.0, name, token, reason).await
    }
}

#[async_trait]
impl Sequencer for ZooKeeper {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        sequence::reserve(&self.0, &self.1, name, wish).await
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

impl fmt::Display for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.shown)
    }
}
