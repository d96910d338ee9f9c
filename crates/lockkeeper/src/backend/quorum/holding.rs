//! One claim at all its nodes: what each of them has of it, as far as we know.
//!
//! Invariant: at most one request for a claim is under way at a node. A node that still works on one is
//! left out of whatever comes next, and dealt with when it answers. So a late answer can never undo what
//! a later request did there.

use super::local_handover::Chain;
use crate::backend::support::sync::lock;
use crate::backend::{Alarm, Claim, GaveBack, LossReason, Moment, Signal};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One claim at all its nodes.
#[derive(Debug)]
pub(super) struct Holding {
    /// The claim that it was taken with: the nodes know it by this one's id, whoever of the keeper has it
    /// by now.
    pub(super) claim: Arc<Claim>,
    /// Who has it by now.
    pub(super) chain: Chain,
    /// Whether a renewal takes the claim anew at a node that lacks it. A process that has no more
    /// than a ticket does not know who gave the claim back, nor who had the name since: the claim must
    /// not come back by that.
    pub(super) anew: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    slots: Vec<Slot>,
    alarm: Option<Alarm>,
    /// The reason why it is lost, if nodes said so before there was an alarm.
    lost: Option<LossReason>,
    /// Others waited for the name when it was given back.
    awaited: bool,
}

/// How far the claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is asked for, for the time of this number.
    Asking(u32),
    /// It was granted by the votes of that time.
    Held(u32),
    /// It is given back, or about to be.
    Over,
}

/// What one node has of it.
#[derive(Debug, Clone, Default)]
struct Slot {
    /// A request is under way there.
    busy: bool,
    /// When the node last began to count the ttl: between these two moments.
    counted: Option<(Moment, Moment)>,
    /// Whether the node had the claim when it was given back.
    given_back: Option<bool>,
    /// The node said that the claim is gone.
    lost: bool,
    /// For how long the node has the claim, where that is less than its ttl.
    valid_for: Option<Duration>,
}

impl Holding {
    /// Of a claim that is not asked for yet.
    pub(super) fn new(claim: Arc<Claim>, nodes: usize) -> Arc<Self> {
        Self::in_phase(claim, nodes, Phase::Asking(0), true)
    }

    /// Of a claim that someone was granted, of which no more than its ticket is known here.
    pub(super) fn by_ticket(claim: Arc<Claim>, nodes: usize) -> Arc<Self> {
        Self::in_phase(claim, nodes, Phase::Held(0), false)
    }

    fn in_phase(claim: Arc<Claim>, nodes: usize, phase: Phase, anew: bool) -> Arc<Self> {
        let slots = vec![Slot::default(); nodes];
        let state = State { phase, slots, alarm: None, lost: None, awaited: false };
        let chain = Chain::new(claim.clone());
        Arc::new(Self { claim, chain, anew, state: Mutex::new(state) })
    }

    /// Begins a request to a node; `false` if one is under way there.
    pub(super) fn begin(&self, number: usize) -> bool {
        let mut state = lock(&self.state);
        !std::mem::replace(&mut state.slots[number].busy, true)
    }

    /// Whether a request is under way at the node.
    pub(super) fn is_busy(&self, number: usize) -> bool {
        lock(&self.state).slots[number].busy
    }

    /// The request to a node is over.
    pub(super) fn end(&self, number: usize) {
        lock(&self.state).slots[number].busy = false;
    }

    /// The request is over, and the node has the claim: it counts the ttl from a moment after `sent`.
    pub(super) fn taken(&self, number: usize, sent: Moment) {
        lock(&self.state).slots[number].is_taken(sent);
    }

    /// A late answer: the node has the claim by a request of the time `number`. Returns whether that is
    /// still wanted; if not, the request is not over before the claim is gone from there.
    pub(super) fn taken_late(&self, number: usize, time: u32, sent: Moment) -> bool {
        let mut state = lock(&self.state);
        if state.phase != Phase::Held(time) {
            return false;
        }
        state.slots[number].is_taken(sent);
        true
    }

    /// The node has the claim for so long only, or for its ttl.
    pub(super) fn has_for(&self, number: usize, span: Option<Duration>) {
        lock(&self.state).slots[number].valid_for = span;
    }

    /// For how long every node has the claim.
    pub(super) fn valid_for(&self) -> Duration {
        let state = lock(&self.state);
        let spans = state.slots.iter().filter_map(|slot| slot.valid_for);
        spans.min().map_or(self.claim.ttl, |span| span.min(self.claim.ttl))
    }

