//! A name that claims of one keeper pass on among themselves.
//!
//! Whoever holds a name alone may say who comes next, if nobody else could: the first in line, when
//! that is a claim of the same keeper. It begins at once, on what the store has vouched for to the
//! one before, and the store is told without anyone waiting for its answer. What it has on record
//! meanwhile is one of those before, which excludes all others just as well. So a hand-over within
//! a keeper takes no round trip, and what the store sees is the same queue in the same order.

use super::roll::lock;
use crate::backend::Moment;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many may come one after another before the store knows of the first. Each has a token one
/// above that of the one before; so far at least is the store's next token from the last on its
/// record, `ROOM` in the scripts.
const UNSEEN: usize = 14;

/// With fewer heirs than that the store is asked for more.
const FEW: usize = 6;

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
    /// Not as much time has passed as to make a renewal due soon.
    pub(super) fn is_fresh(self) -> bool {
        Moment::now().since(self.sent) < self.valid_for / 4
    }

    /// What is left of it for an heir whom the store will keep for `span` from now on: not more
    /// than that, and not more than the one before had.
    pub(super) fn passed_on(self, span: Duration) -> Self {
        let now = Moment::now();
        // A part is kept from what was vouched for, for clocks that do not run equally fast.
        let end = self.sent + self.valid_for.saturating_sub(self.valid_for / 50);
        if now + span <= end {
            return Self { sent: now, valid_for: span };
        }
        Self { sent: self.sent, valid_for: self.valid_for.min(span) }
    }
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
    /// The store has another, or none.
    gone: bool,
}

/// One step of the succession, as the store is told.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) heir: String,
    pub(super) before: Vec<String>,
    pub(super) asks_for_heirs: bool,
}

impl Tenure {
    pub(super) fn new(holder: &str, heirs: Vec<String>) -> Self {
        let heirs = heirs.into();
        let (before, holder) = (Vec::new(), holder.to_owned());
        let state = State { before, holder, heirs, asking: false, gone: false };
        Self { state: Mutex::new(state) }
    }

    /// Passes it on to the first of the heirs who is there still, as `call_up` says.
    pub(super) fn pass_on<T>(
        &self,
        mut call_up: impl FnMut(&str) -> Option<T>,
    ) -> Option<(Step, T)> {
        let mut state = lock(&self.state);
        if state.gone || state.before.len() >= UNSEEN {
            return None;
        }
        let (heir, called_up) = loop {
            let heir = state.heirs.pop_front()?;
            if let Some(called_up) = call_up(&heir) {
                break (heir, called_up);
            }
        };
        let before = std::mem::replace(&mut state.holder, heir.clone());
        state.before.push(before);
        let asks_for_heirs = state.heirs.len() < FEW && !state.asking;
        state.asking |= asks_for_heirs;
        Some((Step { heir, before: state.before.clone(), asks_for_heirs }, called_up))
    }

    /// Those whom the store may have on record in place of `id`; none once it has been told.
    pub(super) fn before(&self, id: &str) -> Vec<String> {
        let state = lock(&self.state);
        let until = match state.before.iter().position(|before| before == id) {
            Some(place) => place,
            None if state.holder == id => state.before.len(),
            None => 0,
        };
        state.before[..until].to_vec()
    }

    /// The store has answered, or will not.
    pub(super) fn answered(&self, step: &Step) {
        lock(&self.state).asking &= !step.asks_for_heirs;
    }

    /// The store has `id` on record, with those behind it in line.
    pub(super) fn confirmed(&self, id: &str, behind: Vec<String>) {
        let mut state = lock(&self.state);
        if state.holder == id {
            state.before.clear();
        } else if let Some(place) = state.before.iter().position(|before| before == id) {
            state.before.drain(..place);
        } else {
            // An answer from long ago.
            return;
        }
        for id in behind {
            let known = state.holder == id
                || state.before.contains(&id)
                || state.heirs.iter().any(|heir| *heir == id);
            if !known {
                state.heirs.push_back(id);
            }
        }
    }

    /// The store has neither `id` nor anyone before it on record. Whether that is the end: a step
    /// that comes after the next one is merely late.
    pub(super) fn is_over_with(&self, id: &str) -> bool {
        let mut state = lock(&self.state);
        let over = state.holder == id;
        state.gone |= over;
        over
    }

    pub(super) fn is_gone(&self) -> bool {
        lock(&self.state).gone
    }
}

#[cfg(test)]
mod tests;
