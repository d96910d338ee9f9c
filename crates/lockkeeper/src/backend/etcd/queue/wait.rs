//! Waiting in the queue.
//!
//! A waiting claim watches the keys that it is behind: the watch says only that it is worth
//! looking, and what counts is a read through a majority. Beside that it keeps the session alive,
//! and looks every ten seconds in any case.
//!
//! A release wakes one waiter: a claim watches the last key that keeps it out, which no other
//! claim of the same mode does. While etcd is silent a waiting claim keeps its key and its place
//! for as long as the session lasts, and tries again after each [`PAUSE`]; when the session may
//! have ended, the claim begins again at the end of the queue.

use super::super::lease::{Context, Enqueued, EtcdLease};
use super::super::waiters::{Begin, Subscriber, Watch};
use super::place::Place;
use super::{Looked, give_up, leave, look};
use crate::backend::{Claim, Grant, Moment, Patience};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often a claim looks for itself, should every watch have failed it. Rare, because each
/// waiting claim costs etcd a read through a majority.
const RECHECK: Duration = Duration::from_secs(10);
/// The pause after a request that was not answered, so that many waiting claims do not flood a
/// member that has just come back.
const PAUSE: Duration = Duration::from_millis(200);

/// How a wait ended.
pub(super) enum Turn {
    Granted(Grant),
    /// The caller's patience is over, and the key is gone.
    Over,
    /// Our key is gone, or its session: to the end of the queue. The old place cannot be kept,
    /// because a key that is created again has a new create revision.
    Again,
}

/// Why a waiting claim stopped waiting for events. None of these is a grant: only a read is.
enum Woken {
    Look,
    PatienceOver,
    SessionOver,
}

/// Waits until the claim is at the head.
///
/// Each watch is given the revision of the read that found the key in the way, so what happens
/// between the read and the watch is not missed. After an error the key is scheduled for deletion;
/// after `Over` it is deleted; after `Again` it is gone, ends with its session, or is scheduled.
pub(super) async fn wait(
    context: &Arc<Context>,
    claim: &Claim,
    patience: &Patience,
    enqueued: Enqueued,
    mut looked: Looked,
) -> Result<Turn> {
    let wakeup = Arc::new(Notify::new());
    let watch = |begin, key: &[u8], revision| {
        context.watches.watch(begin, key, revision, Subscriber::Waiter(wakeup.clone()))
    };
    // Our own key is watched too, so that an operator who deletes it makes us begin again.
    let mut own = None;
    let mut watched: Vec<(Vec<u8>, Watch)> = Vec::new();
    loop {
        let Looked { sent, place, revision, lives_on } = looked;
        match place {
            // Another keeper that asked by the same id has it on its own lease by now.
            Place::Head if claim.by_id && lives_on != enqueued.lease.id => return Ok(Turn::Again),
            Place::Head => {
                let grant = EtcdLease::grant(context, claim, enqueued, sent);
                return Ok(grant.map_or(Turn::Again, Turn::Granted));
            }
            Place::Nowhere => return Ok(Turn::Again),
            Place::Waits { number, behind } => {
                number.iter().for_each(|number| patience.queued(*number));
                let key = enqueued.key.bytes();
                own.get_or_insert_with(|| watch(Begin::Later, key, enqueued.seen));
                // Watches that are still needed are kept: to end and begin them again would cost
                // etcd two messages.
                watched.retain(|(key, _)| behind.contains(key));
                for key in behind {
                    if !watched.iter().any(|(watched, _)| *watched == key) {
                        let watch = watch(Begin::Now, &key, revision);
                        watched.push((key, watch));
                    }
                }
            }
        }
        looked = loop {
            match sleep(context, claim, patience, &enqueued, &wakeup).await? {
                Woken::PatienceOver => {
                    leave(context, claim, &enqueued).await?;
                    return Ok(Turn::Over);
                }
                Woken::SessionOver => return Ok(Turn::Again),
                Woken::Look => {}
            }
            match look(context, &enqueued).await {
                Ok(looked) => {
                    patience.heard();
                    break looked;
                }
                Err(error) => {
                    tolerate(context, claim, patience, &enqueued, error)?;
                    tokio::time::sleep(PAUSE).await;
                    // Look again at once after the pause: the event that made us look was consumed,
                    // and there may be no other.
                    wakeup.notify_one();
                }
            }
        };
    }
}

/// Waits until it is worth looking, and keeps the session alive meanwhile. A claim that waits has
/// no hold that the engine would renew, so its heartbeats are sent from here.
async fn sleep(
    context: &Context,
    claim: &Claim,
    patience: &Patience,
    enqueued: &Enqueued,
    wakeup: &Notify,
) -> Result<Woken> {
    let lease = &enqueued.lease;
    let recheck = Moment::now() + RECHECK;
    let mut beat = lease.sent() + lease.beat();
    loop {
        if lease.is_over() {
            // The key may still be there: by our clock the session is over, but etcd has not said
            // so.
            if !lease.is_gone() {
                give_up(context, claim, enqueued);
            }
            return Ok(Woken::SessionOver);
        }
        tokio::select! {
            biased;
            () = wakeup.notified() => return Ok(Woken::Look),
            () = patience.over() => return Ok(Woken::PatienceOver),
            () = recheck.reached() => return Ok(Woken::Look),
            () = beat.reached() => match context.keep_alive(lease, lease.beat() / 2).await {
                Ok(()) => {
                    patience.heard();
                    context.watches.revive();
                    beat = lease.sent() + lease.beat();
                }
                Err(error) => {
                    tolerate(context, claim, patience, enqueued, error)?;
                    beat = Moment::now() + PAUSE;
                }
            },
        }
    }
}

/// Returns the error, and gives the claim up, once etcd has been silent for longer than a waiting
/// claim puts up with, or at once if waiting cannot help. Otherwise the claim keeps its key and
/// place.
fn tolerate(
    context: &Context,
    claim: &Claim,
    patience: &Patience,
    enqueued: &Enqueued,
    error: Error,
) -> Result<()> {
    if patience.silence() > patience.outage() || !error.is_retryable() {
        give_up(context, claim, enqueued);
        return Err(error);
    }
    tracing::debug!(%error, "no answer while waiting");
    Ok(())
}
