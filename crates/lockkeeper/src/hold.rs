//! One held claim: its clock, its renewal, its loss, its release. The only place that renews.

mod ending;
mod handing_out;
mod lease_slot;

use crate::alarm::{Alarm, Signal};
use crate::backend::support::sync::lock;
use crate::backend::{Grant, Lease, Standing};
use crate::claim::{Claim, FencingToken};
use crate::clock::Moment;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{About, EventKind};
use crate::hold::lease_slot::{Afterwards, Slot, Teller};
use crate::loss::LossReason;
use crate::meter::{End, Held, Operation};
use crate::reentry::Leaving;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The bounds a caller set on a hold.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
}

pub(crate) struct Hold {
    engine: Arc<Engine>,
    claim: Claim,
    token: Option<FencingToken>,
    acquired: Moment,
    bounds: Bounds,
    /// How many guards share this hold. The one that takes it to zero ends it.
    stakes: AtomicUsize,
    /// How many guards ever reached a caller, less those who said that no work was done. With
    /// none, nobody has held the claim, and it need not stay for `min_hold`.
    at_work: AtomicUsize,
    /// Whether a guard was released, as one of several.
    given_back: AtomicBool,
    /// Whether the claim was handed out, so that it outlives its guards.
    has_ticket: AtomicBool,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// Our claim is valid until here, by our own clock.
    deadline: Moment,
    renew_at: Moment,
    lease: Slot,
    /// How many guards the lease was last told of.
    told: usize,
    /// The store could not be asked when it last should have been.
    endangered: bool,
    /// Until it is held no longer: that it is.
    measured: Option<Held>,
    /// When the scheduler looks at this hold next.
    next_visit: Option<Moment>,
    /// While the claim is on its way out: keeps its owner from entering it again.
    leaving: Option<Leaving>,
    /// Cancelled on loss; made when first asked for.
    lost: Option<CancellationToken>,
    /// Those of several locks taken together, cancelled too. Cleared of the dead when full.
    signals: Vec<Weak<CancellationToken>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Held,
    Lost(LossReason),
    Over,
}

