//! Holders that are killed or paused.

use crate::case::Case;
use crate::cases::permits::whole;
use crate::cases::{Chosen, cases};
use crate::stage::{LONG, PATIENT, Stage, free, ms, taken};
use crate::verdict::{Outcome, ensure, unknown};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("processes":
        a_killed_holder_is_followed_after_its_validity_and_not_before,
        a_paused_holder_finds_that_it_lost_it,
    );
    if chosen.capability.permits {
        cases.extend(cases!("processes": permits_of_the_killed_come_back));
    }
    if chosen.capability.shared {
        cases.extend(cases!("processes": a_killed_reader_lets_a_writer_in));
    }
    cases
}

async fn a_killed_holder_is_followed_after_its_validity_and_not_before(
    stage: Arc<Stage>,
) -> Outcome {
    let (keeper, mut process) = (stage.keeper().await?, stage.process()?);
    let name = stage.name("killed");
    let token = process.take("a", &format!("ttl={} name={name}", stage.ttl_ms(1500))).await?;
    let valid_until = process.valid_until("a").await?;
    process.kill()?;
    let next = keeper.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    let early = valid_until.remaining();
    // Some stores see the end of the dead one's connection, and know by it.
    let at_once = keeper.capability().frees_dead;
    ensure!(early.is_zero() || at_once, "granted {early:?} before the dead one's claim was over");
    let later = next.token().map_or(0, |token| token.get());
    ensure!(next.token().is_none() || later > token, "after {token} came {later}");
    next.release().await?;
    Ok(())
}

async fn a_paused_holder_finds_that_it_lost_it(stage: Arc<Stage>) -> Outcome {
    let (keeper, mut process) = (stage.keeper().await?, stage.process()?);
    let name = stage.name("paused");
    let token = process.take("a", &format!("ttl={} name={name}", stage.ttl_ms(1500))).await?;
    let valid_until = process.valid_until("a").await?;
    stage.pause(&process).await?;
    let next = keeper.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(valid_until.remaining().is_zero(), "granted while the paused one may believe in it");
    process.go_on()?;
    let held = process.ask("a", "held").await?;
    ensure!(held == "no", "the paused one believes to hold it: {held:?}");
    let lost = process.ask("a", "lost").await?;
    ensure!(lost != "no", "the paused one knows of no loss");
    let later = next.token().map_or(0, |token| token.get());
    ensure!(next.token().is_none() || later > token, "after {token} came {later}");
    let released = process.ask("a", "release").await?;
    ensure!(released.starts_with("error Lost"), "releasing what was lost said {released:?}");
    tokio::time::sleep(ms(100)).await;
    ensure!(next.is_held(), "the paused one took it back: {:?}", next.lost_reason());
    taken(&keeper, &name).await?;
    next.release().await?;
    Ok(())
}

async fn permits_of_the_killed_come_back(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("gate");
    let (mut one, mut two) = (stage.process()?, stage.process()?);
    one.take("a", &format!("mode=permit:2 ttl=2500 name={name}")).await?;
    two.take("a", &format!("mode=permit:2 ttl=2500 name={name}")).await?;
    let third = keeper.semaphore(&name, 2).try_acquire().await?;
    ensure!(third.is_none(), "a third of two");
    one.kill()?;
    two.kill()?;
    whole(&keeper, &name, 2).await
}

async fn a_killed_reader_lets_a_writer_in(stage: Arc<Stage>) -> Outcome {
    let (keeper, mut process) = (stage.keeper().await?, stage.process()?);
    let name = stage.name("read");
    process.take("a", &format!("mode=shared ttl=800 name={name}")).await?;
    let reader = keeper.rw_lock(&name).read().ttl(LONG).try_acquire().await?;
    let Some(reader) = reader else { unknown!("a second reader was not let in") };
    process.kill()?;
    reader.release().await?;
    free(&keeper, &name).await
}
