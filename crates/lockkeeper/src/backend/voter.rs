//! What a quorum asks of one of its nodes, beyond what every backend can do.

use super::{Claim, ClaimId, FencingToken, Name};
use crate::error::Result;
use async_trait::async_trait;
use std::pin::Pin;
use std::time::Duration;

/// A backend that can be a node of a [quorum](super::quorum) with everything a quorum offers:
/// fencing tokens, restarts and clock jumps noticed, who holds what.
///
/// Any other backend can be a node too. A quorum then does without what the backend cannot tell:
/// it takes a claim by [`acquire`](super::Backend::acquire), keeps it by
/// [`renew`](super::Lease::renew), and notices restarts by
/// [`incarnation`](super::Backend::incarnation).
///
/// Every request is checked against the claim's id in one atomic step, and does the same when it
/// is sent twice.
#[async_trait]
pub trait Voter: Send + Sync {
    /// Takes the claim, without waiting. With a `token` the node also raises its floor, the largest
    /// token it knows of, to that; unless the floor is as high already. If it is not wanted, the node need
    /// not tell its clock.
    async fn ask(
        &self,
        claim: &Claim,
        token: Option<FencingToken>,
        wants_clock: bool,
    ) -> Result<Vote>;

    /// Raises the node's floor to `token`, which is that of the claim from now on. Returns whether the
    /// claim was still there: if not, nothing is done.
    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<bool>;

    /// Gives the claim its whole ttl; and takes it anew if the node has neither this claim nor
    /// another.
    async fn keep(&self, claim: &Claim, token: Option<FencingToken>) -> Result<Kept>;

    /// Which life the node is in. Called after every vote, so it must cost nothing while the node
    /// has not been away: what it says must be true of every answer that came before the call.
    async fn life(&self) -> Result<NodeLife>;

    /// Resolves when a claim on the name may have been given back at this node after the call, where
    /// the node can tell. Nothing relies on it: a notice may be missed, and one too many does no harm.
    /// An error means that the node cannot be heard now.
    fn released(&self, name: &Name) -> Option<Released> {
        let _ = name;
        None
    }

    /// How what the node has of a claim becomes another claim's of the same keeper, where the node can
    /// do that in one step. In a quorum with a node that cannot, nothing is handed over within a keeper.
    fn passing(&self) -> Option<&dyn Passing> {
        None
    }
}

/// What a node must be able to do so that a name can pass from one claim of a keeper to the next without
/// being free in between.
///
/// The node knows what it has by the id of the claim that it was taken with, `taken_as`, for as long as
/// claims pass it on; it shows the claim that has it now, and a ticket finds that one alone.
/// [`Backend::withdraw`](super::Backend::withdraw) of the first claim removes it, whoever has it by then.
///
/// As everywhere, a request is checked in one atomic step, and does the same when it is sent twice.
#[async_trait]
pub trait Passing: Send + Sync {
    /// As [`Voter::keep`], of what was taken as `taken_as` and is the `claim`'s from now on. A claim that
    /// was broken under any of the ids before is broken.
    async fn pass(
        &self,
        taken_as: ClaimId,
        claim: &Claim,
        token: Option<FencingToken>,
    ) -> Result<Kept>;

    /// Gives back what was taken as `taken_as`; nobody else may have the name for `stay`.
    async fn give_back(&self, name: &Name, taken_as: ClaimId, stay: Duration) -> Result<GaveBack>;
}

/// What a node says when a claim that passed on is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GaveBack {
    /// The claim was not there.
    Lacked,
    /// The claim was there, as far as the node can tell.
    Had {
        /// Whether somebody was told who waits for the name, where the node can tell.
        awaited: bool,
    },
}

/// What [`Voter::released`] returns.
pub type Released = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// What a node says to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// It has the claim now.
    Yes {
        /// The largest token it knew of before.
        floor: u64,
        /// Its clock, in microseconds since 1970; zero if it was not told.
        clock: u64,
    },
    /// It has another.
    No {
        /// Whose, as far as one can tell them apart.
        holder: String,
        /// How much longer, where that has an end.
        left: Option<Duration>,
    },
}

/// What a node says to the renewal of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// It had the claim.
    Ours {
        /// For how much longer it would have had it, where it can tell.
        left: Option<Duration>,
    },
    /// It had nothing, and has the claim now.
    Retaken,
    /// It has another claim.
    Others,
    /// The claim was taken away, for this reason.
    Broken(String),
}

/// Which life a node is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NodeLife {
    /// The same for as long as the server has not been restarted, and no other server's.
    pub id: Option<String>,
    /// How long it has been up; `None` when it does not tell.
    pub up_for: Option<Duration>,
    /// Whether it is set up to have after a restart what it had answered before.
    pub remembers: bool,
    /// For how long it has had all that it answered, over restarts: by something that it was told that
    /// long ago and still has. `None` where nothing shows that: also a server that is to remember may
    /// have lost its disk.
    pub kept_for: Option<Duration>,
    /// Why it must not vote, where its settings are the reason.
    pub unfit: Option<String>,
}
