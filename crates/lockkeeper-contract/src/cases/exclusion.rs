//! One at a time.

use super::{Chosen, cases_of_each_kind};
use crate::case::Case;
use crate::kind::Kind;
use crate::stage::{LONG, Stage, taken};
use crate::verdict::{Outcome, ensure};
use crate::witness::Witness;
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    cases_of_each_kind!(chosen, "exclusion":
        tasks_of_five_keepers_exclude_each_other,
        tasks_of_one_keeper_exclude_each_other,
        what_is_held_cannot_be_taken,
    )
}

const TASKS: usize = 5;
const ROUNDS: usize = 8;

async fn tasks_of_five_keepers_exclude_each_other(stage: Arc<Stage>, kind: Kind) -> Outcome {
    contend(&stage, kind, true).await
}

async fn tasks_of_one_keeper_exclude_each_other(stage: Arc<Stage>, kind: Kind) -> Outcome {
    contend(&stage, kind, false).await
}

async fn contend(stage: &Stage, kind: Kind, own_keepers: bool) -> Outcome {
    let name = stage.name("contended");
    let witness = Arc::new(Witness::default());
    let shared = stage.keeper().await?;
    let mut keepers = Vec::new();
    // All before the first task: a quick one would be through before the next keeper is connected.
    for _ in 0..TASKS {
        keepers.push(if own_keepers { stage.keeper().await? } else { shared.clone() });
    }
    let mut tasks = Vec::new();
    for keeper in keepers {
        let (lock, witness) = (kind.of(&keeper, &name).ttl(LONG), witness.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = match lock.try_acquire().await? {
                    Some(guard) => guard,
                    None => {
                        witness.found_busy();
                        lock.acquire().await?
                    }
                };
                witness.visit().await;
                guard.release().await?;
            }
            Ok::<(), lockkeeper::Error>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    witness.judge(1, TASKS * ROUNDS)
}

async fn what_is_held_cannot_be_taken(stage: Arc<Stage>, kind: Kind) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("held");
    let guard = kind.of(&one, &name).ttl(LONG).acquire().await?;
    for keeper in [&one, &two] {
        ensure!(kind.of(keeper, &name).try_acquire().await?.is_none(), "it was taken twice");
        taken(keeper, &name).await?;
    }
    ensure!(guard.is_held(), "the holder lost it to those who asked");
    guard.release().await?;
    let next = kind.of(&two, &name).ttl(LONG).try_acquire().await?;
    ensure!(next.is_some(), "it was released and yet could not be taken");
    Ok(())
}
