//! Waiting in the queue.
//!
//! ```text
//!            ask: queued
//!                 │            ┌──────────── AskAgain ◄───────────┐
//!                 ▼            ▼                                  │
//!   ┌────────► waiting ─── ask again: queued                      │
//!   │             │                                               │
//!   │   wakeup ───┼──► HandedOver ───────────────────────► granted
//!   │             ├──► Granted, Found ── enough time left ─► granted
//!   │             │                └─── else renew ── held ─► granted, lost ─► AskAgain
//!   │   patience ─┴──► leave ── was granted meanwhile ─────► granted
//!   │                     └──── left ──────────────────────► None
//!   └─ heartbeat: this keeper's waiters live; what was missed becomes a wakeup
//! ```

use super::answers::Left;
use super::heartbeat::Heartbeat;
use super::local_handover::{Chain, Contact, Handover, Validity};
use super::requests::{Asked, Entry, Request, Whose};
use super::waiters::{HEARTBEAT, LastSeen, Waiting, Wakeup};
use super::{Granted, Queue, Shared};
use crate::backend::redis::keys::Keys;
use crate::backend::{Claim, Grant, Moment, Patience, Standing};
use crate::error::{Error, Result};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a waiter counts as alive after a heartbeat of its keeper; `LIFE` in the scripts. The
/// most that a dead waiter costs the one behind it.
pub(super) const LIFE: Duration = Duration::from_secs(2);
/// Later by this much, a claim that expires then has expired.
const A_MOMENT: Duration = Duration::from_millis(1);
/// The waiters are compared with the whole queue this often, should everything else have failed one.
const AUDIT: Duration = Duration::from_secs(10);
/// How long Redis may be away before those that wait are told. A restart or a failover takes less.
const TOLERATED_SILENCE: Duration = Duration::from_secs(10);

/// The first answer, when it was asked for, and where the wakeup arrives.
type First = (Result<Asked>, Moment, oneshot::Receiver<Wakeup>);

/// What one wait comes to.
enum Outcome {
    Granted(Granted),
    /// The patience is over, and the claim is out of the queue.
    Left,
    AskAgain,
}

impl Queue {
    /// Waits for the claim's turn after the first request for it, asking again where that is needed.
    ///
    /// The first request that is not answered is an error, since nothing is known then; later ones are
    /// forgiven for a while, because the claim is in the queue already. Whatever is returned, a name
    /// that was handed over to the claim in the last moment is not dropped.
    pub(super) async fn wait(
        &self,
        claim: &Claim,
        entry: Entry,
        request: Arc<Request>,
        patience: &Patience,
        waiting: &Waiting<'_>,
        first: First,
    ) -> Result<Option<Grant>> {
        let shared = &*self.shared;
        let heartbeat = &waiting.heartbeat;
        let (mut asked, mut sent, mut woken) = first;
        let mut again = false;
        loop {
            let refused = match asked {
                Ok(Asked::Granted(token)) => {
                    heartbeat.granted(token);
                    waiting.forget();
                    let granted = Granted::by_asking(token, sent, claim);
                    return Ok(Some(self.grant(entry, request, granted)));
                }
                Ok(Asked::Busy) => return Ok(None),
                Ok(Asked::Uncovered(mode)) => Some(mode.upgrade_refused(&claim.name, claim.mode)),
                Ok(Asked::OtherTerms(mode, ttl)) => claim.refuse_other_terms(mode, Some(ttl)).err(),
                Ok(Asked::Queued { place, next, stamp }) => {
                    shared.waiters.seen_waiting(&entry.id, LastSeen { sent, stamp });
                    patience.queued(place);
                    // To ask counts as a heartbeat.
                    heartbeat.sent(HEARTBEAT, LIFE / 2);
                    if next < HEARTBEAT {
                        heartbeat.look_within(next + A_MOMENT);
                    }
                    None
                }
                // Away for a moment: as patient as the heartbeat is.
                Err(error)
                    if again
                        && error.is_retryable()
                        && heartbeat.silent_for() <= TOLERATED_SILENCE =>
                {
                    tracing::debug!(%error, "no answer while waiting");
                    heartbeat.look_within(HEARTBEAT / 4);
                    None
                }
                Err(error) => Some(error),
            };
            let outcome = match refused {
                Some(error) => Err(error),
                None => self.outcome(claim, &entry, patience, waiting, &mut woken).await,
            };
            let outcome = match outcome {
                Err(error) => match last_wakeup(waiting, &mut woken).await {
                    Some(granted) => Outcome::Granted(granted),
                    None => return Err(error),
                },
                Ok(outcome) => outcome,
            };
            match outcome {
                Outcome::Granted(granted) => {
                    waiting.forget();
                    return Ok(Some(self.grant(entry, request, granted)));
                }
                Outcome::Left => return Ok(None),
                Outcome::AskAgain => {}
            }
            again = true;
            waiting.forget();
            sent = Moment::now();
            woken = waiting.expect(None);
            asked = shared.requests.ask(claim, &entry, &request, true, true).await;
        }
    }

