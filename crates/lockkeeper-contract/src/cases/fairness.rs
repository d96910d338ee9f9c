//! First come, first served.

use super::{Chosen, cases, cases_of_each_kind};
use crate::case::Case;
use crate::kind::Kind;
use crate::stage::{LONG, PATIENT, Stage, ms, queue_of, queues};
use crate::verdict::{Outcome, ensure, unknown};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !chosen.capability.fair {
        return Vec::new();
    }
    if !queues(&chosen.capability, chosen.inspects) {
        return cases!("fairness": the_queue_can_be_seen);
    }
    let mut cases = cases_of_each_kind!(chosen, "fairness":
        claims_are_granted_in_the_order_they_were_made,
        a_try_does_not_overtake_those_who_wait,
    );
    cases.extend(cases!("fairness": a_waiter_that_gave_up_does_not_hold_up_the_others));
    cases
}

async fn the_queue_can_be_seen(_: Arc<Stage>) -> Outcome {
    unknown!("it says that it is fair, but has no inspector to see its queue with")
}

async fn claims_are_granted_in_the_order_they_were_made(stage: Arc<Stage>, kind: Kind) -> Outcome {
    const WAITERS: usize = 6;
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("queue");
    let held = kind.of(&one, &name).ttl(LONG).acquire().await?;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let keeper = if number % 2 == 0 { &one } else { &two };
        let (lock, order) = (kind.of(keeper, &name).ttl(LONG), order.clone());
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await?;
            order.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            guard.release().await
        }));
        queue_of(&one, &name, number + 1).await?;
    }
    held.release().await?;
    for waiter in waiters {
        waiter.await??;
    }
    let order = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let asked: Vec<_> = (0..WAITERS).collect();
    ensure!(order == asked, "granted in the order {order:?}");
    Ok(())
}

async fn a_try_does_not_overtake_those_who_wait(stage: Arc<Stage>, kind: Kind) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("overtaken");
    let mut held = kind.of(&one, &name).ttl(LONG).acquire().await?;
    for _ in 0..10 {
        let lock = kind.of(&two, &name).ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        queue_of(&one, &name, 1).await?;
        // The waiter came first, so the name is never free in between.
        let release = tokio::spawn(held.release());
        while !waiter.is_finished() {
            let tried = kind.of(&one, &name).ttl(LONG).try_acquire().await?;
            ensure!(tried.is_none(), "a try got in before the one who waited");
        }
        release.await??;
        held = waiter.await??;
    }
    Ok(())
}

async fn a_waiter_that_gave_up_does_not_hold_up_the_others(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("given up");
    let held = one.lock(&name).ttl(LONG).acquire().await?;
    let head = two.lock(&name).ttl(LONG);
    let head = tokio::spawn(async move { head.acquire_within(ms(2000)).await.is_err() });
    queue_of(&one, &name, 1).await?;
    let lock = two.lock(&name).ttl(LONG);
    let second = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queue_of(&one, &name, 2).await?;
    if !head.await? {
        unknown!("the first waiter did not give up");
    }
    queue_of(&one, &name, 1).await?;
    held.release().await?;
    second.await??.release().await?;
    Ok(())
}
