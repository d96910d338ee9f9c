//! A claim in the queue, held: renewed, given back, or handed over locally.
//!
//! ```text
//!   release() ── may hand over? ── yes ── how.over()          the holder is told that it is over
//!       │                                 hand_over.lua       Redis is told; the successor is woken
//!       │                                                     as soon as that request is on its way
//!       └────── no ── release.lua ── answer: claims of this keeper whose turn it is
//!                                    woken when the lease is dropped
//! ```
//!
//! It may hand over if all of these are true; each names what would go wrong otherwise:
//!
//! - it is given back at once, for the first time: a repetition must tell Redis the same as before;
//! - no alarm has rung, and messages arrive: else it may have been broken without our knowing;
//! - Redis confirmed it not long ago, and enough of that is left for the successor;
//! - Redis answered something about the name in the last 50 ms, with no connection broken since: else
//!   another server may have taken over;
//! - both claims are exclusive, and of owners that cannot enter again.
//!
//! After a local hand-over Redis may have a predecessor on record for as long as a request is under
//! way. Until that is answered every request of this claim names the predecessors, so that the script
//! can put this claim in their place.

use super::answers::HandedOver;
use super::local_handover::{Chain, Handover, Step, Validity};
use super::requests::{Entry, Promoted, Request, Unheard, Whose};
use super::wait::LIFE;
use super::waiters::{Taken, Wakeup};
use super::{Granted, Shared};
use crate::backend::redis::keys::Keys;
use crate::backend::support::alarms::OwnAlarm;
use crate::backend::{Alarm, Lease, LossReason, Moment, Release, Standing};
use crate::error::Result;
use async_trait::async_trait;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

/// The longest that anyone keeps a claim for at a time.
const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);

/// What keeps a claim and gives it back.
#[derive(Debug)]
pub(super) struct QueueLease {
    shared: Arc<Shared>,
    entry: Entry,
    request: Arc<Request>,
    token: u64,
    validity: Validity,
    /// Where other claims of this keeper are next in the queue, or were before.
    chain: Option<Arc<Chain>>,
    /// The claim that has the name after this one, by local hand-over. From then on this one is not
    /// given back otherwise, however often Redis has to be told.
    successor: Option<Successor>,
    /// Claims whose turn it is after this one. They are woken when the lease is dropped: by then the
    /// holder has been told that this claim is over.
    next: Vec<Promoted>,
    /// Whether giving it back was begun; a claim that is dropped without stays for its ttl.
    given_back: bool,
    /// Whose it is with the next renewal: [`Whose::Same`] until others may have it, too. From then on
    /// each renewal says so, since any of them may have said otherwise.
    whose: Whose,
    /// Whose it is by the last one.
    said: Whose,
    alarm: OwnAlarm,
}

/// The claim that has the name after this one, and the step that Redis is told of until it answers.
#[derive(Debug)]
struct Successor {
    step: Step,
    request: Arc<Request>,
    token: u64,
    /// Until it is woken.
    wake: Option<oneshot::Sender<Wakeup>>,
}

impl QueueLease {
    /// The lease of a claim that was granted to this keeper.
    pub(super) fn new(
        shared: Arc<Shared>,
        entry: Entry,
        request: Arc<Request>,
        granted: Granted,
    ) -> Self {
        let Granted { token, validity, chain } = granted;
        Self {
            shared,
            entry,
            request,
            token,
            validity,
            chain,
            successor: None,
            next: Vec::new(),
            given_back: false,
            whose: Whose::Same,
            said: Whose::Same,
            alarm: OwnAlarm::default(),
        }
    }

    /// The lease of a claim that any keeper made. It takes no part in local hand-overs, for
    /// which its token would have to be known.
    pub(super) fn of_ticket(shared: Arc<Shared>, entry: Entry, ttl: Duration) -> Self {
        let request = Arc::new(Request { ttl, record: String::new(), alone: false });
        let validity = Validity { sent: Moment::now(), valid_for: Duration::ZERO };
        let granted = Granted { token: 0, validity, chain: None };
        let mut lease = Self::new(shared, entry, request, granted);
        lease.whose = Whose::Kept;
        lease
    }

