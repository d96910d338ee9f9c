//! One leader at a time: an exclusive claim that others can watch.

use crate::backend::LockView;
use crate::claim::{FencingToken, Mode, Owner};
use crate::completing::Entered;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::name::Name;
use crate::terms::{Terms, terms_setters, unsupported};
use futures_util::stream::{self, Stream};
use std::sync::Arc;
use std::time::Duration;

/// How often an observer looks, where nothing tells it.
const GLANCE: Duration = Duration::from_millis(200);

/// An election: campaign to lead, or observe who does.
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

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The leader's owner id.
    pub owner: Owner,
    /// The leader for people: `user@host pid 4242`.
    pub identity: String,
    /// What the leader said when campaigning.
    pub note: String,
    /// Grows with every change of leader.
    pub term: FencingToken,
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

    /// The leaders from now on, the present one first: `None` while there is none.
    ///
    /// A reign too short to be seen between two looks is left out; terms tell. An error does not
    /// end the stream: the next item is what was learnt when the store answered again.
    ///
    /// # Errors
    /// `Unsupported` where the store cannot list its holders.
    pub fn observe(&self) -> Result<impl Stream<Item = Result<Option<Leader>>> + Send + use<>> {
        let name = Name::new(&self.name)?;
        self.check()?;
        if self.engine.backend.inspector().is_none() {
            return Err(unsupported(&self.engine, "way to list holders", |c| c.inspects));
        }
        let engine = self.engine.clone();
        // Whether anyone has looked yet, and whom they saw.
        let start: (bool, Option<Option<Leader>>) = (false, None);
        Ok(stream::unfold(start, move |(mut looked, seen)| {
            let (engine, name) = (engine.clone(), name.clone());
            async move {
                let runtime = engine.background.handle().ok()?;
                let look = async move {
                    loop {
                        if std::mem::replace(&mut looked, true) {
                            tokio::time::sleep(GLANCE).await;
                        }
                        match engine.backend.inspector()?.show(&name).await {
                            Ok(view) => {
                                let leader = leader_of(view);
                                if seen.as_ref() != Some(&leader) {
                                    return Some((Ok(leader.clone()), (looked, Some(leader))));
                                }
                            }
                            Err(error) => return Some((Err(error), (looked, seen))),
                        }
                    }
                };
                Entered::new(look, runtime).await
            }
        }))
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

fn leader_of(view: LockView) -> Option<Leader> {
    let holder = view.holders.into_iter().next()?;
    let (owner, identity, note) = (holder.owner, holder.identity, holder.note);
    Some(Leader { owner, identity, note, term: holder.token? })
}

/// The office of leader, held.
///
/// Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "if unused the leader resigns at once"]
pub struct Leadership {
    guard: Guard,
    term: FencingToken,
}

impl Leadership {
    fn of(guard: Guard) -> Result<Self> {
        // Elections without tokens are refused before.
        let missing = || Error::new(ErrorKind::Store, "the store gave no token for this office");
        let term = guard.token().ok_or_else(missing)?;
        Ok(Self { guard, term })
    }

    /// The number of this reign: larger than that of every leader before. Give it to followers
    /// with every order, so that they refuse a leader of the past.
    pub fn term(&self) -> FencingToken {
        self.term
    }

    /// The guard behind it: `lost`, `run`, `remaining` and the rest.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Steps down and waits until the store knows.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// Cancel safe: once called, it goes on in the background.
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }
}
