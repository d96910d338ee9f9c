#![doc = include_str!("../../../docs/redlock.md")]
//!
//! # Where things are
//! ```text
//!   options.rs   how votes are counted
//!   nodes.rs     all nodes, and what is shared            node.rs      one of them
//!   wait.rs      asking until granted                     turns.rs     who of this keeper asks
//!   attempt.rs   asking all nodes, once                   round.rs     one question to many
//!   tokens.rs    the tokens of grants                     silence.rs   a node that does not answer
//!   lease.rs     renewal and release                      holding.rs   one claim at all nodes
//!   inspect.rs   who holds, at which node                 notices.rs   hearing of a release
//!   local_handover.rs   from one claim of a keeper to the next, before the nodes are told
//! ```

mod attempt;
mod checkup;
mod holding;
mod inspect;
mod lease;
mod local_handover;
mod node;
mod nodes;
mod notices;
mod options;
mod round;
mod silence;
mod tokens;
mod turns;
mod wait;

#[cfg(test)]
mod tests;

use crate::backend::support::options::config;
use crate::backend::{
    Backend, Background, Capability, Claim, Finding, Grant, Inspector, Lease, Moment, Name, Owner,
    Patience, Primitive, Ticket,
};
use crate::error::{ErrorKind, Result};
use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use holding::Holding;
use inspect::QuorumInspector;
use lease::QuorumLease;
use nodes::{Nodes, TokenWay};
pub use options::QuorumOptions;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A lock that more than half of several independent stores must grant.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::Keeper;
/// use lockkeeper::backend::Backend;
/// use lockkeeper::backend::memory::Memory;
/// use lockkeeper::backend::quorum::Quorum;
/// use std::sync::Arc;
///
/// let stores: Vec<Arc<dyn Backend>> =
///     (0..3).map(|_| Arc::new(Memory::new()) as Arc<dyn Backend>).collect();
/// let keeper = Keeper::new(Arc::new(Quorum::new(stores.clone())?))?;
/// let guard = keeper.lock("orders/42").acquire().await?;
/// assert!(guard.token().is_some());
///
/// // Any two of the three decide; one of them alone does not.
/// let one = Keeper::new(stores[0].clone())?;
/// assert!(one.lock("orders/42").try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Quorum {
    nodes: Arc<Nodes>,
    capability: Capability,
    inspector: Option<QuorumInspector>,
}

impl Quorum {
    /// Over these stores, which must be independent of each other: none may fail or forget because
    /// another does.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when there is none, or one is there twice.
    pub fn new(backends: Vec<Arc<dyn Backend>>) -> Result<Self> {
        Self::with_options(backends, QuorumOptions::default())
    }

    /// As [`new`](Self::new), counting votes as the options say.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_options(backends: Vec<Arc<dyn Backend>>, options: QuorumOptions) -> Result<Self> {
        Self::shown_as(backends, options, None)
    }

    /// As [`with_options`](Self::with_options), shown to people as `shown`.
    pub(crate) fn shown_as(
        backends: Vec<Arc<dyn Backend>>,
        options: QuorumOptions,
        shown: Option<String>,
    ) -> Result<Self> {
        if backends.is_empty() {
            return Err(config("a quorum needs stores to vote: name three or five of them"));
        }
        let twice = |at: usize| backends[..at].iter().any(|it| Arc::ptr_eq(it, &backends[at]));
        if let Some(at) = (0..backends.len()).find(|at| twice(*at)) {
            return Err(config(format!(
                "{} is there twice: a store has one vote, so name each of them once",
                backends[at]
            )));
        }
        if options.timeout.is_zero() {
            return Err(config("the timeout of a quorum is longer than nothing"));
        }
        let capability = capability(&backends);
        let inspects = backends.iter().all(|it| it.voter().is_some() && it.inspector().is_some());
        let nodes = Arc::new(Nodes::new(backends, options, shown));
        nodes.warn_of_few();
        let inspector = inspects.then(|| QuorumInspector::new(nodes.clone()));
        let fencing = nodes.way != TokenWay::None;
        let capability = Capability { fencing, inspects, ..capability };
        Ok(Self { nodes, capability, inspector })
    }

    /// Looks at every node, as `redlock://` does when it connects. A minority may be down; what is wrong
    /// with a node that answers is told.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when two nodes are the same server, or one has settings with which it must
    /// not vote; [`ErrorKind::Unavailable`] when fewer than a majority answer; what else a node says.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is taken.
    pub async fn check(&self) -> Result<()> {
        let majority = self.nodes.majority();
        // Longer than a vote may take: connections are made. A minority that hangs costs no more than
        // that; where a majority is not there yet it is waited for, because there is no keeper without.
        let soon = self.nodes.options.timeout.max(Duration::from_millis(50)) * 10;
        let (soon, last) = (Moment::now() + soon, Moment::now() + soon * 10);
        let looks = self.nodes.all.iter().enumerate().map(|(number, node)| async move {
            loop {
                let life = node.life().await;
                // A server that is not there says so at once; one that takes its time may yet answer.
                let slow = soon.remaining().is_zero();
                if !(slow && is_away(&life)) {
                    return (number, life);
                }
                tokio::time::sleep(self.nodes.options.timeout).await;
            }
        });
        let mut looks: FuturesUnordered<_> = looks.collect();
        let (mut answers, mut silent) = (Vec::new(), Vec::new());
        loop {
            let limit = if answers.len() < majority { last } else { soon };
            let answer = tokio::select! {
                biased;
                answer = looks.next() => answer,
                () = limit.reached() => None,
            };
            match answer {
                None => break,
                Some((number, Ok(life))) => answers.push((number, life)),
                Some((number, Err(error))) => match error.kind() {
                    ErrorKind::Unavailable => silent.push((number, error.to_string())),
                    _ => return Err(error),
                },
            }
        }
        answers.sort_by_key(|(number, _)| *number);
        for number in 0..self.nodes.all.len() {
            let heard =
                answers.iter().any(|it| it.0 == number) || silent.iter().any(|it| it.0 == number);
            if !heard {
                silent.push((number, "it does not answer".to_owned()));
            }
        }
        let shown = |number: usize| &self.nodes.all[number].shown;
        for (at, (number, life)) in answers.iter().enumerate() {
            if let Some(why) = &life.unfit {
                return Err(config(format!("{}: {why}", shown(*number))));
            }
            let twin = answers[..at].iter().find(|(_, it)| it.id.is_some() && it.id == life.id);
            if let Some((twin, _)) = twin {
                return Err(config(format!(
                    "{} and {} are one and the same server, which has one vote: name each of the \
                     servers once",
                    shown(*twin),
                    shown(*number)
                )));
            }
        }
        for (number, why) in &silent {
            self.nodes.all[*number].silence.begins();
            tracing::warn!(node = shown(*number), why, "a node cannot be reached");
        }
        match answers.len() >= majority {
            true => Ok(()),
            false => Err(self.nodes.too_few(answers.len(), &silent)),
        }
    }
}

