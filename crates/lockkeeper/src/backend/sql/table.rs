//! The recipe: a row per name, a queue beside it where it is needed, and a statement decides.
//!
//! ```text
//! take the name if nobody is there ──► granted: one statement, done
//!        │ busy
//!        ▼
//! expect to be told; ask with a place in the queue
//!        │                     told by a release in this keeper, or by the driver, which was told
//!        ▼                     by another keeper or found out by looking
//! wait ──────────────────────► granted, or handed over: confirm
//!        │ patience over: leave the queue, unless it was granted meanwhile
//!        ▼
//!      nothing
//! ```
//!
//! What a process leaves when it is killed: while waiting, a row that counts for two seconds after
//! its last heartbeat; once handed the lock and before it confirmed, the same; while holding, a
//! claim that expires with its ttl.

use super::client::BREAKS;
use super::context::{BEAT, Changed, Context, LOOK, TRIES, pause};
use super::driver;
use super::error::Failure;
use super::lease::SqlLease;
use super::queue::{Asked, Left};
use super::record::{Granted, span};
use super::requests::Joined;
use super::waiters::WaitEnd;
use crate::backend::{Claim, ClaimId, Grant, Moment, Owner, Patience};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// How long a claim may last that only makes the row of its name.
const BEGINS: Duration = Duration::from_secs(1);

/// How one wait ended.
enum Waited {
    /// The claim holds, and the engine has to release it.
    Won(Grant),
    /// The patience is over, and nothing of the claim is stored.
    Over,
    /// The row is gone, as when no heartbeat arrived in time; ask again, at the end of the queue.
    Dropped,
}

