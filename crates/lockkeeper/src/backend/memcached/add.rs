//! The recipe `add`: the first to add the key has the lock.
//!
//! ```text
//!   ask ── added ─────────────────────────────► held
//!    ▲       │ there is one already
//!    │       ▼
//!    │     wait in this keeper's line; its first asks again: after 5 ms, twice that, … at most 200 ms,
//!    └──── each by up to half as long again, and at once when this keeper gives the name back
//! ```
//!
//! A try whose answer was lost may have added the key. From then on, "there is one already" is looked
//! at: it may be ours.

use super::error::Failure;
use super::lease::MemcachedLease;
use super::record::Record;
use super::requests::{Found, Held, Locks, seconds};
use super::waiters::Turn;
use crate::backend::{Claim, Grant, Moment, Patience};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// The first pause between two questions, which doubles from there.
const FIRST: Duration = Duration::from_millis(5);
/// The longest.
const LONGEST: Duration = Duration::from_millis(200);

/// Makes the claim, and waits for it until patience runs out.
pub(super) async fn acquire(
    locks: &Arc<Locks>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>> {
    let mut attempt = Attempt::new(locks, claim)?;
    // Those of this keeper that wait already are not overtaken by one that can wait too.
    if patience.is_over() || !locks.waiters.any(&attempt.held.place.key) {
        if let Some(sent) = attempt.ask().await? {
            return Ok(Some(attempt.granted(sent)));
        }
        if patience.is_over() {
            return attempt.left().await;
        }
    }
    patience.queued(0);
    let turn = locks.waiters.join(&attempt.held.place.key);
    match attempt.wait(&turn, patience).await? {
        Some(sent) => Ok(Some(attempt.granted(sent))),
        None => attempt.left().await,
    }
}

/// One claim on its way.
struct Attempt {
    locks: Arc<Locks>,
    held: Held,
    ttl: Duration,
    /// Differs from claim to claim.
    spread: u32,
    /// An answer was lost: the claim may be in the store.
    is_doubtful: bool,
    /// It was asked for by its id, so that it may be in the store by another keeper.
    by_id: bool,
}

impl Attempt {
    fn new(locks: &Arc<Locks>, claim: &Claim) -> Result<Self> {
        let held = Held::new(locks.keys.of(&claim.name), Record::of(claim), seconds(claim.ttl)?);
        let spread = claim.id.spread(32);
        let by_id = claim.by_id;
        Ok(Self { locks: locks.clone(), held, ttl: claim.ttl, spread, is_doubtful: by_id, by_id })
    }

    /// Asks once: since when it is ours, or `None` if it is not. A connection that broke, as an idle
    /// one does when the server is restarted, is made anew once.
    async fn ask(&mut self) -> Result<Option<Moment>> {
        for last in [false, true] {
            match self.try_once().await {
                Ok(found) => return Ok(found),
                Err(failure) => {
                    self.is_doubtful = true;
                    if last || !failure.is_broken() {
                        return Err(self.locks.explain(&failure, &self.held.place));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn try_once(&mut self) -> Result<Option<Moment>, Failure> {
        let found = match self.held.add(&self.locks).await? {
            Found::Others if self.is_doubtful => self.held.keep(&self.locks).await?,
            found => found,
        };
        match found {
            Found::Ours(since) => Ok(Some(since)),
            // Nothing: it was ours, and ended while the server's clock caught up.
            Found::Others | Found::Nothing => Ok(None),
        }
    }

    /// Waits for the turn and asks, until it is held or patience runs out.
    async fn wait(&mut self, turn: &Turn, patience: &Patience) -> Result<Option<Moment>> {
        // One that comes up from behind follows a claim of this keeper, whose release wakes it.
        let mut pause = if turn.is_first() { FIRST } else { LONGEST };
        loop {
            if !turn.is_first() {
                tokio::select! {
                    biased;
                    () = turn.woken() => {}
                    () = patience.over() => return Ok(None),
                    error = self.silent(turn, patience) => return Err(error),
                }
                continue;
            }
            let woken = tokio::select! {
                biased;
                () = turn.woken() => true,
                () = patience.over() => return Ok(None),
                () = tokio::time::sleep(self.jittered(pause)) => false,
            };
            pause = if woken { FIRST } else { (pause * 2).min(LONGEST) };
            match self.ask().await {
                Ok(Some(since)) => return Ok(Some(since)),
                Ok(None) => {
                    turn.heard();
                    patience.heard();
                }
                Err(error) if error.is_outage() && patience.silence() < patience.outage() => {
                    tracing::debug!(%error, "waiting all the same");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Resolves when the store said nothing to the first of the line for as long as this claim puts
    /// up with.
    async fn silent(&self, turn: &Turn, patience: &Patience) -> Error {
        loop {
            let heard = turn.last_heard();
            (heard + patience.outage()).reached().await;
            if turn.last_heard() == heard {
                return self.locks.explain(&Failure::TimedOut, &self.held.place);
            }
            patience.heard();
        }
    }

    /// Longer by up to a half, so that keepers do not ask in step.
    fn jittered(&mut self, pause: Duration) -> Duration {
        self.spread = self.spread.wrapping_mul(5).wrapping_add(7) % 32;
        pause + pause / 64 * self.spread
    }

    /// The end of a claim that was not granted: nothing of it is left, or an error says that it may.
    async fn left(mut self) -> Result<Option<Grant>> {
        if self.is_doubtful && !self.by_id {
            let removed = self.held.remove(&self.locks, Duration::ZERO).await;
            removed.map_err(|failure| self.locks.explain(&failure, &self.held.place))?;
        }
        Ok(None)
    }

    fn granted(self, since: Moment) -> Grant {
        let token = self.held.token();
        let lease = MemcachedLease::new(self.locks, self.held, self.ttl);
        Grant::new(Box::new(lease), token, since, self.ttl)
    }
}
