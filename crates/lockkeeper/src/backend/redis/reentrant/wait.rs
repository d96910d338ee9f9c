//! Waiting to be told that a name may be free.

use super::{Answer, Keys, Reentrant};
use crate::backend::redis::roll::lock;
use crate::backend::{Backend, Claim, Grant, Mode, Moment, Name, Patience};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The longest sleep between two looks, should a message be missed.
const LONGEST_SLEEP: Duration = Duration::from_secs(3);
/// How long Redis may be away before those who wait are told.
const FORBEARANCE: Duration = Duration::from_secs(10);
/// The pause before asking again what was not answered.
const PAUSE: Duration = Duration::from_millis(150);

type Turn = tokio::sync::Mutex<()>;

/// Whose turn it is to try, per name: of all that wait for it here one listens and tries, and
/// passes that on when it leaves. Readers and writers have a turn each, since what keeps the one
/// out may let the other in.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<(Name, Mode), Weak<Turn>>>);

impl Turns {
    fn of(&self, claim: &Claim) -> Arc<Turn> {
        let key = (claim.name.clone(), claim.mode);
        let mut turns = lock(&self.0);
        if let Some(turn) = turns.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        if turns.len() == turns.capacity() {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::new(Turn::new(()));
        turns.insert(key, Arc::downgrade(&turn));
        turn
    }
}

impl Reentrant {
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
    /// Whether a request of it was not answered.
    doubt: bool,
}

impl Wait<'_> {
    async fn through(&mut self) -> Result<Option<Grant>> {
        let turn = self.backend.shared.turns.of(self.claim);
        // An owner may come to hold the name elsewhere, and then need not wait for a turn here.
        let may_enter = self.claim.owner.id() != self.claim.id.to_string();
        let turn = turn.lock();
        tokio::pin!(turn);
        let _turn = loop {
            let pause = Moment::now() + LONGEST_SLEEP;
            tokio::select! {
                biased;
                turn = &mut turn => break turn,
                () = self.patience.over() => return Ok(None),
                () = pause.reached(), if may_enter => {}
            }
            if let Some(Answer::Granted(grant)) = self.ask().await? {
                return Ok(Some(grant));
            }
        };
        self.keep_trying().await
    }

    /// Listens and tries until it is granted.
    async fn keep_trying(&mut self) -> Result<Option<Grant>> {
        let listener = &self.backend.shared.listener;
        let mut attention = listener.channels.attend(self.keys.channels());
        let mut silent_since = None;
        loop {
            // What is said from here on calls for another look; what was said before is seen.
            attention.begin();
            let subscribed = listener.subscribe(&attention).await;
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
                    if now.since(*silent_since.get_or_insert(now)) > FORBEARANCE {
                        return Err(subscribed.err().unwrap_or_else(unanswered));
                    }
                    PAUSE
                }
            };
            tokio::select! {
                biased;
                () = self.patience.over() => return Ok(None),
                () = attention.called(), if silent_since.is_none() => {}
                () = (Moment::now() + sleep.min(LONGEST_SLEEP)).reached() => {
                    if sleep >= LONGEST_SLEEP {
                        // Nothing else would tell of a connection that vanished without a word.
                        listener.check().await;
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

fn unanswered() -> Error {
    let message = format!("Redis has not answered for {FORBEARANCE:?}");
    Error::new(ErrorKind::Unavailable, message)
}