/// A part of the ttl kept as distance from the store's own expiry, for clocks that do not run
/// equally fast.
fn margin(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// How long a claim is valid for its holder, from the sending of the request that won it.
pub(crate) fn validity(ttl: Duration) -> Duration {
    ttl.saturating_sub(margin(ttl))
}

impl Hold {
    /// The lease back when the grant came so late that it is over already.
    pub(crate) fn begin(
        engine: &Arc<Engine>,
        claim: Claim,
        grant: Grant,
        bounds: Bounds,
        asked: Moment,
    ) -> Result<Arc<Self>, Box<dyn Lease>> {
        let valid_for = grant.valid_for.min(claim.ttl);
        let deadline = grant.sent + validity(valid_for);
        let now = Moment::now();
        if now >= deadline {
            return Err(grant.lease);
        }
        let renew_at = renewal_after(grant.sent, valid_for, &claim);
        let state = State {
            phase: Phase::Held,
            deadline,
            renew_at,
            lease: Slot::Given,
            told: 1,
            endangered: false,
            measured: engine.meter.holds(&claim),
            next_visit: None,
            leaving: None,
            lost: None,
            signals: Vec::new(),
        };
        let hold = Arc::new(Self {
            engine: engine.clone(),
            claim,
            token: grant.token,
            acquired: now,
            bounds,
            stakes: AtomicUsize::new(1),
            at_work: AtomicUsize::new(0),
            given_back: AtomicBool::new(false),
            has_ticket: AtomicBool::new(false),
            state: Mutex::new(state),
        });
        let mut lease = grant.lease;
        lease.watch(alarm_of(&hold));
        {
            let mut state = hold.state();
            // The alarm may have rung already.
            let is_held = state.phase == Phase::Held;
            if is_held || !hold.claim.by_id {
                state.lease = Slot::Here(lease);
            }
            if is_held {
                hold.schedule(&mut state);
            }
        }
        let waited = Some(now.since(asked));
        let about = About { claim: &hold.claim, token: hold.token, waited, held: None };
        engine.tell(about, EventKind::Acquired);
        Ok(hold)
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn acquired(&self) -> Moment {
        self.acquired
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Cancelled on loss.
    pub(crate) fn lost(&self) -> CancellationToken {
        let mut state = self.state();
        let lost = state.lost.get_or_insert_default().clone();
        if matches!(state.phase, Phase::Lost(_)) {
            lost.cancel();
        }
        lost
    }

    pub(crate) fn signal_loss_to(&self, signal: &Arc<CancellationToken>) {
        let mut state = self.state();
        if matches!(state.phase, Phase::Lost(_)) {
            return signal.cancel();
        }
        let signals = &mut state.signals;
        if signals.len() == signals.capacity() {
            signals.retain(|signal| signal.strong_count() > 0);
        }
        signals.push(Arc::downgrade(signal));
    }

    pub(crate) fn lost_reason(self: &Arc<Self>) -> Option<LossReason> {
        self.remaining();
        match &self.state().phase {
            Phase::Lost(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    /// How long the claim is still valid; notices here and now that it no longer is.
    pub(crate) fn remaining(self: &Arc<Self>) -> Duration {
        let left = {
            let state = self.state();
            if state.phase != Phase::Held {
                return Duration::ZERO;
            }
            state.deadline.min(self.latest_end()).remaining()
        };
        if left.is_zero() {
            self.visit();
        }
        left
    }

    /// The lock itself may still be ours in the store for this long, whether or not the claim
    /// counts as lost: what is left to stop the work in.
    pub(crate) fn until_others(&self) -> Duration {
        self.state().deadline.remaining()
    }

    pub(crate) fn is_endangered(&self) -> bool {
        let state = self.state();
        state.phase == Phase::Held && state.endangered
    }

    /// The way to the store broke: a renewal finds out at once what that means.
    pub(crate) fn endanger(self: &Arc<Self>) {
        self.engine.contact.failed();
        let newly = {
            let mut state = self.state();
            if state.phase != Phase::Held {
                return;
            }
            state.renew_at = state.renew_at.min(Moment::now());
            self.schedule(&mut state);
            !std::mem::replace(&mut state.endangered, true)
        };
        if newly {
            self.tell_jeopardy();
        }
    }

    fn tell_jeopardy(&self) {
        let remaining = self.state().deadline.min(self.latest_end()).remaining();
        self.tell(EventKind::InJeopardy { remaining });
    }

    /// Tells of something that happened to the claim since it was granted.
    fn tell(&self, kind: EventKind) {
        let held = Some(Moment::now().since(self.acquired));
        let about = About { claim: &self.claim, token: self.token, waited: None, held };
        self.engine.tell(about, kind);
    }

    /// Notes whether the store answered a request about the claim.
    fn note_contact<T>(&self, answer: &Result<T>) {
        if let Some(after) = self.engine.contact.note(answer) {
            self.tell(EventKind::Reconnected { after });
        }
    }

    fn latest_end(&self) -> Moment {
        self.acquired + self.bounds.max_hold.unwrap_or(Duration::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock; were it poisoned, the state is still whole.
        lock(&self.state)
    }

    /// Schedules the hold for the next time something is due.
    fn schedule(self: &Arc<Self>, state: &mut State) {
        let mut due = state.deadline.min(self.latest_end());
        if matches!(state.lease, Slot::Here(_)) {
            due = due.min(state.renew_at);
        }
        let previous = state.next_visit.replace(due);
        self.engine.scheduler.put(self, previous, due);
    }

    fn unschedule(self: &Arc<Self>, state: &mut State) {
        if let Some(due) = state.next_visit.take() {
            self.engine.scheduler.strike(self, due);
        }
    }

    /// Does what is due: declares the claim lost, or starts a renewal.
    pub(crate) fn visit(self: &Arc<Self>) {
        let mut state = self.state();
        if state.phase != Phase::Held {
            return;
        }
        let now = Moment::now();
        if now >= state.deadline {
            drop(state);
            return self.lose(LossReason::Expired);
        }
        if now >= self.latest_end() {
            drop(state);
            return self.lose(LossReason::HeldTooLong);
        }
        let renewing = Slot::Renewing(Afterwards::Return);
        let lease = if now >= state.renew_at { state.lease.take(renewing) } else { None };
        // With the lease away, the next visit is for the deadline: it is watched while a
        // renewal hangs.
        self.schedule(&mut state);
        // Under the lock: a guard that is dropped while the lease is away leaves the release to this
        // task, so `close` must know of the task by then.
        if let Some(lease) = lease {
            self.engine.spawn(self.clone().renew(lease));
        }
    }

    async fn renew(self: Arc<Self>, lease: Box<dyn Lease>) {
        // The answer was settled.
        let _ = self.ask(lease, false).await;
    }

    /// Asks the store to keep the claim, to be handed out or not; what it said, which was settled.
    async fn ask(self: Arc<Self>, lease: Box<dyn Lease>, hands_out: bool) -> Result<Standing> {
        let sent = Moment::now();
        let mut renewal = Renewal { hold: self, lease: Some(lease), sent };
        let over = || Err(LossReason::Gone.to_error());
        let Some(lease) = renewal.lease.as_mut() else { return over() };
        let answer = if hands_out { lease.hand_out().await } else { lease.renew().await };
        renewal.hold.engine.meter.request(Operation::Renew, &answer);
        renewal.hold.note_contact(&answer);
        if let Err(error) = &answer {
            let name = renewal.hold.claim.name.as_str();
            tracing::debug!(name, %error, "renewal not answered");
        }
        let Some(lease) = renewal.lease.take() else { return over() };
        let hold = renewal.hold.clone();
        if let Some((lease, told)) = hold.settle(lease, sent, &answer) {
            hold.give_back_and_tell(lease, told).await;
        }
        answer
    }

    async fn give_back_and_tell(self: Arc<Self>, lease: Box<dyn Lease>, told: Option<Teller>) {
        let result = self.give_back(lease).await;
        if let Some(told) = told {
            // The releaser may have left; the release itself is done.
            let _ = told.send(result);
        }
    }

    /// Draws the conclusions from a renewal sent at `sent`. Gives the lease back out when the
    /// hold ended meanwhile and it is to be released.
    fn settle(
        self: &Arc<Self>,
        lease: Box<dyn Lease>,
        sent: Moment,
        answer: &Result<Standing>,
    ) -> Option<(Box<dyn Lease>, Option<Teller>)> {
        self.measure_renewal(answer);
        let mut state = self.state();
        let now = Moment::now();
        if state.phase != Phase::Held {
            return match std::mem::replace(&mut state.lease, Slot::Given) {
                Slot::Renewing(Afterwards::Release { told }) => Some((lease, told)),
                Slot::Renewing(Afterwards::Return) => {
                    state.lease = Slot::Here(lease);
                    None
                }
                Slot::Renewing(Afterwards::Forget) | Slot::Here(_) | Slot::Given => None,
            };
        }
        state.lease = Slot::Here(lease);
        self.tell_stakes(&mut state);
        match answer {
            Ok(Standing::Lost(reason)) => {
                drop(state);
                self.lose(reason.clone());
                return None;
            }
            // An answer after the deadline comes too late to be believed: the next visit, which
            // is now, declares the claim lost whatever the store said.
            Ok(held) if now < state.deadline => {
                let valid_for = match held {
                    Standing::HeldFor(span) => (*span).min(self.claim.ttl),
                    _ => self.claim.ttl,
                };
                state.deadline = sent + validity(valid_for);
                state.renew_at = renewal_after(sent, valid_for, &self.claim);
                state.endangered = false;
                self.schedule(&mut state);
                drop(state);
                self.tell(EventKind::Renewed);
                return None;
            }
            Ok(_) => self.schedule(&mut state),
            Err(_) => {
                let newly = !std::mem::replace(&mut state.endangered, true);
                state.renew_at = now + retry_after(self.claim.ttl);
                self.schedule(&mut state);
                drop(state);
                if newly {
                    self.tell_jeopardy();
                }
            }
        }
        None
    }

    fn measure_renewal(&self, answer: &Result<Standing>) {
        let left = {
            let state = self.state();
            match state.phase {
                Phase::Held => Some(state.deadline.remaining()).filter(|left| !left.is_zero()),
                // Given back while the renewal was under way: it was in time for all that.
                Phase::Over => Some(state.deadline.remaining()),
                Phase::Lost(_) => None,
            }
        };
        self.engine.meter.renewal(&self.claim, answer, left);
    }

    /// Declares the claim lost, once.
    pub(crate) fn lose(self: &Arc<Self>, reason: LossReason) {
        let (lost, signals, abandoned, over, measured) = {
            let mut state = self.state();
            if state.phase != Phase::Held {
                return;
            }
            state.phase = Phase::Lost(reason.clone());
            self.unschedule(&mut state);
            // By our clock no one may believe this claim any longer, but a renewal whose answer
            // was lost can have kept it in the store: give it back now. For the other reasons
            // it stays, so that the work has until its deadline to stop.
            let (mut abandoned, mut over) = (None, None);
            if self.may_be_anothers() {
                over = self.lose_to_others(&mut state, &reason);
            } else if reason == LossReason::Expired {
                abandoned = state.lease.take(Slot::Given);
                if abandoned.is_none() {
                    state.lease = Slot::Renewing(Afterwards::Release { told: None });
                }
            }
            let (lost, signals) = (state.lost.clone(), std::mem::take(&mut state.signals));
            (lost, signals, abandoned, over, state.measured.take())
        };
        drop(over);
        measured.into_iter().for_each(|held| held.end(End::Lost, self.acquired));
        if !self.is_leaving() {
            self.engine.reentry.forget(self);
        }
        // Outside the lock: cancelling runs the wakers of those that wait.
        lost.iter().for_each(CancellationToken::cancel);
        for signal in signals.iter().filter_map(Weak::upgrade) {
            signal.cancel();
        }
        self.tell(EventKind::Lost(reason));
        if let Some(lease) = abandoned {
            self.engine.spawn(self.clone().give_back_quietly(lease));
        }
    }
}

/// A renewal under way. Should its runtime end under it, it counts as not answered, and another
/// runtime goes on.
struct Renewal {
    hold: Arc<Hold>,
    lease: Option<Box<dyn Lease>>,
    sent: Moment,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let cut_off = Error::new(ErrorKind::Unavailable, "the runtime ended");
        if let Some((lease, told)) = self.hold.settle(lease, self.sent, &Err(cut_off)) {
            self.hold.engine.spawn(self.hold.clone().give_back_and_tell(lease, told));
        }
    }
}

/// Tells `hold`, for as long as it is there.
fn alarm_of(hold: &Arc<Hold>) -> Alarm {
    let hold = Arc::downgrade(hold);
    Alarm::new(move |signal| {
        let Some(hold) = hold.upgrade() else { return };
        match signal {
            Signal::Lost(reason) => hold.lose(reason),
            Signal::InJeopardy => hold.endanger(),
        }
    })
}

/// A third of what the claim is valid for after `sent`, less up to a tenth of that so that claims
/// made together are not all renewed together.
fn renewal_after(sent: Moment, valid_for: Duration, claim: &Claim) -> Moment {
    let third = valid_for / 3;
    sent + (third - third / 640 * claim.id.spread(64))
}

fn retry_after(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(5), Duration::from_secs(1))
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Hold")
            .field("name", &self.claim.name)
            .field("mode", &self.claim.mode)
            .field("token", &self.token)
            .field("phase", &state.phase)
            .finish_non_exhaustive()
    }
}
