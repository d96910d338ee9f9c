//! What a store must offer to become a lock: the [`Backend`] trait and its words.
//!
//! A backend is small. It takes a claim in one atomic step, keeps it, gives it back. Waiting
//! with a limit, renewal, noticing loss, re-entry, releasing on drop and cancel safety are
//! written once, in the engine, and come for free.

mod capability;
mod checkup;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "memcached")]
pub mod memcached;
pub mod memory;
pub mod queue;
pub mod quorum;
#[cfg(feature = "redis")]
pub mod redis;
mod sequencer;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub(crate) mod support;
mod views;
mod voter;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use crate::alarm::{Alarm, Signal};
pub use crate::background::Background;
pub use crate::claim::{Claim, ClaimId, FencingToken, Mode, Owner, Primitive};
pub use crate::clock::Moment;
pub use crate::loss::LossReason;
pub use crate::name::Name;
pub use crate::patience::Patience;
pub use crate::release::Release;
pub use crate::ticket::Ticket;
pub use capability::{Capability, Reach};
pub use checkup::{Finding, Subject, Verdict};
pub(crate) use sequencer::check_record;
pub use sequencer::{LAST_NUMBER, LONGEST_RECORD, Reserve, Reserved, Sequencer};
#[cfg(feature = "tls")]
pub use support::tls::TlsOptions;
pub(crate) use views::line_of;
pub use views::{HolderView, LockView, NodeView, Page, WaiterView};
pub use voter::{GaveBack, Kept, NodeLife, Passing, Released, Vote, Voter};

use crate::error::Result;
use async_trait::async_trait;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// One way of making a lock out of a store.
///
/// `Display` is its URL without secrets.
#[async_trait]
pub trait Backend: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// What it promises. Constant for the life of the value.
    fn capability(&self) -> Capability;

    /// What its recipe is called, as in the list of [`recipes`](crate::recipes()): a label of metrics. A
    /// store of one's own need not say.
    fn recipe(&self) -> &'static str {
        "other"
    }

    /// Takes the claim in one atomic step that also sets its expiry, or returns `None` when
    /// someone else has the name.
    ///
    /// A backend with a native way to wait does so until `patience` runs out; one without
    /// returns `None` at once and is called again after a pause. Either way nothing of the
    /// claim is left in the store when it returns `None`.
    ///
    /// A claim that is [asked for by id](Claim::by_id) may be in the store already, made there by
    /// any keeper: if it is held, this returns that grant, with its token and for a whole ttl from
    /// now; if it waits, it keeps its place; with other terms it is refused by
    /// [`Claim::refuse_other_terms`]. Only backends that
    /// [find claims](Capability::by_id) are asked so.
    ///
    /// The future is always driven to completion, in the background if need be, so it need not
    /// be cancel safe; in exchange every request in it must have a time limit of its own.
    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>>;

    /// Removes whatever this claim may have left in the store: called, and retried, after
    /// `acquire` failed in a way that leaves doubt. Removes nothing of anyone else. Not called for a
    /// claim that was asked for by id: another keeper may have found it.
    async fn withdraw(&self, claim: &Claim) -> Result<()>;

    /// Ends what it has in the store beside claims, such as a session, unless claims are held or
    /// waited for. Called when the keeper is closed; what is asked of it later works as before.
    async fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Hands over the home of the keeper's background work: called once by a [`Keeper`] that is
    /// made over this backend, before anything else. For a backend with work of its own to do there
    /// or connections to put there; one that has neither need not know.
    ///
    /// [`Keeper`]: crate::Keeper
    fn attach(&self, background: &Background) {
        let _ = background;
    }

    /// Who holds and who waits, where the store can tell: [`Capability::inspects`].
    fn inspector(&self) -> Option<&dyn Inspector> {
        None
    }

    /// Numbers that nobody else gets, and small records, where the store can keep them:
    /// [`Capability::sequences`].
    fn sequencer(&self) -> Option<&dyn Sequencer> {
        None
    }

    /// Why there is no [`sequencer`](Self::sequencer), where that is not plain to see: for the error.
    fn no_sequencer(&self) -> Option<&'static str> {
        None
    }

    /// What a quorum asks of its nodes, where the store can tell: see [`quorum`].
    fn voter(&self) -> Option<&dyn Voter> {
        None
    }

    /// Several names in one atomic step, where the store has one: [`Capability::atomic_multi`].
    fn multi(&self) -> Option<&dyn MultiAcquire> {
        None
    }

    /// The lease of a claim that any keeper was granted, in this process or another, where claims
    /// can be kept and given back by their id: [`Capability::portable`]. Asks nothing of the store:
    /// whether it has the claim still is for the lease's first renewal to find out.
    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        let _ = ticket;
        None
    }

    /// The very keys, nodes or rows in which the store keeps `name`, as one would ask for them with
    /// the store's own tools: to compare with what another library uses. Empty where nothing could
    /// be asked for from outside.
    fn keys(&self, name: &Name) -> Vec<String> {
        let _ = name;
        Vec::new()
    }

    /// Which life the store is in, where it can tell: a text that is the same for as long as the
    /// server has not been restarted, and never again afterwards. A caller that sees it change
    /// knows that what was only in the server's memory is gone.
    async fn incarnation(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// What an operator should know of the store: version, persistence, eviction, replication, clock.
    /// Takes nothing and writes nothing. Empty where there is nothing to ask.
    async fn checkup(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    /// How long each of `count` round trips to the store took, one after the other, each with the
    /// least request that there is. Empty where nothing is asked of anyone.
    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        let _ = count;
        Ok(Vec::new())
    }
}