    /// Hands the name to the next claim of this keeper, if there is one and nothing speaks against
    /// it; whether it did. Redis is told afterwards.
    fn hands_over(&mut self) -> bool {
        // A claim that was found lost is not watched any more; a keeper that is not subscribed may
        // not know.
        let is_ours =
            self.unwatch() && self.shared.subscriber.is_subscribed() && self.validity.is_fresh();
        if is_ours && self.request.alone {
            let fits = |next: &Request| next.alone && self.validity.is_enough_for(at_first(next));
            self.successor = self.chain.as_ref().and_then(|chain| {
                // Without a recent answer another server may grant the name by now.
                let contact = chain.recent_contact()?;
                if !self.shared.waiters.is_unbroken_since(contact) {
                    return None;
                }
                let take = |id: &str| self.shared.waiters.take(id, fits);
                let (step, Taken { request, wake }) = chain.hand_over(self.token, take)?;
                if let Some(owned) = &self.entry.owned {
                    chain.keep_owned(&self.entry.id, owned.clone());
                }
                Some(Successor { step, request, token: self.token + 1, wake: Some(wake) })
            });
        }
        self.successor.is_some()
    }

    /// Takes the alarm of this lease away; whether there was one that had not rung.
    fn unwatch(&mut self) -> bool {
        self.alarm.unwatch(&self.shared.waiters.alarms, &self.entry.id)
    }

    /// The claims that Redis may have on record in place of this one.
    fn predecessors(&self) -> Vec<String> {
        let of = |chain: &Arc<Chain>| chain.predecessors(&self.entry.id);
        self.chain.as_ref().map(of).unwrap_or_default()
    }

    /// Renews; and if Redis may not have this claim on record yet, tells it of the hand-over again.
    async fn ask_to_keep(&self, whose: Whose) -> Result<Standing> {
        let (requests, entry, ttl) = (&self.shared.requests, &self.entry, self.request.ttl);
        let predecessors = self.predecessors();
        let (Some(chain), false) = (&self.chain, predecessors.is_empty()) else {
            return requests.renew(entry, ttl, whose).await;
        };
        let successor = entry.id.clone();
        let step = Step { successor, predecessors, asks_for_successors: false, request: 0 };
        let contact = self.shared.waiters.contact();
        let kept = requests.hand_over(&entry.keys, &step, &self.request, self.token, ttl);
        Ok(match kept.await? {
            HandedOver::OnRecord(successors) => {
                chain.confirmed(&entry.id, successors, contact);
                // Now that Redis has it on record.
                match whose {
                    Whose::Same => Standing::Held,
                    whose => requests.renew(entry, ttl, whose).await?,
                }
            }
            HandedOver::Lost(reason) => Standing::Lost(reason),
            HandedOver::Unknown => Standing::Lost(LossReason::Gone),
        })
    }

    /// Also confirms a claim that was granted by a message, or handed over locally: from then on it has
    /// its whole ttl.
    async fn keep(&mut self, whose: Whose) -> Result<Standing> {
        self.said = whose;
        let contact = self.shared.waiters.contact();
        let standing = self.ask_to_keep(whose).await?;
        match standing {
            Standing::Lost(_) => {
                self.unwatch();
            }
            _ => {
                self.validity = Validity { sent: contact.sent, valid_for: self.request.ttl };
                self.chain.iter().for_each(|chain| chain.contact(contact));
            }
        }
        // So that a broken lock is heard of at once, not at the next renewal.
        self.shared.subscriber.try_for(self.request.ttl / 10).await;
        Ok(standing)
    }
}

#[async_trait]
impl Lease for QueueLease {
    async fn renew(&mut self) -> Result<Standing> {
        self.keep(self.whose).await
    }

    /// It is nobody's until a keeper takes it over; or this one's again, if it goes on with it.
    async fn hand_out(&mut self) -> Result<Standing> {
        self.whose = Whose::Ours;
        self.keep(Whose::Nobodys).await
    }

