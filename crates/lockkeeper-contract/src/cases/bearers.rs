//! Several who have one claim, by its ticket or its id: what one of them does, or no longer does, takes it from
//! no other, unless it is given back.

use super::{Chosen, cases};
use crate::case::Case;
use crate::faulty::Renewals;
use crate::stage::{LONG, PATIENT, Stage, free, ms, taken};
use crate::verdict::{Outcome, ensure};
use lockkeeper::{ClaimId, ErrorKind, Guard, Keeper};
use std::sync::Arc;
use std::time::Duration;

/// Longer than any store takes to look for claims that nobody has any more.
const LOOKED_FOR: Duration = Duration::from_secs(12);

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = Vec::new();
    if chosen.capability.portable {
        cases.extend(cases!("bearers":
            one_that_kept_it_once_does_not_end_it,
            a_shorter_ttl_takes_nothing_from_the_others,
            what_is_shared_is_handed_out_for_good,
            what_is_on_its_way_out_is_not_taken_over,
            those_that_take_it_over_at_once_share_it,
        ));
    }
    if chosen.capability.by_id {
        cases.extend(cases!("bearers":
            what_is_on_its_way_out_is_not_found,
            one_that_lost_touch_does_not_end_it,
        ));
    }
    cases
}

/// A server that is asked to keep a claim once, while the claim's holder is elsewhere.
async fn one_that_kept_it_once_does_not_end_it(stage: Arc<Stage>) -> Outcome {
    let (one, two, three) = (stage.keeper().await?, stage.keeper().await?, stage.keeper().await?);
    let ttl = stage.ttl(ms(3000));
    let name = stage.name("kept once");
    let ticket = one.lock(&name).ttl(ttl).acquire().await?.hand_out().await?;
    let guard = two.take_over(&ticket).await?;
    one.keep(&ticket).await?;
    // Who waits has the store asked who is there.
    let other = three.lock(&name).ttl(LONG).acquire_within(ttl + LOOKED_FOR).await;
    ensure!(other.is_err(), "two hold it");
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    guard.release().await?;
    free(&three, &name).await
}

/// Each of those that have a claim counts on what it was told last.
async fn a_shorter_ttl_takes_nothing_from_the_others(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, short) = (stage.name("shorter"), stage.ttl(ms(500)));
    let ticket = one.lock(&name).ttl(LONG).acquire().await?.hand_out().await?;
    let guard = one.take_over(&ticket).await?;
    two.keep(&ticket.clone().with_ttl(short)).await?;
    let other = two.lock(&name).ttl(LONG).acquire_within(short * 2 + ms(500)).await;
    ensure!(other.is_err(), "two hold it");
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    guard.release().await?;
    // The other way round: what was kept for longer stays kept for as long.
    let ticket = one.lock(&name).ttl(short).acquire_within(PATIENT).await?.hand_out().await?;
    let left = two.keep(&ticket.clone().with_ttl(LONG)).await?;
    ensure!(left > LONG / 2, "kept for {left:?}, not {LONG:?}");
    one.take_over(&ticket).await?.detach();
    let other = two.lock(&name).ttl(LONG).acquire_within(short * 2 + ms(500)).await;
    ensure!(other.is_err(), "two hold it");
    two.give_back(&ticket).await?;
    free(&one, &name).await
}

async fn what_is_shared_is_handed_out_for_good(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("shared");
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    let (second, third) = (guard.share(), guard.share());
    let ticket = guard.hand_out().await?;
    let bearer = two.take_over(&ticket).await?;
    drop(second);
    third.release().await?;
    tokio::time::sleep(ms(200)).await;
    taken(&one, &name).await?;
    ensure!(bearer.is_held(), "it was lost: {:?}", bearer.lost_reason());
    bearer.release().await?;
    free(&one, &name).await
}

/// A guard that is dropped is released in the background. Until that is through, the store has the claim.
async fn what_is_on_its_way_out_is_not_taken_over(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    for _ in 0..stage.rounds(10) {
        let name = stage.name("on its way");
        let ticket = one.lock(&name).ttl(LONG).acquire().await?.hand_out().await?;
        drop(one.take_over(&ticket).await?);
        let again = one.take_over(&ticket).await;
        is_held_or_gone(&two, &name, again).await?;
    }
    Ok(())
}

async fn what_is_on_its_way_out_is_not_found(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    for _ in 0..stage.rounds(10) {
        let (name, id) = (stage.name("asked again"), ClaimId::random()?);
        let held = two.lock(&name).ttl(LONG).acquire().await?;
        let ask = || {
            let lock = one.lock(&name).ttl(LONG).claim(id);
            tokio::spawn(async move { lock.acquire_within(PATIENT).await.map(drop) })
        };
        let first = ask();
        let lock = one.lock(&name).ttl(LONG).claim(id);
        let second = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        tokio::time::sleep(ms(50)).await;
        held.release().await?;
        first.await??;
        let second = second.await?;
        is_held_or_gone(&two, &name, second).await?;
    }
    Ok(())
}

/// A keeper that could not renew a claim of its own gives it back as soon as it can. Not one that another
/// has found by its id, and renewed all the time.
async fn one_that_lost_touch_does_not_end_it(stage: Arc<Stage>) -> Outcome {
    let (one, way) = stage.faulty().await?;
    let (two, three) = (stage.keeper().await?, stage.keeper().await?);
    let (name, id, ttl) = (stage.name("touch"), ClaimId::random()?, stage.ttl(ms(3000)));
    let ask = |keeper: &Keeper| keeper.lock(&name).ttl(ttl).claim(id);
    way.renewals(Renewals::AnswerLost);
    let lost = ask(&one).acquire().await?;
    let found = ask(&two).acquire().await?;
    lost.lost().await;
    way.renewals(Renewals::Pass);
    drop(lost);
    tokio::time::sleep(ms(300)).await;
    taken(&three, &name).await?;
    ensure!(found.is_held(), "it was lost: {:?}", found.lost_reason());
    found.release().await?;
    free(&three, &name).await
}

/// Who believes that it holds must hold.
async fn is_held_or_gone(
    other: &Keeper,
    name: &str,
    outcome: lockkeeper::Result<Guard>,
) -> Outcome {
    match outcome {
        Ok(guard) => {
            // What was under way is through by then.
            tokio::time::sleep(ms(100)).await;
            if guard.is_held() {
                taken(other, name).await?;
            }
            let _ = guard.release().await;
        }
        Err(error) => ensure!(error.kind() == ErrorKind::Lost, "it ended with {error}"),
    }
    free(other, name).await
}

async fn those_that_take_it_over_at_once_share_it(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    for _ in 0..stage.rounds(10) {
        let name = stage.name("at once");
        let ticket = one.lock(&name).ttl(LONG).acquire().await?.hand_out().await?;
        let take = || {
            let (keeper, ticket) = (one.clone(), ticket.clone());
            tokio::spawn(async move { keeper.take_over(&ticket).await })
        };
        let (first, second) = (take(), take());
        let (first, second) = (first.await??, second.await??);
        first.release().await?;
        ensure!(second.is_held(), "it was lost: {:?}", second.lost_reason());
        taken(&two, &name).await?;
        second.release().await?;
        free(&two, &name).await?;
    }
    Ok(())
}
