//! What a quorum asks of one of its nodes, beyond what every backend can do.

use super::{Claim, FencingToken, Name};
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
    /// token it knows of, to that; unless the floor is as high already.
    async fn ask(&self, claim: &Claim, token: Option<FencingToken>) -> Result<Vote>;

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
        /// Its clock, in microseconds since 1970.
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
    /// Whether it still has after a restart what it had answered before.
    pub remembers: bool,
    /// Why it must not vote, where its settings are the reason.
    pub unfit: Option<String>,
}
