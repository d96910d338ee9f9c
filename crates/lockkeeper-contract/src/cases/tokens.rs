//! Tokens always grow, whatever happens in between.

use super::{Chosen, cases};
use crate::case::Case;
use crate::faulty::Renewals;
use crate::stage::{LONG, PATIENT, Stage, ms};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::{FencingToken, Guard};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !chosen.capability.fencing {
        return cases!("tokens": none_is_made_up);
    }
    let mut cases = cases!("tokens":
        they_grow_over_releases,
        they_grow_over_an_expiry,
        they_grow_over_a_hand_over,
        they_stay_below_two_to_the_fifty_third,
    );
    if chosen.capability.shared {
        cases.extend(cases!("tokens": readers_have_one_each));
    }
    if chosen.capability.durable {
        cases.extend(cases!("tokens": they_grow_over_reopening));
    }
    cases
}

fn token(guard: &Guard) -> Outcome<FencingToken> {
    guard.token().ok_or_else(|| Failure::broken("fencing is promised, and a guard has no token"))
}

fn grew(last: &mut Option<FencingToken>, guard: &Guard) -> Outcome {
    let token = token(guard)?;
    ensure!(last.is_none_or(|last| token > last), "after {last:?} came {token}");
    *last = Some(token);
    Ok(())
}

async fn none_is_made_up(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let guard = keeper.lock(stage.name("unfenced")).ttl(LONG).acquire().await?;
    ensure!(guard.token().is_none(), "fencing is not promised, and a guard has a token");
    guard.release().await?;
    Ok(())
}

async fn they_grow_over_releases(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("released");
    let mut last = None;
    for _ in 0..10 {
        for keeper in [&one, &two] {
            let guard = keeper.lock(&name).ttl(LONG).acquire().await?;
            grew(&mut last, &guard)?;
            guard.release().await?;
        }
    }
    Ok(())
}

async fn they_grow_over_an_expiry(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("expired");
    way.renewals(Renewals::Hang);
    let mut last = None;
    for _ in 0..2 {
        let first = one.lock(&name).ttl(stage.ttl(ms(250))).acquire().await?;
        grew(&mut last, &first)?;
        let second = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        grew(&mut last, &second)?;
        second.release().await?;
    }
    Ok(())
}

async fn they_grow_over_a_hand_over(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("handed over");
    let mut last = None;
    let mut held = one.lock(&name).ttl(LONG).acquire().await?;
    for _ in 0..5 {
        grew(&mut last, &held)?;
        let lock = two.lock(&name).ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        tokio::time::sleep(ms(20)).await;
        held.release().await?;
        held = waiter.await??;
    }
    grew(&mut last, &held)
}

async fn they_stay_below_two_to_the_fifty_third(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let guard = keeper.lock(stage.name("exact")).ttl(LONG).acquire().await?;
    let token = token(&guard)?;
    ensure!(token.get() < 1 << 53, "{token} is not exact in JSON");
    Ok(())
}

async fn readers_have_one_each(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("read");
    let mut last = None;
    let (one, two) = (
        keeper.rw_lock(&name).read().ttl(LONG).acquire().await?,
        keeper.rw_lock(&name).read().ttl(LONG).acquire().await?,
    );
    grew(&mut last, &one)?;
    grew(&mut last, &two)?;
    one.release().await?;
    two.release().await?;
    grew(&mut last, &keeper.rw_lock(&name).write().ttl(LONG).acquire().await?)
}

async fn they_grow_over_reopening(stage: Arc<Stage>) -> Outcome {
    let name = stage.name("reopened");
    let mut last = None;
    for _ in 0..4 {
        let keeper = lockkeeper::Keeper::new(stage.backend().await?)?;
        let guard = keeper.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        grew(&mut last, &guard)?;
        guard.release().await?;
        ensure!(keeper.close(PATIENT).await, "the keeper did not come to rest");
    }
    Ok(())
}
