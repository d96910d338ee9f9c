//! A name that claims of one keeper pass on among themselves.
//!
//! Whoever holds a name alone may say who comes next, if nobody else could: the first in line, when
//! that is a claim of the same keeper. It begins at once, on what the store has vouched for to the
//! one before, and the store is told without anyone waiting for its answer. What it has on record
//! meanwhile is one of those before, which excludes all others just as well. So a hand-over within
//! a keeper takes no round trip, and what the store sees is the same queue in the same order.

use super::owned::Owned;
use super::roll::lock;
use super::vigil::Vigil;
use crate::backend::{LossReason, Moment};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many may come one after another before the store hears of them. Each has a token one above
/// that of the one before, and the store leaves room for so many when it gives its next one: `ROOM`
/// in the scripts.
const UNSEEN: usize = 14;

/// With fewer heirs than that the store is asked for more.
const FEW: usize = 6;

/// What the store vouched for longer ago than that is not passed on.
const RECENTLY: Duration = Duration::from_secs(1);

/// The server's last word on a name may be so old when the name is passed on. Whoever begins then,
/// begins no later than this after the server was last known to be the one that grants it: should
/// another have taken over since, that is how much longer the two may be at odds. Those who hold a
/// name for longer gain little by not waiting for an answer.
const LATELY: Duration = Duration::from_millis(50);

/// When the request was sent that was answered last, and how often the connection had broken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    pub(super) sent: Moment,
    pub(super) breaks: u64,
}

/// What a claim stands in line with.
#[derive(Debug)]
pub(super) struct Bid {
    pub(super) ttl: Duration,
    /// What is written of it in the store, from the keeper on.
    pub(super) record: String,
    /// Whether it holds the name for itself: alone, and its owner has no other way in.
    pub(super) alone: bool,
}

/// What the store vouches for: a claim is kept for so long from then on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vouched {
    pub(super) sent: Moment,
    pub(super) valid_for: Duration,
}

impl Vouched {
    /// It is not long ago: a renewal is not due soon, and if the store has changed its mind since,
    /// not much is begun that it does not know of.
    pub(super) fn is_fresh(self) -> bool {
        Moment::now().since(self.sent) < RECENTLY.min(self.valid_for / 4)
    }

    /// What is left of it for an heir whom the store will keep for `span` from now on: not more
    /// than that, and not more than the one before had.
    pub(super) fn for_heir(self, span: Duration) -> Self {
        let now = Moment::now();
        // A part is kept from what was vouched for, for clocks that do not run equally fast.
        let end = self.sent + self.valid_for.saturating_sub(self.valid_for / 50);
        if now + span <= end {
            return Self { sent: now, valid_for: span };
        }
        Self { sent: self.sent, valid_for: self.valid_for.min(span) }
    }

    /// Whether an heir would have at least half of what the store would give it.
    pub(super) fn is_enough_for(self, span: Duration) -> bool {
        let Self { sent, valid_for } = self.for_heir(span);
        (sent + valid_for).remaining() >= span / 2
    }
}

/// Whether a claim that is next in line can be passed the name.
#[derive(Debug)]
pub(super) enum Candidate<T> {
    /// It waits no more: the turn is the next one's.
    Left,
    /// The turn is its own, but it has to hear so from the store.
    Unfit,
    Ready(T),
}

/// What an heir gets.
#[derive(Debug)]
pub(super) struct Inheritance {
    pub(super) token: u64,
    pub(super) vouched: Vouched,
    pub(super) tenure: Arc<Tenure>,
}

/// One name, from the grant by the store on through all who had it after that.
#[derive(Debug)]
pub(super) struct Tenure {
    state: Mutex<State>,
    vigil: Arc<Vigil>,
}

#[derive(Debug)]
struct State {
    /// Those before the holder whom the store may have on record still, in order.
    before: Vec<String>,
    holder: String,
    /// Claims of this keeper that are next in line, in order.
    heirs: VecDeque<String>,
    /// The store is being asked for more of them.
    asking: bool,
    /// The store has another, or none, as one of those before found: nothing is passed on then.
    over: bool,
    /// Why the holder has it no more.
    lost: Option<LossReason>,
    /// How many requests were made in the name of those on record.
    requests: u64,
    heard: Heard,
    /// So that those whom the store may have on record count as this keeper's.
    owned: Vec<(String, Arc<Owned>)>,
}

/// One step of the succession, as the store is told.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) heir: String,
    pub(super) before: Vec<String>,
    pub(super) asks_for_heirs: bool,
    /// The number of this request.
    pub(super) request: u64,
}

