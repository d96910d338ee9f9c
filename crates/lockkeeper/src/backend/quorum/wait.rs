//! Asking until the claim is granted or patience runs out.

use super::attempt::{Attempt, Which, attempt};
use super::holding::Holding;
use super::lease::{Held, QuorumLease};
use super::local_handover::Handover;
use super::nodes::Nodes;
use super::notices::Notices;
use super::round::{Rest, run};
use super::turns::{Place, Waited};
use crate::backend::{Claim, ClaimId, Grant, Moment, Patience};
use crate::error::Result;
use std::sync::Arc;
use std::time::Duration;

/// How often one who will not wait asks when nobody has a majority.
const TRIES: u32 = 4;

/// For how long nodes are asked again of which too few answer within the timeout of a vote. That timeout
/// bounds what a vote may take off a claim's ttl; it is not the time after which a store is taken to be
/// away. A connection that has to be made takes several round trips, and a machine may be busy.
const PATIENT: Duration = Duration::from_secs(1);

/// Acquires as [`Backend::acquire`](crate::backend::Backend::acquire) promises.
pub(super) async fn acquire(
    nodes: &Arc<Nodes>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>> {
    let waits = !patience.is_over();
    let mut place = nodes.turns.join(&claim.name);
    let mut queued = false;
    let claim = Arc::new(claim.clone());
    let holding = Holding::new(claim.clone(), nodes.all.len());
    let (mut pause, mut notices) = (Pause::new(claim.id), Notices::new(nodes, &claim.name));
    let (mut slow_until, mut told_by) = (None, None);
    for time in 1.. {
        if waits && !place.is_free() {
            if !std::mem::replace(&mut queued, true) {
                patience.queued(0);
            }
            match place.turn(&claim, patience).await {
                Waited::Turn => {}
                Waited::Handed(handover) => return Ok(handed(handover, &claim, place)),
                Waited::Over => return Ok(None),
            }
        }
        // Not at the first time: most locks are free.
        if waits && time > 1 {
            notices.listen();
        }
        let began = Moment::now();
        let (asked, asking) = (nodes.clone(), holding.clone());
        let which = Which { time, first: told_by.take() };
        let answer = run(nodes, async move {
            let mut rest = Rest::default();
            (attempt(&asked, &asking, which, &mut rest).await, rest)
        });
        let answer = answer.await?;
        let took = Moment::now().since(began);
        let span = match answer {
            Attempt::Granted { token, sent } => {
                let valid_for = holding.valid_for();
                holding.chain.is_granted(token, sent);
                let held = Held { nodes: nodes.clone(), holding };
                let lease = QuorumLease::granted(held, place.hold());
                return Ok(Some(Grant { lease: Box::new(lease), token, sent, valid_for }));
            }
            Attempt::Busy(_) if !waits => return Ok(None),
            Attempt::Split if !waits && time >= TRIES => return Ok(None),
            Attempt::Busy(left) => pause.busy(left),
            Attempt::Split => pause.split(took),
            Attempt::Slow(error) => {
                let until = *slow_until.get_or_insert(began + PATIENT.max(nodes.options.timeout));
                // At the caller's limit the last answer counts, if there was one.
                let heard = waits && patience.has_heard();
                if waits && patience.is_over() {
                    return if heard { Ok(None) } else { Err(error) };
                }
                if until.remaining().is_zero() {
                    return Err(error);
                }
                let again = Moment::now() + pause.split(nodes.options.timeout);
                tokio::select! {
                    () = again.reached() => continue,
                    () = patience.over(), if waits => {
                        return if heard { Ok(None) } else { Err(error) };
                    }
                }
            }
        };
        slow_until = None;
        patience.heard();
        if waits && patience.is_over() {
            return Ok(None);
        }
        if waits && !queued {
            patience.queued(0);
            queued = true;
        }
        let again = Moment::now() + span;
        tokio::select! {
            () = again.reached() => continue,
            number = notices.told(), if waits => told_by = Some(number),
            () = patience.over(), if waits => return Ok(None),
        }
        let apart = Moment::now() + pause.told(took);
        apart.reached().await;
    }
    Ok(None)
}

/// The grant of a claim that the name passed to.
fn handed(handover: Handover, claim: &Claim, place: Place) -> Option<Grant> {
    let (token, sent) = (handover.token, handover.sent);
    let (held, holds) = handover.take();
    let lease = QuorumLease::granted(held?, place.hold_on(holds));
    Some(Grant { lease: Box::new(lease), token, sent, valid_for: claim.ttl })
}

/// How long to wait before asking again: never in step with others.
#[derive(Debug)]
struct Pause {
    random: u32,
    busy: Duration,
    splits: u32,
    /// How often it was told that the name may be free, and did not get it.
    told: u32,
}

impl Pause {
    const FIRST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(100);

    fn new(id: ClaimId) -> Self {
        Self { random: id.spread(u32::MAX) | 1, busy: Self::FIRST, splits: 0, told: 0 }
    }

    /// Someone has the name, for `left` more unless it is renewed or given back.
    fn busy(&mut self, left: Option<Duration>) -> Duration {
        self.splits = 0;
        let pause = self.busy;
        self.busy = (self.busy * 2).min(Self::LONGEST);
        // There is no point in being there long after the end.
        let pause = left.map_or(pause, |left| pause.min(left + Duration::from_millis(1)));
        pause / 2 + self.part_of(pause)
    }

    /// Nobody got a majority. All who asked ask again, each at a time of its own within a span that
    /// grows until the first of them is through before the next begins.
    fn split(&mut self, took: Duration) -> Duration {
        self.splits = (self.splits + 1).min(6);
        let span = took.max(Duration::from_millis(1)) * (1 << self.splits);
        self.part_of(span.min(Self::LONGEST))
    }

    /// It was told that the name may be free. So were all who wait, as the nodes cannot tell them apart:
    /// it asks at once, and apart from the others once it has found that there are others.
    fn told(&mut self, took: Duration) -> Duration {
        let span = took.max(Duration::from_millis(1)) * ((1 << self.told) - 1);
        self.told = (self.told + 1).min(5);
        self.part_of(span.min(Self::LONGEST))
    }

    /// A part of the span, by chance.
    fn part_of(&mut self, span: Duration) -> Duration {
        // xorshift, which is enough to keep claims apart.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        span.mul_f64(f64::from(self.random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_who_split_the_votes_ask_again_at_different_times() {
        let ids = crate::claim::ClaimIds::new().unwrap();
        let took = Duration::from_millis(2);
        let mut apart = 0;
        for _ in 0..100 {
            let (mut one, mut two) = (Pause::new(ids.next()), Pause::new(ids.next()));
            let pauses: Vec<_> = (0..5).map(|_| (one.split(took), two.split(took))).collect();
            assert!(pauses.iter().all(|(one, two)| *one.max(two) <= Pause::LONGEST));
            apart += usize::from(pauses.iter().any(|(a, b)| a.abs_diff(*b) > took));
        }
        assert!(apart > 95, "only {apart} of 100 pairs came apart");
    }
}