fn is_away<T>(answer: &Result<T>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable)
}

/// What all of the stores have, and a quorum of them too.
fn capability(backends: &[Arc<dyn Backend>]) -> Capability {
    let all = |has: fn(&Capability) -> bool| backends.iter().all(|it| has(&it.capability()));
    let reach = backends.iter().map(|it| it.capability().reach).min();
    let least = Capability::least(reach.unwrap_or(crate::backend::Reach::Process));
    let shortest = backends.iter().map(|it| it.capability().shortest_ttl).max();
    Capability {
        min_hold: all(|it| it.min_hold),
        durable: all(|it| it.durable),
        session: backends.iter().any(|it| it.capability().session),
        portable: all(|it| it.portable),
        sound: all(|it| it.sound),
        shortest_ttl: shortest.unwrap_or(least.shortest_ttl),
        ..least
    }
}

#[async_trait]
impl Backend for Quorum {
    fn capability(&self) -> Capability {
        self.capability
    }

    fn recipe(&self) -> &'static str {
        "quorum"
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        wait::acquire(&self.nodes, claim, patience).await
    }

    /// Asks every node, and goes on asking those that do not answer in the background.
    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let (claim, end) = (Arc::new(claim.clone()), Moment::now() + claim.ttl);
        let limit = self.nodes.options.timeout;
        let withdrawals = self.nodes.all.iter().map(|node| async {
            let withdrawn = tokio::time::timeout(limit, node.withdraw(&claim)).await;
            if !matches!(withdrawn, Ok(Ok(()))) {
                let forgetting = node.clone().forget(claim.clone(), end);
                self.nodes.background().spawn(forgetting);
            }
        });
        join_all(withdrawals).await;
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        let closing = self.nodes.all.iter().map(|node| node.backend.close());
        join_all(closing).await.into_iter().collect()
    }

    fn attach(&self, background: &Background) {
        self.nodes.attach(background);
        let home = background.at_home();
        self.nodes.all.iter().for_each(|node| node.backend.attach(&home));
    }

    fn no_sequencer(&self) -> Option<&'static str> {
        Some("numbers that only a minority of its servers knows of could be given twice")
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.inspector.as_ref().map(|inspector| inspector as &dyn Inspector)
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        if !self.capability.portable {
            return None;
        }
        // Who asked for it is not known any more, and only shown to people.
        let claim = Claim {
            id: ticket.id,
            name: ticket.name.clone(),
            mode: ticket.mode,
            primitive: Primitive::Lock,
            owner: Owner::from_id(ticket.id.to_string()),
            ttl: ticket.ttl,
            identity: "".into(),
            note: "".into(),
            by_id: false,
        };
        let holding = Holding::by_ticket(Arc::new(claim), self.nodes.all.len());
        Some(Box::new(QuorumLease::resumed(self.nodes.clone(), holding)))
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        let mut keys: Vec<_> = self.nodes.all.iter().flat_map(|it| it.backend.keys(name)).collect();
        keys.dedup();
        keys
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        Ok(checkup::checkup(&self.nodes).await)
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        checkup::round_trips(&self.nodes, count).await
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.fmt(f)
    }
}