impl Tenure {
    pub(super) fn new(holder: &str, heirs: Vec<String>, vigil: Arc<Vigil>, heard: Heard) -> Self {
        let (holder, heirs) = (holder.to_owned(), heirs.into());
        let (before, asking, over, lost, requests) = Default::default();
        let owned = Vec::new();
        let state = State { before, holder, heirs, asking, over, lost, requests, heard, owned };
        Self { state: Mutex::new(state), vigil }
    }

    /// What was heard last of the name; not long ago, that is, or nothing.
    pub(super) fn lately_heard(&self) -> Option<Heard> {
        let heard = lock(&self.state).heard;
        (Moment::now().since(heard.sent) < LATELY).then_some(heard)
    }

    /// The store has answered, to a request that was sent then, that all is as it should be.
    pub(super) fn heard(&self, heard: Heard) {
        let mut state = lock(&self.state);
        if state.heard.sent < heard.sent {
            state.heard = heard;
        }
    }

    /// The store may have `id` on record until it has heard who came after it.
    pub(super) fn remembers(&self, id: &str, owned: Arc<Owned>) {
        lock(&self.state).owned.push((id.to_owned(), owned));
    }

    /// Passes it on, from the one with this token to the first of the heirs who is there still, as
    /// `call_up` says.
    pub(super) fn pass_on<T>(
        &self,
        token: u64,
        mut call_up: impl FnMut(&str) -> Candidate<T>,
    ) -> Option<(Step, T)> {
        let mut state = lock(&self.state);
        if state.over || state.before.len() >= UNSEEN {
            return None;
        }
        let (heir, called_up) = loop {
            let heir = state.heirs.pop_front()?;
            match call_up(&heir) {
                // It may have left because the store gave it the name: then we have it no more.
                Candidate::Left if self.vigil.last_token() > token => return None,
                Candidate::Left => {}
                Candidate::Unfit => {
                    state.heirs.push_front(heir);
                    return None;
                }
                Candidate::Ready(called_up) => break (heir, called_up),
            }
        };
        let before = std::mem::replace(&mut state.holder, heir.clone());
        state.before.push(before);
        let asks_for_heirs = state.heirs.len() < FEW && !state.asking;
        state.asking |= asks_for_heirs;
        state.requests += 1;
        let (before, request) = (state.before.clone(), state.requests);
        Some((Step { heir, before, asks_for_heirs, request }, called_up))
    }

    /// Those whom the store may have on record in place of `id`, for a request that names them;
    /// none once it has been told.
    pub(super) fn before(&self, id: &str) -> Vec<String> {
        let mut state = lock(&self.state);
        state.requests += 1;
        let until = match state.before.iter().position(|before| before == id) {
            Some(place) => place,
            None if state.holder == id => state.before.len(),
            None => 0,
        };
        state.before[..until].to_vec()
    }

    /// Whether nothing was asked since in the name of those whom the step names: what the store has
    /// of them then is what it had when the step was made.
    pub(super) fn is_latest(&self, step: &Step) -> bool {
        lock(&self.state).requests == step.request
    }

    /// The store has answered, or will not.
    pub(super) fn answered(&self, step: &Step) {
        lock(&self.state).asking &= !step.asks_for_heirs;
    }

    /// The store has `id` on record, with those behind it in line.
    pub(super) fn confirmed(&self, id: &str, behind: Vec<String>, heard: Heard) {
        self.heard(heard);
        let mut state = lock(&self.state);
        if state.holder == id {
            state.before.clear();
        } else if let Some(place) = state.before.iter().position(|before| before == id) {
            state.before.drain(..place);
        } else {
            // An answer from long ago.
            return;
        }
        let State { owned, before, .. } = &mut *state;
        owned.retain(|(id, _)| before.contains(id));
        for id in behind {
            let known = state.holder == id
                || state.before.contains(&id)
                || state.heirs.iter().any(|heir| *heir == id);
            if !known {
                state.heirs.push_back(id);
            }
        }
    }

    /// The store has neither `id` nor anyone before it on record, unless what it says is old. Whether
    /// that is the present holder's loss: what comes of later steps is said of those.
    pub(super) fn is_lost_by(&self, id: &str, reason: &LossReason) -> bool {
        let mut state = lock(&self.state);
        let is_holder = state.holder == id;
        if is_holder {
            state.lost = Some(reason.clone());
        }
        state.over |= is_holder || state.before.iter().any(|before| before == id);
        is_holder
    }

    /// Why `id` has lost it, if it has.
    pub(super) fn loss_of(&self, id: &str) -> Option<LossReason> {
        let state = lock(&self.state);
        state.lost.clone().filter(|_| state.holder == id)
    }
}

#[cfg(test)]
mod tests;
