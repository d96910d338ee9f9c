//! Claims that anyone with their id can renew and release; and that a backend really has what its
//! capability says.

use super::{Chosen, cases};
use crate::case::Case;
use crate::faulty::Renewals;
use crate::stage::{LONG, PATIENT, SHORT, Stage, free, taken};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::backend::{Backend, Capability, Lease, Release, Standing, Ticket};
use lockkeeper::{ErrorKind, Guard, Keeper};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("portable": what_the_capability_says_is_there);
    if chosen.capability.portable {
        cases.extend(cases!("portable":
            a_claim_is_kept_and_given_back_by_another_keeper,
            a_stale_ticket_leaves_the_next_holder_alone,
            a_ticket_is_kept_for_its_own_ttl,
        ));
    }
    // Backends that poll find out only by renewing.
    let Capability { portable, inspects, notified, .. } = chosen.capability;
    if portable && inspects && notified {
        cases.extend(cases!("portable": a_ticket_that_is_dropped_leaves_the_holder_its_alarm));
    }
    if chosen.capability.portable && chosen.capability.min_hold {
        cases.extend(cases!("portable": what_only_stays_is_not_kept));
    }
    cases
}

async fn what_the_capability_says_is_there(stage: Arc<Stage>) -> Outcome {
    let (backend, claim) = (stage.backend().await?, claimed(&stage, LONG).await?.2);
    let has = backend.capability();
    let lease = backend.lease_of(&claim).is_some();
    ensure!(has.inspects == backend.inspector().is_some(), "inspects is {}", has.inspects);
    ensure!(has.sequences == backend.sequencer().is_some(), "sequences is {}", has.sequences);
    ensure!(has.atomic_multi == backend.multi().is_some(), "atomic_multi is {}", has.atomic_multi);
    ensure!(has.portable == lease, "portable is {}", has.portable);
    Ok(())
}

/// A claim that its own keeper holds, and the claim's ticket.
async fn claimed(stage: &Arc<Stage>, ttl: Duration) -> Outcome<(Keeper, Guard, Ticket)> {
    let (keeper, way) = stage.faulty().await?;
    let guard = keeper.lock(stage.name("wanders")).ttl(ttl).acquire().await?;
    let ticket = way.ticket().ok_or_else(|| Failure::broken("a guard, and no grant"))?;
    Ok((keeper, guard, ticket))
}

async fn lease_elsewhere(stage: &Arc<Stage>, ticket: &Ticket) -> Outcome<Box<dyn Lease>> {
    let lease = stage.backend().await?.lease_of(ticket);
    lease.ok_or_else(|| Failure::broken("portable is promised, and there is no lease"))
}

async fn a_claim_is_kept_and_given_back_by_another_keeper(stage: Arc<Stage>) -> Outcome {
    let ttl = stage.ttl(SHORT);
    let (keeper, guard, ticket) = claimed(&stage, ttl).await?;
    let name = guard.name().to_string();
    let mut lease = lease_elsewhere(&stage, &ticket).await?;
    guard.detach();
    // Longer than the ttl: only renewals by the other lease can have kept it.
    let until = tokio::time::Instant::now() + ttl * 3;
    while tokio::time::Instant::now() < until {
        let standing = lease.renew().await?;
        ensure!(!matches!(standing, Standing::Lost(_)), "it was {standing:?}");
        taken(&keeper, &name).await?;
        tokio::time::sleep(ttl / 6).await;
    }
    lease.release(&Release::now()).await?;
    free(&keeper, &name).await
}

async fn a_stale_ticket_leaves_the_next_holder_alone(stage: Arc<Stage>) -> Outcome {
    let (keeper, guard, ticket) = claimed(&stage, LONG).await?;
    let name = guard.name().to_string();
    let mut stale = lease_elsewhere(&stage, &ticket).await?;
    guard.release().await?;
    let next = keeper.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    let standing = stale.renew().await?;
    ensure!(matches!(standing, Standing::Lost(_)), "a claim that is over was {standing:?}");
    let released = stale.release(&Release::now()).await;
    ensure!(
        released.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost),
        "a claim that is over was given back: {released:?}"
    );
    ensure!(next.is_held(), "the next holder lost it");
    taken(&keeper, &name).await
}

/// The process that has the ticket decides for how long a renewal is good. Those that wait look at
/// the claim again and again, which must not shorten it to the ttl that it was made with.
///
/// The keeper that made the claim must not renew it meanwhile: a renewal of its own that is under
/// way when its guard is detached may reach the store behind the ticket's, and is good for the
/// claim's ttl only.
async fn a_ticket_is_kept_for_its_own_ttl(stage: Arc<Stage>) -> Outcome {
    let ttl = stage.ttl(SHORT);
    let (keeper, way) = stage.faulty().await?;
    way.renewals(Renewals::Fail);
    // Connected before the claim is made, which nobody else keeps.
    let elsewhere = stage.backend().await?;
    let name = stage.name("wanders");
    let guard = keeper.lock(&name).ttl(ttl).acquire().await?;
    let mut ticket = way.ticket().ok_or_else(|| Failure::broken("a guard, and no grant"))?;
    ticket.ttl = LONG;
    let lease = elsewhere.lease_of(&ticket);
    let mut lease = lease.ok_or_else(|| Failure::broken("portable, and there is no lease"))?;
    guard.detach();
    let standing = lease.renew().await?;
    ensure!(!matches!(standing, Standing::Lost(_)), "it was {standing:?}");
    let second = keeper.lock(&name).ttl(LONG).acquire_within(ttl * 6).await;
    ensure!(second.is_err(), "two hold it: the ticket's renewal was good for {LONG:?}");
    lease.release(&Release::now()).await?;
    free(&keeper, &name).await
}

/// A keeper that holds a claim may be handed the claim's own ticket, as a server is that is asked to
/// renew by anyone who has it.
async fn a_ticket_that_is_dropped_leaves_the_holder_its_alarm(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let name = stage.name("alarmed");
    // Its first renewal is too late to reveal the break.
    let guard = keeper.lock(&name).ttl(LONG).acquire().await?;
    let Some(token) = guard.token() else { return Err(Failure::broken("no token")) };
    let ticket = way.ticket().ok_or_else(|| Failure::broken("a guard, and no grant"))?;
    let mut lease = way.lease_of(&ticket).ok_or_else(|| Failure::broken("no lease"))?;
    lease.renew().await?;
    drop(lease);
    stage.keeper().await?.break_hold(&name, token, "it hung").await?;
    let signalled = tokio::time::timeout(PATIENT, guard.lost()).await;
    ensure!(signalled.is_ok(), "the holder was not told");
    Ok(())
}

/// A released claim that stays for its `min_hold` has no holder, and its ticket cannot renew it.
async fn what_only_stays_is_not_kept(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let name = stage.name("stays");
    let guard = keeper.lock(&name).ttl(LONG).min_hold(SHORT * 2).acquire().await?;
    let ticket = way.ticket().ok_or_else(|| Failure::broken("a guard, and no grant"))?;
    let mut stale = lease_elsewhere(&stage, &ticket).await?;
    guard.release().await?;
    let standing = stale.renew().await?;
    ensure!(matches!(standing, Standing::Lost(_)), "what was given back was {standing:?}");
    // If the ticket had renewed it after all, it would stay for the ttl.
    free_within(&keeper, &name, SHORT * 10).await
}

async fn free_within(keeper: &Keeper, name: &str, limit: Duration) -> Outcome {
    let next = keeper.lock(name).ttl(LONG).acquire_within(limit).await;
    ensure!(next.is_ok(), "it is not free after its min_hold: {next:?}");
    Ok(())
}
