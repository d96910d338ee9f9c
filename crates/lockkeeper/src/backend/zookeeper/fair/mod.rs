//! `recipe=fair`: a numbered node for each claim, and those with the smallest numbers hold.
//!
//! 1. Create our node and list all of them, in one round trip.
//! 2. If we are among those at the head of the queue, we hold the lock.
//! 3. Otherwise watch those we are behind, usually one node, and wait until one of them goes.
//! 4. If we then know who is left, we hold the lock or wait on; otherwise list again.
//!
//! A release is the deletion of our node, and the next in the queue is told of it by its watch.
//!
//! | file | what |
//! |---|---|
//! | `attempt` | the single steps: enter, list, leave |
//! | `standing` | where a claim stands in a list of nodes |
//! | `wait` | what a waiter watches, and what it may conclude without asking |
//! | `step_back` | what happens when the lock's counter comes to its end |
//!
//! The same session serves all claims of a keeper, so two of them in one queue are told of the same
//! event once each, and what one has learned of the queue the other need not ask
//! ([`gone`](super::gone)).

mod attempt;
mod standing;
mod step_back;
mod wait;

use super::client::{Failure, Request, refusal};
use super::context::Context;
use super::error::Stop;
use super::session::Session;
use crate::backend::{Claim, Grant, Moment, Patience};
use attempt::Attempt;
pub(super) use attempt::Watched;
use standing::Standing;
use std::sync::Arc;
use wait::Turn;

/// One attempt at a claim, in one session; `None` when the lock was not to be had before patience
/// ran out, and then no node of ours is left.
///
/// # Errors
/// [`Failure::SessionEnded`] when the session ended under it: our node went with it, and the claim
/// can be attempted again in another session. After any other failure our node may exist.
pub(super) async fn acquire(
    context: &Context,
    session: &Arc<Session>,
    claim: &Claim,
    patience: &Patience,
    watched: Watched,
) -> Result<Option<Grant>, Stop> {
    let parent = context.path_of(&claim.name);
    let attempt = Attempt { context, session, claim, parent, patience, watched };
    session.connected_for(patience).await?;
    // A claim that does not wait looks first: where the lock is held, it writes nothing.
    if patience.is_over() && attempt.is_busy().await? {
        return Ok(None);
    }
    // The first round trip. Without contention it is also the last.
    let mut enqueued = attempt.enter().await?;
    loop {
        let standing = attempt.standing(&enqueued);
        // Before everything else, also for a claim at the head: its number may not be unique.
        if enqueued.must_leave(&standing) {
            if !step_back::step_back(&attempt, enqueued).await? {
                return Ok(None);
            }
            enqueued = attempt.enter().await?;
            continue;
        }
        match standing {
            Standing::Holds => return Ok(Some(attempt.grant(enqueued))),
            // Someone deleted our node.
            Standing::Absent => enqueued = attempt.enter().await?,
            Standing::Waits { place, behind, settled } => {
                if patience.is_over() {
                    return attempt.leave(&enqueued).await;
                }
                patience.queued(place);
                match wait::wait(&attempt, &mut enqueued, &behind, settled).await {
                    None => return attempt.leave(&enqueued).await,
                    Some(Turn::Ours(sent)) => {
                        return Ok(Some(attempt.lease(enqueued).into_grant(sent)));
                    }
                    Some(Turn::First) => {
                        let sent = Moment::now();
                        if attempt.exists(&enqueued).await? {
                            enqueued.sent = sent;
                            return Ok(Some(attempt.grant(enqueued)));
                        }
                        attempt.list_again(&mut enqueued).await?;
                    }
                    Some(Turn::Unknown) => attempt.list_again(&mut enqueued).await?,
                }
            }
        }
    }
}

/// Deletes every node that the claim may have left.
pub(super) async fn withdraw(
    context: &Context,
    session: &Session,
    claim: &Claim,
) -> Result<(), Failure> {
    let parent = context.path_of(&claim.name);
    let prefix = context.layout.unique_prefix(claim);
    let children = match session.call_synced(&parent, Request::children(&parent)).await {
        Ok(answer) => answer.children()?,
        Err(failure) if failure.is(refusal::NO_NODE) => Vec::new(),
        Err(failure) => return Err(failure),
    };
    // More than one where an operator copied a node, or a lost answer was followed by a second try.
    for child in children.iter().filter(|child| child.starts_with(&prefix)) {
        match session.call(Request::delete(&format!("{parent}/{child}"))).await {
            Err(failure) if !failure.is(refusal::NO_NODE) => return Err(failure),
            _ => {}
        }
    }
    session.forget(claim.id);
    Ok(())
}
