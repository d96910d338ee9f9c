//! The terms of a claim: its shortest and longest life.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, SHORT, Stage, ms};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::backend::Moment;
use lockkeeper::{ErrorKind, Guard, LossReason, Result};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("bounds":
        a_ttl_that_makes_no_sense_is_refused,
        other_terms_that_make_no_sense_are_refused,
        max_hold_ends_a_hold_that_goes_on,
        max_hold_does_not_wait_for_a_grant,
    );
    if chosen.capability.min_hold {
        cases.extend(cases!("bounds":
            min_hold_keeps_it_after_the_release,
            min_hold_keeps_it_after_the_drop,
            min_hold_is_over_for_who_holds_longer,
        ));
    }
    cases
}

fn refused(outcome: Result<Guard>, what: &str) -> Outcome {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Config => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Failure::broken(format!("{what} was accepted"))),
    }
}

async fn a_ttl_that_makes_no_sense_is_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("ttl");
    for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX, ms(u64::MAX)] {
        refused(keeper.lock(&name).ttl(ttl).acquire().await, &format!("{ttl:?}"))?;
    }
    Ok(())
}

async fn other_terms_that_make_no_sense_are_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let lock = keeper.lock(stage.name("terms"));
    refused(lock.clone().max_hold(Duration::ZERO).acquire().await, "max_hold of zero")?;
    refused(lock.clone().max_hold(Duration::MAX).acquire().await, "an endless max_hold")?;
    refused(lock.clone().min_hold(Duration::ZERO).acquire().await, "min_hold of zero")?;
    let crossed = lock.clone().min_hold(ms(20)).max_hold(ms(10));
    refused(crossed.acquire().await, "min_hold above max_hold")?;
    refused(lock.note(&"n".repeat(1001)).acquire().await, "a long note")?;
    refused(keeper.semaphore(stage.name("none"), 0).acquire().await, "a gate of no permits")
}

async fn max_hold_ends_a_hold_that_goes_on(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("too long");
    let ttl = stage.ttl(ms(1500));
    let most = ttl + ms(300);
    let before = Moment::now();
    let guard = one.lock(&name).ttl(ttl).max_hold(most).acquire().await?;
    let signalled = tokio::time::timeout(PATIENT, guard.lost()).await;
    ensure!(signalled.is_ok(), "it was held on and on");
    match guard.lost_reason() {
        Some(LossReason::HeldTooLong) => {}
        Some(LossReason::Expired) => unknown_delay()?,
        other => ensure!(false, "lost for another reason: {other:?}"),
    }
    ensure!(Moment::now().since(before) >= most, "it ended before max_hold");
    ensure!(!guard.is_held(), "held too long, and yet held");
    let next = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(guard.until_others().is_zero(), "another was let in before the time to stop was over");
    next.release().await?;
    Ok(())
}

/// If the machine stood still for a whole ttl, the case shows nothing about `max_hold`.
fn unknown_delay() -> Outcome {
    Err(Failure::unknown("the claim expired first, so nothing ran for a whole ttl"))
}

async fn max_hold_does_not_wait_for_a_grant(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("waited long");
    let held = one.lock(&name).ttl(LONG).acquire().await?;
    let lock = two.lock(&name).ttl(LONG).max_hold(ms(10_000));
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    tokio::time::sleep(ms(300)).await;
    held.release().await?;
    let guard = waiter.await??;
    ensure!(guard.remaining() > ms(300), "the wait was counted as a hold");
    Ok(())
}

async fn min_hold_keeps_it_after_the_release(stage: Arc<Stage>) -> Outcome {
    linger(&stage, async |guard| Ok(guard.release().await?)).await
}

async fn min_hold_keeps_it_after_the_drop(stage: Arc<Stage>) -> Outcome {
    linger(&stage, async |guard| {
        drop(guard);
        Ok(())
    })
    .await
}

async fn linger(stage: &Stage, end: impl AsyncFnOnce(Guard) -> Outcome) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("lingering");
    let least = ms(700);
    let before = Moment::now();
    let guard = one.lock(&name).ttl(stage.ttl(SHORT)).min_hold(least).acquire().await?;
    end(guard).await?;
    let next = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    let kept = Moment::now().since(before);
    ensure!(kept >= least, "min_hold {least:?} kept it for {kept:?}");
    next.release().await?;
    Ok(())
}

async fn min_hold_is_over_for_who_holds_longer(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("held longer");
    let guard = one.lock(&name).ttl(LONG).min_hold(ms(50)).acquire().await?;
    tokio::time::sleep(ms(120)).await;
    guard.release().await?;
    let next = two.lock(&name).ttl(LONG).try_acquire().await?;
    ensure!(next.is_some(), "it lingered although min_hold was over");
    Ok(())
}
