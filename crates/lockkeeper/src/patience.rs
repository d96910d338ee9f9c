//! How long a claim is willing to wait.

use crate::claim::Claim;
use crate::clock::Moment;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a store may be silent while a claim waits, unless its URL says otherwise.
pub(crate) const OUTAGE: Duration = Duration::from_secs(30);

type OnQueued = Box<dyn Fn(usize) + Send + Sync>;

/// How long a claim is willing to wait, told to a backend.
///
/// Patience runs out when its time limit passes or when the caller goes away, whichever is
/// first. A backend that queues says so with [`queued`](Self::queued).
pub struct Patience {
    until: Option<Moment>,
    gone: CancellationToken,
    place: AtomicUsize,
    /// Whether the claim is made anew, and its place to be told again.
    anew: AtomicBool,
    on_queued: Option<OnQueued>,
    outage: Duration,
    begun: Moment,
    /// When the store was last heard, in nanoseconds after `begun`; zero before the first time.
    heard: AtomicU64,
}

impl Patience {
    /// Not waiting at all: take it now or not.
    pub fn none() -> Self {
        Self::until(Some(Moment::now()))
    }

    /// Waiting until the caller goes away.
    pub fn endless() -> Self {
        Self::until(None)
    }

    /// Waiting until `moment`, or without a limit.
    pub fn until(moment: Option<Moment>) -> Self {
        let gone = CancellationToken::new();
        Self {
            until: moment,
            gone,
            place: AtomicUsize::new(0),
            anew: AtomicBool::new(true),
            on_queued: None,
            outage: OUTAGE,
            begun: Moment::now(),
            heard: AtomicU64::new(0),
        }
    }

    /// A part of this patience, for a wrapper that asks several backends: it ends with the whole,
    /// and after `limit` at the latest.
    ///
    /// What is said to the part ([`heard`](Self::heard), [`queued`](Self::queued)) is not said to
    /// the whole.
    pub fn within(&self, limit: Duration) -> Self {
        let end = Moment::now() + limit;
        let until = self.until.map_or(end, |until| until.min(end));
        let mut part = Self::until(Some(until)).forgiving(self.outage);
        part.gone = self.gone.child_token();
        part
    }

    pub(crate) fn on_queued(mut self, tell: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_queued = Some(Box::new(tell));
        self
    }

    pub(crate) fn forgiving(mut self, outage: Duration) -> Self {
        self.outage = outage;
        self
    }

    /// How long a store may be silent before a claim that waits gives up: the option `outage` of
    /// every store's URL. A backend whose claim is queued waits on for so long when the store does
    /// not answer, keeping its place if it can, and then returns
    /// [`Unavailable`](crate::ErrorKind::Unavailable). What it returns earlier is retried.
    pub fn outage(&self) -> Duration {
        self.outage
    }

    /// Says that the store just answered a question about this claim. A backend that waits says so
    /// with every heartbeat; [`queued`](Self::queued) says so too.
    pub fn heard(&self) {
        let after = Moment::now().since(self.begun).as_nanos();
        self.heard.store(u64::try_from(after).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    /// Whether the store said anything at all of this claim.
    pub(crate) fn has_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed) > 0
    }

    /// How long the store has said nothing of this claim.
    pub fn silence(&self) -> Duration {
        let heard = Duration::from_nanos(self.heard.load(Ordering::Relaxed));
        Moment::now().since(self.begun).saturating_sub(heard)
    }

    pub(crate) fn limit(&self) -> Option<Moment> {
        self.until
    }

    /// Says that the claim is made once more, so that it may have another place.
    pub(crate) fn begin_anew(&self) {
        self.anew.store(true, Ordering::Relaxed);
    }

    /// Since when it waits.
    pub(crate) fn begun(&self) -> Moment {
        self.begun
    }

    /// Time left; `None` when there is no limit.
    pub fn remaining(&self) -> Option<Duration> {
        if self.gone.is_cancelled() {
            return Some(Duration::ZERO);
        }
        self.until.map(Moment::remaining)
    }

    /// Whether it has run out. A backend asks this first: with no patience at all it must not
    /// queue.
    pub fn is_over(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// Resolves when patience runs out, never early.
    pub async fn over(&self) {
        match self.until {
            None => self.gone.cancelled().await,
            Some(until) => tokio::select! {
                () = self.gone.cancelled() => {}
                () = until.reached() => {}
            },
        }
    }

    /// Says that the claim now waits as number `place`, counted from 1; 0, said once, where there
    /// is no telling. Called again whenever the place is learnt anew; the last one is reported
    /// when the wait is in vain.
    pub fn queued(&self, place: usize) {
        self.heard();
        let before = self.place.swap(place, Ordering::Relaxed);
        let first_time = self.anew.swap(false, Ordering::Relaxed) || before == 0;
        if let Some(tell) = self.on_queued.as_ref().filter(|_| first_time) {
            tell(place);
        }
    }

    pub(crate) fn place(&self) -> Option<usize> {
        Some(self.place.load(Ordering::Relaxed)).filter(|place| *place > 0)
    }

    /// Ends it: the caller went away.
    pub(crate) fn abandon(&self) {
        self.gone.cancel();
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patience({:?} left)", self.remaining())
    }
}

/// Trying again in the background until the store has dropped the claim by itself.
#[derive(Debug)]
pub(crate) struct RetryUntilExpiry {
    give_up: Moment,
    pause: Duration,
}

impl RetryUntilExpiry {
    pub(crate) fn of(claim: &Claim) -> Self {
        Self { give_up: Moment::now() + claim.ttl, pause: Duration::from_millis(20) }
    }

    /// Pauses, longer each time; `false` when there is no point in another try.
    pub(crate) async fn again(&mut self) -> bool {
        if Moment::now() + self.pause >= self.give_up {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(2));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_at_its_limit_or_when_abandoned() {
        assert!(Patience::none().is_over());
        let limited = Patience::until(Some(Moment::now() + Duration::from_secs(5)));
        assert!(!limited.is_over());
        let start = Moment::now();
        limited.over().await;
        assert!(Moment::now().since(start) >= Duration::from_secs(5));
        let endless = Patience::endless();
        assert_eq!(endless.remaining(), None);
        endless.abandon();
        endless.over().await;
        assert!(endless.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_ends_with_the_whole_and_no_later_than_its_limit() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(9));
        let whole = Patience::until(Some(Moment::now() + Duration::from_secs(5)));
        assert_eq!(whole.within(short).remaining(), Some(short));
        assert_eq!(whole.within(long).remaining(), Some(Duration::from_secs(5)));
        let part = whole.within(long);
        part.abandon();
        assert!(!whole.is_over(), "the part took the whole with it");
        let part = whole.within(long);
        whole.abandon();
        part.over().await;
        assert!(part.is_over());
    }
}
