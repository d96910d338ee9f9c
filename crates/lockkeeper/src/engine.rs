//! What the parts of one keeper share, and the one way from a claim to a guard.

use crate::backend::{Backend, Grant, Lease, Standing, Together};
use crate::background::Background;
use crate::by_id::{self, Asking, Begun, Own};
use crate::claim::{Claim, ClaimIds, Owner};
use crate::clock::Moment;
use crate::completing::{Completing, Entered};
use crate::contact::Contact;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{About, EventKind, EventSink, GaveUp};
use crate::guard::{Guard, lost_error};
use crate::hold::{Bounds, Hold};
use crate::loss::LossReason;
use crate::meter::{Asks, Meter, Operation};
use crate::patience::{Patience, RetryUntilExpiry};
use crate::reentry::{Entry, Reentry};
use crate::release::Release;
use crate::scheduler::Scheduler;
use crate::terms::{Terms, owner_by_id, unsupported};
use crate::ticket::Ticket;
use crate::waiter::{Caller, Waiter};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::Instrument;

/// How much longer than its limit a caller may wait for the store to say how the wait ended.
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// How long even the impatient wait for a claim of their own that is on its way out.
pub(crate) const LEAVING: Duration = Duration::from_secs(1);

pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) ids: ClaimIds,
    pub(crate) identity: Arc<str>,
    pub(crate) events: EventSink,
    pub(crate) meter: Meter,
    pub(crate) contact: Contact,
    pub(crate) scheduler: Scheduler,
    pub(crate) reentry: Reentry,
    asking: Asking,
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
    /// Another claim on the same terms; one that is asked for by id stays the same, and is found again.
    fn rename(&mut self, engine: &Engine) {
        if self.claim.by_id {
            return;
        }
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
            meter: Meter::new(&backend),
            backend,
            ids: ClaimIds::new()?,
            identity,
            events: EventSink::new(),
            contact: Contact::new(),
            scheduler: Scheduler::default(),
            reentry: Reentry::default(),
            asking: Asking::default(),
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
        self.scheduler.is_empty() && self.contending() == 0
    }

    /// How many claims are being made, or wait.
    pub(crate) fn contending(&self) -> usize {
        self.contending.load(Ordering::Acquire)
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
        let mut asks = self.meter.asks(&attempt.claim, patience.begun(), !patience.is_over());
        let outcome = self.ask_for(attempt, patience, place, &mut asks).await;
        asks.finish(&outcome);
        outcome
    }

    async fn ask_for(
        self: &Arc<Self>,
        attempt: Attempt,
        patience: Patience,
        place: &mut Option<usize>,
        asks: &mut Asks<'_>,
    ) -> Result<Option<Guard>> {
        if attempt.named_owner {
            while let Some(entry) = self.reentry.enter(&attempt.claim)? {
                match entry {
                    Entry::Again(hold) => {
                        asks.enters_again();
                        let guard = Guard::new(hold);
                        if attempt.claim.by_id {
                            attempt.claim.refuse_other_terms(guard.mode(), Some(guard.ttl()))?;
                        }
                        return Ok(Some(guard));
                    }
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
        let waiter = (!patience.is_over()).then(|| Waiter::new(self, &attempt.claim, &patience));
        let _caller = Caller(waiter.as_ref());
        let patience = match waiter.clone() {
            Some(waiter) => patience.on_queued(move |place| waiter.queued(place)),
            None => patience,
        };
        let patience = Arc::new(patience.forgiving(self.outage));
        let limit = patience.limit().filter(|_| !patience.is_over());
        let work =
            contend(self.clone(), attempt, patience.clone(), waiter.clone()).instrument(span);
        let (abandoned, leaving) = (patience.clone(), waiter.clone());
        let work = self.completing(work)?.or_if_abandoned(move || {
            let why = if abandoned.is_over() { GaveUp::TimedOut } else { GaveUp::Cancelled };
            leaving.iter().for_each(|waiter| waiter.gave_up(why));
            abandoned.abandon();
        });
        let outcome = self.by(limit.map(|limit| limit + GRACE), work).await?;
        *place = patience.place();
        match (&outcome, &waiter) {
            (Some(Ok(None)), Some(waiter)) => waiter.gave_up(GaveUp::TimedOut),
            (Some(Err(_)), Some(waiter)) => waiter.gave_up(GaveUp::Failed),
            _ => {}
        }
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
        // By an id each is found alone.
        let known = |attempt: &Attempt| {
            attempt.claim.by_id || attempt.named_owner && self.reentry.knows(&attempt.claim)
        };
        if attempts.len() < 2 || attempts.iter().any(known) {
            return Ok(AllAtOnce::OneByOne);
        }
        let begun = Moment::now();
        let limit = until.filter(|until| *until > begun);
        let in_a_hurry = until.is_some() && limit.is_none();
        let asks = |attempt: &Attempt| self.meter.asks(&attempt.claim, begun, !in_a_hurry);
        let mut asks: Vec<Asks<'_>> = attempts.iter().map(asks).collect();
        let work = self.completing(contend_together(self.clone(), attempts))?;
        let outcome = match self.by(limit.map(|limit| limit + GRACE), work).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(self.silent(Moment::now().since(begun))),
            Err(error) => Err(error),
        };
        match &outcome {
            Ok(AllAtOnce::Held(guards)) => {
                asks.into_iter().zip(guards).for_each(|(asks, guard)| asks.granted(guard));
            }
            // The others of them were not even tried.
            Ok(AllAtOnce::Busy(index)) if in_a_hurry && *index < asks.len() => {
                asks.swap_remove(*index).busy();
                asks.into_iter().for_each(Asks::forget);
            }
            Ok(_) => asks.into_iter().for_each(Asks::forget),
            Err(_) => asks.into_iter().for_each(Asks::failed),
        }
        outcome
    }

    /// Tells of a claim: to those who listen, and to those who count.
    pub(crate) fn tell(&self, about: About<'_>, kind: EventKind) {
        self.meter.tells(about.claim, &kind);
        self.events.emit(about, kind);
    }

    /// What `question` was answered, counted.
    pub(crate) async fn counted<T>(
        &self,
        operation: Operation,
        question: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let answer = question.await;
        self.meter.request(operation, &answer);
        answer
    }

    /// Notes whether the store answered a request of a claim that is not held yet.
    pub(crate) fn note_contact<T>(&self, claim: &Claim, asked: Moment, answer: &Result<T>) {
        if let Some(after) = self.contact.note(answer) {
            self.tell(About::waiting(claim, asked), EventKind::Reconnected { after });
        }
    }

    pub(crate) fn silent(&self, since: Duration) -> Error {
        let message = format!("{} did not answer within {since:.1?}", self.backend);
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Takes back what a claim may have left whose answer was lost. Not one that was asked for by id:
    /// by that another keeper may have found it, and believe that it holds.
    fn withdraw(&self, claim: Claim) {
        if !claim.by_id {
            let (backend, meter) = (self.backend.clone(), self.meter.clone());
            self.spawn(async move {
                let mut retry = RetryUntilExpiry::of(&claim);
                loop {
                    let answer = backend.withdraw(&claim).await;
                    meter.request(Operation::Withdraw, &answer);
                    if answer.is_ok() || !retry.again().await {
                        return;
                    }
                }
            });
        }
    }

    /// The lease of a claim that was granted to any keeper.
    pub(crate) fn lease_of(&self, ticket: &Ticket) -> Result<Box<dyn Lease>> {
        let lease = self.backend.lease_of(ticket);
        lease.ok_or_else(|| unsupported(self, "tickets", |capability| capability.portable))
    }

    /// Goes on with a claim that was handed out, as if it had been granted here.
    pub(crate) async fn take_over(self: &Arc<Self>, ticket: Ticket) -> Result<Guard> {
        let terms = Terms::of_ticket(&ticket);
        let claim = terms.attempt(self, ticket.name.clone(), ticket.mode)?.claim;
        let claim = Claim { id: ticket.id, owner: owner_by_id(ticket.id), by_id: true, ..claim };
        loop {
            match by_id::own(self, &claim, Some(Duration::ZERO)).await? {
                Own::Held(guard) => return Ok(guard.taken_over()),
                // It is over here, whatever the store has of it still.
                Own::Leaving => return Err(lost_error(&ticket.name, Some(LossReason::Gone))),
                Own::Nothing => {}
            }
            let mut lease = self.lease_of(&ticket)?;
            let sent = Moment::now();
            let valid_for = match self.counted(Operation::Renew, lease.take_over()).await? {
                Standing::Held => ticket.ttl,
                Standing::HeldFor(span) => span,
                Standing::Lost(reason) => return Err(lost_error(&ticket.name, Some(reason))),
            };
            let grant = Grant::new(lease, ticket.token, sent, valid_for);
            match self.asking.begin(self, &claim, grant, Bounds::default(), sent)? {
                Begun::Held(guard) => return Ok(guard.taken_over()),
                Begun::Leaving => {}
                // Its ticket is still good for something, so the lease is dropped and not released.
                Begun::Late(_) => return Err(self.silent(Moment::now().since(sent))),
            }
        }
    }
}

/// The store alone: what is inside would fill a screen.
impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.backend)
    }
}