/// What opens a store: the options of each store's module, such as
/// [`SqliteOptions`](sqlite::SqliteOptions), or those of a store of one's own.
#[async_trait]
pub trait OpenStore: Send + 'static {
    /// Opens it, with its background work and its connections in `background`.
    ///
    /// # Errors
    /// What opening the store said; [`ErrorKind::Config`](crate::ErrorKind::Config) for options
    /// that make no sense.
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>>;

    /// How long a claim that waits puts up with a store that does not answer.
    fn outage(&self) -> Duration {
        crate::patience::OUTAGE
    }
}

/// Takes several names at once.
#[async_trait]
pub trait MultiAcquire: Send + Sync {
    /// Takes all the claims, which are on different names, in one atomic step and without waiting,
    /// or none of them.
    ///
    /// Driven to completion as [`Backend::acquire`] is; when it fails in a way that leaves doubt,
    /// every one of the claims is withdrawn.
    async fn acquire_all(&self, claims: &[Claim]) -> Result<Together>;
}

/// What became of claims made together.
#[derive(Debug)]
#[non_exhaustive]
pub enum Together {
    /// All won: their grants, in the order of the claims.
    Granted(Vec<Grant>),
    /// None did, since another has the name of the claim with this index.
    Busy(usize),
    /// Nothing was done: these cannot be taken in one step, and have to be one after another.
    OneByOne,
}

/// A claim that won.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grant {
    /// What keeps the claim and gives it back.
    pub lease: Box<dyn Lease>,
    /// The token of the grant, where the store has one that never goes back.
    pub token: Option<FencingToken>,
    /// A moment not later than the sending of the request that won. Validity counts from here,
    /// because the store may have started its clock at any time since.
    pub sent: Moment,
    /// How long the store keeps the claim from `sent` on unless it is renewed: the claim's ttl,
    /// or less where a name was handed to a waiter that has not confirmed it yet. The first
    /// renewal comes in time for it.
    pub valid_for: Duration,
}

