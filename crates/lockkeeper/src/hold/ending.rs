//! How a hold ends: the last of its guards gives the claim back.

use super::{Hold, Phase, State};
use crate::backend::Lease;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::guard::lost_error;
use crate::hold::lease_slot::{Afterwards, Slot};
use crate::loss::LossReason;
use crate::meter::{End, Operation};
use crate::patience::RetryUntilExpiry;
use crate::release::Release;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Where the lease was when a hold ended.
enum Ending {
    Here(Box<dyn Lease>),
    Renewing,
    /// It had been given back before.
    Done,
}

impl Hold {
    /// One more guard shares the hold; `false` when it is ending.
    pub(crate) fn add_stake(&self) -> bool {
        let more = |stakes| (stakes > 0).then_some(stakes + 1);
        let added = self.stakes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok();
        if added {
            self.tell_stakes(&mut self.state());
        }
        added
    }

    /// One guard less; `true` for the last one, which must end the hold.
    fn drop_stake(&self) -> bool {
        let is_last = self.stakes.fetch_sub(1, Ordering::AcqRel) == 1;
        if !is_last {
            self.tell_stakes(&mut self.state());
        }
        is_last
    }

    /// A guard of this hold reaches a caller, who from now on may be at work.
    pub(crate) fn begin_work(&self) {
        self.at_work.fetch_add(1, Ordering::AcqRel);
    }

    /// The caller of a guard says that no work was done under it.
    pub(crate) fn undo_work(&self) {
        self.at_work.fetch_sub(1, Ordering::AcqRel);
    }

    /// Tells the lease how many guards there are, if it is here; if not, that is done when it is
    /// back.
    pub(super) fn tell_stakes(&self, state: &mut State) {
        let stakes = self.stakes.load(Ordering::Acquire);
        if let Slot::Here(lease) = &mut state.lease
            && stakes > 0
            && stakes != state.told
        {
            state.told = stakes;
            lease.guards_changed(stakes);
        }
    }

    /// Whether the claim is a ticket's, and stays when the last guard goes.
    pub(crate) fn leave_to_ticket(&self, has_ticket: bool) {
        self.has_ticket.store(has_ticket, Ordering::Release);
    }

    /// One guard less, which gives the claim back; `true` for the last one, unless the claim is a
    /// ticket's: then it is left to that.
    fn drop_stake_for_good(self: &Arc<Self>) -> bool {
        self.given_back.store(true, Ordering::Release);
        let is_last = self.drop_stake();
        let has_ticket = is_last && self.has_ticket.load(Ordering::Acquire);
        if has_ticket {
            self.end(Afterwards::Forget);
        }
        is_last && !has_ticket
    }

    /// Ends this guard's part: the last one gives the claim back.
    pub(crate) async fn release(self: Arc<Self>) -> Result<()> {
        let was_lost = self.lost_reason();
        let outcome = if !self.drop_stake_for_good() {
            Ok(())
        } else {
            let (told, answer) = oneshot::channel();
            match self.end(Afterwards::Release { told: Some(told) }) {
                Ending::Here(lease) => self.clone().give_back(lease).await,
                Ending::Renewing => self.released_after_renewal(answer).await,
                Ending::Done => Ok(()),
            }
        };
        match was_lost {
            None => outcome,
            Some(reason) => Err(lost_error(&self.claim.name, Some(reason))),
        }
    }

    /// As [`release`](Self::release), in the background and without a caller to tell.
    pub(crate) fn release_unattended(self: &Arc<Self>) {
        if self.drop_stake_for_good() {
            self.end_unattended();
        }
    }

    fn end_unattended(self: &Arc<Self>) {
        if let Ending::Here(lease) = self.end(Afterwards::Release { told: None }) {
            self.engine.spawn(self.clone().give_back_quietly(lease));
        }
    }

