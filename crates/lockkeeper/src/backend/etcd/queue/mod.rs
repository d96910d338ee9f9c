//! The recipe: the keys below a name are a queue, in the order of their create revisions, and the
//! claims at its head hold the name.
//!
//! ```text
//! acquire:  create our key, and read the end of the queue, in one transaction
//!           at the head?   yes: granted, one round trip
//!                          no:  watch the keys we are behind; when one goes, read again (wait.rs)
//! try:      create our key if nobody is there, else leave nothing behind (attempt.rs)
//! several:  create all keys if nobody is at any name (multi.rs)
//! by id:    the same as the first two, at a key that all who ask by this id have (by_id.rs)
//! ```
//!
//! Every way out of these functions leaves one of three things: a grant, no key, or a key that
//! [`Cleanup`](super::cleanup) knows of. A request for a key that was not answered is the hard
//! case: the key may be created later, and is deleted in a way that outlasts the request.
//!
//! Why a grant is safe:
//! - The order is etcd's own: create revisions are agreed on by a majority and never go back. Only
//!   keys of one transaction share a revision, and those are never of the same name.
//! - A claim is found at the head by a read through a majority that also finds its own key. A key
//!   that was deleted, by an operator or with its session, is not found, and nothing is granted.
//! - The grant is valid until the session could end, counted from before the request was sent that
//!   found it: a slow answer shortens the grant, and one that is too slow is no grant.
//!
//! Whether a claim is at the head depends only on those before it, which only ever leave: so a
//! claim that was found at the head stays there for as long as its key does.

mod attempt;
mod by_id;
mod multi;
mod place;
mod wait;

pub(super) use attempt::try_now;
pub(super) use by_id::acquire_by_id;
pub(super) use multi::acquire_all;

use super::cleanup::Deletion;
use super::keys::{ClaimKey, KeyRange};
use super::lease::{Context, Enqueued, EtcdLease};
use super::protocol::{KeyValue, RangeResponse, TxnRequest, TxnResponse, path};
use super::record;
use super::requests::{self, InTheWay, revision_of};
use super::session::ServerLease;
use crate::backend::{Claim, Grant, Mode, Moment, Patience};
use crate::error::Result;
use place::Place;
use std::sync::Arc;
use std::time::Duration;
use wait::Turn;

/// For how long a key is left alone in which another claim was found.
const OCCUPIED: Duration = Duration::from_secs(10);

/// Where a claim was found.
#[derive(Debug)]
struct Looked {
    /// When the request that found it was sent.
    sent: Moment,
    place: Place,
    /// The revision at which it was so.
    revision: i64,
    /// The lease that its key lives on; zero where it has none.
    lives_on: i64,
}

/// What became of stepping into the queue. An error is neither: then the key is scheduled for
/// deletion.
enum Entered {
    At(Enqueued, Looked),
    /// Something was in the way that is not any more.
    Again,
}