    async fn take_over(&mut self) -> Result<Standing> {
        self.whose = Whose::Ours;
        self.keep(Whose::Ours).await
    }

    /// Hands over if it may, else gives back. A repetition tells Redis the same as the first
    /// attempt: to choose anew could give the name to two.
    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let again = std::mem::replace(&mut self.given_back, true);
        if !again && how.stay().is_zero() && self.hands_over() {
            how.over();
        }
        self.unwatch();
        if let (Some(chain), Some(successor)) = (&self.chain, &mut self.successor) {
            return self.shared.tell(&self.entry.keys, chain, successor, self.validity).await;
        }
        let predecessors = self.predecessors();
        let unheard = Unheard { token: self.token, predecessors: &predecessors };
        let unheard = (!predecessors.is_empty()).then_some(unheard);
        let requests = &self.shared.requests;
        let released = requests.release(&self.entry, how.stay(), false, unheard).await?;
        self.next = released.next;
        released.lost.map_or(Ok(()), |reason| Err(reason.to_error()))
    }

    fn watch(&mut self, alarm: Alarm) {
        let (alarms, id) = (&self.shared.waiters.alarms, &self.entry.id);
        self.alarm.watch(alarms, id, alarm);
        // A loss that was found out before there was an alarm for it.
        if let Some(reason) = self.chain.as_ref().and_then(|chain| chain.loss_of(id)) {
            alarms.ring(id, reason);
        }
    }
}

impl Drop for QueueLease {
    fn drop(&mut self) {
        // A detached claim has no holder to alarm.
        self.unwatch();
        if let Some(owned) = self.entry.owned.as_ref().filter(|_| !self.given_back) {
            match self.said {
                Whose::Same | Whose::Kept => owned.detach(self.request.ttl),
                // Others may keep it for as long as they like, and this keeper is the one that is asked.
                Whose::Ours => owned.detach(LONGEST_TTL),
                Whose::Nobodys => {}
            }
        }
        self.shared.wake_promoted(&self.entry.keys.lock, std::mem::take(&mut self.next));
    }
}

/// How long a successor is kept at first: as long as any claim that Redis has not heard of since its
/// turn.
fn at_first(request: &Request) -> Duration {
    request.ttl.min(LIFE)
}

impl Shared {
    /// Tells Redis which claim has the name now; and wakes that claim once the request is on its way.
    /// Not before: requests have to arrive in the order of the steps, and the next step may be the
    /// successor's.
    async fn tell(
        &self,
        keys: &Keys,
        chain: &Arc<Chain>,
        Successor { step, request, token, wake }: &mut Successor,
        validity: Validity,
    ) -> Result<()> {
        let span = at_first(request);
        let (validity, contact) = (validity.for_successor(span), self.waiters.contact());
        let mut told = pin!(self.requests.hand_over(keys, step, request, *token, span));
        // Polled once by hand, which puts the request in line on the connection.
        let mut answer = None;
        poll_fn(|context| {
            if let Poll::Ready(early) = told.as_mut().poll(context) {
                answer = Some(early);
            }
            Poll::Ready(())
        })
        .await;
        if let Some(wake) = wake.take() {
            let handover = Handover { token: *token, validity, chain: chain.clone() };
            // If the successor's runtime has ended, it costs as much as any claim that died.
            let _ = wake.send(Wakeup::HandedOver(handover));
        }
        let answer = match answer {
            Some(early) => early,
            None => told.await,
        };
        chain.answered(step);
        let (reason, outcome) = match answer? {
            HandedOver::OnRecord(successors) => {
                chain.confirmed(&step.successor, successors, contact);
                return Ok(());
            }
            // If it is not the latest, a later request may have overtaken this one's repetition.
            HandedOver::Lost(reason) if chain.is_latest(step) => {
                (reason.clone(), Err(reason.to_error()))
            }
            HandedOver::Lost(reason) => (reason, Ok(())),
            HandedOver::Unknown => (LossReason::Gone, Ok(())),
        };
        if chain.is_lost_by(&step.successor, &reason) {
            self.waiters.alarms.ring(&step.successor, reason);
        }
        outcome
    }
}
