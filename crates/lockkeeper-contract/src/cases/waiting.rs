//! Waiting, with and without a timeout.

use super::{Chosen, cases, cases_of_each_kind};
use crate::case::Case;
use crate::kind::Kind;
use crate::stage::{LONG, PATIENT, Stage, eventually, free, ms, queue_of, queues};
use crate::verdict::{Failure, Outcome, ensure, unknown};
use lockkeeper::backend::Moment;
use lockkeeper::{Error, ErrorKind, Guard};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases_of_each_kind!(chosen, "waiting":
        a_limit_is_never_cut_short,
        a_waiter_gets_it_when_it_is_released,
    );
    cases.extend(cases!("waiting": no_time_at_all_is_a_try, a_limit_covers_what_is_free));
    if chosen.inspects {
        cases.extend(cases!("waiting": timing_out_names_the_holder));
    }
    if queues(&chosen.capability, chosen.inspects) {
        cases.extend(cases!("waiting": timing_out_tells_the_place_in_the_queue));
    }
    cases
}

/// The error of a claim that must not have been granted.
pub(super) fn refused(outcome: Result<Guard, Error>) -> Outcome<Error> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(error),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Failure::broken("it was granted although it is held")),
    }
}

async fn a_limit_is_never_cut_short(stage: Arc<Stage>, kind: Kind) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("held");
    let guard = kind.of(&one, &name).ttl(LONG).acquire().await?;
    let mut answered = false;
    for limit in [ms(1), ms(37), ms(150), ms(1500)] {
        let before = Moment::now();
        match kind.of(&two, &name).acquire_within(limit).await {
            // On a busy machine the store may say nothing in so short a time, and that is told then.
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            outcome => {
                refused(outcome)?;
                answered = true;
            }
        }
        let waited = Moment::now().since(before);
        ensure!(waited >= limit, "gave up after {waited:?} of {limit:?}");
    }
    if !answered {
        unknown!("the store said nothing within any of the limits");
    }
    guard.release().await?;
    Ok(())
}

async fn a_waiter_gets_it_when_it_is_released(stage: Arc<Stage>, kind: Kind) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("awaited");
    let guard = kind.of(&one, &name).ttl(LONG).acquire().await?;
    let lock = kind.of(&two, &name).ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    tokio::time::sleep(ms(100)).await;
    ensure!(!waiter.is_finished(), "the waiter did not wait");
    guard.release().await?;
    let granted = waiter.await??;
    ensure!(granted.is_held(), "what was granted is not held");
    Ok(())
}

async fn no_time_at_all_is_a_try(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("held");
    let guard = keeper.lock(&name).ttl(LONG).acquire().await?;
    refused(keeper.lock(&name).acquire_within(Duration::ZERO).await)?;
    guard.release().await?;
    keeper.lock(&name).acquire_within(Duration::ZERO).await?.release().await?;
    Ok(())
}

async fn a_limit_covers_what_is_free(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("free");
    free(&keeper, &name).await
}

async fn timing_out_names_the_holder(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("held");
    let guard = one.lock(&name).ttl(LONG).note("the night's backup").acquire().await?;
    // Who holds it is asked at the limit, and told if the answer comes at once.
    let error = eventually("an error names the holder", async || {
        match two.lock(&name).acquire_within(ms(60)).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(None),
            outcome => Ok(Some(refused(outcome)?).filter(|it| it.detail("holder").is_some())),
        }
    })
    .await?;
    let holder = error.detail("holder").unwrap_or_default();
    let me = format!("pid {}", std::process::id());
    ensure!(holder.contains(&me), "the holder is not named: {error}");
    ensure!(holder.contains("the night's backup"), "the holder's note is missing: {error}");
    ensure!(error.to_string().contains(&name), "the lock is not named: {error}");
    guard.release().await?;
    Ok(())
}

async fn timing_out_tells_the_place_in_the_queue(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("held");
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    let lock = two.lock(&name).ttl(LONG);
    let first = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queue_of(&one, &name, 1).await?;
    let error = refused(two.lock(&name).acquire_within(ms(800)).await)?;
    let place = error.detail("place");
    ensure!(place == Some("2"), "the place behind one waiter is 2, not {place:?}: {error}");
    guard.release().await?;
    first.await??.release().await?;
    Ok(())
}
