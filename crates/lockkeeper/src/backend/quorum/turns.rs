//! The waiting claims of one keeper take turns: for each name one of them asks, for all.
//!
//! ```text
//!   line     claims of this keeper that wait for the name, in order; the first may ask the nodes
//!   held     while a claim of this keeper has the name, nobody here need ask at all
//!   offers   those in line who would take the name from that claim, in order
//! ```
//!
//! Without this they would take votes from one another. Between keepers there is no order.

use super::local_handover::Handover;
use crate::backend::support::sync::lock;
use crate::backend::{Claim, ClaimId, Moment, Name, Patience};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How long the first in line trusts that the keeper's own holder will tell when it is done. A holder
/// that was lost and whose guard is kept tells nobody.
const TRUST: Duration = Duration::from_secs(1);

/// For how long nobody here asks when this keeper has had the name for long and others wait for it.
const YIELD: Duration = Duration::from_millis(5);

/// Every name that claims of this keeper hold or wait for.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Name, Arc<Turn>>>);

#[derive(Debug)]
struct Turn {
    line: Arc<Semaphore>,
    held: Arc<Semaphore>,
    offers: Mutex<VecDeque<Offer>>,
    /// Others come first until then.
    yields_until: Mutex<Option<Moment>>,
}

/// A claim in line that would take the name from another of its keeper.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) claim: Arc<Claim>,
    hand: Option<oneshot::Sender<Handover>>,
}

/// One claim's part in it; leaves when dropped.
#[derive(Debug)]
pub(super) struct Place {
    turns: Arc<Turns>,
    name: Name,
    turn: Option<Arc<Turn>>,
    first: Option<OwnedSemaphorePermit>,
    holds: Option<OwnedSemaphorePermit>,
}

/// An offer among the others, and where its claim hears; taken back when dropped.
#[derive(Debug)]
struct Offered {
    turn: Arc<Turn>,
    id: ClaimId,
    told: oneshot::Receiver<Handover>,
}

/// How a wait ended.
#[derive(Debug)]
pub(super) enum Waited {
    /// It may ask.
    Turn,
    /// The name passed to it.
    Handed(Handover),
    /// Patience ran out.
    Over,
}

impl Turns {
    /// Joins those who want the name.
    pub(super) fn join(self: &Arc<Self>, name: &Name) -> Place {
        let turn = {
            let mut turns = lock(&self.0);
            let turn = turns.entry(name.clone()).or_insert_with(|| {
                let one = || Arc::new(Semaphore::new(1));
                let (offers, yields_until) = Default::default();
                Arc::new(Turn { line: one(), held: one(), offers, yields_until })
            });
            turn.clone()
        };
        Place {
            turns: self.clone(),
            name: name.clone(),
            turn: Some(turn),
            first: None,
            holds: None,
        }
    }
}

impl Turn {
    /// Resolves when no claim of this keeper has the name, as far as that can be trusted, and others
    /// have had their turn.
    async fn nobody_holds(&self) {
        let limit = Moment::now() + TRUST;
        tokio::select! {
            biased;
            _ = self.held.acquire() => {}
            () = limit.reached() => {}
        }
        let others_until = *lock(&self.yields_until);
        if let Some(until) = others_until {
            until.reached().await;
        }
    }

    fn yields(&self) -> bool {
        lock(&self.yields_until).is_some_and(|until| !until.remaining().is_zero())
    }
}

impl Offer {
    /// Hands the name over. If nobody is there to take it, it is given back.
    pub(super) fn hand(&mut self, handover: Handover) {
        if let Some(hand) = self.hand.take() {
            // What is not taken is dropped, which gives it back.
            drop(hand.send(handover));
        }
    }
}

impl Place {
    /// Whether it may ask without having to wait: it is first in line, and no claim of this keeper has
    /// the name.
    pub(super) fn is_free(&mut self) -> bool {
        let Some(turn) = &self.turn else { return false };
        if self.first.is_none() {
            self.first = turn.line.clone().try_acquire_owned().ok();
        }
        self.first.is_some() && turn.held.available_permits() > 0 && !turn.yields()
    }

    /// Waits until it may ask, or a claim of this keeper passes the name on to this one.
    pub(super) async fn turn(&mut self, claim: &Arc<Claim>, patience: &Patience) -> Waited {
        let Some(turn) = self.turn.clone() else { return Waited::Turn };
        let first = &mut self.first;
        // Who has been first in line has asked in vain meanwhile, and is still before the others.
        let mut offered = Offered::new(turn.clone(), claim, first.is_some());
        let free = async {
            if first.is_none() {
                // Never closed, so this never fails.
                *first = turn.line.clone().acquire_owned().await.ok();
            }
            turn.nobody_holds().await;
        };
        let waited = tokio::select! {
            biased;
            Ok(handover) = &mut offered.told => return Waited::Handed(handover),
            () = free => Waited::Turn,
            () = patience.over() => Waited::Over,
        };
        if offered.is_taken_back() {
            return waited;
        }
        // It was chosen in this very moment.
        match (&mut offered.told).await {
            Ok(handover) => Waited::Handed(handover),
            Err(_) => waited,
        }
    }

