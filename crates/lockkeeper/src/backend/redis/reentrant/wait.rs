//! Waiting for a message that a name may be free.
//!
//! Redisson's layout has no queue: a release is published, and all that wait try again. So that a
//! release does not wake every waiter of this keeper, one of them (per name and mode) subscribes and
//! tries, single-flight; the others wait for its place.
//!
//! ```text
//!   A: subscribe ── try ── busy ── message, or the holder's expiry, or 3 s ── try ── granted
//!   B: waits for A's place ………………………………………………………………………………………………… subscribe ── try …
//! ```
//!
//! To subscribe first and try then, in this order, leaves no gap: a release after the try is heard.

use super::keys::Keys;
use super::{Answer, Reentrant};
use crate::backend::support::sync::lock;
use crate::backend::{Backend, Claim, Grant, Mode, Moment, Name, Patience};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The longest sleep between two tries, should a message be missed: Redis keeps none for those that are
/// away.
const LONGEST_SLEEP: Duration = Duration::from_secs(3);
/// How long Redis may be away before those that wait are told.
const TOLERATED_SILENCE: Duration = Duration::from_secs(10);
/// The pause before asking again what was not answered.
const PAUSE: Duration = Duration::from_millis(150);

/// Held by the waiter that tries.
type Flight = tokio::sync::Mutex<()>;

/// Which waiter tries, per name: of all claims of this keeper that wait for it one subscribes and
/// tries, and another takes its place when it leaves. Readers and writers have one each, since what
/// keeps the one out may let the other in.
#[derive(Debug, Default)]
pub(super) struct SingleFlight(Mutex<HashMap<(Name, Mode), Weak<Flight>>>);

impl SingleFlight {
    /// That of the claim's name and mode.
    fn of(&self, claim: &Claim) -> Arc<Flight> {
        let key = (claim.name.clone(), claim.mode);
        let mut flights = lock(&self.0);
        if let Some(flight) = flights.get(&key).and_then(Weak::upgrade) {
            return flight;
        }
        if flights.len() == flights.capacity() {
            flights.retain(|_, flight| flight.strong_count() > 0);
        }
        let flight = Arc::new(Flight::new(()));
        flights.insert(key, Arc::downgrade(&flight));
        flight
    }
}

impl Reentrant {
    /// Waits until the claim is granted or the patience is over. Nothing of the claim is left in Redis
    /// in the latter case, also where a request was not answered.
    pub(super) async fn wait(
        &self,
        claim: &Claim,
        keys: &Keys,
        patience: &Patience,
    ) -> Result<Option<Grant>> {
        patience.queued(0);
        let mut wait = Wait { backend: self, claim, keys, patience, doubt: false };
        let outcome = wait.through().await?;
        if outcome.is_none() && wait.doubt {
            // A request that was not answered may be done yet.
            self.withdraw(claim).await?;
        }
        Ok(outcome)
    }
}

/// One claim that waits.
struct Wait<'a> {
    backend: &'a Reentrant,
    claim: &'a Claim,
    keys: &'a Keys,
    patience: &'a Patience,
    /// Whether a request of it was not answered: then it may be carried out yet, and the claim has
    /// to be withdrawn.
    doubt: bool,
}

impl Wait<'_> {
    /// Waits for its place, and tries from then on.
    async fn through(&mut self) -> Result<Option<Grant>> {
        let flight = self.backend.shared.single_flight.of(self.claim);
        // An owner may come to hold the name elsewhere, and then need not wait for its place here.
        let may_enter = self.claim.owner.id() != self.claim.id.to_string();
        let flight = flight.lock();
        tokio::pin!(flight);
        let _flight = loop {
            let pause = Moment::now() + LONGEST_SLEEP;
            tokio::select! {
                biased;
                flight = &mut flight => break flight,
                () = self.patience.over() => return Ok(None),
                () = pause.reached(), if may_enter => {}
            }
            if let Some(Answer::Granted(grant)) = self.ask().await? {
                return Ok(Some(grant));
            }
        };
        self.keep_trying().await
    }

    /// Subscribes and tries until the claim is granted.
    async fn keep_trying(&mut self) -> Result<Option<Grant>> {
        let subscriber = &self.backend.shared.subscriber;
        let mut subscription = subscriber.subscribe(self.keys.channels());
        let mut silent_since = None;
        loop {
            // A message from here on calls for another try; this one sees what came before.
            subscription.begin();
            let subscribed = subscriber.confirm(&subscription).await;
            if let Err(error) = subscribed.as_ref()
                && error.kind() != ErrorKind::Unavailable
            {
                return subscribed.map(|()| None);
            }
            let sleep = match self.ask().await? {
                Some(Answer::Granted(grant)) => return Ok(Some(grant)),
                // A moment later, so that what ends then has ended.
                Some(Answer::Busy(left)) if subscribed.is_ok() => {
                    silent_since = None;
                    left.map_or(LONGEST_SLEEP, |left| left + Duration::from_millis(1))
                }
                _ => {
                    let now = Moment::now();
                    if now.since(*silent_since.get_or_insert(now)) > TOLERATED_SILENCE {
                        return Err(subscribed.err().unwrap_or_else(unanswered));
                    }
                    PAUSE
                }
            };
            tokio::select! {
                biased;
                () = self.patience.over() => return Ok(None),
                () = subscription.message(), if silent_since.is_none() => {}
                () = (Moment::now() + sleep.min(LONGEST_SLEEP)).reached() => {
                    if sleep >= LONGEST_SLEEP {
                        // Nothing else would tell of a connection that vanished without a word.
                        subscriber.check().await;
                    }
                }
            }
        }
    }

    /// Asks once; `None` when there was no answer.
    async fn ask(&mut self) -> Result<Option<Answer>> {
        match self.backend.ask(self.claim, self.keys).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tracing::debug!(%error, "no answer while waiting");
                self.doubt = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The error for a server that has been away for too long.
fn unanswered() -> Error {
    let message = format!("Redis has not answered for {TOLERATED_SILENCE:?}");
    Error::new(ErrorKind::Unavailable, message)
}
