//! Keeps the tables small. Correctness does not depend on it.
//!
//! Every name that was ever locked leaves its row, which remembers its largest token. A row that
//! nobody used for an hour goes, and one number above the tokens of all rows that went stays: a name
//! that has no row begins above it. The number is raised first, and the rows go in a later round, so
//! that a claim which takes a name while its row goes has seen the number.

use super::context::Context;
use super::error::Failure;
use super::record::micros;
use crate::backend::Moment;
use crate::backend::support::sync::lock;
use std::sync::Arc;
use std::time::Duration;

/// For how long a name must not have been used.
const UNUSED: Duration = Duration::from_secs(3600);
/// How often a keeper that is used cleans. Several keepers clean the same tables, which does no
/// harm.
const EVERY: Duration = Duration::from_secs(600);

/// Cleans in the background if this keeper has not for long.
pub(super) fn clean_if_due(context: &Arc<Context>) {
    let mut cleaned = lock(&context.cleaned);
    let now = Moment::now();
    if now.since(*cleaned) < EVERY {
        return;
    }
    *cleaned = now;
    let context_of = context.clone();
    context.background.drive(async move {
        if let Err(failure) = clean(&context_of, UNUSED).await {
            let error = context_of.explain(failure);
            tracing::debug!(%error, "the lock tables were not cleaned");
        }
    });
}

/// One round: rows whose tokens are below the floor go, then the floor is raised for the next.
pub(super) async fn clean(context: &Arc<Context>, unused: Duration) -> Result<(), Failure> {
    let unused = micros(unused);
    for name in context.requests.sweep(unused).await? {
        // Several claims that nobody has touched for so long: all of them have expired.
        context.change(&name, "", false, super::queue::Queue::advance).await?;
    }
    context.requests.raise_floor(unused).await
}
