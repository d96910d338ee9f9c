//! The tokens of a quorum's grants.
//!
//! Every node remembers the largest token it was told of, its floor. A token is good once more than
//! half of the nodes, all of which have the claim at that moment, remember it and knew of none as large
//! before, nor of one just below ([`ROOM`]). The next holder has the claim on more than half of the nodes
//! too, so on one of those, and had it there only after this one's was gone: so the node tells of the
//! token, and the next is larger.
//!
//! ```text
//!   ask(claim, 710)   node 1: yes, floor was 600, is 710      one round: the token is 710
//!                     node 2: yes, floor was 670, is 710
//!                     node 3: yes, floor was 660, is 710
//!
//!   ask(claim, 710)   node 1: yes, floor was 600, is 710      two of three would do, but this
//!                     node 2: yes, floor was 800              is one of three
//!                     node 3: yes, floor was 700, is 710
//!   raise(832)        nodes 1, 2, 3: done                     a second round: the token is 832
//! ```
//!
//! So a keeper proposes a token with its claim that is likely to be large enough: later than the last
//! it knows of, and not behind the clock of the nodes. To read first and write then, always, would be a
//! second round for each grant.
//!
//! The room is for the tokens of claims that get the name by local hand-over before the nodes hear of
//! them: whoever has the name next is above those too.
//!
//! The clock is the one in the middle of those that were told: a single node whose clock is wrong does
//! not decide. It makes tokens grow where floors were lost, as in every other store.

use crate::backend::support::sync::lock;
use crate::backend::{FencingToken, Moment};
use std::sync::Mutex;
use std::time::Duration;

/// How far a token is above every other that its nodes knew of. More than
/// [`UNSEEN`](super::local_handover::UNSEEN); no more than needed, since tokens follow a clock in
/// microseconds and must not run ahead of it.
pub(super) const ROOM: u64 = 32;

/// For how long the nodes' clock is followed by our own before they are asked for it again: to tell it is a
/// good part of what a vote costs a node.
const FOLLOWED: Duration = Duration::from_secs(1);

/// What a keeper knows of the tokens of its nodes.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The largest that was proposed, given or told of.
    last: u64,
    /// The nodes' clock, in microseconds, at a moment of ours.
    clock: Option<(u64, Moment)>,
}

/// What nodes are asked with, beside the claim.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Proposal {
    /// The token that the claim is to have.
    pub(super) token: Option<FencingToken>,
    /// Whether they are to tell their clocks.
    pub(super) wants_clock: bool,
}

impl Tokens {
    /// What to ask nodes with; without a token before their clock is known.
    pub(super) fn proposal(&self) -> Proposal {
        let mut known = lock(&self.0);
        let wants_clock = known.clock.is_none_or(|(_, at)| Moment::now().since(at) >= FOLLOWED);
        Proposal { token: known.clock.map(|_| known.next()), wants_clock }
    }

    /// A token above everything that is known, with room below it.
    pub(super) fn next(&self) -> FencingToken {
        lock(&self.0).next()
    }

    /// Learns what nodes told: the floors, and what their clocks said at `now`.
    pub(super) fn learn(&self, floor: u64, mut clocks: Vec<u64>, now: Moment) {
        let mut known = lock(&self.0);
        known.last = known.last.max(floor);
        clocks.sort_unstable();
        if let Some(middle) = clocks.get(clocks.len() / 2) {
            known.clock = Some((*middle, now));
        }
    }
}

/// Whether a token leaves enough room above what a node knew of.
pub(super) fn has_room(token: FencingToken, floor: u64) -> bool {
    floor.saturating_add(ROOM) <= token.get()
}

impl Known {
    fn next(&mut self) -> FencingToken {
        let clock = self.clock.map_or(0, |(clock, at)| {
            let since = u64::try_from(Moment::now().since(at).as_micros()).unwrap_or(0);
            clock.saturating_add(since)
        });
        let token = FencingToken::after(self.last.saturating_add(ROOM - 1), clock);
        self.last = token.get();
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn they_follow_the_clock_in_the_middle_and_never_go_back() {
        let tokens = Tokens::default();
        assert_eq!(tokens.proposal().token, None);
        tokens.learn(7, Vec::new(), Moment::now());
        assert!(tokens.proposal().wants_clock && tokens.proposal().token.is_none());
        tokens.learn(0, vec![9_000_000, 1_000_000, 1_000_400], Moment::now());
        assert_eq!(tokens.proposal().token.unwrap().get(), 1_000_400);
        assert!(!tokens.proposal().wants_clock);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(tokens.proposal().token.unwrap().get(), 1_001_400);
        tokens.learn(5_000_000, vec![1_000], Moment::now());
        assert_eq!(tokens.next().get(), 5_000_000 + ROOM);
        assert_eq!(tokens.proposal().token.unwrap().get(), 5_000_000 + 2 * ROOM);
        tokio::time::sleep(FOLLOWED).await;
        tokens.learn(5_000_000, Vec::new(), Moment::now());
        assert!(tokens.proposal().wants_clock);
    }
}
