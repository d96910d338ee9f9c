//! A claim in the queue, held: kept, given back, or passed on.

use super::scripts::Succeeded;
use super::wait::LIFE;
use super::{Granted, Place, Shared, Unheard};
use crate::backend::redis::key::Keys;
use crate::backend::redis::roll::{Called, CalledUp};
use crate::backend::redis::tenure::{Bid, Inheritance, Step, Tenure, Vouched};
use crate::backend::{Alarm, Lease, LossReason, Release, Standing};
use crate::error::Result;
use async_trait::async_trait;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

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
    pub(super) heir: Option<Heir>,
    /// Whose turn it is after this one. They are told when the lease goes: by then it has been told
    /// that this one is over.
    pub(super) next: Vec<Granted>,
    /// Whether that was begun; a claim that is dropped without is to stay for its ttl.
    pub(super) given_back: bool,
}

/// One who has the name after us, and the step that the store is told of until it answers.
#[derive(Debug)]
pub(super) struct Heir {
    step: Step,
    bid: Arc<Bid>,
    token: u64,
    /// Until it is told.
    call: Option<oneshot::Sender<Called>>,
}

/// How long an heir is kept at first: as long as anyone who was not heard of since its turn.
fn at_first(bid: &Bid) -> Duration {
    bid.ttl.min(LIFE)
}

#[async_trait]
impl Lease for QueueLease {
    async fn renew(&mut self) -> Result<Standing> {
        let heard = self.shared.roll.hears();
        let standing = self.ask_to_keep().await?;
        match standing {
            Standing::Lost(_) => {
                self.shared.roll.unwatch(&self.place.id);
            }
            _ => {
                self.vouched = Vouched { sent: heard.sent, valid_for: self.bid.ttl };
                self.tenure.iter().for_each(|tenure| tenure.heard(heard));
            }
        }
        // So that we hear of a broken lock at once, not at the next renewal.
        self.shared.listener.try_for(self.bid.ttl / 10).await;
        Ok(standing)
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let again = std::mem::replace(&mut self.given_back, true);
        if !again && how.stay().is_zero() && self.passes_on() {
            how.over();
        }
        self.shared.roll.unwatch(&self.place.id);
        if let (Some(tenure), Some(heir)) = (&self.tenure, &mut self.heir) {
            return self.shared.tell(&self.place.keys, tenure, heir, self.vouched).await;
        }
        let before = self.before();
        let unheard = Unheard { token: self.token, before: &before };
        let unheard = (!before.is_empty()).then_some(unheard);
        let released = self.shared.release(&self.place, how.stay(), false, unheard).await?;
        self.next = released.next;
        released.lost.map_or(Ok(()), |reason| Err(reason.to_error()))
    }

    fn watch(&mut self, alarm: Alarm) {
        self.shared.roll.watch(&self.place.id, alarm);
        // Found out before there was anyone to be told.
        if let Some(reason) = self.tenure.as_ref().and_then(|t| t.loss_of(&self.place.id)) {
            self.shared.roll.ring(&self.place.id, reason);
        }
    }
}

impl Drop for QueueLease {
    fn drop(&mut self) {
        // A detached claim has no one left to alarm.
        self.shared.roll.unwatch(&self.place.id);
        if let Some(owned) = self.place.owned.as_ref().filter(|_| !self.given_back) {
            owned.detach(self.bid.ttl);
        }
        self.shared.tell_granted(&self.place.keys.lock, std::mem::take(&mut self.next));
    }
}

impl QueueLease {
    /// Hands the name to the next claim of this keeper, if there is one and nothing speaks against
    /// it: whether it did. The store is told of it afterwards.
    fn passes_on(&mut self) -> bool {
        // One that was found lost is not watched any more; a keeper that hears nothing may not know.
        let is_ours = self.shared.roll.unwatch(&self.place.id)
            && self.shared.listener.is_listening()
            && self.vouched.is_fresh();
        if is_ours && self.bid.alone {
            let fits = |bid: &Bid| bid.alone && self.vouched.is_enough_for(at_first(bid));
            self.heir = self.tenure.as_ref().and_then(|tenure| {
                // Another server may grant the name by now.
                let heard = tenure.lately_heard()?;
                if !self.shared.roll.is_unbroken_since(heard) {
                    return None;
                }
                let call_up = |id: &str| self.shared.roll.call_up(id, fits);
                let (step, CalledUp { bid, call }) = tenure.pass_on(self.token, call_up)?;
                if let Some(owned) = &self.place.owned {
                    tenure.remembers(&self.place.id, owned.clone());
                }
                Some(Heir { step, bid, token: self.token + 1, call: Some(call) })
            });
        }
        self.heir.is_some()
    }

    /// Those whom the store may have on record in our place.
    fn before(&self) -> Vec<String> {
        self.tenure.as_ref().map(|tenure| tenure.before(&self.place.id)).unwrap_or_default()
    }

    async fn ask_to_keep(&self) -> Result<Standing> {
        let (place, before) = (&self.place, self.before());
        let (Some(tenure), false) = (&self.tenure, before.is_empty()) else {
            return self.shared.renew(place, self.bid.ttl).await;
        };
        let heir = place.id.clone();
        let step = Step { heir, before, asks_for_heirs: false, request: 0 };
        let heard = self.shared.roll.hears();
        let kept = self.shared.succeed(&place.keys, &step, &self.bid, self.token, self.bid.ttl);
        Ok(match kept.await? {
            Succeeded::Before(heirs) => {
                tenure.confirmed(&place.id, heirs, heard);
                Standing::Held
            }
            Succeeded::Not(reason) => Standing::Lost(reason),
            Succeeded::Unknown => Standing::Lost(LossReason::Gone),
        })
    }
}

impl Shared {
    /// Tells the store who has the name now; and once the word is on its way, so that words arrive
    /// in the order of the steps, the heir itself.
    async fn tell(
        &self,
        keys: &Keys,
        tenure: &Arc<Tenure>,
        Heir { step, bid, token, call }: &mut Heir,
        vouched: Vouched,
    ) -> Result<()> {
        let span = at_first(bid);
        let (vouched, heard) = (vouched.for_heir(span), self.roll.hears());
        let mut told = pin!(self.succeed(keys, step, bid, *token, span));
        let mut answer = None;
        poll_fn(|context| {
            if let Poll::Ready(early) = told.as_mut().poll(context) {
                answer = Some(early);
            }
            Poll::Ready(())
        })
        .await;
        if let Some(call) = call.take() {
            let inheritance = Inheritance { token: *token, vouched, tenure: tenure.clone() };
            // One whose runtime ended under it costs as much as any that died.
            let _ = call.send(Called::Inherited(inheritance));
        }
        let answer = match answer {
            Some(early) => early,
            None => told.await,
        };
        tenure.answered(step);
        let (reason, outcome) = match answer? {
            Succeeded::Before(heirs) => {
                tenure.confirmed(&step.heir, heirs, heard);
                return Ok(());
            }
            // A later request may have overtaken this one, where that was sent a second time.
            Succeeded::Not(reason) if tenure.is_latest(step) => {
                (reason.clone(), Err(reason.to_error()))
            }
            Succeeded::Not(reason) => (reason, Ok(())),
            Succeeded::Unknown => (LossReason::Gone, Ok(())),
        };
        if tenure.is_lost_by(&step.heir, &reason) {
            self.roll.ring(&step.heir, reason);
        }
        outcome
    }
}
