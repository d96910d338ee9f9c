//! `recipe=barging`: the nodes of `fair`, but every waiter watches the first.
//!
//! When the holder goes, all waiters are woken and look at the queue at once: what Curator's
//! documentation calls the herd effect. It is here to be compared with, and promises no order.

use super::context::Context;
use super::error::Stop;
use super::fair::{self, Watched};
use super::session::Session;
use crate::backend::{Claim, Grant, Patience};
use std::sync::Arc;

/// One attempt at a claim, in one session: see [`fair::acquire`].
pub(super) async fn acquire(
    context: &Context,
    session: &Arc<Session>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>, Stop> {
    fair::acquire(context, session, claim, patience, Watched::TheFirst).await
}