    /// The claim was granted: it holds until this is dropped, and the next in line moves up.
    pub(super) fn hold(self) -> Self {
        let holds = self.turn.as_ref().and_then(|turn| turn.held.clone().try_acquire_owned().ok());
        self.hold_on(holds)
    }

    /// The name passed to the claim: it holds on, in place of the one before.
    pub(super) fn hold_on(mut self, holds: Option<OwnedSemaphorePermit>) -> Self {
        (self.first, self.holds) = (None, holds);
        self
    }

    /// Lets the next claim hold on in place of this one.
    pub(super) fn stop_holding(&mut self) -> Option<OwnedSemaphorePermit> {
        self.holds.take()
    }

    /// Takes the first of those who would take the name from this one, if its claim is for as long.
    pub(super) fn next_offer(&self, ttl: Duration) -> Option<Offer> {
        let mut offers = lock(&self.turn.as_ref()?.offers);
        let fits = offers.front().is_some_and(|offer| offer.claim.ttl == ttl);
        if fits { offers.pop_front() } else { None }
    }

    /// Lets others have the name first.
    pub(super) fn yield_to_others(&self) {
        if let Some(turn) = &self.turn {
            *lock(&turn.yields_until) = Some(Moment::now() + YIELD);
        }
    }
}

impl Offered {
    fn new(turn: Arc<Turn>, claim: &Arc<Claim>, before_others: bool) -> Self {
        let (hand, told) = oneshot::channel();
        let offer = Offer { claim: claim.clone(), hand: Some(hand) };
        let mut offers = lock(&turn.offers);
        match before_others {
            true => offers.push_front(offer),
            false => offers.push_back(offer),
        }
        drop(offers);
        Self { turn, id: claim.id, told }
    }

    /// Takes the offer back; `false` if it was taken up already.
    fn is_taken_back(&self) -> bool {
        let mut offers = lock(&self.turn.offers);
        let place = offers.iter().position(|offer| offer.claim.id == self.id);
        place.and_then(|place| offers.remove(place)).is_some()
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.is_taken_back();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.first = None;
        self.holds = None;
        let mut turns = lock(&self.turns.0);
        self.turn = None;
        // With the map locked nobody else can join: one that only the map has is nobody's.
        if turns.get(&self.name).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Mode, Owner, Primitive};

    fn claim(number: u128) -> Arc<Claim> {
        Arc::new(Claim {
            id: format!("{number:032x}").parse().unwrap(),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            primitive: Primitive::Lock,
            owner: Owner::from_id(number.to_string()),
            ttl: TRUST * 9,
            identity: "".into(),
            note: "".into(),
            by_id: false,
        })
    }

    async fn its_turn(place: &mut Place, number: u128) -> Duration {
        let begin = Moment::now();
        let waited = place.turn(&claim(number), &Patience::endless()).await;
        assert!(matches!(waited, Waited::Turn), "{waited:?}");
        Moment::now().since(begin)
    }

    #[tokio::test(start_paused = true)]
    async fn they_come_in_order_and_leave_nothing() {
        let (turns, name) = (Arc::new(Turns::default()), Name::new("a").unwrap());
        let mut one = turns.join(&name);
        assert!(one.is_free());
        let (mut two, mut three) = (turns.join(&name), turns.join(&name));
        assert!(!two.is_free());
        let one = one.hold();
        // A holder that tells nobody is not waited for for ever.
        assert_eq!(its_turn(&mut two, 2).await, TRUST);
        assert!(!two.is_free());
        let next = tokio::spawn(async move {
            assert_eq!(its_turn(&mut two, 2).await, TRUST / 4);
            two.yield_to_others();
        });
        tokio::time::sleep(TRUST / 4).await;
        assert_eq!(lock(&one.turn.as_ref().unwrap().offers).len(), 1);
        drop(one);
        assert_eq!(its_turn(&mut three, 3).await, YIELD, "others did not come first");
        next.await.unwrap();
        assert!(lock(&three.turn.as_ref().unwrap().offers).is_empty());
        drop(three);
        assert!(lock(&turns.0).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn offers_are_in_order_and_gone_with_those_who_made_them() {
        let (turns, name) = (Arc::new(Turns::default()), Name::new("a").unwrap());
        let one = turns.join(&name).hold();
        let wait = |number| {
            let mut place = turns.join(&name);
            let claim = claim(number);
            tokio::spawn(async move { place.turn(&claim, &Patience::endless()).await })
        };
        let mut waiting = Vec::new();
        for number in 2..6 {
            waiting.push(wait(number));
            tokio::task::yield_now().await;
        }
        waiting.remove(0).abort();
        tokio::task::yield_now().await;
        assert!(one.next_offer(TRUST).is_none(), "a claim for another time was taken");
        let next = one.next_offer(TRUST * 9).expect("somebody waits");
        assert_eq!(next.claim.id, claim(3).id);
        assert_eq!(one.next_offer(TRUST * 9).unwrap().claim.id, claim(4).id);
        waiting.iter().for_each(|it| it.abort());
        tokio::task::yield_now().await;
        assert!(one.next_offer(TRUST * 9).is_none(), "nobody waits any more");
    }
}
