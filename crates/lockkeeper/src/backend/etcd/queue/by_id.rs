//! Claims that are asked for by an id of the caller's: all who ask under one id have one key.
//!
//! ```text
//! not there            create it, on a lease of our own, at the end of the queue
//! there, and holds     move it to a lease of our own: held by all who asked
//! there, and waits     move it to a lease of our own, and wait with the other; whoever leaves gives
//!                      it back to the lease it was on, if that is still there
//! ```
//!
//! A claim lives on the lease of the one who asked last, which alone may end that lease. So one that
//! gives up, or dies, takes nothing away from another that holds. While it waits that is as short as a
//! session, so that a waiter which died is out of the way as soon as any other; the first renewal of a
//! claim that is held gives it the whole ttl.
//!
//! In doubt nothing is deleted: the key is found by asking again, or ends with its lease. A request
//! that is carried out late finds its lease ended, and does nothing.

use super::super::keys::ClaimKey;
use super::super::lease::{Context, Enqueued, EtcdLease};
use super::super::own::OwnLease;
use super::super::protocol::{KeyValue, RangeResponse, TxnResponse, path};
use super::super::record;
use super::super::requests::{self, InTheWay, revision_of};
use super::super::session::{self, ServerLease};
use super::attempt::fits_since;
use super::place::{self, Place};
use super::wait::{self, Turn};
use super::{Looked, look};
use crate::backend::{Claim, Grant, Moment, Patience};
use crate::error::Result;
use std::sync::Arc;
use std::time::Duration;

/// A lease that is ours alone, and for how many seconds it was asked for.
type Own = (Arc<ServerLease>, u64);

/// What came of asking.
enum Asked {
    /// Granted on the lease of our own.
    Granted(Grant),
    /// Found, and held; our lease was not needed.
    Found(Grant),
    Busy,
    /// Something was in the way that is not any more.
    Again,
}

