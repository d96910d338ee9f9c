//! What happened to the claims of a keeper, as a stream and as `tracing` events.

use crate::claim::{Claim, FencingToken, Mode, Owner};
use crate::clock::Moment;
use crate::loss::LossReason;
use crate::name::Name;
use futures_util::Stream;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

/// How many events a slow reader may fall behind before it misses some.
const BACKLOG: usize = 1024;

/// Something that happened to a claim of this keeper.
///
/// Of a name that one claim hands over to the next in the queue, `Released` comes before
/// `Acquired`. A claim that was made just when another was given back, and did not have to wait,
/// may be told of first: tokens tell the order of grants.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When, by the wall clock.
    pub at: SystemTime,
    /// The name that was claimed.
    pub name: Name,
    /// How it was claimed.
    pub mode: Mode,
    /// By whom.
    pub owner: Owner,
    /// What the claim's [`note`](crate::Lock::note) says.
    pub note: Arc<str>,
    /// The grant's token, once there is one.
    pub token: Option<FencingToken>,
    /// How long the claim has waited: when it was granted, or gave up.
    pub waited: Option<Duration>,
    /// How long the claim has been held, in every event after it was granted.
    pub held: Option<Duration>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// The claim has to wait.
    Queued {
        /// Its place, counted from 1; `None` where the store keeps no queue.
        place: Option<usize>,
    },
    /// The claim was granted.
    Acquired,
    /// The store extended the claim.
    Renewed,
    /// The claim was given back.
    Released,
    /// The claim is held no longer, and was not given back.
    Lost(LossReason),
    /// The claim waited, and its wait is over without a grant. A grant that came in that very moment is
    /// given back at once, and told as `Acquired` and `Released` after this.
    GaveUp(GaveUp),
    /// The store could not be asked to keep the claim when it should have been: the claim is valid for
    /// so long, and safe again with the next `Renewed`. Told once until then.
    InJeopardy {
        /// How long the claim is valid if the store does not answer.
        remaining: Duration,
    },
    /// The store answers again, after it did not for a while. Told once for all claims of the keeper: of
    /// the one whose request was answered first.
    Reconnected {
        /// For how long it did not, as far as requests found out.
        after: Duration,
    },
}

/// Why a claim waits no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GaveUp {
    /// Its time limit passed.
    TimedOut,
    /// Its caller went away.
    Cancelled,
    /// The store refused it, or was silent for too long.
    Failed,
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "its time limit passed",
            Self::Cancelled => "its caller went away",
            Self::Failed => "the store failed",
        })
    }
}

/// A stream of [`Event`]s; see [`Keeper::events`](crate::Keeper::events).
///
/// A reader that falls more than a thousand events behind misses the oldest.
pub struct Events(BroadcastStream<Event>);

impl Events {
    /// The next event; `None` when the keeper is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<Event> {
        tokio_stream::StreamExt::next(self).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            match std::task::ready!(Pin::new(&mut self.0).poll_next(context)) {
                Some(Ok(event)) => return Poll::Ready(Some(event)),
                Some(Err(BroadcastStreamRecvError::Lagged(missed))) => {
                    tracing::warn!(missed, "a reader of lock events fell behind");
                }
                None => return Poll::Ready(None),
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// The claim that an event is about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) token: Option<FencingToken>,
    pub(crate) waited: Option<Duration>,
    pub(crate) held: Option<Duration>,
}

impl<'a> About<'a> {
    /// A claim that waits, or has since `asked`.
    pub(crate) fn waiting(claim: &'a Claim, asked: Moment) -> Self {
        Self { claim, token: None, waited: Some(Moment::now().since(asked)), held: None }
    }
}

/// Where events go.
#[derive(Debug)]
pub(crate) struct EventSink(broadcast::Sender<Event>);

impl EventSink {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }

    pub(crate) fn subscribe(&self) -> Events {
        Events(BroadcastStream::new(self.0.subscribe()))
    }

    pub(crate) fn emit(&self, about: About<'_>, kind: EventKind) {
        let About { claim, token, waited, held } = about;
        let (name, number) = (claim.name.as_str(), token.map(FencingToken::get));
        match &kind {
            EventKind::Queued { place } => tracing::debug!(name, place, "queued"),
            EventKind::Acquired => tracing::debug!(name, token = number, ?waited, "acquired"),
            EventKind::Renewed => tracing::trace!(name, token = number, "renewed"),
            EventKind::Released => tracing::debug!(name, token = number, ?held, "released"),
            EventKind::Lost(reason) => tracing::warn!(name, token = number, %reason, ?held, "lost"),
            EventKind::GaveUp(why) => tracing::debug!(name, %why, ?waited, "gave up"),
            EventKind::InJeopardy { remaining } => {
                // No warning: a connection that breaks endangers all claims, and mostly none is lost.
                tracing::info!(name, token = number, ?remaining, "in jeopardy");
            }
            EventKind::Reconnected { after } => tracing::info!(name, ?after, "reconnected"),
        }
        if self.0.receiver_count() > 0 {
            let event = Event {
                at: SystemTime::now(),
                name: claim.name.clone(),
                mode: claim.mode,
                owner: claim.owner.clone(),
                note: claim.note.clone(),
                token,
                waited,
                held,
                kind,
            };
            // Fails when the last reader left just now, which is no concern of ours.
            let _ = self.0.send(event);
        }
    }
}
