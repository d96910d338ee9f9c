//! A feature that the backend does not promise is refused, never given in a weaker form.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, Stage, free, ms};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::backend::{Capability, Name};
use lockkeeper::{ClaimId, Error, ErrorKind, FencingToken, Mode, Ticket, recipes};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = Vec::new();
    if !chosen.capability.shared {
        cases.extend(cases!("absent": shared_mode_is_refused));
    }
    if !chosen.capability.permits {
        cases.extend(cases!("absent": permits_are_refused));
    }
    if !chosen.capability.min_hold {
        cases.extend(cases!("absent": min_hold_is_refused));
    }
    if !chosen.capability.fencing {
        cases.extend(cases!("absent": elections_are_refused, tokens_are_refused));
    }
    if !chosen.capability.sequences {
        cases.extend(cases!("absent": numbers_are_refused));
    }
    if !chosen.capability.portable {
        cases.extend(cases!("absent": tickets_are_refused));
    }
    if !chosen.capability.by_id {
        cases.extend(cases!("absent": claims_by_id_are_refused));
    }
    if !chosen.inspects {
        cases.extend(cases!("absent": inspection_is_refused));
    }
    cases
}

/// The error must be exactly `Unsupported`, and name a recipe that has what is missing.
fn refused<T>(outcome: Result<T, Error>, has: fn(&Capability) -> bool) -> Outcome {
    let Err(error) = outcome else {
        return Err(Failure::broken("what is not promised was given all the same"));
    };
    ensure!(error.kind() == ErrorKind::Unsupported, "the refusal is {error:?}");
    let text = error.to_string();
    let named = recipes()
        .iter()
        .any(|recipe| has(&recipe.capability) && text.contains(&format!("{}:", recipe.scheme)));
    ensure!(named, "no recipe that has it is named: {text}");
    Ok(())
}

async fn tokens_are_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let lock = keeper.lock(stage.name("fenced")).ttl(LONG);
    refused(lock.clone().fenced().acquire().await, |capability| capability.fencing)?;
    let guard = lock.acquire().await?;
    refused(guard.require_token(), |capability| capability.fencing)?;
    guard.release().await?;
    Ok(())
}

async fn shared_mode_is_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let lock = keeper.rw_lock(stage.name("read")).read();
    refused(lock.acquire().await, |capability| capability.shared)?;
    refused(lock.try_acquire().await, |capability| capability.shared)?;
    refused(lock.acquire_within(ms(10)).await, |capability| capability.shared)
}

async fn permits_are_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let gate = stage.name("gate");
    refused(keeper.semaphore(&gate, 3).acquire().await, |capability| capability.permits)?;
    refused(keeper.semaphore(&gate, 1).try_acquire().await, |capability| capability.permits)
}

async fn min_hold_is_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let lock = keeper.lock(stage.name("lingering")).min_hold(ms(10));
    refused(lock.acquire().await, |capability| capability.min_hold)
}

async fn tickets_are_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("handed out");
    let guard = keeper.lock(&name).acquire().await?;
    refused(guard.hand_out().await, |capability| capability.portable)?;
    free(&keeper, &name).await?;
    let ticket = Ticket::new(Name::new(&name)?, Mode::Exclusive, ClaimId::random()?, LONG);
    refused(keeper.keep(&ticket).await, |capability| capability.portable)?;
    refused(keeper.give_back(&ticket).await, |capability| capability.portable)?;
    refused(keeper.take_over(&ticket).await, |capability| capability.portable)
}

async fn claims_by_id_are_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let lock = keeper.lock(stage.name("by id")).claim(ClaimId::random()?);
    refused(lock.acquire().await, |capability| capability.by_id)?;
    refused(lock.try_acquire().await, |capability| capability.by_id)
}

async fn elections_are_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let election = keeper.election(stage.name("office"));
    refused(election.campaign().await, |capability| capability.fencing)?;
    refused(election.observe().map(|_| ()), |capability| capability.fencing)
}

async fn numbers_are_refused(stage: Arc<Stage>) -> Outcome {
    let (keeper, backend) = stage.opened().await?;
    ensure!(backend.sequencer().is_none(), "it has a sequencer, and does not say so");
    let refusal = keeper.reserve(&stage.name("numbers"), 1, 0).await;
    let said = refusal.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let why = backend.no_sequencer().unwrap_or_default();
    ensure!(said.contains(why), "the refusal does not say why: {said}");
    refused(refusal, |capability| capability.sequences)
}

async fn inspection_is_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("unseen");
    refused(keeper.list(stage.prefix()).await, |_| true)?;
    refused(keeper.show(&name).await, |_| true)?;
    let Some(token) = FencingToken::new(1) else { return Ok(()) };
    refused(keeper.break_hold(&name, token, "why").await, |_| true)
}