impl Grant {
    /// The grant of a claim that was asked for at `sent`, and that the store keeps for `valid_for`
    /// from then on.
    pub fn new(
        lease: Box<dyn Lease>,
        token: Option<FencingToken>,
        sent: Moment,
        valid_for: Duration,
    ) -> Self {
        Self { lease, token, sent, valid_for }
    }
}

/// One claim, held.
#[async_trait]
pub trait Lease: fmt::Debug + Send + 'static {
    /// Extends the claim by its whole ttl if it is still ours and has not expired.
    /// An `Err` means "not known": it neither extends nor ends the lease.
    async fn renew(&mut self) -> Result<Standing>;

    /// As [`renew`](Self::renew), of a claim that is about to be kept by its ticket alone: from the
    /// answer on the claim depends on nothing that this keeper has, such as a session. Asked only of
    /// [portable](Capability::portable) backends.
    async fn hand_out(&mut self) -> Result<Standing> {
        self.renew().await
    }

    /// As [`renew`](Self::renew), of a claim that this keeper goes on with by its ticket: what the store
    /// tells of it, it tells this keeper from now on.
    async fn take_over(&mut self) -> Result<Standing> {
        self.renew().await
    }

    /// Gives the claim back, at once or once [`Release::stay`] has passed. Idempotent: a claim that
    /// is gone, or another's, is left alone.
    ///
    /// An error of [`ErrorKind::Lost`](crate::ErrorKind::Lost), best made by
    /// [`LossReason::to_error`], says that the store did not have the claim any more, and ends
    /// the matter. Where an earlier request for the same release may have been carried out, its
    /// absence means nothing, and the answer is `Ok`.
    async fn release(&mut self, how: &Release<'_>) -> Result<()>;

    /// Hands over the alarm to ring should the store say that the claim is gone; at once, if it
    /// has said so since the grant. A backend whose store never says so lets it drop.
    fn watch(&mut self, alarm: Alarm);

    /// So many guards share the claim now: its owner entered again, or left but for those. For
    /// stores that can show it ([`HolderView::count`]), at their leisure: called also where
    /// nothing may wait and nothing may be sent.
    fn guards_changed(&mut self, guards: usize) {
        let _ = guards;
    }
}

/// What a renewal found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// Held for a whole ttl from the moment the renewal was sent.
    Held,
    /// Held for this long from then, where the store cannot vouch for a whole ttl.
    HeldFor(Duration),
    /// No longer ours.
    Lost(LossReason),
}

/// Resolves when others hold a name: [`Inspector::watch`].
pub type Watched = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Looks into a store and, if it must be, takes a lock from its holder.
#[async_trait]
pub trait Inspector: Send + Sync {
    /// Every name that is held or waited for and starts with `prefix`, in order of name.
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>>;

    /// At most about `limit` of those, after the page whose [`Page::next`] is `after`: without holding
    /// all of them in memory, where the store can. In order of name, or of whatever the store goes by.
    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        Ok(Page::of_all(self.list(prefix).await?, after, limit))
    }

    /// Who holds `name` and who waits for it, in order. Both empty when it is free.
    async fn show(&self, name: &Name) -> Result<LockView>;

    /// Resolves when other claims hold `name` than when it was called; also when they may. `None`, which
    /// is the default, where the store does not tell, and those who want to know ask again and again. A
    /// claim that runs out unnoticed need not be told.
    ///
    /// Called before one looks, so that what changes after the look is not missed.
    fn watch(&self, name: &Name) -> Option<Watched> {
        let _ = name;
        None
    }

    /// Who holds `name`, in order: as [`show`](Self::show), without those who wait. What an error
    /// says of a lock that was not free takes no more, and a queue may be long.
    async fn holders(&self, name: &Name) -> Result<Vec<HolderView>> {
        Ok(self.show(name).await?.holders)
    }

    /// Takes the claim with `token` from its holder and lets the next one in at once. Returns
    /// whether there was such a claim.
    ///
    /// The holder is told, but may still be at work: only a resource that checks the token is
    /// safe from it.
    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool>;
}
