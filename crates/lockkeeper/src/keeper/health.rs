//! How a keeper is doing, for those who watch it.

use super::Keeper;
use crate::clock::Moment;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::meter::Operation;
use crate::name::Name;
use std::sync::Arc;
use std::time::Duration;

/// How long the store may take to answer a question about its health.
const LIMIT: Duration = Duration::from_secs(1);
/// The name that is looked up. Nobody need ever lock it.
const PROBE: &str = "lockkeeper/health";

/// How a keeper is doing; see [`Keeper::health`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Health {
    /// Whether the store answered just now, within a second.
    pub is_reachable: bool,
    /// What it said, or that it did not, where it is not reachable.
    pub error: Option<Error>,
    /// How long the answer took; `None` where there was none, or the recipe has nothing to ask.
    pub round_trip: Option<Duration>,
    /// How long ago a request of a claim was last answered; `None` before the first answer.
    pub last_answer: Option<Duration>,
    /// How often the store answered again after it had not.
    pub reconnects: u64,
    /// How many claims this keeper holds.
    pub held: usize,
    /// How many claims are being made, or wait.
    pub waiting: usize,
    /// How many of those that are held are in jeopardy: the store could not be asked to keep them when
    /// it should have been.
    pub in_jeopardy: usize,
}

impl Keeper {
    /// How this keeper and its store are doing: for readiness probes and for dashboards.
    ///
    /// The store is asked one short question, about a name that nobody uses, and has a second to
    /// answer: this never takes much longer, whatever the store does. A recipe that cannot be asked
    /// anything counts as reachable while its claims are answered.
    ///
    /// A keeper that is not reachable may hold locks all the same, for as long as they were last
    /// renewed for; so a probe that restarts the process should rather go by
    /// [`in_jeopardy`](Health::in_jeopardy), or by losses.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let _held = keeper.lock("orders/42").acquire().await?;
    /// let health = keeper.health().await;
    /// assert!(health.is_reachable && health.in_jeopardy == 0);
    /// assert_eq!((health.held, health.waiting), (1, 0));
    /// # Ok(()) }
    /// ```
    pub async fn health(&self) -> Health {
        let engine = &self.engine;
        let (error, round_trip) = match ask(engine).await {
            Ok(round_trip) => (None, round_trip),
            Err(error) => (Some(error), None),
        };
        let holds = engine.scheduler.holds();
        Health {
            is_reachable: error.is_none(),
            error,
            round_trip,
            last_answer: engine.contact.last_answer(),
            reconnects: engine.contact.reconnects(),
            held: holds.len(),
            waiting: engine.contending(),
            in_jeopardy: holds.iter().filter(|hold| hold.is_endangered()).count(),
        }
    }
}

/// How long the store took to answer; `None` where there is nothing to ask it.
async fn ask(engine: &Arc<Engine>) -> Result<Option<Duration>> {
    let (sent, asked, name) = (Moment::now(), engine.clone(), Name::new(PROBE)?);
    let question = async move {
        if let Some(inspector) = asked.backend.inspector() {
            let holders = asked.counted(Operation::Inspect, inspector.holders(&name));
            return holders.await.map(|_| true);
        }
        match asked.backend.sequencer() {
            Some(sequencer) => {
                asked.counted(Operation::Record, sequencer.read(&name)).await.map(|_| true)
            }
            None if asked.contact.is_silent() => Err(asked.silent(LIMIT)),
            None => Ok(false),
        }
    };
    let answer = engine.by(Some(sent + LIMIT), engine.completing(question)?.uncounted()).await?;
    match answer {
        Some(Ok(true)) => Ok(Some(Moment::now().since(sent))),
        Some(Ok(false)) => Ok(None),
        // A refusal is an answer, but not one on which locks can be taken.
        Some(Err(error)) if error.kind() != ErrorKind::Unsupported => Err(error),
        Some(Err(_)) => Ok(None),
        None => Err(engine.silent(LIMIT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::Memory;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn it_tells_an_outage_and_its_end() {
        let store = Arc::new(Memory::new());
        let keeper = Keeper::new(store.clone()).unwrap();
        assert_eq!(keeper.health().await.last_answer, None);
        let guard = keeper.lock("a").ttl(secs(30)).acquire().await.unwrap();
        let lock = keeper.lock("a").ttl(secs(30));
        let waiter = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(secs(3)).await;
        let health = keeper.health().await;
        assert!(health.is_reachable && health.error.is_none() && health.round_trip.is_some());
        assert_eq!((health.held, health.waiting, health.in_jeopardy), (1, 1, 0));
        assert_eq!(health.last_answer, Some(secs(3)));

        store.fail();
        tokio::time::sleep(secs(15)).await;
        let health = keeper.health().await;
        assert!(!health.is_reachable && health.round_trip.is_none());
        assert_eq!(health.error.unwrap().kind(), ErrorKind::Unavailable);
        assert_eq!((health.held, health.waiting, health.in_jeopardy), (1, 1, 1));
        assert_eq!(health.reconnects, 0);

        store.resume();
        tokio::time::sleep(secs(5)).await;
        let health = keeper.health().await;
        assert!(health.is_reachable && guard.is_held());
        assert_eq!((health.in_jeopardy, health.reconnects), (0, 1));
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn it_never_hangs() {
        let store = Arc::new(Memory::new());
        let keeper = Keeper::new(store.clone()).unwrap();
        store.pause();
        let asked = Moment::now();
        let health = keeper.health().await;
        assert!(!health.is_reachable && health.error.is_some());
        let took = Moment::now().since(asked);
        assert!(took >= LIMIT && took < secs(2), "{took:?}");
        store.resume();
    }
}