/// Steps into the queue, and waits for its turn if it must. `None` when the caller's patience is
/// over; then the claim has no key any more.
pub(super) async fn acquire(
    context: &Arc<Context>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>> {
    loop {
        let lease = context.session.current().await?;
        let turn = match enter(context, claim, lease).await? {
            Entered::At(enqueued, Looked { sent, place: Place::Head, .. }) => {
                EtcdLease::grant(context, claim, enqueued, sent).map_or(Turn::Again, Turn::Granted)
            }
            Entered::At(enqueued, looked) => {
                wait::wait(context, claim, patience, enqueued, looked).await?
            }
            Entered::Again => Turn::Again,
        };
        match turn {
            Turn::Granted(grant) => return Ok(Some(grant)),
            Turn::Over => return Ok(None),
            // The key of a session that ended is left to end with it; one that may not have ended
            // is scheduled for deletion.
            Turn::Again if patience.is_over() => return Ok(None),
            Turn::Again => {}
        }
    }
}

/// Steps into the queue, at its end. Asks again by itself only after a lost answer: whether the key
/// that is there then is ours is told by its name, which no other claim of this keeper has.
async fn enter(context: &Arc<Context>, claim: &Claim, lease: Arc<ServerLease>) -> Result<Entered> {
    let key = ClaimKey::new(&context.prefix, &context.keys, claim, lease.id);
    let request = requests::enter(&key, claim, &lease.generation());
    let sent = Moment::now();
    let Some((answer, sent_twice)) = ask(context, claim, &key, &lease, &request).await? else {
        return Ok(Entered::Again);
    };
    let revision = revision_of(answer.header);
    if answer.succeeded {
        // Where we stand is in the same answer: most locks are free, and then that was all.
        let newest = requests::reads(answer.responses).next().unwrap_or_default();
        let enqueued =
            Enqueued { key, lease, created: revision, seen: revision, sent_twice, before: None };
        let looked = match place::of_last(&enqueued.key, &newest) {
            Some(place) => Looked { sent, place, revision, lives_on: enqueued.lease.id },
            None => look_or_clean_up(context, claim, &enqueued).await?,
        };
        return Ok(Entered::At(enqueued, looked));
    }
    let request = requests::why_not_entered(&key);
    let Some((answer, _)) = ask(context, claim, &key, &lease, &request).await? else {
        return Ok(Entered::Again);
    };
    let InTheWay { ours, generation, .. } = InTheWay::read(answer);
    match ours {
        // Of a claim that was handed out; another key has to do.
        Some(other) if !is_of(&other, claim, &key) => Ok(Entered::Again),
        // Created by an earlier copy of the request, whose answer was lost.
        Some(ours) => {
            let (created, seen) = (ours.create_revision, revision);
            let enqueued = Enqueued { key, lease, created, seen, sent_twice: true, before: None };
            let looked = look_or_clean_up(context, claim, &enqueued).await?;
            Ok(Entered::At(enqueued, looked))
        }
        None => {
            lease.learn_generation(generation);
            Ok(Entered::Again)
        }
    }
}

/// Whether what is in the claim's key is of this very claim. If not, the key is kept out of use for a
/// while: this keeper has handed out the claim that is there.
fn is_of(kv: &KeyValue, claim: &Claim, key: &ClaimKey) -> bool {
    let is_ours = record::read(&kv.value).is_some_and(|record| record.id == Some(claim.id));
    if !is_ours {
        key.own.leave_behind(Moment::now() + OCCUPIED);
    }
    is_ours
}

/// Whether the claim with this key holds, where these are all claims on its name.
pub(super) fn holds(range: &KeyRange, kvs: &[KeyValue], key: &[u8]) -> bool {
    place::find(range, kvs, key) == Place::Head
}

/// Sends a request that may create the key. `None` when the session turned out to be over: then
/// there is no key. Without an answer there may be one, and it is scheduled for deletion.
async fn ask(
    context: &Context,
    claim: &Claim,
    key: &ClaimKey,
    lease: &Arc<ServerLease>,
    request: &TxnRequest,
) -> Result<Option<(TxnResponse, bool)>> {
    let asked = context.send(lease, request).await;
    if asked.is_err() {
        context.cleanup.schedule(claim.id, Deletion::in_doubt(key));
    }
    asked
}

/// Where the claim is now. Reads our own key too: a grant counts only when that is still there.
///
/// An exclusive claim reads two keys, its own and the one before it, however long the queue is. If
/// keys of longer names are among the two, and for other modes, all claims up to its own are read.
async fn look(context: &Context, enqueued: &Enqueued) -> Result<Looked> {
    let Enqueued { key, created, .. } = enqueued;
    if key.mode == Mode::Exclusive {
        let sent = Moment::now();
        let request = requests::newest_up_to(key, *created);
        let newest: RangeResponse = context.client.call(path::RANGE, &request).await?;
        let (revision, lives_on) = (revision_of(newest.header), lease_of(&newest, key));
        match place::of_last(key, &newest) {
            // Its number counts those behind us too.
            Some(Place::Waits { behind, .. }) => {
                let place = Place::Waits { number: None, behind };
                return Ok(Looked { sent, place, revision, lives_on });
            }
            Some(place) => return Ok(Looked { sent, place, revision, lives_on }),
            None => {}
        }
    }
    let sent = Moment::now();
    let request = requests::all_up_to(key, *created);
    let all: RangeResponse = context.client.call(path::RANGE, &request).await?;
    let place = place::find(&key.range, &all.kvs, key.bytes());
    let (revision, lives_on) = (revision_of(all.header), lease_of(&all, key));
    Ok(Looked { sent, place, revision, lives_on })
}

/// What the key lives on, if it is among what was read.
fn lease_of(found: &RangeResponse, key: &ClaimKey) -> i64 {
    found.kvs.iter().find(|kv| kv.key == key.bytes()).map_or(0, |kv| kv.lease)
}

/// As [`look`], for a claim that is given up if there is no answer: its key is there, and would
/// block the queue until the session ends.
async fn look_or_clean_up(context: &Context, claim: &Claim, enqueued: &Enqueued) -> Result<Looked> {
    let looked = look(context, enqueued).await;
    if looked.is_err() {
        give_up(context, claim, enqueued);
    }
    looked
}

/// Has the key deleted of a claim that is given up. Not of one that was asked for by its id: another
/// keeper may have found it, and without one it ends with its lease.
fn give_up(context: &Context, claim: &Claim, enqueued: &Enqueued) {
    if !claim.by_id {
        context.cleanup.schedule(claim.id, enqueued.deletion());
    }
}

/// Leaves the queue. Once this is answered, no earlier copy of the request can bring the key back;
/// if it is not, the deletion is tried again with the next heartbeat.
async fn leave(context: &Context, claim: &Claim, enqueued: &Enqueued) -> Result<()> {
    if claim.by_id {
        return by_id::leave(context, enqueued).await;
    }
    context.cleanup.delete(claim.id, &enqueued.deletion()).await.map(|_| ())
}
