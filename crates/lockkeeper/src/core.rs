//! What the parts of one keeper share, and the one way from a claim to a guard.

use crate::backend::{Backend, Together};
use crate::claim::{Claim, ClaimIds, Owner};
use crate::clock::Moment;
use crate::completing::Completing;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventSink, What};
use crate::guard::Guard;
use crate::hold::{Bounds, Hold};
use crate::patience::{Insistence, Patience};
use crate::reentry::{Entry, Reentry};
use crate::rounds::Rounds;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Handle, Id};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// How long even the impatient wait for a claim of their own that is on its way out.
const LEAVING: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) ids: ClaimIds,
    pub(crate) whom: Arc<str>,
    pub(crate) events: EventSink,
    pub(crate) rounds: Rounds,
    pub(crate) reentry: Reentry,
    /// Releases, renewals and withdrawals under way in the background.
    pub(crate) tasks: TaskTracker,
    runtime: Mutex<Option<Handle>>,
}

/// A claim ready to be made, with what the core needs beside it.
pub(crate) struct Attempt {
    pub(crate) claim: Claim,
    pub(crate) bounds: Bounds,
    /// Whether the owner was named, and so may enter again.
    pub(crate) named_owner: bool,
}

impl Core {
    pub(crate) fn new(backend: Arc<dyn Backend>, whom: Arc<str>) -> Result<Self> {
        let tasks = TaskTracker::new();
        // Closed from the start, which keeps no task out and lets anyone wait for the last one.
        tasks.close();
        Ok(Self {
            backend,
            ids: ClaimIds::new()?,
            whom,
            events: EventSink::new(),
            rounds: Rounds::default(),
            reentry: Reentry::default(),
            tasks,
            runtime: Mutex::new(None),
        })
    }

    /// The runtime to work on now: the caller's, or else the last one the keeper was used on.
    /// Background work goes there too, so that a keeper outlives any one runtime.
    pub(crate) fn adopt_runtime(self: &Arc<Self>) -> Result<Handle> {
        let mut adopted = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        match (Handle::try_current(), adopted.as_ref()) {
            (Ok(current), Some(last)) if current.id() == last.id() => Ok(current),
            (Ok(current), _) => {
                check_timers(&current)?;
                *adopted = Some(current.clone());
                drop(adopted);
                // Also so that we learn of the runtime's end.
                self.rounds.walk_on(self, &current);
                Ok(current)
            }
            (Err(_), Some(last)) => Ok(last.clone()),
            (Err(error), None) => Err(Error::new(
                ErrorKind::Config,
                "a keeper is first used inside a tokio runtime; without one, use \
                 lockkeeper::blocking",
            )
            .caused_by(error)),
        }
    }

    /// Goes over to `successor` if the runtime that ended is the one in use.
    pub(crate) fn abandon_runtime(&self, ended: Id, successor: Option<Handle>) {
        let mut adopted = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if adopted.as_ref().is_some_and(|runtime| runtime.id() == ended) {
            *adopted = successor;
        }
    }

    /// The runtime the keeper was last used on.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `work` in the background; [`Keeper::close`](crate::Keeper::close) waits for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Where we are is surely driven by someone; elsewhere is second best.
        if let Some(runtime) = Handle::try_current().ok().or_else(|| self.runtime()) {
            self.tasks.spawn_on(work, &runtime);
        }
    }

    /// A future that is finished even when its caller drops it.
    pub(crate) fn completing<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Completing<T>> {
        Ok(Completing::new(work, self.adopt_runtime()?, self.tasks.clone()))
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
        let patience = Arc::new(self.with_queued_event(&attempt.claim, patience));
        let abandon = patience.clone();
        let work = contend(self.clone(), attempt, patience.clone()).instrument(span);
        let outcome = self.completing(work)?.or_if_abandoned(move || abandon.abandon()).await;
        *place = patience.place();
        outcome
    }

    /// Makes all the claims at once, where the store can and no owner has one of the names.
    pub(crate) async fn acquire_together(
        self: &Arc<Self>,
        attempts: Vec<Attempt>,
    ) -> Result<AllAtOnce> {
        let known = |attempt: &Attempt| attempt.named_owner && self.reentry.knows(&attempt.claim);
        if attempts.len() < 2 || attempts.iter().any(known) {
            return Ok(AllAtOnce::OneByOne);
        }
        self.completing(contend_together(self.clone(), attempts))?.await
    }

    fn with_queued_event(self: &Arc<Self>, claim: &Claim, patience: Patience) -> Patience {
        if patience.is_over() {
            return patience;
        }
        let (core, claim) = (self.clone(), claim.clone());
        patience.on_queued(move |place| {
            let place = Some(place).filter(|place| *place > 0);
            core.events.emit(&claim, None, What::Queued { place });
        })
    }

    /// Takes back what a claim may have left whose answer was lost.
    fn withdraw(self: &Arc<Self>, claim: Claim) {
        let core = self.clone();
        self.spawn(async move {
            let mut insistence = Insistence::until_expiry_of(&claim);
            while core.backend.withdraw(&claim).await.is_err() && insistence.again().await {}
        });
    }
}