/// Drives the claim until it is granted or patience runs out. Nothing of it is left in the store
/// unless a guard comes back.
async fn contend(
    engine: Arc<Engine>,
    mut attempt: Attempt,
    patience: Arc<Patience>,
    waiter: Option<Arc<Waiter>>,
) -> Result<Option<Guard>> {
    let _contending = Contending::begin(&engine);
    let mut backoff = Backoff::new();
    let waits = !patience.is_over();
    let _alone = match attempt.claim.by_id {
        false => None,
        true => match engine.asking.alone(attempt.claim.id, &patience).await {
            None => return Ok(None),
            alone => alone,
        },
    };
    loop {
        let claim = &attempt.claim;
        // The request before may have been granted, and what it was granted be on its way out.
        if claim.by_id {
            match by_id::own(&engine, claim, patience.remaining()).await? {
                Own::Held(guard) => {
                    claim.refuse_other_terms(guard.mode(), Some(guard.ttl()))?;
                    return Ok(Some(guard));
                }
                Own::Leaving => return Ok(None),
                Own::Nothing => {}
            }
        }
        let answer = engine.backend.acquire(claim, &patience).await;
        engine.meter.request(Operation::Acquire, &answer);
        engine.note_contact(claim, patience.begun(), &answer);
        match answer {
            Ok(Some(grant)) if claim.by_id => {
                let asked = patience.begun();
                match engine.asking.begin(&engine, claim, grant, attempt.bounds, asked)? {
                    Begun::Held(guard) => return Ok(Some(guard)),
                    // It is asked for again, once that is through.
                    Begun::Leaving => continue,
                    Begun::Late(late) => {
                        tracing::warn!(name = claim.name.as_str(), "granted too late");
                        drop(late);
                    }
                }
            }
            Ok(Some(grant)) => match hold_of(&engine, &attempt, grant, patience.begun()) {
                Ok(hold) => {
                    if attempt.named_owner {
                        engine.reentry.remember(&hold);
                    }
                    return Ok(Some(Guard::new(hold)));
                }
                Err(mut late) => {
                    tracing::warn!(name = attempt.claim.name.as_str(), "granted too late");
                    let released =
                        engine.counted(Operation::Release, late.release(&Release::now())).await;
                    if released.is_err_and(|error| error.leaves_doubt()) {
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
                waiter.iter().for_each(|waiter| waiter.waits());
                // The claim of before is being withdrawn, by its id.
                attempt.rename(&engine);
                patience.begin_anew();
                backoff.pause(&patience, attempt.claim.id.spread(32)).await;
                continue;
            }
        }
        if patience.is_over() {
            return Ok(None);
        }
        waiter.iter().for_each(|waiter| waiter.waits());
        if backoff.is_first() && !engine.backend.capability().notified {
            let about = About::waiting(&attempt.claim, patience.begun());
            engine.tell(about, EventKind::Queued { place: None });
        }
        backoff.pause(&patience, attempt.claim.id.spread(32)).await;
    }
}

fn hold_of(
    engine: &Arc<Engine>,
    attempt: &Attempt,
    grant: Grant,
    asked: Moment,
) -> Result<Arc<Hold>, Box<dyn Lease>> {
    Hold::begin(engine, attempt.claim.clone(), grant, attempt.bounds, asked)
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
    let asked = Moment::now();
    let grants = match engine.counted(Operation::Acquire, multi.acquire_all(&claims)).await {
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
        match hold_of(&engine, attempt, grant, asked) {
            Ok(hold) => {
                if attempt.named_owner {
                    engine.reentry.remember(&hold);
                }
                guards.push(Guard::new(hold));
            }
            Err(late) if attempt.claim.by_id => drop(late),
            Err(mut late) => {
                let now = Release::now();
                let released = engine.counted(Operation::Release, late.release(&now)).await;
                if released.is_err_and(|error| error.leaves_doubt()) {
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