    /// Waits for a wakeup or the end of the patience; sends the heartbeat meanwhile, if it is this
    /// waiter's part to do so.
    async fn outcome(
        &self,
        claim: &Claim,
        entry: &Entry,
        patience: &Patience,
        waiting: &Waiting<'_>,
        woken: &mut oneshot::Receiver<Wakeup>,
    ) -> Result<Outcome> {
        let heartbeat = &waiting.heartbeat;
        tokio::select! {
            biased;
            wakeup = &mut *woken => self.woken(claim, entry, heartbeat, wakeup).await,
            () = patience.over() => {
                if let Some(granted) = last_wakeup(waiting, woken).await {
                    return Ok(Outcome::Granted(granted));
                }
                let sent = Moment::now();
                match self.shared.requests.leave(entry).await? {
                    Left::Granted(token) => {
                        heartbeat.granted(token);
                        Ok(Outcome::Granted(Granted::by_asking(token, sent, claim)))
                    }
                    Left::From(place) => {
                        if place > 0 {
                            patience.queued(place);
                        }
                        Ok(Outcome::Left)
                    }
                }
            }
            error = self.shared.keep_alive(heartbeat, &entry.keys) => Err(error),
        }
    }

    /// What a wakeup comes to. A grant is confirmed first where too much time has passed to be certain
    /// of it; a local hand-over needs no confirmation, its validity is the predecessor's.
    async fn woken(
        &self,
        claim: &Claim,
        entry: &Entry,
        heartbeat: &Arc<Heartbeat>,
        wakeup: Result<Wakeup, oneshot::error::RecvError>,
    ) -> Result<Outcome> {
        let (token, sent, valid_for, successors) = match wakeup {
            Ok(Wakeup::HandedOver(handover)) => return Ok(Outcome::Granted(handover.into())),
            Ok(Wakeup::Granted { token, seen, successors }) => {
                (token, seen, claim.ttl.min(LIFE), successors)
            }
            Ok(Wakeup::Found { token, sent, left }) => {
                (token, sent, claim.ttl.min(left), Vec::new())
            }
            Ok(Wakeup::AskAgain) | Err(_) => return Ok(Outcome::AskAgain),
        };
        let contact = Contact { sent, ..self.shared.waiters.contact() };
        let chain = (!successors.is_empty())
            .then(|| Arc::new(Chain::new(&entry.id, successors, heartbeat.clone(), contact)));
        let requests = &self.shared.requests;
        let left = (sent + valid_for).remaining();
        if left > claim.ttl.min(LIFE) / 2 && !requests.client.asks_replicas() {
            let validity = Validity { sent, valid_for };
            return Ok(Outcome::Granted(Granted { token, validity, chain }));
        }
        let sent = Moment::now();
        match requests.renew(entry, claim.ttl, Whose::Same).await {
            Ok(Standing::Held | Standing::HeldFor(_)) => {
                Ok(Outcome::Granted(Granted { chain, ..Granted::by_asking(token, sent, claim) }))
            }
            Ok(Standing::Lost(_)) => Ok(Outcome::AskAgain),
            // Away for a moment: to ask again waits for that.
            Err(error) if error.is_retryable() => Ok(Outcome::AskAgain),
            Err(error) => Err(error),
        }
    }
}

/// Takes the claim off the list before it gives up, so that nothing is handed over to it any more.
/// If that has just happened, the claim has the name: Redis is being told, and to give up would not
/// undo that.
async fn last_wakeup(
    waiting: &Waiting<'_>,
    woken: &mut oneshot::Receiver<Wakeup>,
) -> Option<Granted> {
    if waiting.forget() || woken.is_terminated() {
        return None;
    }
    // The one that took it off the list wakes it without a pause.
    match woken.await {
        Ok(Wakeup::HandedOver(handover)) => Some(handover.into()),
        _ => None,
    }
}