/// Finds the claim with this id, or makes it; waits for its turn if it must and may.
pub(in super::super) async fn acquire_by_id(
    context: &Arc<Context>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>> {
    let mut own: Option<Own> = None;
    let waits = !patience.is_over();
    let asked = loop {
        let mine = match &own {
            Some(mine) if !mine.0.is_over() => mine.clone(),
            _ => own.insert(context.session.own(claim.ttl).await?).clone(),
        };
        let asked = match waits {
            true => enter(context, claim, patience, &mine).await,
            false => try_now(context, claim, &mine).await,
        };
        match asked {
            Ok(Asked::Again) if waits && patience.is_over() => break Ok(Asked::Busy),
            Ok(Asked::Again) => {}
            asked => break asked,
        }
    };
    let is_used = match &asked {
        Ok(Asked::Granted(_)) => true,
        // There may be a key on it that another keeper has found.
        Err(error) => error.leaves_doubt(),
        _ => false,
    };
    if let Some((lease, _)) = own.filter(|_| !is_used)
        && let Err(error) = session::revoke(&context.client, lease.id).await
    {
        tracing::debug!(%error, "a lease was left to end by itself");
    }
    Ok(match asked? {
        Asked::Granted(grant) | Asked::Found(grant) => Some(grant),
        Asked::Busy | Asked::Again => None,
    })
}

/// Steps into the queue, or to where the claim is in it.
async fn enter(
    context: &Arc<Context>,
    claim: &Claim,
    patience: &Patience,
    (lease, length): &Own,
) -> Result<Asked> {
    let key = ClaimKey::by_id(&context.prefix, claim, lease.id, *length);
    let sent = Moment::now();
    let request = requests::enter(&key, claim, &lease.generation());
    let Some((answer, _)) = context.send(lease, &request).await? else { return Ok(Asked::Again) };
    let revision = revision_of(answer.header);
    if !answer.succeeded {
        let found: RangeResponse =
            context.client.call(path::RANGE, &requests::one(key.bytes().to_vec())).await?;
        let seen = revision_of(found.header);
        return match found.kvs.into_iter().next() {
            Some(kv) => {
                join(context, claim, Some(patience), enqueued(key, lease, &kv, seen), kv).await
            }
            None => Ok(Asked::Again),
        };
    }
    let newest = requests::reads(answer.responses).next().unwrap_or_default();
    let (created, seen) = (revision, revision);
    let lease = lease.clone();
    let enqueued = Enqueued { key, lease, created, seen, sent_twice: false, before: None };
    let looked = match place::of_last(&enqueued.key, &newest) {
        Some(place) => Looked { sent, place, revision, lives_on: enqueued.lease.id },
        None => look(context, &enqueued).await?,
    };
    stand(context, claim, patience, enqueued, looked).await
}

/// Takes the name if that can be without waiting, and leaves no key if not.
async fn try_now(context: &Arc<Context>, claim: &Claim, (lease, length): &Own) -> Result<Asked> {
    let mut alone_since = 0;
    loop {
        let key = ClaimKey::by_id(&context.prefix, claim, lease.id, *length);
        let sent = Moment::now();
        let request = requests::enter_if_alone(&key, claim, &lease.generation(), alone_since);
        let Some((answer, _)) = context.send(lease, &request).await? else {
            return Ok(Asked::Again);
        };
        let revision = revision_of(answer.header);
        if answer.succeeded {
            let (created, seen, lease) = (revision, revision, lease.clone());
            let enqueued = Enqueued { key, lease, created, seen, sent_twice: false, before: None };
            let grant = EtcdLease::grant(context, claim, enqueued, sent);
            return Ok(grant.map_or(Asked::Again, Asked::Granted));
        }
        let InTheWay { ours, oldest, .. } = InTheWay::read(answer);
        if let Some(kv) = ours {
            return join(context, claim, None, enqueued(key, lease, &kv, revision), kv).await;
        }
        match fits_since(context, &key, &oldest, revision).await? {
            Some(since) => alone_since = since,
            None => return Ok(Asked::Busy),
        }
    }
}

/// The claim that is in the key, as one that is to live on our lease.
fn enqueued(key: ClaimKey, lease: &Arc<ServerLease>, kv: &KeyValue, seen: i64) -> Enqueued {
    let (created, before) = (kv.create_revision, Some(Box::new((kv.lease, kv.value.clone()))));
    Enqueued { key, lease: lease.clone(), created, seen, sent_twice: false, before }
}

/// Goes where the claim is already, as it is in `kv`; to wait with it only with some patience.
async fn join(
    context: &Arc<Context>,
    claim: &Claim,
    patience: Option<&Patience>,
    mut enqueued: Enqueued,
    kv: KeyValue,
) -> Result<Asked> {
    let record = record::read(&kv.value).filter(|record| record.id == Some(claim.id));
    // What was given back and only stays, or was broken, is in the way as any other claim is.
    let Some(record) = record else { return Ok(Asked::Busy) };
    let other = record.length.filter(|_| record.length != enqueued.key.length);
    claim.refuse_other_terms(record.mode, other.map(Duration::from_secs))?;
    let mine = kv.lease == enqueued.lease.id;
    let looked = look(context, &enqueued).await?;
    match (&looked.place, patience) {
        (Place::Nowhere, _) => Ok(Asked::Again),
        (Place::Head, _) if !mine => {
            let found = OwnLease::found(context, claim, &kv, enqueued.seen).await?;
            Ok(found.map_or(Asked::Again, Asked::Found))
        }
        (Place::Waits { .. }, None) => {
            // An earlier copy of our request made it, if it is there.
            if mine {
                leave(context, &enqueued).await?;
            }
            Ok(Asked::Busy)
        }
        (Place::Head, None) => {
            let grant = EtcdLease::grant(context, claim, enqueued, looked.sent);
            Ok(grant.map_or(Asked::Again, Asked::Granted))
        }
        (_, Some(patience)) => {
            if mine {
                enqueued.before = None;
            } else if !settle(context, &enqueued, &kv).await? {
                return Ok(Asked::Again);
            }
            stand(context, claim, patience, enqueued, looked).await
        }
    }
}

/// Moves the key of a claim that waits to our lease; `false` when it is not there any more.
async fn settle(context: &Context, enqueued: &Enqueued, kv: &KeyValue) -> Result<bool> {
    let Enqueued { key, lease, created, .. } = enqueued;
    let length = key.length.unwrap_or_default();
    let Some(value) = record::relocated(&kv.value, length) else { return Ok(false) };
    let request = requests::relocate(key.bytes(), *created, kv.lease, value, lease.id);
    Ok(context.send(lease, &request).await?.is_some_and(|(answer, _)| answer.succeeded))
}

/// Holds, or waits until it does.
async fn stand(
    context: &Arc<Context>,
    claim: &Claim,
    patience: &Patience,
    enqueued: Enqueued,
    looked: Looked,
) -> Result<Asked> {
    let turn = match looked.place {
        Place::Head if enqueued.before.is_none() => {
            let grant = EtcdLease::grant(context, claim, enqueued, looked.sent);
            grant.map_or(Turn::Again, Turn::Granted)
        }
        _ => wait::wait(context, claim, patience, enqueued, looked).await?,
    };
    Ok(match turn {
        Turn::Granted(grant) => Asked::Granted(grant),
        Turn::Over => Asked::Busy,
        Turn::Again => Asked::Again,
    })
}

/// Leaves the queue, if the claim lives on our lease still: else it is another's to keep. One that
/// another waited for before us is that one's again.
pub(super) async fn leave(context: &Context, enqueued: &Enqueued) -> Result<()> {
    let Enqueued { key, lease, created, before, .. } = enqueued;
    let client = &context.client;
    if let Some((before, value)) = before.as_deref().filter(|(before, _)| *before != lease.id) {
        let value = value.clone();
        let request = requests::relocate(key.bytes(), *created, lease.id, value, *before);
        match client.try_call::<_, TxnResponse>(path::TXN, &request).await {
            Ok(_) => return Ok(()),
            // The other is gone, or has left.
            Err(failure) if failure.is_lease_gone() => {}
            Err(failure) => return Err(failure.explain(client.shown())),
        }
    }
    let request = requests::take_from(key.bytes(), *created, lease.id);
    let _: TxnResponse = client.call(path::TXN, &request).await?;
    Ok(())
}
