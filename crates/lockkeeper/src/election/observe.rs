//! Watching who leads.

use super::Election;
use crate::backend::LockView;
use crate::claim::{FencingToken, Owner};
use crate::completing::Entered;
use crate::engine::Engine;
use crate::error::Result;
use crate::meter::Operation;
use crate::name::Name;
use crate::terms::unsupported;
use futures_util::stream::{self, Stream};
use std::sync::Arc;
use std::time::Duration;

/// How often an observer looks, where nothing tells it.
const GLANCE: Duration = Duration::from_millis(200);
/// How often it looks where it is told: for a leader whose claim ran out, which nobody does.
const RARELY: Duration = Duration::from_secs(1);

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
    /// The leaders from now on, the present one first: `None` while there is none.
    ///
    /// A reign too short to be seen between two looks is left out; terms tell. An error does not
    /// end the stream: the next item is what was learnt when the store answered again.
    ///
    /// A change of leader is seen at once where the store says so ([`Inspector::watch`]), which
    /// `memory:` does. Elsewhere the store is asked every 200 ms.
    ///
    /// [`Inspector::watch`]: crate::backend::Inspector::watch
    ///
    /// # Errors
    /// `Unsupported` where the store cannot list its holders.
    pub fn observe(&self) -> Result<impl Stream<Item = Result<Option<Leader>>> + Send + use<>> {
        let name = Name::new(&self.name)?;
        self.check()?;
        if self.engine.backend.inspector().is_none() {
            return Err(unsupported(&self.engine, "way to list holders", |c| c.inspects));
        }
        let start = Observer { engine: self.engine.clone(), name, looked: false, seen: None };
        Ok(stream::unfold(start, |observer| async move {
            let runtime = observer.engine.background.handle().ok()?;
            Entered::new(observer.next(), runtime).await
        }))
    }
}

struct Observer {
    engine: Arc<Engine>,
    name: Name,
    /// Whether anyone has looked yet, and whom they saw.
    looked: bool,
    seen: Option<Option<Leader>>,
}

impl Observer {
    async fn next(mut self) -> Option<(Result<Option<Leader>>, Self)> {
        if std::mem::replace(&mut self.looked, true) && self.seen.is_none() {
            // After an error.
            tokio::time::sleep(GLANCE).await;
        }
        loop {
            let engine = self.engine.clone();
            let inspector = engine.backend.inspector()?;
            // Before the look, so that what changes after it is not missed.
            let changed = inspector.watch(&self.name);
            match engine.counted(Operation::Inspect, inspector.show(&self.name)).await {
                Ok(view) => {
                    let leader = leader_of(view);
                    if self.seen.as_ref() != Some(&leader) {
                        self.seen = Some(leader.clone());
                        return Some((Ok(leader), self));
                    }
                }
                Err(error) => {
                    self.seen = None;
                    return Some((Err(error), self));
                }
            }
            match changed {
                // Whether told or not, it is time to look.
                Some(changed) => drop(tokio::time::timeout(RARELY, changed).await),
                None => tokio::time::sleep(GLANCE).await,
            }
        }
    }
}

fn leader_of(view: LockView) -> Option<Leader> {
    let holder = view.holders.into_iter().next()?;
    let (owner, identity, note) = (holder.owner, holder.identity, holder.note);
    Some(Leader { owner, identity, note, term: holder.token? })
}

#[cfg(test)]
mod tests {
    use crate::Keeper;
    use crate::backend::Moment;
    use crate::backend::memory::Memory;
    use futures_util::StreamExt;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn memory_tells_of_a_change_at_once() {
        let store = Arc::new(Memory::new());
        let (one, two) = (Keeper::new(store.clone()).unwrap(), Keeper::new(store).unwrap());
        let mut leaders = Box::pin(two.election("office").observe().unwrap());
        assert!(leaders.next().await.unwrap().unwrap().is_none());
        for _ in 0..3 {
            let next = tokio::spawn(async move {
                let seen = leaders.next().await;
                (seen, Moment::now(), leaders)
            });
            tokio::time::sleep(Duration::from_millis(333)).await;
            let leadership = one.election("office").campaign().await.unwrap();
            let elected = Moment::now();
            let (seen, at, stream) = next.await.unwrap();
            assert_eq!(seen.unwrap().unwrap().unwrap().term, leadership.term());
            assert_eq!(at.since(elected), Duration::ZERO, "seen late");
            leaders = stream;
            leadership.resign().await.unwrap();
            assert!(leaders.next().await.unwrap().unwrap().is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_whose_claim_ran_out_is_seen_to_be_gone() {
        let keeper = Keeper::new(Arc::new(Memory::new())).unwrap();
        let ttl = Duration::from_secs(3);
        keeper.lock("office").ttl(ttl).acquire().await.unwrap().detach();
        let mut leaders = Box::pin(keeper.election("office").observe().unwrap());
        assert!(leaders.next().await.unwrap().unwrap().is_some());
        let began = Moment::now();
        assert!(leaders.next().await.unwrap().unwrap().is_none());
        let after = Moment::now().since(began);
        assert!(after >= ttl && after <= ttl + super::RARELY, "{after:?}");
    }
}
