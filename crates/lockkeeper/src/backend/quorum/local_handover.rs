//! Local hand-over: a name passes from one claim of a keeper to the next before the nodes are told.
//!
//! ```text
//!   claim A (holds)        claim B, claim C (wait)             every node
//!   ───────────────        ───────────────────────             ──────────────────────────────
//!   granted                                                    taken as A, shown as A, token 71
//!   release()
//!     hand_over ─────────► B holds at once, token 72
//!     tell ───────────────────────────────────────────────►   taken as A, shown as B, token 72
//!                          B: release()
//!                            hand_over ───► C holds, 73
//! ```
//!
//! To the nodes it is one claim throughout, known by the id that it was taken with, which this keeper keeps
//! and gives back; what passes within the keeper is who has it. So between keepers everything that holds of
//! a claim that is renewed holds of one that passes on. What is told is the present holder, whoever had the
//! name in between: while one round of answers is under way, several claims may come and go.
//!
//! What it promises:
//!
//! - **Exclusion.** A successor is valid for no longer than a majority vouched for its predecessor, counted
//!   from before that round was sent. Telling the nodes gives the claim its whole ttl anew, so it never
//!   shortens that; successors have the same ttl.
//! - **Tokens grow.** Each successor's token is one above its predecessor's, and no more than [`UNSEEN`]
//!   above one that a majority remembers; the token of any other grant is further above that
//!   ([`ROOM`](super::tokens::ROOM)).
//! - **Doubt.** Nothing is handed over once a round has failed, until another has succeeded; nor after the
//!   claim was found lost or broken; nor when the last good round is long ago. A holder that hears by the
//!   telling that the claim is gone is told so.
//! - **Others get their turn.** After [`RUN`] the name is given back for real.
//!
//! What it costs: what others are shown is one round of answers old.

use super::lease::Held;
use super::nodes::Nodes;
use super::round::Rest;
use super::turns::Offer;
use crate::backend::support::sync::lock;
use crate::backend::{Claim, FencingToken, Moment, Standing};
use crate::patience::RetryUntilExpiry;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How many claims may follow one another before a majority has heard of one of them: less than
/// [`ROOM`](super::tokens::ROOM).
pub(super) const UNSEEN: u32 = 30;

/// For how long a name is handed over before it is given back: other keepers, and other libraries, wait for
/// that.
pub(super) const RUN: Duration = Duration::from_millis(20);

/// How old the nodes' last word may be when a name is handed over; a quarter of the ttl, if that is less.
const RECENTLY: Duration = Duration::from_secs(1);

/// Who of this keeper has a claim that the nodes granted, and how far the nodes know.
#[derive(Debug)]
pub(super) struct Chain {
    state: Mutex<State>,
    /// Held by whoever asks the nodes to keep the claim, or to take it back: one at a time.
    pub(super) asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    present: Present,
    /// When the nodes granted it.
    began: Option<Moment>,
    vouched: Option<Vouched>,
    /// The last round has failed, or is overdue.
    doubtful: bool,
    /// Nothing is handed over any more.
    over: bool,
    /// Someone is about to tell the nodes who has the name.
    telling: bool,
}

/// Who has the claim now.
#[derive(Debug, Clone)]
pub(super) struct Present {
    pub(super) claim: Arc<Claim>,
    pub(super) token: Option<FencingToken>,
    /// How often the claim has passed on.
    pub(super) number: u32,
}

/// What a majority answered last.
#[derive(Debug, Clone, Copy)]
struct Vouched {
    /// A moment before it was asked.
    sent: Moment,
    /// Who was named to it.
    number: u32,
}

/// What becomes of a name that its holder is done with.
#[derive(Debug)]
pub(super) enum Next {
    /// It passes to this claim, on what a majority answered to a request sent then.
    Pass { offer: Offer, token: Option<FencingToken>, sent: Moment, tell: bool },
    /// It is given back; whether others should come first, since this keeper had it for long.
    GiveBack { yields: bool },
}

impl Chain {
    pub(super) fn new(claim: Arc<Claim>) -> Self {
        let present = Present { claim, token: None, number: 0 };
        let state = State {
            present,
            began: None,
            vouched: None,
            doubtful: false,
            over: false,
            telling: false,
        };
        Self { state: Mutex::new(state), asking: tokio::sync::Mutex::default() }
    }

