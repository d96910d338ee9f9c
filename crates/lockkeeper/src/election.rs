//! One leader at a time: an exclusive claim that others can watch.

mod lead;
mod leadership;
mod observe;

pub(crate) use lead::Again;
pub use leadership::Leadership;
pub use observe::Leader;

use crate::claim::Mode;
use crate::engine::Engine;
use crate::error::Result;
use crate::lock::Lock;
use crate::terms::{Terms, terms_setters, unsupported};
use std::sync::Arc;
use std::time::Duration;

/// An election: campaign to lead, or observe who does. [`lead`](Self::lead) does work for as long as this
/// process leads, again and again.
///
/// The note of a candidate is what observers see of it: put an address there.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use tokio_stream::StreamExt;
///
/// let keeper = lockkeeper::connect("memory:").await?;
/// let election = keeper.election("scheduler").note("http://10.0.0.1:8080");
/// let leadership = election.campaign().await?;
///
/// let mut leaders = std::pin::pin!(election.observe()?);
/// let leader = leaders.next().await.unwrap()?.unwrap();
/// assert_eq!(leader.note, "http://10.0.0.1:8080");
/// assert_eq!(leader.term, leadership.term());
///
/// leadership.resign().await?;
/// assert!(leaders.next().await.unwrap()?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "does nothing until it is acquired"]
pub struct Election {
    engine: Arc<Engine>,
    name: String,
    terms: Terms,
}

impl Election {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        Self { engine: engine.clone(), name: name.to_owned(), terms: Terms::default() }
    }

    terms_setters!();

    /// Waits until elected.
    ///
    /// # Errors
    /// As [`Lock::acquire`]; `Unsupported` where the store has no tokens, since a term is one.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped at any point, it is no candidate any more.
    pub async fn campaign(&self) -> Result<Leadership> {
        self.check()?;
        self.candidacy().acquire().await.and_then(Leadership::of)
    }

    /// Leads if nobody does: `None` when there is a leader.
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        self.check()?;
        self.candidacy().try_acquire().await?.map(Leadership::of).transpose()
    }

    /// Waits for at most `limit` to be elected.
    ///
    /// # Errors
    /// `TimedOut` names the leader. Otherwise as [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_within(&self, limit: Duration) -> Result<Leadership> {
        self.check()?;
        self.candidacy().acquire_within(limit).await.and_then(Leadership::of)
    }

    fn check(&self) -> Result<()> {
        match self.engine.backend.capability().fencing {
            true => Ok(()),
            false => {
                Err(unsupported(&self.engine, "fencing tokens, which terms are", |c| c.fencing))
            }
        }
    }

    fn candidacy(&self) -> Lock {
        Lock::new(&self.engine, &self.name, Mode::Exclusive, self.terms.clone())
    }
}
