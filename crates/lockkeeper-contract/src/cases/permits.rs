//! A limited number of holders at a time.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, Stage, eventually, ms};
use crate::verdict::{Outcome, ensure, unknown};
use crate::witness::Witness;
use lockkeeper::Keeper;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !chosen.capability.permits {
        return Vec::new();
    }
    cases!("permits":
        as_many_as_there_are_and_no_more,
        never_too_many_and_none_lost,
        none_is_lost_to_those_who_go_away,
        the_smallest_number_counts,
    )
}

/// All `of` permits can be held at once, and not one more.
pub(super) async fn whole(keeper: &Keeper, name: &str, of: u32) -> Outcome {
    let gate = keeper.semaphore(name, of).ttl(LONG);
    let mut guards = Vec::new();
    for _ in 0..of {
        guards.push(gate.acquire_within(PATIENT).await?);
    }
    ensure!(gate.try_acquire().await?.is_none(), "more than {of} permits were issued");
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn as_many_as_there_are_and_no_more(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("gate");
    let first = one.semaphore(&name, 3).ttl(LONG).acquire().await?;
    let second = two.semaphore(&name, 3).ttl(LONG).acquire().await?;
    let third = one.semaphore(&name, 3).ttl(LONG).acquire().await?;
    ensure!(two.semaphore(&name, 3).try_acquire().await?.is_none(), "a fourth of three");
    second.release().await?;
    let again = two.semaphore(&name, 3).ttl(LONG).try_acquire().await?;
    ensure!(again.is_some(), "a permit was released and yet there is none");
    ensure!(one.semaphore(&name, 3).try_acquire().await?.is_none(), "a fourth of three");
    first.release().await?;
    third.release().await?;
    drop(again);
    whole(&one, &name, 3).await
}

/// Opened before anyone begins: on a slow store the first would be done before the last is open.
async fn keepers(stage: &Stage, count: usize) -> Outcome<Vec<Keeper>> {
    let mut keepers = Vec::new();
    for _ in 0..count {
        keepers.push(stage.keeper().await?);
    }
    Ok(keepers)
}

async fn never_too_many_and_none_lost(stage: Arc<Stage>) -> Outcome {
    const OF: u32 = 3;
    let name = stage.name("counted");
    let witness = Arc::new(Witness::default());
    // All are taken until everyone has found them taken: where the store is slow, a visit is over
    // before the next one asks, and nobody would keep anybody out.
    let first = stage.keeper().await?;
    let mut taken = Vec::new();
    for _ in 0..OF {
        taken.push(first.semaphore(&name, OF).ttl(LONG).acquire().await?);
    }
    let mut tasks = Vec::new();
    for keeper in keepers(&stage, 8).await? {
        let (gate, witness) = (keeper.semaphore(&name, OF).ttl(LONG), witness.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..6 {
                let guard = match gate.try_acquire().await? {
                    Some(guard) => guard,
                    None => {
                        witness.found_busy();
                        gate.acquire().await?
                    }
                };
                witness.visit().await;
                guard.release().await?;
            }
            Ok::<(), lockkeeper::Error>(())
        }));
    }
    let busy = async || Ok((witness.waited() >= tasks.len()).then_some(()));
    eventually("everyone finds them taken", busy).await?;
    for guard in taken {
        guard.release().await?;
    }
    for task in tasks {
        task.await??;
    }
    witness.judge(3, 48)?;
    if witness.most() < 2 {
        unknown!("no two permits were ever held at once");
    }
    whole(&stage.keeper().await?, &name, OF).await
}

async fn none_is_lost_to_those_who_go_away(stage: Arc<Stage>) -> Outcome {
    const OF: u32 = 2;
    let name = stage.name("forsaken");
    let witness = Arc::new(Witness::default());
    let mut tasks = Vec::new();
    for (number, keeper) in (0_u64..).zip(keepers(&stage, 6).await?) {
        let (gate, witness) = (keeper.semaphore(&name, OF).ttl(LONG), witness.clone());
        tasks.push(tokio::spawn(async move {
            for round in 0..8_u64 {
                let impatience = Duration::from_micros((number * 977 + round * 1361) % 6000);
                match tokio::time::timeout(impatience, gate.acquire()).await {
                    Err(_) => witness.found_busy(),
                    Ok(guard) => {
                        let guard = guard?;
                        witness.visit().await;
                        drop(guard);
                    }
                }
                tokio::time::sleep(ms(round % 3)).await;
            }
            Ok::<(), lockkeeper::Error>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    witness.judge(2, witness.entries())?;
    whole(&stage.keeper().await?, &name, OF).await
}

async fn the_smallest_number_counts(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("disputed");
    let first = one.semaphore(&name, 2).ttl(LONG).acquire().await?;
    let second = two.semaphore(&name, 5).ttl(LONG).acquire().await?;
    ensure!(two.semaphore(&name, 5).try_acquire().await?.is_none(), "5 prevailed over 2 held");
    first.release().await?;
    let third = two.semaphore(&name, 5).ttl(LONG).try_acquire().await?;
    ensure!(third.is_some(), "with 2 gone, 5 count");
    ensure!(one.semaphore(&name, 2).try_acquire().await?.is_none(), "2 asked, 5 prevailed");
    second.release().await?;
    drop(third);
    whole(&one, &name, 2).await
}
