//! Waiting in the queue.

use super::scripts::{Asked, Left};
use super::{Got, Place, Queue, Shared};
use crate::backend::redis::key::Keys;
use crate::backend::redis::roll::{Called, Seen};
use crate::backend::redis::tenure::{Heard, Inheritance, Tenure, Vouched};
use crate::backend::redis::vigil::Vigil;
use crate::backend::{Claim, Grant, Moment, Patience, Standing};
use crate::error::{Error, Result};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a waiter counts as alive after a sign of life of its keeper; `LIFE` in the scripts.
/// The most that a dead waiter costs the one behind it.
pub(super) const LIFE: Duration = Duration::from_secs(2);
/// A sign of life is given this often.
const BEAT: Duration = Duration::from_millis(600);
/// Later by this much, what ends then has ended.
const A_MOMENT: Duration = Duration::from_millis(1);
/// The roll of those who wait is called this often, should everything else have failed one.
const ROLL_CALL: Duration = Duration::from_secs(10);
/// How long Redis may be away before those who wait are told.
const FORBEARANCE: Duration = Duration::from_secs(10);

impl Queue {
    /// Asks, and waits for its turn if it must.
    pub(super) async fn wait(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let place = self.shared.own_place(claim);
        let vigil = self.shared.roll.vigil(&place.keys.lock, || Vigil::new(BEAT));
        let mut ended = Ended { vigil: &vigil, by_itself: false };
        let outcome = self.wait_at(place, claim, patience, &vigil).await;
        ended.by_itself = true;
        outcome
    }

    async fn wait_at(
        &self,
        place: Place,
        claim: &Claim,
        patience: &Patience,
        vigil: &Arc<Vigil>,
    ) -> Result<Option<Grant>> {
        let shared = &*self.shared;
        let bid = Arc::new(shared.bid(claim, &place.id));
        let mut again = false;
        loop {
            let sent = Moment::now();
            let first = (!again).then_some(Seen { sent, stamp: 0 });
            let forget = Forget { shared, id: &place.id };
            let mut called = shared.roll.expect(&place.id, vigil, &bid, first);
            let refused = match shared.ask(claim, &place, &bid, true, again).await {
                Ok(Asked::Granted(token)) => {
                    vigil.granted(token);
                    drop(forget);
                    return Ok(Some(self.grant(place, bid, Got::by_asking(token, sent, claim))));
                }
                Ok(Asked::Busy) => return Ok(None),
                Ok(Asked::Uncovered(mode)) => Some(mode.upgrade_refused(&claim.name, claim.mode)),
                Ok(Asked::Queued { place: number, next, stamp }) => {
                    shared.roll.seen_waiting(&place.id, Seen { sent, stamp });
                    patience.queued(number);
                    // To ask is a sign of life.
                    vigil.next_sign_in(BEAT, LIFE / 2);
                    if next < BEAT {
                        vigil.look_within(next + A_MOMENT);
                    }
                    None
                }
                // Away for a moment: as patient as whoever has the watch.
                Err(error)
                    if again && error.is_retryable() && vigil.silent_for() <= FORBEARANCE =>
                {
                    tracing::debug!(%error, "no answer while waiting");
                    vigil.look_within(BEAT / 4);
                    None
                }
                Err(error) => Some(error),
            };
            let turn = match refused {
                Some(error) => Err(error),
                None => self.turn(claim, &place, patience, vigil, &mut called).await,
            };
            let turn = match turn {
                Err(error) => match self.last_word(&place, &mut called).await {
                    Some(got) => Turn::Granted(got),
                    None => return Err(error),
                },
                Ok(turn) => turn,
            };
            match turn {
                Turn::Granted(got) => {
                    drop(forget);
                    return Ok(Some(self.grant(place, bid, got)));
                }
                Turn::Over => return Ok(None),
                Turn::AskAgain => again = true,
            }
        }
    }

    async fn turn(
        &self,
        claim: &Claim,
        place: &Place,
        patience: &Patience,
        vigil: &Arc<Vigil>,
        called: &mut oneshot::Receiver<Called>,
    ) -> Result<Turn> {
        tokio::select! {
            biased;
            called = &mut *called => self.granted(claim, place, vigil, called).await,
            () = patience.over() => {
                if let Some(got) = self.last_word(place, called).await {
                    return Ok(Turn::Granted(got));
                }
                let sent = Moment::now();
                match self.shared.leave(place).await? {
                    Left::Granted(token) => {
                        vigil.granted(token);
                        Ok(Turn::Granted(Got::by_asking(token, sent, claim)))
                    }
                    Left::From(number) => {
                        if number > 0 {
                            patience.queued(number);
                        }
                        Ok(Turn::Over)
                    }
                }
            }
            error = self.shared.keep_watch(vigil, &place.keys) => Err(error),
        }
    }

    /// Has nothing passed on to one that gives up. If that just happened, it is had: the store was
    /// told, and to give up would not undo that.
    async fn last_word(
        &self,
        place: &Place,
        called: &mut oneshot::Receiver<Called>,
    ) -> Option<Got> {
        if self.shared.roll.forget(&place.id) || called.is_terminated() {
            return None;
        }
        // Whoever took it off the roll tells it in the same breath.
        match called.await {
            Ok(Called::Inherited(inheritance)) => Some(inheritance.into()),
            _ => None,
        }
    }

