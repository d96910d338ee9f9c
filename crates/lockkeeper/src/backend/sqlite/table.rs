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
//! known to the driver before its row is in the file, lest its wake-up come too early.

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
    Won(Grant),
    /// The patience is over, and the claim has no row.
    Over,
    /// The row was dropped; ask anew.
    Dropped,
}

/// Takes the name, waiting in the queue if it must and may.
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
        Asked::Busy => return Ok(Waited::Over),
        Asked::Uncovered(mode) => return Err(mode.upgrade_refused(&claim.name, claim.mode)),
        Asked::Queued { place, until_expiry } => {
            patience.queued(place);
            client.waiter_is_queued(&id, span(until_expiry));
        }
    }
    tokio::select! {
        biased;
        Ok(ended) = &mut ended => match ended {
            WaitEnd::Granted(granted) => Ok(won(granted)),
            WaitEnd::Dropped => Ok(Waited::Dropped),
            WaitEnd::Failed(error) => Err(error),
        },
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

/// Removes whatever the claim may have left in the file.
pub(super) async fn withdraw(context: &Context, claim: &Claim) -> Result<()> {
    let client = context.client().await?;
    let (name, id) = (claim.name.clone(), claim.id.to_string());
    client.waiters.unwatch(&id);
    client.call(move |tx| tx.remove(name.as_str(), &id)).await
}

/// Takes a waiter off the client's list, however its wait ends.
struct Forget<'a> {
    client: &'a Client,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.client.waiters.forget_waiter(self.id);
    }
}