impl From<Handover> for Granted {
    fn from(Handover { token, validity, chain }: Handover) -> Self {
        Self { token, validity, chain: Some(chain) }
    }
}

impl Shared {
    /// Waits to become the sender of the heartbeats, and then sends them: shows that this keeper's
    /// waiters live, and finds out what messages may have missed. Ends only when Redis has been away
    /// for too long.
    async fn keep_alive(&self, heartbeat: &Arc<Heartbeat>, keys: &Keys) -> Error {
        // Not while messages are missed: then the looks are all there is to go by.
        // Where turns are short nobody becomes the sender only to stop again: as long as some of
        // this keeper ask, that is heartbeat enough.
        if self.subscriber.is_subscribed() {
            heartbeat.due().await;
        }
        let _sender = loop {
            tokio::select! {
                biased;
                sender = heartbeat.sender.lock() => break sender,
                () = heartbeat.overdue_by(HEARTBEAT, HEARTBEAT) => {
                    if let Err(error) = self.look(heartbeat, keys).await {
                        tracing::debug!(%error, "no answer while waiting");
                    }
                }
            }
        };
        tokio::select! {
            error = self.send_heartbeats(heartbeat, keys) => error,
            never = self.keep_subscribed() => match never {},
        }
    }

    /// Sends heartbeats when they are due, until Redis has been away for too long.
    async fn send_heartbeats(&self, heartbeat: &Arc<Heartbeat>, keys: &Keys) -> Error {
        loop {
            heartbeat.due().await;
            heartbeat.looking(HEARTBEAT);
            if let Err(error) = self.look(heartbeat, keys).await {
                if heartbeat.silent_for() > TOLERATED_SILENCE {
                    return error;
                }
                tracing::debug!(%error, "no answer while waiting");
                heartbeat.look_within(HEARTBEAT / 4);
            }
        }
    }

    /// Beside the heartbeats, which come on time also while no messages arrive.
    async fn keep_subscribed(&self) -> Infallible {
        loop {
            if let Err(error) = self.subscriber.ensure().await {
                tracing::debug!(%error, "no messages arrive");
            }
            (Moment::now() + HEARTBEAT).reached().await;
        }
    }

    /// Sends a heartbeat, and wakes the waiters that its answer tells something of.
    async fn look(&self, heartbeat: &Arc<Heartbeat>, keys: &Keys) -> Result<()> {
        self.subscriber.check_every(AUDIT / 2);
        let (requests, waiters) = (&self.requests, &self.waiters);
        let mut members = heartbeat.members();
        let mut sent = Moment::now();
        let mut look = requests.heartbeat(keys, heartbeat.audit_due(AUDIT)).await?;
        heartbeat.answered();
        // Claims that Redis has on record as this keeper's and that no task of it has.
        let mut strays = waiters.claims.strays(look.named());
        // Where there is one stray there may be more.
        if !strays.is_empty() && look.waiting.is_none() {
            (members, sent) = (heartbeat.members(), Moment::now());
            look = requests.heartbeat(keys, true).await?;
            strays = waiters.claims.strays(look.named());
        }
        if !strays.is_empty() {
            requests.disown(keys, &strays).await?;
        }
        // Only for those that were members before the heartbeat was sent: of later ones its answer says
        // nothing.
        for id in &members {
            let is_missing = look.waiting.as_ref().is_some_and(|waiting| !waiting.contains(id));
            match look.held.iter().find(|(held, ..)| held == id) {
                Some((_, Some(token), left)) => {
                    waiters.wake(id, Wakeup::Found { token: *token, sent, left: *left });
                }
                Some((_, None, _)) => waiters.wake(id, Wakeup::AskAgain),
                // Silent for too long: Redis may have dropped it.
                None if !look.was_alive || is_missing => waiters.wake(id, Wakeup::AskAgain),
                None => waiters.still_waiting(id, LastSeen { sent, stamp: look.stamp }),
            }
        }
        if look.next < HEARTBEAT {
            heartbeat.look_within(look.next + A_MOMENT);
        }
        Ok(())
    }
}