    /// Makes sure that what we were told is so, where too much time has passed to be certain.
    async fn granted(
        &self,
        claim: &Claim,
        place: &Place,
        vigil: &Arc<Vigil>,
        called: Result<Called, oneshot::error::RecvError>,
    ) -> Result<Turn> {
        let (token, sent, valid_for, heirs) = match called {
            Ok(Called::Inherited(inheritance)) => return Ok(Turn::Granted(inheritance.into())),
            Ok(Called::Granted { token, seen, heirs }) => (token, seen, claim.ttl.min(LIFE), heirs),
            Ok(Called::Found { token, sent, left }) => {
                (token, sent, claim.ttl.min(left), Vec::new())
            }
            Ok(Called::AskAgain) | Err(_) => return Ok(Turn::AskAgain),
        };
        let heard = Heard { sent, ..self.shared.roll.hears() };
        let tenure = (!heirs.is_empty())
            .then(|| Arc::new(Tenure::new(&place.id, heirs, vigil.clone(), heard)));
        let left = (sent + valid_for).remaining();
        if left > claim.ttl.min(LIFE) / 2 && !self.shared.link.asks_replicas() {
            return Ok(Turn::Granted(Got { token, vouched: Vouched { sent, valid_for }, tenure }));
        }
        let sent = Moment::now();
        match self.shared.renew(place, claim.ttl).await {
            Ok(Standing::Held | Standing::HeldFor(_)) => {
                Ok(Turn::Granted(Got { tenure, ..Got::by_asking(token, sent, claim) }))
            }
            Ok(Standing::Lost(_)) => Ok(Turn::AskAgain),
            // Away for a moment: to ask again waits for it.
            Err(error) if error.is_retryable() => Ok(Turn::AskAgain),
            Err(error) => Err(error),
        }
    }
}

impl From<Inheritance> for Got {
    fn from(Inheritance { token, vouched, tenure }: Inheritance) -> Self {
        Self { token, vouched, tenure: Some(tenure) }
    }
}

enum Turn {
    Granted(Got),
    Over,
    AskAgain,
}

impl Shared {
    /// Waits for the watch, and keeps it: shows that this keeper's waiters live, and finds out
    /// what messages may have missed. Ends only when Redis has been away for too long.
    async fn keep_watch(&self, vigil: &Arc<Vigil>, keys: &Keys) -> Error {
        // Where turns are short nobody takes the watch only to pass it on: as long as some of this
        // keeper ask, all of them show that they live.
        if self.listener.is_listening() {
            vigil.due().await;
        }
        let _watch = loop {
            tokio::select! {
                biased;
                watch = vigil.watch.lock() => break watch,
                () = vigil.overdue_by(BEAT, BEAT) => {
                    if let Err(error) = self.look(vigil, keys).await {
                        tracing::debug!(%error, "no answer while waiting");
                    }
                }
            }
        };
        tokio::select! {
            error = self.give_signs(vigil, keys) => error,
            never = self.keep_listening() => match never {},
        }
    }

    async fn give_signs(&self, vigil: &Arc<Vigil>, keys: &Keys) -> Error {
        loop {
            vigil.due().await;
            vigil.looking(BEAT);
            if let Err(error) = self.look(vigil, keys).await {
                if vigil.silent_for() > FORBEARANCE {
                    return error;
                }
                tracing::debug!(%error, "no answer while waiting");
                vigil.look_within(BEAT / 4);
            }
        }
    }

    /// Beside the signs of life: those come on time also while nothing can be heard.
    async fn keep_listening(&self) -> Infallible {
        loop {
            if let Err(error) = self.listener.ensure().await {
                tracing::debug!(%error, "nothing can be heard");
            }
            (Moment::now() + BEAT).reached().await;
        }
    }

    async fn look(&self, vigil: &Arc<Vigil>, keys: &Keys) -> Result<()> {
        self.listener.check_every(ROLL_CALL / 2);
        let mut members = vigil.members();
        let mut sent = Moment::now();
        let mut beat = self.beat(keys, vigil.calls_the_roll(ROLL_CALL)).await?;
        vigil.answered();
        let mut strays = self.roll.claims.strays(beat.named());
        // Where there is one there may be more.
        if !strays.is_empty() && beat.waiting.is_none() {
            (members, sent) = (vigil.members(), Moment::now());
            beat = self.beat(keys, true).await?;
            strays = self.roll.claims.strays(beat.named());
        }
        if !strays.is_empty() {
            self.disown(&keys.all(), &strays).await?;
        }
        for id in &members {
            let struck_off = beat.waiting.as_ref().is_some_and(|waiting| !waiting.contains(id));
            match beat.held.iter().find(|(held, ..)| held == id) {
                Some((_, Some(token), left)) => {
                    let found = Called::Found { token: *token, sent, left: *left };
                    self.roll.tell(id, found);
                }
                Some((_, None, _)) => self.roll.tell(id, Called::AskAgain),
                // Silent for too long: Redis may have struck it off.
                None if !beat.was_alive || struck_off => self.roll.tell(id, Called::AskAgain),
                None => self.roll.still_waiting(id, Seen { sent, stamp: beat.stamp }),
            }
        }
        if beat.next < BEAT {
            vigil.look_within(beat.next + A_MOMENT);
        }
        Ok(())
    }
}

/// Has those who go on waiting look for what is left of one whose task ended.
struct Ended<'a> {
    vigil: &'a Vigil,
    by_itself: bool,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if !self.by_itself {
            self.vigil.hurry();
        }
    }
}

/// Takes a waiter off the roll, however its wait ends.
struct Forget<'a> {
    shared: &'a Shared,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.roll.forget(self.id);
    }
}
