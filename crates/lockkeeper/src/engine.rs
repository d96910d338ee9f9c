//! What the parts of one keeper share, and the one way from a claim to a guard.

use crate::backend::{Backend, Together};
use crate::background::Background;
use crate::claim::{Claim, ClaimIds, Owner};
use crate::clock::Moment;
use crate::completing::{Completing, Entered};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventKind, EventSink};
use crate::guard::Guard;
use crate::hold::{Bounds, Hold};
use crate::patience::Patience;
use crate::reentry::{Entry, Reentry};
use crate::release::Release;
use crate::scheduler::Scheduler;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::Instrument;

/// How much longer than its limit a caller may wait for the store to say how the wait ended.
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// How long even the impatient wait for a claim of their own that is on its way out.
const LEAVING: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) ids: ClaimIds,
    pub(crate) identity: Arc<str>,
    pub(crate) events: EventSink,
    pub(crate) scheduler: Scheduler,
    pub(crate) reentry: Reentry,
    /// Where releases, renewals and withdrawals run.
    pub(crate) background: Background,
    /// How long a store may be silent while a claim waits.
    outage: Duration,
    /// How many claims are being made, or wait.
    contending: AtomicUsize,
}

/// A claim ready to be made, with what the engine needs beside it.
pub(crate) struct Attempt {
    pub(crate) claim: Claim,
    pub(crate) bounds: Bounds,
    /// Whether the owner was named, and so may enter again.
    pub(crate) named_owner: bool,
}

impl Attempt {
    /// Another claim on the same terms.
    fn rename(&mut self, engine: &Engine) {
        self.claim.id = engine.ids.next();
        if !self.named_owner {
            self.claim.owner = Owner::from_id(self.claim.id.to_string());
        }
    }
}

impl Engine {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        identity: Arc<str>,
        background: Background,
        outage: Duration,
    ) -> Result<Self> {
        Ok(Self {
            backend,
            ids: ClaimIds::new()?,
            identity,
            events: EventSink::new(),
            scheduler: Scheduler::default(),
            reentry: Reentry::default(),
            background,
            outage,
            contending: AtomicUsize::new(0),
        })
    }

    /// Runs `work` in the background; [`Keeper::close`](crate::Keeper::close) waits for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(work);
    }

    /// Whether nothing is held, and nobody tries to.
    pub(crate) fn is_unused(&self) -> bool {
        self.scheduler.is_empty() && self.contending.load(Ordering::Acquire) == 0
    }

    /// A future that is finished even when its caller drops it.
    pub(crate) fn completing<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Completing<T>> {
        self.scheduler.start(self);
        self.background.completing(work)
    }

    /// What `work` comes to by `until`; `None` when it takes longer, and the rest is then done in
    /// the background.
    pub(crate) async fn by<T: Send + 'static>(
        self: &Arc<Self>,
        until: Option<Moment>,
        work: Completing<T>,
    ) -> Result<Option<T>> {
        let Some(until) = until else { return Ok(Some(work.await)) };
        let race = async move {
            tokio::select! {
                biased;
                output = work => Some(output),
                () = until.reached() => None,
            }
        };
        Ok(Entered::new(race, self.background.handle()?).await)
    }

    /// Makes the claim: a guard, or `None` when patience ran out first. Sets `place` to the last
    /// known one in the queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        attempt: Attempt,
        patience: Patience,
        place: &mut Option<usize>,
    ) -> Result<Option<Guard>> {
        if attempt.named_owner {
            while let Some(entry) = self.reentry.enter(&attempt.claim)? {
                match entry {
                    Entry::Again(hold) => return Ok(Some(Guard::new(hold))),
                    // The owner's own claim is on its way out. To meet it in the store would be
                    // to enter again what is about to end.
                    Entry::Leaving(gone) => {
                        let limit = patience.remaining().map(|left| left.max(LEAVING));
                        let gone = async move {
                            let limit = limit.unwrap_or(Duration::MAX);
                            tokio::time::timeout(limit, gone.cancelled()).await.is_ok()
                        };
                        if !self.completing(gone)?.await {
                            return Ok(None);
                        }
                    }
                }
            }
        }
        let span = tracing::debug_span!("acquire", name = attempt.claim.name.as_str());
        let patience = self.with_queued_event(&attempt.claim, patience).forgiving(self.outage);
        let patience = Arc::new(patience);
        let abandon = patience.clone();
        let limit = patience.limit().filter(|_| !patience.is_over());
        let work = contend(self.clone(), attempt, patience.clone()).instrument(span);
        let work = self.completing(work)?.or_if_abandoned(move || abandon.abandon());
        let outcome = self.by(limit.map(|limit| limit + GRACE), work).await?;
        *place = patience.place();
        match outcome {
            Some(outcome) => outcome,
            None if patience.has_heard() => Ok(None),
            None => Err(self.silent(patience.silence())),
        }
    }

    /// Makes all the claims at once, where the store can and no owner has one of the names.
    pub(crate) async fn acquire_together(
        self: &Arc<Self>,
        attempts: Vec<Attempt>,
        until: Option<Moment>,
    ) -> Result<AllAtOnce> {
        let known = |attempt: &Attempt| attempt.named_owner && self.reentry.knows(&attempt.claim);
        if attempts.len() < 2 || attempts.iter().any(known) {
            return Ok(AllAtOnce::OneByOne);
        }
        let begun = Moment::now();
        let limit = until.filter(|until| *until > begun);
        let work = self.completing(contend_together(self.clone(), attempts))?;
        match self.by(limit.map(|limit| limit + GRACE), work).await? {
            Some(outcome) => outcome,
            None => Err(self.silent(Moment::now().since(begun))),
        }
    }

    fn silent(&self, since: Duration) -> Error {
        let message = format!("{} did not answer within {since:.1?}", self.backend);
        Error::new(ErrorKind::Unavailable, message)
    }

    fn with_queued_event(self: &Arc<Self>, claim: &Claim, patience: Patience) -> Patience {
        if patience.is_over() {
            return patience;
        }
        let (engine, claim) = (self.clone(), claim.clone());
        patience.on_queued(move |place| {
            let place = Some(place).filter(|place| *place > 0);
            engine.events.emit(&claim, None, EventKind::Queued { place });
        })
    }

    /// Takes back what a claim may have left whose answer was lost.
    fn withdraw(&self, claim: Claim) {
        self.background.withdraw(self.backend.clone(), claim);
    }
}