/// Refuses a runtime that cannot tell the time, on which nothing could be renewed.
fn check_timers(runtime: &Handle) -> Result<()> {
    // Tokio says so only by panicking.
    std::panic::catch_unwind(|| {
        let _entered = runtime.enter();
        drop(tokio::time::sleep(Duration::ZERO));
    })
    .map_err(|_| {
        Error::new(
            ErrorKind::Config,
            "the tokio runtime has no timers: build it with enable_time or enable_all",
        )
    })
}

/// Drives the claim until it is granted or patience runs out. Nothing of it is left in the store
/// unless a guard comes back.
async fn contend(
    core: Arc<Core>,
    mut attempt: Attempt,
    patience: Arc<Patience>,
) -> Result<Option<Guard>> {
    let mut backoff = Backoff::new();
    loop {
        let claim = &attempt.claim;
        match core.backend.acquire(claim, &patience).await {
            Ok(Some(grant)) => match Hold::begin(&core, claim.clone(), grant, attempt.bounds) {
                Ok(hold) => {
                    if attempt.named_owner {
                        core.reentry.remember(&hold);
                    }
                    return Ok(Some(Guard::new(hold)));
                }
                Err(mut late) => {
                    tracing::warn!(name = attempt.claim.name.as_str(), "granted too late");
                    if late.release(Duration::ZERO).await.is_err_and(|error| error.leaves_doubt()) {
                        core.withdraw(attempt.claim.clone());
                    }
                    attempt.claim.id = core.ids.next();
                    if !attempt.named_owner {
                        attempt.claim.owner = Owner::from_id(attempt.claim.id.to_string());
                    }
                }
            },
            Ok(None) => {}
            Err(error) => {
                if error.leaves_doubt() {
                    core.withdraw(attempt.claim);
                }
                return Err(error);
            }
        }
        if patience.is_over() {
            return Ok(None);
        }
        if backoff.is_first() && !core.backend.capability().notified {
            core.events.emit(&attempt.claim, None, What::Queued { place: None });
        }
        backoff.pause(&patience, attempt.claim.id.spread(32)).await;
    }
}

/// What became of claims made at once.
pub(crate) enum AllAtOnce {
    Held(Vec<Guard>),
    Busy(usize),
    OneByOne,
}

/// Makes all the claims in one step. Nothing of them is left in the store unless guards come back.
async fn contend_together(core: Arc<Core>, attempts: Vec<Attempt>) -> Result<AllAtOnce> {
    let claims: Vec<Claim> = attempts.iter().map(|attempt| attempt.claim.clone()).collect();
    let grants = match core.backend.acquire_together(&claims).await {
        Ok(Together::Granted(grants)) => grants,
        Ok(Together::Busy(index)) => return Ok(AllAtOnce::Busy(index)),
        Ok(Together::OneByOne) => return Ok(AllAtOnce::OneByOne),
        Err(error) => {
            if error.leaves_doubt() {
                claims.into_iter().for_each(|claim| core.withdraw(claim));
            }
            return Err(error);
        }
    };
    let mut guards = Vec::with_capacity(grants.len());
    for (attempt, grant) in attempts.iter().zip(grants) {
        match Hold::begin(&core, attempt.claim.clone(), grant, attempt.bounds) {
            Ok(hold) => {
                if attempt.named_owner {
                    core.reentry.remember(&hold);
                }
                guards.push(Guard::new(hold));
            }
            Err(mut late) => {
                if late.release(Duration::ZERO).await.is_err_and(|error| error.leaves_doubt()) {
                    core.withdraw(attempt.claim.clone());
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
