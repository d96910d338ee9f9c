//! A claim in the queue, held: kept, given back, or passed on.

use super::{Passed, Place, Shared};
use crate::backend::redis::roll::{Called, CalledUp};
use crate::backend::redis::tenure::{Bid, Inheritance, Step, Tenure, Vouched};
use crate::backend::{Alarm, Lease, LossReason, Moment, Standing};
use crate::error::Result;
use async_trait::async_trait;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long an heir is kept whom nobody has heard of yet; as `LIFE` in the scripts.
const FIRST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct QueueLease {
    pub(super) shared: Arc<Shared>,
    pub(super) place: Place,
    pub(super) bid: Arc<Bid>,
    pub(super) token: u64,
    pub(super) vouched: Vouched,
    /// Where others of this keeper are next in line, or were before.
    pub(super) tenure: Option<Arc<Tenure>>,
    /// Whom it was passed on to. From then on it is not given back otherwise, however often the
    /// store has to be told.
    pub(super) passed_on: Option<PassedOn>,
}

/// A step that the store is told of until it answers.
#[derive(Debug)]
pub(super) struct PassedOn {
    step: Step,
    bid: Arc<Bid>,
    token: u64,
}

#[async_trait]
impl Lease for QueueLease {
    async fn renew(&mut self) -> Result<Standing> {
        let sent = Moment::now();
        let standing = self.ask_to_keep().await?;
        match standing {
            Standing::Lost(_) => {
                self.shared.roll.unwatch(&self.place.id);
            }
            _ => self.vouched = Vouched { sent, valid_for: self.bid.ttl },
        }
        // So that we hear of a broken lock at once, not at the next renewal.
        self.shared.listener.try_for(self.bid.ttl / 10).await;
        Ok(standing)
    }

    async fn release(&mut self, linger: Duration) -> Result<()> {
        let is_ours = self.shared.roll.unwatch(&self.place.id);
        if self.passed_on.is_some() {
            return self.tell_of_heir(None).await;
        }
        if is_ours
            && linger.is_zero()
            && let Some(CalledUp { bid, call }) = self.find_heir()
        {
            let vouched = self.vouched.passed_on(bid.ttl.min(FIRST));
            return self.tell_of_heir(Some((vouched, call))).await;
        }
        let before = self.before();
        let passed = Passed { token: self.token, before: &before };
        self.shared.release(&self.place, linger, false, Some(passed)).await
    }

    fn watch(&mut self, alarm: Alarm) {
        // Found out before anyone could be told.
        if self.tenure.as_ref().is_some_and(|tenure| tenure.is_gone()) {
            return alarm.ring(LossReason::Gone);
        }
        self.shared.roll.watch(&self.place.id, alarm);
    }
}

impl Drop for QueueLease {
    fn drop(&mut self) {
        // A detached claim has no one left to alarm.
        self.shared.roll.unwatch(&self.place.id);
    }
}

impl QueueLease {
    /// Those whom the store may have on record in our place.
    fn before(&self) -> Vec<String> {
        self.tenure.as_ref().map(|tenure| tenure.before(&self.place.id)).unwrap_or_default()
    }

    async fn ask_to_keep(&self) -> Result<Standing> {
        let (place, before) = (&self.place, self.before());
        let (Some(tenure), false) = (&self.tenure, before.is_empty()) else {
            return self.shared.renew(place, self.bid.ttl).await;
        };
        let step = Step { heir: place.id.clone(), before, asks_for_heirs: false };
        let kept = self.shared.succeed(&place.keys, &step, &self.bid, self.token, self.bid.ttl);
        Ok(match kept.await? {
            Some(heirs) => {
                tenure.confirmed(&place.id, heirs);
                Standing::Held
            }
            None => Standing::Lost(LossReason::Gone),
        })
    }

    /// The one to pass the name on to, if that can be: it is ours alone, and the next in line is
    /// one of this keeper too.
    fn find_heir(&mut self) -> Option<CalledUp> {
        let tenure = self.tenure.as_ref().filter(|_| self.bid.alone && self.vouched.is_fresh())?;
        let (step, called_up) = tenure.pass_on(|id| self.shared.roll.call_up(id))?;
        let (bid, token) = (called_up.bid.clone(), self.token + 1);
        self.passed_on = Some(PassedOn { step, bid, token });
        Some(called_up)
    }

    /// Tells the store who has the name now; and after the word is on its way, so that words arrive
    /// in the order of the steps, the heir itself.
    async fn tell_of_heir(&self, heir: Option<(Vouched, oneshot::Sender<Called>)>) -> Result<()> {
        let (Some(tenure), Some(passed_on)) = (&self.tenure, &self.passed_on) else {
            return Ok(());
        };
        let PassedOn { step, bid, token } = passed_on;
        let span = bid.ttl.min(FIRST);
        let mut told = pin!(self.shared.succeed(&self.place.keys, step, bid, *token, span));
        let mut answer = None;
        poll_fn(|context| {
            if let Poll::Ready(early) = told.as_mut().poll(context) {
                answer = Some(early);
            }
            Poll::Ready(())
        })
        .await;
        let accepted = heir.is_none_or(|(vouched, call)| {
            let inheritance = Inheritance { token: *token, vouched, tenure: tenure.clone() };
            call.send(Called::Inherited(inheritance)).is_ok()
        });
        let answer = match answer {
            Some(early) => early,
            None => told.await,
        };
        tenure.answered(step);
        match answer? {
            Some(heirs) => tenure.confirmed(&step.heir, heirs),
            None if tenure.is_over_with(&step.heir) => {
                self.shared.roll.ring(&step.heir, LossReason::Gone);
            }
            None => {}
        }
        if !accepted {
            // Its runtime has ended under it.
            let place = Place { keys: self.place.keys.clone(), id: step.heir.clone() };
            self.shared.release(&place, Duration::ZERO, false, None).await?;
        }
        Ok(())
    }
}