/// Drives the claim until it is granted or patience runs out. Nothing of it is left in the store
/// unless a guard comes back.
async fn contend(
    engine: Arc<Engine>,
    mut attempt: Attempt,
    patience: Arc<Patience>,
) -> Result<Option<Guard>> {
    let _contending = Contending::begin(&engine);
    let mut backoff = Backoff::new();
    let waits = !patience.is_over();
    loop {
        let claim = &attempt.claim;
        match engine.backend.acquire(claim, &patience).await {
            Ok(Some(grant)) => match Hold::begin(&engine, claim.clone(), grant, attempt.bounds) {
                Ok(hold) => {
                    if attempt.named_owner {
                        engine.reentry.remember(&hold);
                    }
                    return Ok(Some(Guard::new(hold)));
                }
                Err(mut late) => {
                    tracing::warn!(name = attempt.claim.name.as_str(), "granted too late");
                    if late.release(&Release::now()).await.is_err_and(|error| error.leaves_doubt())
                    {
                        engine.withdraw(attempt.claim.clone());
                    }
                    attempt.rename(&engine);
                }
            },
            Ok(None) => patience.heard(),
            Err(error) => {
                if error.leaves_doubt() {
                    engine.withdraw(attempt.claim.clone());
                }
                if !waits || !error.is_outage() || patience.is_over() {
                    return Err(error);
                }
                let silence = patience.silence();
                if silence >= patience.outage() {
                    return Err(error.with("silent for", format!("{:.1}s", silence.as_secs_f32())));
                }
                tracing::debug!(name = attempt.claim.name.as_str(), %error, "waiting all the same");
                // The claim of before is being withdrawn, by its id.
                attempt.rename(&engine);
                backoff.pause(&patience, attempt.claim.id.spread(32)).await;
                continue;
            }
        }
        if patience.is_over() {
            return Ok(None);
        }
        if backoff.is_first() && !engine.backend.capability().notified {
            engine.events.emit(&attempt.claim, None, EventKind::Queued { place: None });
        }
        backoff.pause(&patience, attempt.claim.id.spread(32)).await;
    }
}

/// One more that contends, for as long as this lives.
struct Contending(Arc<Engine>);

impl Contending {
    fn begin(engine: &Arc<Engine>) -> Self {
        engine.contending.fetch_add(1, Ordering::AcqRel);
        Self(engine.clone())
    }
}

impl Drop for Contending {
    fn drop(&mut self) {
        self.0.contending.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What became of claims made at once.
pub(crate) enum AllAtOnce {
    Held(Vec<Guard>),
    Busy(usize),
    OneByOne,
}

/// Makes all the claims in one step. Nothing of them is left in the store unless guards come back.
async fn contend_together(engine: Arc<Engine>, attempts: Vec<Attempt>) -> Result<AllAtOnce> {
    let claims: Vec<Claim> = attempts.iter().map(|attempt| attempt.claim.clone()).collect();
    let Some(multi) = engine.backend.multi() else { return Ok(AllAtOnce::OneByOne) };
    let _contending = Contending::begin(&engine);
    let grants = match multi.acquire_all(&claims).await {
        Ok(Together::Granted(grants)) => grants,
        Ok(Together::Busy(index)) => return Ok(AllAtOnce::Busy(index)),
        Ok(Together::OneByOne) => return Ok(AllAtOnce::OneByOne),
        Err(error) => {
            if error.leaves_doubt() {
                claims.into_iter().for_each(|claim| engine.withdraw(claim));
            }
            return Err(error);
        }
    };
    let mut guards = Vec::with_capacity(grants.len());
    for (attempt, grant) in attempts.iter().zip(grants) {
        match Hold::begin(&engine, attempt.claim.clone(), grant, attempt.bounds) {
            Ok(hold) => {
                if attempt.named_owner {
                    engine.reentry.remember(&hold);
                }
                guards.push(Guard::new(hold));
            }
            Err(mut late) => {
                if late.release(&Release::now()).await.is_err_and(|error| error.leaves_doubt()) {
                    engine.withdraw(attempt.claim.clone());
                }
            }
        }
    }
    // If some came too late, the others are given back as their guards go.
    match guards.len() == attempts.len() {
        true => Ok(AllAtOnce::Held(guards)),
        false => Ok(AllAtOnce::OneByOne),
    }
}

/// The pause between two tries at a store that cannot wake its waiters.
struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(200);

    fn new() -> Self {
        Self { next: Self::FIRST }
    }

    fn is_first(&self) -> bool {
        self.next == Self::FIRST
    }

    /// Sleeps, by a claim-specific part longer so that waiters do not move in step.
    async fn pause(&mut self, patience: &Patience, spread: u32) {
        let pause = self.next + self.next / 64 * spread;
        self.next = (self.next * 2).min(Self::LONGEST);
        tokio::select! {
            () = (Moment::now() + pause).reached() => {}
            () = patience.over() => {}
        }
    }
}
