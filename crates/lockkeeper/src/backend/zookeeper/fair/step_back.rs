//! A claim leaves a queue whose numbers come to their end, and waits until they started over.
//!
//! See [`lock_node`]: the counter can start over only while the lock has no claims at all, so the
//! claims that would have to wait make room.

use super::super::client::{Failure, Request, Watch, refusal};
use super::super::error::Stop;
use super::super::layout;
use super::super::lock_node::{self, CounterAge};
use super::attempt::{Attempt, Enqueued};
use crate::backend::Moment;
use crate::error::{Error, ErrorKind};
use std::time::Duration;

/// How often a claim that left looks whether the counter can start over, where no event tells it.
const POLL: Duration = Duration::from_millis(500);
/// A node of ours that has to go is gone by then.
const GRACE: Duration = Duration::from_secs(3);

/// Gives up the claim's place and waits until the counter has started over; `false` when patience
/// ran out first.
///
/// # Errors
/// When a node of another library keeps the counter from starting over, or we may not recreate the
/// lock's node: waiting would not help.
pub(super) async fn step_back(attempt: &Attempt<'_>, enqueued: Enqueued) -> Result<bool, Stop> {
    let Attempt { session, patience, parent, .. } = attempt;
    let made = enqueued.queue.made;
    tracing::warn!(node = parent, "the numbers of a lock come to their end and start over");
    attempt.leave(&enqueued).await?;
    let mut seen: (Moment, Vec<String>) = (Moment::now(), Vec::new());
    loop {
        match lock_node::restart_counter(session, parent, Some(made)).await {
            Ok(true) => return Ok(true),
            Ok(false) | Err(Failure::Unanswered(_)) => {}
            Err(failure) if failure.is(refusal::NO_AUTH) => return Err(denied(parent).into()),
            Err(failure) => return Err(failure.into()),
        }
        if patience.is_over() {
            return Ok(false);
        }
        // Not in the queue any more, and waiting all the same.
        patience.queued(0);
        let mut watch = Watch::new(session, vec![parent.clone()]);
        // If setting the watch fails, its purpose is served by the next poll.
        let _ = session.call(Request::data(parent, true)).await;
        let (_, listing) = attempt.list().await?;
        let Some((children, stat)) = listing else { return Ok(true) };
        // Another claim has had the counter start over.
        if stat.czxid != made {
            return Ok(true);
        }
        // Our own claims leave from a counter that has ended. A node that stays beyond the grace
        // period belongs to a program with another library.
        let stays = |node: &String| {
            layout::number_of(node).is_none_or(|number| CounterAge::of(number) == CounterAge::Ended)
        };
        let staying: Vec<String> = children.into_iter().filter(stays).collect();
        let (since, before) = &seen;
        let is_long_ago = Moment::now().since(*since) >= GRACE;
        let still = staying.iter().find(|node| before.contains(*node));
        if let Some(node) = still.filter(|_| is_long_ago) {
            return Err(obstructed(parent, node).into());
        }
        if before.is_empty() || is_long_ago {
            seen = (Moment::now(), staying);
        }
        tokio::select! {
            biased;
            _ = watch.changed() => {}
            () = tokio::time::sleep(POLL) => {}
            () = patience.over() => return Ok(false),
        }
    }
}

/// A node of another library keeps the lock in use.
fn obstructed(parent: &str, node: &str) -> Error {
    Error::new(
        ErrorKind::Store,
        format!(
            "ZooKeeper has nearly used up the numbers for claims on {parent}, and they start over \
             only when nobody is below it: have everyone leave the lock for a moment, or use \
             another name"
        ),
    )
    .with("node", node)
}

/// The lock's node belongs to someone else.
fn denied(parent: &str) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!(
            "ZooKeeper has nearly used up the numbers for claims on {parent}, and we may not \
             delete it and make it anew: have someone do so who may, while nobody uses the lock"
        ),
    )
}
