//! Local hand-over: a name passes from one claim of a keeper to the next before Redis is told.
//!
//! ```text
//!   claim A (holds)         claim B (first in the queue)            Redis
//!   ───────────────         ────────────────────────────            ─────────────────────
//!                           waits                                   holder A, queue B C
//!   release()
//!     Chain::hand_over ───► holds at once, with token A + 1         holder A, queue B C
//!     hand_over.lua ────────────────────────────────────────────►   holder B, queue C
//!     over                                              ◄────────   successors: C
//!                           release()
//!                             Chain::hand_over ───► C …
//! ```
//!
//! What it promises:
//!
//! - **Exclusion.** What Redis has on record meanwhile is a *predecessor* of the holder, a claim of
//!   the same keeper, which keeps every other keeper out just as well. So a successor is valid for no
//!   longer than Redis vouched for its predecessor ([`Validity::for_successor`]).
//! - **Order.** Only the first in the queue can be the successor. Redis told this keeper which of its
//!   claims those are, and requests arrive in the order of the steps.
//! - **Tokens grow.** Each successor's token is one above its predecessor's, and Redis leaves room
//!   for `UNSEEN` of them before its own next one (`ROOM` in the scripts).
//! - **Failover.** Nothing is handed over unless Redis answered a request on the name that was sent
//!   less than [`LATELY`] ago, with no connection broken since: nobody begins later than that on the
//!   word of a server that is no longer the primary.
//!
//! What it costs: what others are shown may be one round trip old. A hand-over takes no round trip.
//!
//! When Redis turns out not to have a predecessor (it was broken, or the server forgot), the chain is
//! over: nothing is handed over any more, and the holder loses the name as soon as its own step is
//! answered. Until then it holds it on the word of the chain, for no longer than its validity.

use super::heartbeat::Heartbeat;
use super::own_claims::Owned;
use crate::backend::support::sync::lock;
use crate::backend::{LossReason, Moment};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many successors may follow one another before Redis has one of them on record. Redis leaves
/// room for their tokens when it gives its next one: `ROOM` in the scripts.
const UNSEEN: usize = 14;

/// With fewer known successors than that, Redis is asked for more.
const FEW: usize = 6;

/// A validity that Redis confirmed longer ago than that is not handed over.
const RECENTLY: Duration = Duration::from_secs(1);

/// How old the last answer on a name may be when the name is handed over: should another server
/// have taken over since, the two are at odds for that much longer. Claims that are held for longer
/// gain little by not waiting for an answer.
const LATELY: Duration = Duration::from_millis(50);

/// When the request was sent that was answered last, and how often a connection had broken by then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contact {
    pub(super) sent: Moment,
    pub(super) breaks: u64,
}

/// For how long Redis keeps a claim, counted from a moment before it was asked to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Validity {
    pub(super) sent: Moment,
    pub(super) valid_for: Duration,
}

impl Validity {
    /// Whether it was confirmed not long ago: then a renewal is not due soon, and if Redis has
    /// dropped the claim since, not much is begun that Redis does not know of.
    pub(super) fn is_fresh(self) -> bool {
        Moment::now().since(self.sent) < RECENTLY.min(self.valid_for / 4)
    }

    /// What is left of it for a successor that Redis will keep for `span` from now on: not more than
    /// that, and not more than the predecessor had.
    pub(super) fn for_successor(self, span: Duration) -> Self {
        let now = Moment::now();
        // A fiftieth is kept back, for clocks that do not run equally fast.
        let end = self.sent + self.valid_for.saturating_sub(self.valid_for / 50);
        if now + span <= end {
            return Self { sent: now, valid_for: span };
        }
        Self { sent: self.sent, valid_for: self.valid_for.min(span) }
    }

    /// Whether a successor would have at least half of what Redis would give it.
    pub(super) fn is_enough_for(self, span: Duration) -> bool {
        let Self { sent, valid_for } = self.for_successor(span);
        (sent + valid_for).remaining() >= span / 2
    }
}

/// Whether a claim that is next in the queue can be handed the name.
#[derive(Debug)]
pub(super) enum Next<T> {
    /// It does not wait any more: the turn is the next claim's.
    Left,
    /// It is its turn, but it has to hear so from Redis.
    Unfit,
    Ready(T),
}

/// What a successor gets.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) token: u64,
    pub(super) validity: Validity,
    pub(super) chain: Arc<Chain>,
}

/// One name, from the grant by Redis on through all claims that had it by local hand-over.
#[derive(Debug)]
pub(super) struct Chain {
    state: Mutex<State>,
    heartbeat: Arc<Heartbeat>,
}

/// Invariant: every claim is in at most one of `predecessors`, `holder` and `successors`, and those
/// three, read in that order, are in the order of the queue.
#[derive(Debug)]
struct State {
    /// The claims before the holder that Redis may still have on record, in order.
    predecessors: Vec<String>,
    holder: String,
    /// Claims of this keeper that are next in the queue, in order.
    successors: VecDeque<String>,
    /// A request that asks Redis for more successors is under way.
    asking: bool,
    /// Redis has another claim on record, or none: nothing is handed over any more.
    over: bool,
    /// Why the holder has lost the name.
    lost: Option<LossReason>,
    /// How many requests were made in the name of the predecessors.
    requests: u64,
    contact: Contact,
    /// Keeps the predecessors among this keeper's claims for as long as Redis may name them.
    owned: Vec<(String, Arc<Owned>)>,
}

