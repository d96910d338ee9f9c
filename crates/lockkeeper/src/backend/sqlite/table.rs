//! The recipe: a table of claims is the queue, and a transaction decides.
//!
//! ```text
//! ask without queueing ──► granted: one transaction, done
//!        │ busy
//!        ▼
//! expect to be told; ask again, now with a row in the queue
//!        │                     told by a release in this process, or by the driver, which found
//!        ▼                     what another process handed over
//! wait ──────────────────────► granted
//!        │ patience over: leave the queue, unless it was granted meanwhile
//!        ▼
//!      nothing
//! ```
//!
//! The first ask does not queue because most locks are free, and a waiter costs more: it has to be
//! known to the driver before its row is in the file, or its wake-up could come too early.
//!
//! What a process leaves in the file when it is killed: while waiting, a row that expires two
//! seconds after the last heartbeat; once handed the lock and before it confirmed, the same row
//! with the same time; while holding, a row that expires with its ttl.

use super::client::Client;
use super::lease::{Context, SqliteLease};
use super::record::span;
use super::requests::{Asked, Left};
use super::waiters::WaitEnd;
use crate::backend::{Claim, Grant, Patience};
use crate::error::Result;
use std::sync::Arc;

/// How one wait ended.
enum Waited {
    /// The row holds, and the engine has to release it.
    Won(Grant),
    /// The patience is over, and the claim has no row.
    Over,
    /// The row is gone, as when no heartbeat was written in time; ask again, at the end of the
    /// queue. The old place cannot be given back: another claim may have been granted past it.
    Dropped,
}

/// Takes the name, waiting in the queue if it must and may.
///
/// `None` means that the patience is over and that the claim has no row in the file. After an error
/// there may be one, and the engine withdraws the claim by its id.
pub(super) async fn acquire(
    context: &Arc<Context>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>> {
    let client = context.client().await?;
    let asked = claim.clone();
    match client.call(move |tx| tx.ask(&asked, false)).await? {
        Asked::Granted(granted) => {
            return Ok(Some(SqliteLease::grant(context, &client, claim, granted)));
        }
        Asked::Uncovered(mode) => return Err(mode.upgrade_refused(&claim.name, claim.mode)),
        Asked::OtherTerms(mode, ttl) => claim.refuse_other_terms(mode, Some(span(ttl)))?,
        Asked::Busy | Asked::Queued { .. } => {}
    }
    while !patience.is_over() {
        match wait(context, &client, claim, patience).await? {
            Waited::Won(grant) => return Ok(Some(grant)),
            Waited::Over => return Ok(None),
            Waited::Dropped => {
                tracing::debug!(name = claim.name.as_str(), "dropped from the queue");
            }
        }
    }
    Ok(None)
}

/// Steps into the queue and waits there, once.
///
/// The waiter is entered before its row is written. In the other order a release in another thread
/// could grant the row and find nobody to tell.
async fn wait(
    context: &Arc<Context>,
    client: &Arc<Client>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Waited> {
    let (id, name) = (claim.id.to_string(), claim.name.as_str());
    let won = |granted| Waited::Won(SqliteLease::grant(context, client, claim, granted));
    let mut ended = client.waiters.expect(&id, name);
    let _forget = Forget { client, id: &id };
    let asked = claim.clone();
    match client.call(move |tx| tx.ask(&asked, true)).await? {
        Asked::Granted(granted) => return Ok(won(granted)),
        // Not answered to an ask that may queue.
        Asked::Busy => return Ok(Waited::Over),
        Asked::Uncovered(mode) => return Err(mode.upgrade_refused(&claim.name, claim.mode)),
        Asked::OtherTerms(mode, ttl) => {
            claim.refuse_other_terms(mode, Some(span(ttl)))?;
            return Ok(Waited::Dropped);
        }
        Asked::Queued { place, until_expiry } => {
            patience.queued(place);
            client.waiter_is_queued(&id, span(until_expiry));
        }
    }
    tokio::select! {
        // A grant that has arrived is taken, even if the patience is over in the same moment.
        biased;
        Ok(ended) = &mut ended => match ended {
            WaitEnd::Granted(granted) => Ok(won(granted)),
            WaitEnd::Dropped => Ok(Waited::Dropped),
            WaitEnd::Failed(error) => Err(error),
        },
        // A grant may be committed at this very moment. Whether the claim waits or holds is decided
        // by the transaction that leaves, not by what arrived here; so a grant is never lost on the
        // way.
        () = patience.over() => {
            let (leaving, at) = (id.clone(), claim.name.clone());
            match client.call(move |tx| tx.leave(at.as_str(), &leaving)).await? {
                Left::Granted(granted) => Ok(won(granted)),
                Left::From(place) => {
                    patience.queued(place);
                    Ok(Waited::Over)
                }
                Left::Gone => Ok(Waited::Over),
            }
        }
    }
}

/// Removes whatever the claim may have left in the file, waiting or held. Idempotent, and does
/// nothing to claims with another id. The alarm goes first: nobody is left to be told of a loss.
pub(super) async fn withdraw(context: &Context, claim: &Claim) -> Result<()> {
    let client = context.client().await?;
    let (name, id) = (claim.name.clone(), claim.id.to_string());
    client.waiters.unwatch(&id);
    client.call(move |tx| tx.remove(name.as_str(), &id)).await
}

/// Takes a waiter off the client's list, however its wait ends, also by being dropped. A row that
/// stays in the file then has no waiter, and the next heartbeat removes it.
struct Forget<'a> {
    client: &'a Client,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.client.waiters.forget_waiter(self.id);
    }
}
