//! What a store must offer to become a lock: the [`Backend`] trait and its words.
//!
//! A backend is small. It takes a claim in one atomic step, keeps it, gives it back. Waiting
//! with a limit, renewal, noticing loss, re-entry, releasing on drop and cancel safety are
//! written once, in the core, and come for free.

#[cfg(any(feature = "redis", feature = "sqlite"))]
mod alarms;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
#[cfg(feature = "etcd")]
mod queue;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use crate::claim::{Claim, ClaimId, FencingToken, Mode, Owner};
pub use crate::clock::Moment;
pub use crate::loss::{Alarm, LossReason};
pub use crate::name::Name;
pub use crate::patience::Patience;

use crate::error::Result;
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;

/// One way of making a lock out of a store.
///
/// `Display` is its URL without secrets.
#[async_trait]
pub trait Backend: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// What it promises. Constant for the life of the value.
    fn capability(&self) -> Capability;

    /// Takes the claim in one atomic step that also sets its expiry, or returns `None` when
    /// someone else has the name.
    ///
    /// A backend with a native way to wait does so until `patience` runs out; one without
    /// returns `None` at once and is called again after a pause. Either way nothing of the
    /// claim is left in the store when it returns `None`.
    ///
    /// The future is always driven to completion, in the background if need be, so it need not
    /// be cancel safe; in exchange every request in it must have a time limit of its own.
    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>>;

    /// Takes all the claims, which are on different names, in one atomic step and without waiting,
    /// or none of them. Where a store has no such step, as by default, they are taken one after
    /// another instead.
    ///
    /// Driven to completion as `acquire` is; when it fails in a way that leaves doubt, every one of
    /// the claims is withdrawn.
    async fn acquire_together(&self, claims: &[Claim]) -> Result<Together> {
        let _ = claims;
        Ok(Together::OneByOne)
    }

    /// Removes whatever this claim may have left in the store: called, and retried, after
    /// `acquire` failed in a way that leaves doubt. Removes nothing of anyone else.
    async fn withdraw(&self, claim: &Claim) -> Result<()>;

    /// Ends what it has in the store beside claims, such as a session, unless claims are held or
    /// waited for. Called when the keeper is closed; what is asked of it later works as before.
    async fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Who holds and who waits, where the store can tell.
    fn inspector(&self) -> Option<&dyn Inspector>;

    /// Numbers that nobody else gets, where the store can keep count.
    fn sequencer(&self) -> Option<&dyn Sequencer> {
        None
    }
}

/// What became of claims made together.
#[derive(Debug)]
pub enum Together {
    /// All won: their grants, in the order of the claims.
    Granted(Vec<Grant>),
    /// None did, since another has the name of the claim with this index.
    Busy(usize),
    /// Nothing was done: they have to be taken one after another.
    OneByOne,
}

/// A claim that won.
#[derive(Debug)]
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

/// One claim, held.
#[async_trait]
pub trait Lease: fmt::Debug + Send + Sync + 'static {
    /// Extends the claim by its whole ttl if it is still ours and has not expired.
    /// An `Err` means "not known": it neither extends nor ends the lease.
    async fn renew(&mut self) -> Result<Standing>;

    /// Whether the name passes, right now, to another claim of this keeper: then this one is over
    /// before the store says so, and [`release`](Self::release), which follows at once, only has
    /// to tell it. Asked once, and only of a claim that need not linger.
    fn passes_on(&mut self) -> bool {
        false
    }

    /// Gives the claim back, at once or once `linger` has passed. Idempotent: a claim that is
    /// gone, or another's, is left alone.
    ///
    /// An error of [`ErrorKind::Lost`](crate::ErrorKind::Lost), best made by
    /// [`LossReason::to_error`], says that the store did not have the claim any more, and ends
    /// the matter. Where an earlier request for the same release may have been carried out, its
    /// absence means nothing, and the answer is `Ok`.
    async fn release(&mut self, linger: Duration) -> Result<()>;

    /// Hands over the alarm to ring should the store say that the claim is gone; at once, if it
    /// has said so since the grant. A backend whose store never says so lets it drop.
    fn watch(&mut self, alarm: Alarm);

    /// So many guards share the claim now: its owner entered again, or left but for those. For
    /// stores that can show it ([`HolderView::count`]), at their leisure: called also where
    /// nothing may wait and nothing may be sent.
    fn shared_by(&mut self, guards: usize) {
        let _ = guards;
    }
}

/// What a renewal found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Held for a whole ttl from the moment the renewal was sent.
    Held,
    /// Held for this long from then, where the store cannot vouch for a whole ttl.
    HeldFor(Duration),
    /// No longer ours.
    Lost(LossReason),
}

/// How far a lock reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// The tasks and threads of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Whoever can reach the store.
    Network,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::Process => "process",
            Reach::Machine => "machine",
            Reach::Network => "network",
        })
    }
}