    /// Ends the part of a guard that was asked for by id and reached nobody here. The claim may be another
    /// keeper's by now, which found it by the same id: it is left to that one, or to its ttl; unless a
    /// guard that did reach its caller gave it back before.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if !self.drop_stake() {
            return;
        }
        let is_left = self.has_ticket.load(Ordering::Acquire);
        match self.given_back.load(Ordering::Acquire) && !is_left {
            true => self.end_unattended(),
            false => _ = self.end(Afterwards::Forget),
        }
    }

    /// Ends this guard's part without giving the claim back: it runs out by itself.
    pub(crate) fn detach(self: &Arc<Self>) {
        if self.drop_stake() {
            // The lease, if it is here, is dropped with the answer.
            self.end(Afterwards::Forget);
        }
    }

    /// From here on the owner finds that its claim is on the way out, until it has been given back.
    fn leave(self: &Arc<Self>, state: &mut State) {
        if state.leaving.is_none() {
            state.leaving = self.engine.reentry.leave(self);
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.state().leaving.is_some()
    }

    /// Whether others may have the claim: by its id, or its ticket.
    pub(super) fn may_be_anothers(&self) -> bool {
        self.claim.by_id || self.has_ticket.load(Ordering::Acquire)
    }

    /// What a loss means for a claim that others may have. Where the store said that it does not have the
    /// claim, or this keeper lost touch with it, what the store has under this id is theirs, or was asked
    /// for anew: it is not this hold's to give back, so the lease is over, and returned to be dropped.
    /// Otherwise this hold gives it back with its last guard, and whoever found it by its id until then
    /// would lose it.
    pub(super) fn lose_to_others(
        self: &Arc<Self>,
        state: &mut State,
        reason: &LossReason,
    ) -> Option<Box<dyn Lease>> {
        if matches!(reason, LossReason::HeldTooLong | LossReason::NoMajority { .. }) {
            self.leave(state);
            return None;
        }
        if let Slot::Renewing(afterwards) = &mut state.lease {
            *afterwards = Afterwards::Forget;
        }
        state.lease.take(Slot::Given)
    }

    /// Ends the hold, once: the lease if it is here; if a renewal has it, that will do with it
    /// what `afterwards` says.
    fn end(self: &Arc<Self>, afterwards: Afterwards) -> Ending {
        match afterwards {
            Afterwards::Forget => {
                // Also of one that was leaving, and now stays.
                let leaving = self.state().leaving.take();
                drop(leaving);
                self.engine.reentry.forget(self);
            }
            _ => self.leave(&mut self.state()),
        }
        let how = if matches!(afterwards, Afterwards::Forget) { End::Left } else { End::Released };
        let mut state = self.state();
        let measured = state.measured.take();
        if state.phase == Phase::Held {
            state.phase = Phase::Over;
            self.unschedule(&mut state);
        }
        let ending = match std::mem::replace(&mut state.lease, Slot::Given) {
            Slot::Here(lease) => Ending::Here(lease),
            Slot::Renewing(Afterwards::Return) => {
                state.lease = Slot::Renewing(afterwards);
                Ending::Renewing
            }
            other => {
                state.lease = other;
                Ending::Done
            }
        };
        drop(state);
        measured.into_iter().for_each(|held| held.end(how, self.acquired));
        ending
    }

    /// Waits for the release that follows a renewal under way, but not for a renewal that hangs:
    /// after the deadline the claim is over anyway, and the release will still be made.
    async fn released_after_renewal(&self, answer: oneshot::Receiver<Result<()>>) -> Result<()> {
        let deadline = self.state().deadline;
        tokio::select! {
            answer = answer => answer.unwrap_or(Ok(())),
            () = deadline.reached() => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the store did not answer the release of {:?} in time", self.claim.name),
            )),
        }
    }

    /// How long the claim must stay although it is given back. A claim whose caller left before
    /// the grant, or that lost one of several names, was never held by anyone: to keep it would
    /// be to keep out a period's work that nobody did.
    fn stay(&self) -> Duration {
        if self.at_work.load(Ordering::Acquire) == 0 {
            return Duration::ZERO;
        }
        let stay = self.bounds.min_hold.unwrap_or_default();
        stay.saturating_sub(Moment::now().since(self.acquired))
    }

    /// Releases the lease, tries again in the background if the store does not answer, and
    /// returns what the first try said.
    pub(super) async fn give_back(self: Arc<Self>, mut lease: Box<dyn Lease>) -> Result<()> {
        let passed_on = AtomicBool::new(false);
        let over = || {
            passed_on.store(true, Ordering::Relaxed);
            self.released();
        };
        let result = lease.release(&Release::after(self.stay()).or_over(&over)).await;
        let passed_on = passed_on.into_inner();
        self.engine.meter.request(Operation::Release, &result);
        self.note_contact(&result);
        // Its owner may ask again from here on: not for a claim that is found by its id, which is about to
        // be released again if the first try was not answered.
        let leaving = self.state().leaving.take();
        let is_over = match &result {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::Lost,
        };
        let leaving = leaving.filter(|_| self.claim.by_id && !is_over);
        match &result {
            Ok(()) if passed_on => {}
            Ok(()) => self.released(),
            Err(error) if error.kind() == ErrorKind::Lost => {
                if !passed_on {
                    self.over(EventKind::Lost(LossReason::Gone));
                }
                let message = format!("the lock {:?} was lost: {error}", self.claim.name);
                return Err(Error::new(ErrorKind::Lost, message));
            }
            Err(error) => {
                tracing::warn!(name = self.claim.name.as_str(), %error, "release not answered");
                let hold = self.clone();
                self.engine.spawn(async move {
                    let _leaving = leaving;
                    let mut retry = RetryUntilExpiry::of(&hold.claim);
                    while retry.again().await {
                        let how = Release::after(hold.stay());
                        let released = hold.engine.counted(Operation::Release, lease.release(&how));
                        match released.await {
                            // By now it is not known which of the tries ended it.
                            Err(error) if error.kind() != ErrorKind::Lost => {}
                            _ if passed_on => return,
                            _ => return hold.released(),
                        }
                    }
                });
            }
        }
        result
    }

    fn released(&self) {
        self.over(EventKind::Released);
    }

    /// Tells of the claim's end, unless it was told as a loss before.
    fn over(&self, kind: EventKind) {
        if self.state().phase == Phase::Over {
            self.tell(kind);
        }
    }

    pub(super) async fn give_back_quietly(self: Arc<Self>, lease: Box<dyn Lease>) {
        // The error was logged, and is being retried.
        let _ = self.give_back(lease).await;
    }
}
