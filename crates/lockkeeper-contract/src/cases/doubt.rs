//! Answers that are lost or late, and requests that fail.

use super::{Chosen, cases};
use crate::case::Case;
use crate::faulty::Faulty;
use crate::stage::{LONG, PATIENT, Stage, eventually, free, ms, taken};
use crate::verdict::{Outcome, ensure};
use lockkeeper::{ErrorKind, Keeper, Lock};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("doubt":
        a_lock_whose_answer_was_lost_is_withdrawn,
        a_withdrawal_is_tried_again,
        a_release_that_failed_is_tried_again,
        a_drop_whose_release_failed_is_tried_again,
        a_grant_that_came_too_late_is_given_back,
        a_release_made_twice_leaves_the_next_holder_alone,
        a_withdrawal_made_twice_leaves_the_next_holder_alone,
    );
    if chosen.capability.shared {
        cases.extend(cases!("doubt": a_reader_whose_answer_was_lost_is_withdrawn));
    }
    if chosen.capability.permits {
        cases.extend(cases!("doubt": a_permit_whose_answer_was_lost_is_withdrawn));
    }
    cases
}

async fn a_lock_whose_answer_was_lost_is_withdrawn(stage: Arc<Stage>) -> Outcome {
    lost_answer(&stage, |keeper, name| keeper.lock(name)).await
}

async fn a_reader_whose_answer_was_lost_is_withdrawn(stage: Arc<Stage>) -> Outcome {
    lost_answer(&stage, |keeper, name| keeper.rw_lock(name).read()).await
}

async fn a_permit_whose_answer_was_lost_is_withdrawn(stage: Arc<Stage>) -> Outcome {
    lost_answer(&stage, |keeper, name| keeper.semaphore(name, 1)).await
}

async fn lost_answer(stage: &Stage, of: fn(&Keeper, &str) -> Lock) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("unanswered");
    way.lose_answers(1);
    let outcome = of(&one, &name).ttl(LONG).try_acquire().await;
    let kind = outcome.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "a lost answer gave {kind:?}");
    free(&two, &name).await?;
    // A waiter asks again, and its earlier request is still withdrawn.
    way.lose_answers(1);
    let guard = of(&one, &name).ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(guard.is_held(), "what was handed out was over already");
    guard.release().await?;
    free(&two, &name).await
}

async fn a_withdrawal_is_tried_again(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("insisted");
    way.lose_answers(1);
    way.fail_withdrawals(3);
    let outcome = one.lock(&name).ttl(LONG).try_acquire().await;
    ensure!(outcome.is_err(), "the answer was not lost");
    free(&two, &name).await
}

async fn a_release_that_failed_is_tried_again(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("released");
    way.fail_releases(3);
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    let kind = guard.release().await.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "a release that failed said {kind:?}");
    free(&two, &name).await
}

async fn a_drop_whose_release_failed_is_tried_again(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("dropped");
    way.fail_releases(3);
    drop(one.lock(&name).ttl(LONG).acquire().await?);
    free(&two, &name).await
}

async fn a_grant_that_came_too_late_is_given_back(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let name = stage.name("too late");
    let ttl = stage.ttl(ms(1000));
    way.delay_next_answer(ttl + ms(300));
    // The first grant has expired before it arrives; only a second one can be held.
    let guard = keeper.lock(&name).ttl(ttl).acquire().await?;
    ensure!(guard.is_held(), "what was handed out was over already");
    guard.release().await?;
    Ok(())
}

async fn a_release_made_twice_leaves_the_next_holder_alone(stage: Arc<Stage>) -> Outcome {
    let (one, way) = stage.faulty().await?;
    let name = stage.name("released twice");
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    way.hold_back_retries();
    ensure!(guard.release().await.is_err(), "the answer to the release was not lost");
    undisturbed(&stage, &one, &way, &name).await
}

async fn a_withdrawal_made_twice_leaves_the_next_holder_alone(stage: Arc<Stage>) -> Outcome {
    let (one, way) = stage.faulty().await?;
    let name = stage.name("withdrawn twice");
    way.lose_answers(1);
    way.hold_back_retries();
    ensure!(one.lock(&name).ttl(LONG).try_acquire().await.is_err(), "the answer was not lost");
    undisturbed(&stage, &one, &way, &name).await
}

/// The next holder of `name` keeps it when `busy` retries its old release, which is held back until
/// the next holder has it.
async fn undisturbed(stage: &Stage, busy: &Keeper, way: &Faulty, name: &str) -> Outcome {
    let (two, three) = (stage.keeper().await?, stage.keeper().await?);
    let guard = two.lock(name).ttl(LONG).acquire_within(PATIENT).await?;
    way.let_retries_go();
    eventually("the old release is tried again", async || {
        Ok((way.times_given_back() > 1).then_some(()))
    })
    .await?;
    ensure!(busy.close(PATIENT).await, "it insisted on and on");
    ensure!(guard.is_held(), "it was taken from the next holder");
    taken(&three, name).await?;
    guard.release().await?;
    Ok(())
}