/// What a backend promises. What it does not promise it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capability {
    /// How far a lock reaches.
    pub reach: Reach,
    /// [`Mode::Shared`].
    pub shared: bool,
    /// [`Mode::Permit`].
    pub permits: bool,
    /// Claims are granted in the order they were made.
    pub fair: bool,
    /// Grants carry a token that never goes back.
    pub fencing: bool,
    /// An owner may enter again from another process or keeper.
    pub reentrant: bool,
    /// A claim can outlive its release: `min_hold`.
    pub linger: bool,
    /// Waiters are woken; where false, they poll.
    pub notified: bool,
    /// Claims and tokens survive a restart of the store.
    pub durable: bool,
    /// Claims live in a session that the keeper has with the store. A ttl longer than what the
    /// session is good for is cut to that; a process that dies frees its claims when the store
    /// ends the session, whatever their ttl; one that lives frees each of them at its ttl.
    pub session: bool,
}

impl Capability {
    /// The least there is: exclusive claims that are polled for.
    pub const fn least(reach: Reach) -> Self {
        Self {
            reach,
            shared: false,
            permits: false,
            fair: false,
            fencing: false,
            reentrant: false,
            linger: false,
            notified: false,
            durable: false,
            session: false,
        }
    }

    /// Whether claims of this mode can be made.
    pub fn has(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => true,
            Mode::Shared => self.shared,
            Mode::Permit { .. } => self.permits,
        }
    }
}

/// Looks into a store and, if it must be, takes a lock from its holder.
#[async_trait]
pub trait Inspector: Send + Sync {
    /// Every name that is held or waited for and starts with `prefix`, in order of name.
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>>;

    /// Who holds `name` and who waits for it, in order. Both empty when it is free.
    async fn show(&self, name: &Name) -> Result<LockView>;

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

/// Keeps count, so that no two callers get the same number.
#[async_trait]
pub trait Sequencer: Send + Sync {
    /// Reserves `count` numbers in a row and returns the first: above every number reserved for
    /// `name` before, and not below `floor`. There may be gaps: an answer that is lost takes its
    /// numbers with it.
    ///
    /// A store that lost its count starts again at `floor`, so give one that is above every
    /// number you know to have been used.
    async fn reserve(&self, name: &Name, count: u32, floor: u64) -> Result<u64>;
}

/// A name and everyone at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// The name.
    pub name: Name,
    /// Those who hold it, in the order they were granted it.
    pub holders: Vec<HolderView>,
    /// Those who wait, in the order they will get it where the backend is fair.
    pub waiters: Vec<WaiterView>,
}

/// One owner who holds a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderView {
    /// The owner's id.
    pub owner: Owner,
    /// The owner for people: `user@host pid 4242`.
    pub whom: String,
    /// What the owner said of the claim.
    pub note: String,
    /// How it is held.
    pub mode: Mode,
    /// The token of the grant.
    pub token: Option<FencingToken>,
    /// How many claims the owner has on the name, by re-entry. Those of one keeper are one where
    /// the store is not told of them ([`Lease::shared_by`]).
    pub count: usize,
    /// Time since the grant; on etcd and ZooKeeper, which do not write that down, since it was
    /// asked for.
    pub held_for: Duration,
    /// Time until the claim ends unless renewed.
    pub expires_in: Duration,
}

/// One owner who waits for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiterView {
    /// The owner's id.
    pub owner: Owner,
    /// The owner for people.
    pub whom: String,
    /// What the owner said of the claim.
    pub note: String,
    /// How it is wanted.
    pub mode: Mode,
    /// Time since it began to wait.
    pub waiting_for: Duration,
}

impl LockView {
    /// One line that says who holds the name: `alice@web-1 pid 4242 'backup.sh' for 42s`.
    ///
    /// `None` when nobody does.
    pub fn holders_line(&self) -> Option<String> {
        line_of(&self.holders)
    }

    /// The place of `owner` among the waiters, counted from 1.
    pub fn place_of(&self, owner: &Owner) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.owner == *owner).map(|index| index + 1)
    }
}

/// One line that says who holds a name; `None` when nobody does.
pub(crate) fn line_of(holders: &[HolderView]) -> Option<String> {
    let first = holders.first()?;
    let mut line = first.to_string();
    if holders.len() > 1 {
        line += &format!(" and {} more", holders.len() - 1);
    }
    Some(line)
}

impl fmt::Display for HolderView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of one who came by another library, the id is all there is.
        let whom = if self.whom.is_empty() { self.owner.id() } else { &self.whom };
        f.write_str(&in_one_line(whom))?;
        if !self.note.is_empty() {
            write!(f, " '{}'", in_one_line(&self.note))?;
        }
        write!(f, " for {}s", self.held_for.as_secs())
    }
}

/// Text of others, made safe to print: control characters are written out.
fn in_one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(shown).collect()
}