    /// Between which moments the node last began to count the ttl.
    pub(super) fn counted(&self, number: usize) -> Option<(Moment, Moment)> {
        lock(&self.state).slots[number].counted
    }

    pub(super) fn phase(&self) -> Phase {
        lock(&self.state).phase
    }

    /// Goes on to another phase.
    pub(super) fn enter(&self, phase: Phase) {
        lock(&self.state).phase = phase;
    }

    /// What the node said when the claim was given back there.
    pub(super) fn given_back(&self, number: usize) -> Option<bool> {
        lock(&self.state).slots[number].given_back
    }

    /// The request is over, and the node has the claim no longer.
    pub(super) fn is_given_back(&self, number: usize, answer: GaveBack) {
        let mut state = lock(&self.state);
        state.slots[number].busy = false;
        state.slots[number].given_back = Some(answer != GaveBack::Lacked);
        state.awaited |= answer == GaveBack::Had { awaited: true };
    }

    /// Whether others were told that it is given back.
    pub(super) fn is_awaited(&self) -> bool {
        lock(&self.state).awaited
    }

    /// Whether it is held, for its whole ttl, by a claim of this keeper that has not lost it.
    pub(super) fn is_kept(&self) -> bool {
        let state = lock(&self.state);
        let whole = state.slots.iter().all(|slot| slot.valid_for.is_none());
        self.anew && whole && state.lost.is_none() && matches!(state.phase, Phase::Held(_))
    }

    /// The request is over: the claim was removed from the node, which may have had it or not.
    pub(super) fn is_forgotten(&self, number: usize) {
        let mut state = lock(&self.state);
        let over = state.phase == Phase::Over;
        let slot = &mut state.slots[number];
        (slot.busy, slot.counted) = (false, None);
        if over {
            slot.given_back = Some(true);
        }
    }

    /// How long until the node drops the claim by itself.
    pub(super) fn end_of_lease(&self) -> Moment {
        let state = lock(&self.state);
        let counted = state.slots.iter().filter_map(|slot| slot.counted);
        let last = counted.map(|(_, until)| until).max().unwrap_or_else(Moment::now);
        last + self.claim.ttl
    }

    /// Whom to tell that the claim is gone.
    pub(super) fn watch(&self, alarm: Alarm) {
        let lost = {
            let mut state = lock(&self.state);
            state.alarm = Some(alarm.clone());
            state.lost.clone()
        };
        if let Some(reason) = lost {
            alarm.ring(reason);
        }
    }

    /// The claim passes to another of this keeper: whoever had it before is told no more.
    pub(super) fn unwatch(&self) {
        lock(&self.state).alarm = None;
    }

    /// The nodes say that the claim is gone: its holder is told, now or as soon as it can be.
    pub(super) fn is_lost(&self, reason: LossReason) {
        let alarm = {
            let mut state = lock(&self.state);
            state.lost = Some(reason.clone());
            state.alarm.clone()
        };
        // Outside the lock: a claim that is lost may be given back in the same breath.
        if let Some(alarm) = alarm {
            alarm.ring(reason);
        }
    }

    /// What a node says unasked. A claim is gone once it is gone from so many that no majority is left;
    /// that a node cannot be reached is of no consequence while others can.
    pub(super) fn hear(&self, number: usize, signal: &Signal, majority: usize) {
        let Signal::Lost(reason) = signal else { return };
        {
            let mut state = lock(&self.state);
            state.slots[number].lost = true;
            let left = state.slots.iter().filter(|slot| !slot.lost).count();
            if left >= majority {
                return;
            }
        }
        self.is_lost(reason.clone());
    }
}

impl Slot {
    fn is_taken(&mut self, sent: Moment) {
        (self.busy, self.lost) = (false, false);
        self.counted = Some((sent, Moment::now()));
    }
}

/// Whether a node's clock did anything but go on since it began to count the ttl: it said that `left`
/// remained, to a request that was under way from `sent` until now. By how much, if so.
pub(super) fn clock_jump(
    ttl: Duration,
    counted: (Moment, Moment),
    sent: Moment,
    left: Duration,
) -> Option<Duration> {
    // Milliseconds are cut off, and clocks do not run equally fast.
    let margin = ttl / 100 + Duration::from_millis(2);
    let (longest, shortest) = (Moment::now().since(counted.0), sent.since(counted.1));
    let least = ttl.saturating_sub(longest).saturating_sub(margin);
    let most = ttl.saturating_sub(shortest) + margin;
    let off = least.saturating_sub(left).max(left.saturating_sub(most));
    (!off.is_zero()).then(|| off + margin)
}
