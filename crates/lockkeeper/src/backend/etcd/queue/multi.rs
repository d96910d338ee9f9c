//! Several names in one transaction.
//!
//! A transaction cannot wait, so this takes all names or none. The engine falls back to one name
//! after another, in one order, where that is to be waited for or this cannot tell.

use super::super::cleanup::Deletion;
use super::super::keys::ClaimKey;
use super::super::lease::{Context, Enqueued, EtcdLease};
use super::super::requests::{self, revision_of};
use crate::backend::{Claim, Mode, Moment, Together};
use crate::error::Result;
use std::sync::Arc;

/// How many names fit into one transaction of a server with its usual settings, with room for
/// what is compared beside them.
const MOST: usize = 100;

/// Takes all of them, or none if another claim has one. Only for exclusive claims: whether others
/// fit beside those that are there, a transaction cannot tell.
///
/// All keys have the same create revision, and so all grants the same token. That is harmless,
/// because tokens are compared within a name.
pub(in super::super) async fn acquire_all(
    context: &Arc<Context>,
    claims: &[Claim],
) -> Result<Together> {
    let alone = |claim: &Claim| claim.mode == Mode::Exclusive && !claim.by_id;
    if claims.len() > MOST || !claims.iter().all(alone) {
        return Ok(Together::OneByOne);
    }
    let lease = context.session.current().await?;
    let key = |claim| ClaimKey::new(&context.prefix, &context.keys, claim, lease.id);
    let keys: Vec<ClaimKey> = claims.iter().map(key).collect();
    let sent = Moment::now();
    let request = requests::enter_all(&keys, claims, &lease.generation());
    let (answer, sent_twice) = match context.send(&lease, &request).await {
        Ok(Some(answer)) => answer,
        Ok(None) => return Ok(Together::OneByOne),
        Err(error) => {
            for (claim, key) in claims.iter().zip(&keys) {
                context.cleanup.schedule(claim.id, Deletion::in_doubt(key));
            }
            return Err(error);
        }
    };
    let revision = revision_of(answer.header);
    if !answer.succeeded {
        let taken = requests::reads(answer.responses).zip(&keys).position(|(oldest, key)| {
            // Our own is there when an earlier copy of the request was carried out.
            oldest.kvs.iter().any(|kv| key.range.has(&kv.key) && kv.key != key.bytes())
        });
        if taken.is_none() || sent_twice {
            // Whatever was in the way, one after another it is found out.
            for (claim, key) in claims.iter().zip(&keys) {
                context.cleanup.delete(claim.id, &Deletion::in_doubt(key)).await?;
            }
        }
        return Ok(taken.map_or(Together::OneByOne, Together::Busy));
    }
    let grants = claims.iter().zip(keys).map(|(claim, key)| {
        let (created, lease) = (revision, lease.clone());
        let enqueued = Enqueued { key, lease, created, seen: revision, sent_twice, before: None };
        EtcdLease::grant(context, claim, enqueued, sent)
    });
    // The session may be over for all of them; then those without a grant are cleaned up.
    let grants: Option<Vec<_>> = grants.collect();
    Ok(grants.map_or(Together::OneByOne, Together::Granted))
}
