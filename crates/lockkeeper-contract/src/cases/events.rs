//! Events are reported, in order.

use super::{Chosen, cases};
use crate::case::Case;
use crate::faulty::Renewals;
use crate::stage::{LONG, PATIENT, SHORT, Stage, ms};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::LossReason;
use lockkeeper::event::{Event, EventKind, Events};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("events":
        a_hold_is_told_from_waiting_to_released,
        an_expiry_is_told,
        one_that_gives_up_is_not_told_as_acquired,
    );
    if chosen.inspects && chosen.capability.fencing {
        cases.extend(cases!("events": a_break_is_told));
    }
    cases
}

async fn next(events: &mut Events) -> Outcome<Event> {
    match tokio::time::timeout(PATIENT, events.next()).await {
        Ok(Some(event)) => Ok(event),
        Ok(None) => Err(Failure::broken("the events ended")),
        Err(_) => Err(Failure::broken("no further event came")),
    }
}

async fn a_hold_is_told_from_waiting_to_released(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("told");
    let held = one.lock(&name).ttl(LONG).acquire().await?;
    let mut events = two.events();
    let lock = two.lock(&name).ttl(ms(3000)).note("the second");
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    let queued = next(&mut events).await?;
    ensure!(&*queued.note == "the second", "it is told of {:?}", queued.note);
    ensure!(matches!(queued.kind, EventKind::Queued { .. }), "first came {:?}", queued.kind);
    if two.capability().fair {
        ensure!(queued.kind == EventKind::Queued { place: Some(1) }, "place {:?}", queued.kind);
    }
    held.release().await?;
    let guard = waiter.await??;
    let acquired = next(&mut events).await?;
    ensure!(acquired.kind == EventKind::Acquired, "then came {:?}", acquired.kind);
    ensure!(acquired.token == guard.token(), "it was told with another token");
    ensure!(acquired.owner == *guard.owner() && acquired.name == *guard.name(), "{acquired:?}");
    let renewed = next(&mut events).await?;
    ensure!(renewed.kind == EventKind::Renewed, "then came {:?}", renewed.kind);
    guard.release().await?;
    loop {
        match next(&mut events).await?.kind {
            EventKind::Renewed => {}
            EventKind::Released => return Ok(()),
            other => ensure!(false, "at the end came {other:?}"),
        }
    }
}

async fn an_expiry_is_told(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let mut events = keeper.events();
    way.renewals(Renewals::Hang);
    let guard = keeper.lock(stage.name("expired")).ttl(stage.ttl(SHORT)).acquire().await?;
    for expected in [EventKind::Acquired, EventKind::Lost(LossReason::Expired)] {
        let event = next(&mut events).await?;
        ensure!(event.kind == expected && event.token == guard.token(), "{event:?}");
    }
    Ok(())
}

async fn one_that_gives_up_is_not_told_as_acquired(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("given up");
    let held = one.lock(&name).ttl(LONG).acquire().await?;
    let mut events = two.events();
    ensure!(two.lock(&name).acquire_within(ms(80)).await.is_err(), "granted although held");
    held.release().await?;
    two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    let mut told = Vec::new();
    while told.last() != Some(&EventKind::Released) {
        told.push(next(&mut events).await?.kind);
    }
    let acquired = told.iter().filter(|what| **what == EventKind::Acquired).count();
    ensure!(acquired == 1, "one was granted, and told was {told:?}");
    Ok(())
}

async fn a_break_is_told(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("broken");
    let mut events = one.events();
    let guard = one.lock(&name).ttl(SHORT * 4).acquire().await?;
    let Some(token) = guard.token() else { return Err(Failure::broken("no token")) };
    two.break_hold(&name, token, "enough").await?;
    loop {
        match next(&mut events).await?.kind {
            EventKind::Acquired | EventKind::Renewed => {}
            EventKind::Lost(LossReason::Broken { reason }) if reason.starts_with("enough") => {
                return Ok(());
            }
            other => ensure!(false, "told was {other:?}"),
        }
    }
}
