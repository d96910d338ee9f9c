//! What is measured, one function each.

use super::PREFIX;
use super::samples::Samples;
use crate::claim::LAST_WAIT;
use crate::exit::Failure;
use lockkeeper::{Keeper, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const CONNECTS: usize = 5;
const ROUND_TRIPS: usize = 200;
/// Short, so that what an interrupted bench could not give back is soon free.
const TTL: Duration = Duration::from_secs(5);

pub(super) struct Plan<'a> {
    pub(super) url: &'a str,
    pub(super) keeper: &'a Keeper,
    /// How long each of the three long ones takes.
    pub(super) each: Duration,
    pub(super) tasks: usize,
}

impl Plan<'_> {
    /// From a URL to a keeper that can lock.
    pub(super) async fn connects(&self) -> Result<Samples, Failure> {
        let mut samples = Samples::default();
        for _ in 0..CONNECTS {
            let begun = Instant::now();
            let keeper = lockkeeper::connect(self.url).await?;
            samples.add(begun.elapsed());
            keeper.close(LAST_WAIT).await;
        }
        Ok(samples)
    }

    pub(super) async fn round_trips(&self) -> Result<Samples, Failure> {
        let mut samples = Samples::default();
        self.keeper.round_trips(ROUND_TRIPS).await?.into_iter().for_each(|took| samples.add(took));
        Ok(samples)
    }

    pub(super) async fn one_task(&self) -> Result<Samples, Failure> {
        let begun = Instant::now();
        let name = format!("{PREFIX}/0");
        let samples = again_and_again(self.keeper, name, begun + self.each).await?;
        Ok(samples.over(begun.elapsed()))
    }

    pub(super) async fn a_name_each(&self) -> Result<Samples, Failure> {
        let begun = Instant::now();
        let until = begun + self.each;
        let mut running = JoinSet::new();
        for task in 0..self.tasks {
            let keeper = self.keeper.clone();
            running.spawn(async move {
                again_and_again(&keeper, format!("{PREFIX}/{task}"), until).await
            });
        }
        let samples = all(running).await?;
        Ok(samples.over(begun.elapsed()))
    }

    /// With a connection each: claims of one keeper would pass the name on among themselves.
    pub(super) async fn one_name(&self) -> Result<Samples, Failure> {
        let mut keepers = Vec::new();
        for _ in 0..self.tasks {
            keepers.push(lockkeeper::connect(self.url).await?);
        }
        let begun = Instant::now();
        let until = begun + self.each;
        let given_up: GivenUp = Arc::default();
        let mut running = JoinSet::new();
        for (task, keeper) in keepers.iter().cloned().enumerate() {
            let given_up = given_up.clone();
            running.spawn(async move { turns(&keeper, task, until, &given_up).await });
        }
        let samples = all(running).await.map(|samples| samples.over(begun.elapsed()));
        for keeper in keepers {
            keeper.close(LAST_WAIT).await;
        }
        samples
    }
}

/// What all of them measured. Those that still run are ended with the set.
async fn all(mut running: JoinSet<Result<Samples>>) -> Result<Samples, Failure> {
    let mut samples = Samples::default();
    while let Some(done) = running.join_next().await {
        match done {
            Ok(done) => samples.extend(done?),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }
    Ok(samples)
}

async fn again_and_again(keeper: &Keeper, name: String, until: Instant) -> Result<Samples> {
    let ttl = TTL.max(keeper.capability().shortest_ttl);
    let lock = keeper.lock(&name).ttl(ttl).note("lockkeeper bench");
    let mut samples = Samples::default();
    while Instant::now() < until {
        let begun = Instant::now();
        lock.acquire().await?.release().await?;
        samples.add(begun.elapsed());
    }
    Ok(samples)
}

/// Who gave the name up last, and when.
type GivenUp = Arc<Mutex<Option<(usize, Instant)>>>;

/// Takes turns with others: how long the name was nobody's, when it came from another.
async fn turns(
    keeper: &Keeper,
    task: usize,
    until: Instant,
    given_up: &GivenUp,
) -> Result<Samples> {
    let ttl = TTL.max(keeper.capability().shortest_ttl);
    let lock = keeper.lock(format!("{PREFIX}/0")).ttl(ttl).note("lockkeeper bench");
    let mut samples = Samples::default();
    // Who waits when the time is over has its turn still: else every last one would be given up.
    while Instant::now() < until {
        let guard = lock.acquire().await?;
        let last = *given_up.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((other, since)) = last
            && other != task
        {
            samples.add(since.elapsed());
        }
        *given_up.lock().unwrap_or_else(PoisonError::into_inner) = Some((task, Instant::now()));
        guard.release().await?;
    }
    Ok(samples)
}
