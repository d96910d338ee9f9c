//! Waiters that are killed or paused do not block the others.

use crate::case::Case;
use crate::cases::{Chosen, cases};
use crate::process::Process;
use crate::stage::{LONG, PATIENT, Stage, ms, queue_of, queues, taken};
use crate::verdict::{Outcome, ensure, unknown};
use lockkeeper::{Guard, Keeper};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !queues(&chosen.capability, chosen.inspects) {
        return Vec::new();
    }
    cases!("processes":
        they_are_served_in_the_order_they_came,
        the_first_waiter_may_be_killed,
        a_waiter_in_the_middle_may_be_killed,
        the_first_waiter_may_be_paused,
    )
}

/// Three processes that wait, in order, for a lock that this process holds.
async fn queue(stage: &Stage, keeper: &Keeper, name: &str) -> Outcome<(Guard, [Process; 3])> {
    let held = keeper.lock(name).ttl(LONG).acquire().await?;
    let mut processes = [stage.process()?, stage.process()?, stage.process()?];
    for (number, process) in processes.iter_mut().enumerate() {
        process.tell("a", &format!("take ttl=3000 name={name}"))?;
        queue_of(keeper, name, number + 1).await?;
    }
    Ok((held, processes))
}

/// The process is granted the lock and releases it.
async fn served(process: &mut Process) -> Outcome {
    process.granted("a").await?;
    let released = process.ask("a", "release").await?;
    ensure!(released == "released", "releasing said {released:?}");
    Ok(())
}

async fn they_are_served_in_the_order_they_came(stage: Arc<Stage>) -> Outcome {
    let (keeper, name) = (stage.keeper().await?, stage.name("queue"));
    let (held, [mut first, mut second, mut third]) = queue(&stage, &keeper, &name).await?;
    held.release().await?;
    first.granted("a").await?;
    ensure!(second.is_silent("a") && third.is_silent("a"), "others were granted it too");
    first.ask("a", "release").await?;
    second.granted("a").await?;
    ensure!(third.is_silent("a"), "the third was granted it too");
    second.ask("a", "release").await?;
    served(&mut third).await
}

async fn the_first_waiter_may_be_killed(stage: Arc<Stage>) -> Outcome {
    let (keeper, name) = (stage.keeper().await?, stage.name("head"));
    let (held, [mut first, mut second, mut third]) = queue(&stage, &keeper, &name).await?;
    first.kill()?;
    held.release().await?;
    served(&mut second).await?;
    served(&mut third).await
}

async fn a_waiter_in_the_middle_may_be_killed(stage: Arc<Stage>) -> Outcome {
    let (keeper, name) = (stage.keeper().await?, stage.name("middle"));
    let (held, [mut first, mut second, mut third]) = queue(&stage, &keeper, &name).await?;
    second.kill()?;
    held.release().await?;
    served(&mut first).await?;
    served(&mut third).await
}

async fn the_first_waiter_may_be_paused(stage: Arc<Stage>) -> Outcome {
    let (keeper, name) = (stage.keeper().await?, stage.name("paused"));
    let held = keeper.lock(&name).ttl(LONG).acquire().await?;
    let mut process = stage.process()?;
    process.tell("a", &format!("take ttl=1000 name={name}"))?;
    queue_of(&keeper, &name, 1).await?;
    let lock = keeper.lock(&name).ttl(LONG);
    let behind = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queue_of(&keeper, &name, 2).await?;
    stage.pause(&process).await?;
    held.release().await?;
    let behind = behind.await??;
    if !process.is_silent("a") {
        unknown!("the paused waiter spoke: {}", process.hear("a").await?);
    }
    process.go_on()?;
    // It may have been granted the lock while paused, and must find that it no longer has it.
    tokio::time::sleep(ms(300)).await;
    ensure!(process.is_silent("a"), "two hold it: {}", process.hear("a").await?);
    ensure!(behind.is_held(), "the one behind lost it: {:?}", behind.lost_reason());
    taken(&keeper, &name).await?;
    behind.release().await?;
    served(&mut process).await
}