    /// The nodes granted it, to a request that was sent then.
    pub(super) fn is_granted(&self, token: Option<FencingToken>, sent: Moment) {
        let mut state = lock(&self.state);
        state.present.token = token;
        state.began = Some(Moment::now());
        state.vouched = Some(Vouched { sent, number: 0 });
    }

    pub(super) fn present(&self) -> Present {
        lock(&self.state).present.clone()
    }

    /// A majority has the claim, and was told who has it now.
    pub(super) fn is_vouched_for(&self, sent: Moment, number: u32) {
        let mut state = lock(&self.state);
        state.vouched = Some(Vouched { sent, number });
        state.doubtful = false;
    }

    /// Too few nodes answered.
    pub(super) fn is_doubtful(&self) {
        lock(&self.state).doubtful = true;
    }

    /// The claim is lost, or is being given back.
    pub(super) fn ends(&self) {
        lock(&self.state).over = true;
    }

    /// Passes the name on to the claim that `take` gives, if it may be and there is one.
    pub(super) fn next(&self, ttl: Duration, take: impl FnOnce() -> Option<Offer>) -> Next {
        let mut state = lock(&self.state);
        let now = Moment::now();
        let ours = |vouched: &Vouched| {
            now.since(vouched.sent) < RECENTLY.min(ttl / 4)
                && state.present.number - vouched.number < UNSEEN
        };
        let vouched = state.vouched.filter(|it| !state.over && !state.doubtful && ours(it));
        let (Some(Vouched { sent, .. }), Some(began)) = (vouched, state.began) else {
            return Next::GiveBack { yields: false };
        };
        if now.since(began) >= RUN {
            return Next::GiveBack { yields: state.present.number > 0 };
        }
        let Some(offer) = take() else { return Next::GiveBack { yields: false } };
        let above = |token: FencingToken| FencingToken::new(token.get() + 1);
        let token = state.present.token.and_then(above);
        let number = state.present.number + 1;
        state.present = Present { claim: offer.claim.clone(), token, number };
        let tell = !std::mem::replace(&mut state.telling, true);
        Next::Pass { offer, token, sent, tell }
    }

    /// Whether the nodes are to be told who has the name now; if not, whoever tells them is done.
    fn is_to_be_told(&self) -> bool {
        let mut state = lock(&self.state);
        let told = state.vouched.is_some_and(|it| it.number == state.present.number);
        state.telling = !(told || state.over || state.doubtful);
        state.telling
    }
}

/// Tells the nodes who has the name, until they know.
pub(super) async fn tell(held: Held) {
    loop {
        let mut rest = Rest::default();
        {
            let asking = held.holding.chain.asking.lock().await;
            if !held.holding.chain.is_to_be_told() {
                return;
            }
            if let Ok(Standing::Lost(reason)) = held.ask_to_keep(&asking, &mut rest).await {
                held.holding.is_lost(reason);
            }
        }
        held.nodes.background().spawn(rest.done());
    }
}

/// What passes from one claim to the next. If nobody takes it, the name is given back.
#[derive(Debug)]
pub(super) struct Handover {
    held: Option<Held>,
    pub(super) token: Option<FencingToken>,
    /// A moment before the request that a majority answered last.
    pub(super) sent: Moment,
    /// Keeps the keeper's other claims on the name from asking.
    holds: Option<OwnedSemaphorePermit>,
}

impl Handover {
    pub(super) fn new(
        held: Held,
        token: Option<FencingToken>,
        sent: Moment,
        holds: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { held: Some(held), token, sent, holds }
    }

    /// The successor takes it.
    pub(super) fn take(mut self) -> (Option<Held>, Option<OwnedSemaphorePermit>) {
        (self.held.take(), self.holds.take())
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let (nodes, holds): (Arc<Nodes>, _) = (held.nodes.clone(), self.holds.take());
        nodes.background().spawn(async move {
            let mut retry = RetryUntilExpiry::of(&held.holding.claim);
            loop {
                let mut rest = Rest::default();
                let released = held.release(Duration::ZERO, &mut rest).await;
                rest.done().await;
                let again = released.is_err_and(|error| error.leaves_doubt());
                if !again || !retry.again().await {
                    break;
                }
            }
            drop(holds);
        });
    }
}
