//! Taking a name without waiting.
//!
//! A claim that does not wait must not stand in the queue even for a moment: others would see it
//! there and wait behind it. So the key is created only under the condition that it would hold,
//! which one transaction can check in the common case: nobody is there at all. Where others are
//! there beside whom it fits, such as readers, the condition is that nobody came since we looked.

use super::super::cleanup::Deletion;
use super::super::keys::ClaimKey;
use super::super::lease::{Context, Enqueued, EtcdLease};
use super::super::protocol::{KeyValue, RangeResponse, path};
use super::super::requests::{self, InTheWay, revision_of};
use super::place::{self, Place};
use super::{ask, is_of, leave, look_or_clean_up};
use crate::backend::{Claim, Grant, Mode, Moment};
use crate::error::Result;
use std::sync::Arc;

/// Takes the name if that can be without waiting, and leaves no key if not.
///
/// Asks again only after something was not as the request expected: the session, its generation, or
/// the claims beside which this one fits.
pub(in super::super) async fn try_now(
    context: &Arc<Context>,
    claim: &Claim,
) -> Result<Option<Grant>> {
    // Nobody may have come after this revision; while it is zero, nobody may be there at all.
    let mut alone_since = 0;
    loop {
        let lease = context.session.current().await?;
        let key = ClaimKey::new(&context.prefix, &context.keys, claim, lease.id);
        let sent = Moment::now();
        let request = requests::enter_if_alone(&key, claim, &lease.generation(), alone_since);
        let asked = ask(context, claim, &key, &lease, &request).await?;
        let Some((answer, sent_twice)) = asked else { continue };
        let revision = revision_of(answer.header);
        if answer.succeeded {
            let (created, seen, before) = (revision, revision, None);
            let enqueued = Enqueued { key, lease, created, seen, sent_twice, before };
            match EtcdLease::grant(context, claim, enqueued, sent) {
                Some(grant) => return Ok(Some(grant)),
                None => continue,
            }
        }
        let InTheWay { ours, generation, oldest } = InTheWay::read(answer);
        if let Some(ours) = ours.filter(|kv| is_of(kv, claim, &key)) {
            // Created by an earlier copy of the request, whose answer was lost.
            let (created, seen, before) = (ours.create_revision, revision, None);
            let enqueued = Enqueued { key, lease, created, seen, sent_twice: true, before };
            let looked = look_or_clean_up(context, claim, &enqueued).await?;
            if looked.place == Place::Head {
                return Ok(EtcdLease::grant(context, claim, enqueued, looked.sent));
            }
            leave(context, claim, &enqueued).await?;
            return Ok(None);
        }
        if sent_twice {
            // A copy of the request may still be under way, and would create the key when nobody
            // looks for it any more. Every way on from here forgets this key, so the copy is made
            // void first.
            context.cleanup.delete(claim.id, &Deletion::in_doubt(&key)).await?;
        }
        // If nobody is in the way, it was the generation: a withdrawal of another claim of this
        // keeper changed it. With the new one the request is made again.
        let was_known = lease.learn_generation(generation);
        if oldest.is_empty() && !was_known {
            continue;
        }
        match fits_since(context, &key, &oldest, revision).await? {
            Some(since) => alone_since = since,
            None => return Ok(None),
        }
    }
}

/// The revision up to which the claim with this key fits beside all that were there; a later one would
/// be before it. `None` if it does not fit beside the `oldest` that were there at `revision`.
pub(super) async fn fits_since(
    context: &Context,
    key: &ClaimKey,
    oldest: &[KeyValue],
    revision: i64,
) -> Result<Option<i64>> {
    if !place::is_free_for(key.mode, &key.range, oldest) {
        return Ok(None);
    }
    if key.mode != Mode::Exclusive {
        return Ok(Some(revision));
    }
    // What was first in the range is of a longer name; there may be more behind it.
    let all: RangeResponse = context.client.call(path::RANGE, &requests::all(key)).await?;
    let fits = place::is_free_for(key.mode, &key.range, &all.kvs);
    Ok(fits.then(|| revision_of(all.header)))
}