/// One hand-over, as Redis is told.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) successor: String,
    pub(super) predecessors: Vec<String>,
    pub(super) asks_for_successors: bool,
    /// The number of this request.
    pub(super) request: u64,
}

impl Chain {
    /// A chain that begins with `holder`, to which Redis granted the name.
    pub(super) fn new(
        holder: &str,
        successors: Vec<String>,
        heartbeat: Arc<Heartbeat>,
        contact: Contact,
    ) -> Self {
        let state = State {
            predecessors: Vec::new(),
            holder: holder.to_owned(),
            successors: successors.into(),
            asking: false,
            over: false,
            lost: None,
            requests: 0,
            contact,
            owned: Vec::new(),
        };
        Self { state: Mutex::new(state), heartbeat }
    }

    /// The last answer on the name, if that is recent enough to hand the name over.
    pub(super) fn recent_contact(&self) -> Option<Contact> {
        let contact = lock(&self.state).contact;
        (Moment::now().since(contact.sent) < LATELY).then_some(contact)
    }

    /// Redis has answered, to a request that was sent then, that the holder has the name.
    pub(super) fn contact(&self, contact: Contact) {
        let mut state = lock(&self.state);
        if state.contact.sent < contact.sent {
            state.contact = contact;
        }
    }

    /// Keeps `id` among this keeper's claims until Redis has its successor on record.
    pub(super) fn keep_owned(&self, id: &str, owned: Arc<Owned>) {
        lock(&self.state).owned.push((id.to_owned(), owned));
    }

    /// Hands the name over, from the claim with this token to the first successor that is still
    /// there, as `take` says.
    pub(super) fn hand_over<T>(
        &self,
        token: u64,
        mut take: impl FnMut(&str) -> Next<T>,
    ) -> Option<(Step, T)> {
        let mut state = lock(&self.state);
        if state.over || state.predecessors.len() >= UNSEEN {
            return None;
        }
        let (successor, taken) = loop {
            let successor = state.successors.pop_front()?;
            match take(&successor) {
                // It may have left because Redis granted it the name: then we have it no more.
                Next::Left if self.heartbeat.last_token() > token => return None,
                Next::Left => {}
                Next::Unfit => {
                    state.successors.push_front(successor);
                    return None;
                }
                Next::Ready(taken) => break (successor, taken),
            }
        };
        let predecessor = std::mem::replace(&mut state.holder, successor.clone());
        state.predecessors.push(predecessor);
        let asks_for_successors = state.successors.len() < FEW && !state.asking;
        state.asking |= asks_for_successors;
        state.requests += 1;
        let (predecessors, request) = (state.predecessors.clone(), state.requests);
        Some((Step { successor, predecessors, asks_for_successors, request }, taken))
    }

    /// The claims that Redis may have on record in place of `id`, for a request that names them;
    /// none once Redis has been told. Counts as such a request.
    pub(super) fn predecessors(&self, id: &str) -> Vec<String> {
        let mut state = lock(&self.state);
        state.requests += 1;
        let until = match state.predecessors.iter().position(|before| before == id) {
            Some(place) => place,
            None if state.holder == id => state.predecessors.len(),
            None => 0,
        };
        state.predecessors[..until].to_vec()
    }

    /// Whether no later request was made in the name of the step's predecessors: then what Redis has
    /// of them is what it had when the step was made.
    pub(super) fn is_latest(&self, step: &Step) -> bool {
        lock(&self.state).requests == step.request
    }

    /// The request for this step was answered, or failed.
    pub(super) fn answered(&self, step: &Step) {
        lock(&self.state).asking &= !step.asks_for_successors;
    }

    /// Redis has `id` on record, and `behind` are this keeper's claims next in its queue.
    pub(super) fn confirmed(&self, id: &str, behind: Vec<String>, contact: Contact) {
        self.contact(contact);
        let mut state = lock(&self.state);
        if state.holder == id {
            state.predecessors.clear();
        } else if let Some(place) = state.predecessors.iter().position(|before| before == id) {
            state.predecessors.drain(..place);
        } else {
            // An old answer, overtaken by a later one.
            return;
        }
        let State { owned, predecessors, .. } = &mut *state;
        owned.retain(|(id, _)| predecessors.contains(id));
        for id in behind {
            let known = state.holder == id
                || state.predecessors.contains(&id)
                || state.successors.contains(&id);
            if !known {
                state.successors.push_back(id);
            }
        }
    }

    /// Redis says that neither `id` nor any of its predecessors is on record. Ends the chain, unless
    /// that answer is old; whether the present holder has lost the name by it. If `id` is not the
    /// holder, the holder hears by its own step.
    pub(super) fn is_lost_by(&self, id: &str, reason: &LossReason) -> bool {
        let mut state = lock(&self.state);
        let is_holder = state.holder == id;
        if is_holder {
            state.lost = Some(reason.clone());
        }
        state.over |= is_holder || state.predecessors.iter().any(|before| before == id);
        is_holder
    }

    /// Why `id` has lost the name, if it is the holder and has.
    pub(super) fn loss_of(&self, id: &str) -> Option<LossReason> {
        let state = lock(&self.state);
        state.lost.clone().filter(|_| state.holder == id)
    }
}

#[cfg(test)]
mod tests;