/// Takes the name, waiting in the queue if it must and may.
///
/// `None` means that the patience is over and that nothing of the claim is stored. After an error
/// something may be, and the engine withdraws the claim by its id.
pub(super) async fn acquire(
    context: &Arc<Context>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>> {
    super::cleanup::clean_if_due(context);
    if claim.by_id {
        return acquire_by_id(context, claim, patience).await;
    }
    let mut breaks = 0;
    // Behind a claim of this keeper the name is not free. To find that out by a try would lock its
    // row, and be one more commit for the holder to wait for that hands it on. Before one that is only
    // about to step in, a try would take the name: again and again, where one task of this keeper takes
    // and frees it in a loop.
    if !patience.is_over() && context.waiters.expects(claim.name.as_str()) {
        match wait(context, claim, patience).await? {
            Waited::Won(grant) => return Ok(Some(grant)),
            Waited::Over => return Ok(None),
            Waited::Dropped => {}
        }
    }
    loop {
        let sent = Moment::now();
        let taken = match context.requests.take(claim, &context.process).await {
            // A connection that ended while nobody used it. Whether the claim was made is not
            // known, so it is withdrawn before it is made again.
            Err(failure) if failure.allows_second_try() && breaks < BREAKS => {
                breaks += 1;
                withdraw(context, claim).await?;
                continue;
            }
            taken => taken.map_err(|failure| context.explain(failure))?,
        };
        if let Some(token) = taken {
            let token = super::record::token_of(token);
            let granted = Granted { token, sent, crowded: false };
            return Ok(Some(SqlLease::grant(context, claim, granted)));
        }
        patience.heard();
        if patience.is_over() {
            match ask(context, claim, false).await? {
                Some(Changed { outcome: Asked::Granted(token), sent, crowded, .. }) => {
                    let granted = Granted { token, sent, crowded };
                    return Ok(Some(SqlLease::grant(context, claim, granted)));
                }
                Some(Changed { outcome: Asked::Uncovered(mode), .. }) => {
                    return Err(mode.upgrade_refused(&claim.name, claim.mode));
                }
                Some(Changed { outcome: Asked::OtherTerms(mode, ttl), .. }) => {
                    return claim.refuse_other_terms(mode, Some(span(ttl))).map(|()| None);
                }
                Some(_) => return Ok(None),
                // The name was cleaned away in between, and is free.
                None => continue,
            }
        }
        match wait(context, claim, patience).await? {
            Waited::Won(grant) => return Ok(Some(grant)),
            Waited::Over => return Ok(None),
            Waited::Dropped => {
                tracing::debug!(name = claim.name.as_str(), "dropped from the queue");
            }
        }
    }
}

/// As [`acquire`], of a claim that may be there already: never by the statements that look at the row of
/// the name alone, which would make it anew.
async fn acquire_by_id(
    context: &Arc<Context>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>> {
    loop {
        match ask(context, claim, false).await? {
            None => {
                begin(context, claim).await?;
                continue;
            }
            Some(Changed { outcome: Asked::Granted(token), sent, crowded, .. }) => {
                let granted = Granted { token, sent, crowded };
                return Ok(Some(SqlLease::grant(context, claim, granted)));
            }
            Some(Changed { outcome: Asked::OtherTerms(mode, ttl), .. }) => {
                claim.refuse_other_terms(mode, Some(span(ttl)))?;
            }
            Some(_) => patience.heard(),
        }
        if patience.is_over() {
            return Ok(None);
        }
        match wait(context, claim, patience).await? {
            Waited::Won(grant) => return Ok(Some(grant)),
            Waited::Over => return Ok(None),
            Waited::Dropped => {}
        }
    }
}

/// Gives a name its row, by a claim that is nobody's and is given back at once.
async fn begin(context: &Arc<Context>, claim: &Claim) -> Result<()> {
    let explain = |failure| -> Error { context.explain(failure) };
    let id = ClaimId::random()?;
    let owner = Owner::from_id(id.to_string());
    let nobody = Claim { id, owner, ttl: BEGINS, by_id: false, ..claim.clone() };
    let taken = context.requests.take(&nobody, &context.process).await.map_err(explain)?;
    if taken.is_some() {
        // Or it runs out in a moment.
        context.requests.free(claim.name.as_str(), &id.to_string()).await.map_err(explain)?;
    }
    Ok(())
}

async fn ask(
    context: &Arc<Context>,
    claim: &Claim,
    may_queue: bool,
) -> Result<Option<Changed<Asked>>> {
    let id = claim.id.to_string();
    let asked =
        context.change(claim.name.as_str(), &id, false, |queue| queue.ask(claim, may_queue));
    asked.await.map_err(|failure| context.explain(failure))
}

/// Asks with a place in the queue: behind those who are there, or as the change decides where the name
/// is free or the claim fits beside its holders.
///
/// Where others changed the name before the change, it is tried twice to step in behind them: the one
/// who takes and frees the name in a loop has the row in turn for the one and for the other, and this
/// claim must not come behind the other each time.
async fn step_in(context: &Arc<Context>, claim: &Claim) -> Result<Option<Changed<Asked>>> {
    // One that may be in the queue already must be looked for there.
    if claim.by_id {
        return ask(context, claim, true).await;
    }
    let (id, name) = (claim.id.to_string(), claim.name.as_str());
    for tries in 0..TRIES {
        for _ in 0..=tries.min(1) {
            let sent = Moment::now();
            match context.requests.join(claim, &context.process).await {
                Ok(Some(Joined { ticket, place, until_expiry })) => {
                    let place = usize::try_from(place).unwrap_or(1);
                    // Behind several, nothing was read: all of them may be dead. One look of this
                    // keeper finds out, and when to look again.
                    let until_expiry = match until_expiry {
                        Some(micros) => span(micros),
                        None if context.waiters.waits_for(name) => LOOK,
                        None => Duration::ZERO,
                    };
                    let outcome = Asked::Queued { place, ticket, until_expiry };
                    return Ok(Some(Changed { outcome, sent, crowded: true, doubted: false }));
                }
                Ok(None) => {}
                // Whether it was carried out is found by reading.
                Err(failure) if failure.allows_second_try() => break,
                Err(failure) => return Err(context.explain(failure)),
            }
        }
        let asked = context.change_in(1, name, &id, false, |queue| queue.ask(claim, true)).await;
        match asked {
            Err(Failure::Conflict(_)) => pause(tries).await,
            asked => return asked.map_err(|failure| context.explain(failure)),
        }
    }
    ask(context, claim, true).await
}

/// Steps into the queue and waits there, once.
///
/// The waiter is entered, and the heartbeat of its keeper sent, before its row is written: in the
/// other order a release in another task could grant the row and find nobody to tell, and a look of
/// another keeper could take the waiter for dead.
async fn wait(context: &Arc<Context>, claim: &Claim, patience: &Patience) -> Result<Waited> {
    let (id, name) = (claim.id.to_string(), claim.name.as_str());
    let waiters = &context.waiters;
    let mut beats = waiters.beats();
    let mut ended = waiters.expect(&id, name);
    let _forget = Forget { context, id: &id };
    let explain = |failure| -> Error { context.explain(failure) };
    let won = |granted| Ok(Waited::Won(SqlLease::grant(context, claim, granted)));
    context.beat(BEAT).await.map_err(explain)?;
    driver::start(context);
    let ticket = match step_in(context, claim).await? {
        None => return Ok(Waited::Dropped),
        Some(Changed { outcome, sent, crowded, .. }) => match outcome {
            Asked::Granted(token) => return won(Granted { token, sent, crowded }),
            Asked::Uncovered(mode) => return Err(mode.upgrade_refused(&claim.name, claim.mode)),
            Asked::OtherTerms(mode, ttl) => {
                return claim.refuse_other_terms(mode, Some(span(ttl))).map(|()| Waited::Dropped);
            }
            // Not answered to an ask that may queue.
            Asked::Busy => return Ok(Waited::Over),
            Asked::Queued { place, ticket, until_expiry } => {
                patience.queued(place);
                waiters.queued(&id, name, Moment::now() + until_expiry.min(LOOK));
                ticket
            }
        },
    };
    loop {
        tokio::select! {
            // A grant that has arrived is taken, even if the patience is over in the same moment.
            biased;
            Ok(end) = &mut ended => return match end {
                WaitEnd::Granted(granted) => won(granted),
                WaitEnd::Handed => confirm(context, claim, ticket).await,
                WaitEnd::Dropped => Ok(Waited::Dropped),
                WaitEnd::Failed(error) => Err(error),
            },
            // A grant may be committed at this very moment. Whether the claim waits or holds is
            // decided by the change that leaves, not by what arrived here; so a grant is never
            // lost on the way.
            () = patience.over() => {
                let left = context.change(name, &id, true, |queue| queue.leave(&id)).await;
                let Some(Changed { outcome, sent, crowded, .. }) = left.map_err(explain)? else {
                    return Ok(Waited::Over);
                };
                return match outcome {
                    Left::Granted(token) => won(Granted { token, sent, crowded }),
                    Left::From(place) => {
                        patience.queued(place);
                        Ok(Waited::Over)
                    }
                    Left::Gone => Ok(Waited::Over),
                };
            }
            Ok(()) = beats.changed() => patience.heard(),
        }
    }
}

/// Makes a claim that another keeper handed over a held one, for its whole ttl from now on.
async fn confirm(context: &Arc<Context>, claim: &Claim, ticket: i64) -> Result<Waited> {
    let (id, name) = (claim.id.to_string(), claim.name.as_str());
    let explain = |failure| -> Error { context.explain(failure) };
    let sent = Moment::now();
    if context.requests.confirm(name, &id, ticket).await.map_err(explain)? {
        let token = super::record::token_of(ticket);
        let granted = Granted { token, sent, crowded: true };
        return Ok(Waited::Won(SqlLease::grant(context, claim, granted)));
    }
    // Held already, by a change whose answer was lost; or no longer there.
    let confirmed = context.change(name, &id, false, |queue| queue.confirm(&id)).await;
    Ok(match confirmed.map_err(explain)? {
        Some(Changed { outcome: Some(token), sent, crowded, .. }) => {
            Waited::Won(SqlLease::grant(context, claim, Granted { token, sent, crowded }))
        }
        _ => Waited::Dropped,
    })
}

/// Removes whatever the claim may have left. A request for it that is still on its way finds
/// another version of the name, and does nothing.
pub(super) async fn withdraw(context: &Arc<Context>, claim: &Claim) -> Result<()> {
    let id = claim.id.to_string();
    context.waiters.unwatch(&id);
    let removed = context.change(claim.name.as_str(), &id, true, |queue| queue.remove(&id));
    removed.await.map(|_| ()).map_err(|failure| context.explain(failure))
}

/// Takes the waiter out, however its wait ended.
struct Forget<'a> {
    context: &'a Arc<Context>,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.context.waiters.forget(self.id);
    }
}
