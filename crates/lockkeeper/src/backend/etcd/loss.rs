//! Why a held claim is lost, as far as etcd can tell.
//!
//! A claim is broken in two steps: the reason is written into its key, and then the key is deleted.
//! A holder that sees only the second step finds the reason in the key's history.

use super::client::Client;
use super::protocol::{Event, EventType, KeyValue, RangeRequest, RangeResponse, path};
use super::{record, requests};
use crate::backend::LossReason;
use std::time::Duration;

/// How long the search for the reason may keep a holder from learning of its loss. A loss without
/// its reason is still a loss; the holder has to stop either way. It is used up only where the server
/// is slow: of a lease that ran out the holder knows by its own clock, before the server does.
const MOMENT: Duration = Duration::from_millis(250);

/// What an event means for the holder of the key that was created at revision `created`. Keys are
/// used again, and a member that is behind may still tell of what was in the key before.
pub(super) fn told(event: Event, created: i64) -> Option<LossReason> {
    let kv = event.kv?;
    if event.kind == EventType::Delete as i32 {
        return (kv.mod_revision > created).then_some(LossReason::Gone);
    }
    let reason = record::broken(&kv.value).filter(|_| kv.create_revision == created)?;
    Some(LossReason::Broken { reason })
}

/// Whether an event tells that the key which was created at revision `created` lives on another lease
/// now: then that has to be kept alive.
pub(super) fn is_moved(event: &Event, created: i64, lease: i64) -> bool {
    let is_put = event.kind != EventType::Delete as i32;
    let moved = |kv: &KeyValue| kv.create_revision == created && kv.lease != lease;
    is_put && event.kv.as_ref().is_some_and(moved)
}

/// Why the claim whose key was created at revision `created` is lost, if what was just found in
/// its place says so. A key that is gone may have said before that it was broken, and why.
pub(super) async fn found(
    client: &Client,
    key: &[u8],
    created: i64,
    found: &RangeResponse,
) -> Option<LossReason> {
    let there = found.kvs.first().filter(|kv| kv.create_revision == created);
    if let Some(kv) = there {
        return record::broken(&kv.value).map(|reason| LossReason::Broken { reason });
    }
    let Some(header) = &found.header else { return Some(LossReason::Gone) };
    let asked = tokio::time::timeout(MOMENT, last_reason(client, key, created, header.revision));
    match asked.await {
        Ok(Some(reason)) => Some(LossReason::Broken { reason }),
        _ => Some(LossReason::Gone),
    }
}

/// The reason in the last version of a key that was there at `created` and is gone at `gone`: a
/// search backwards with growing steps, since the key most likely went a moment ago, and then by
/// halves.
async fn last_reason(client: &Client, key: &[u8], created: i64, gone: i64) -> Option<String> {
    let (mut there, mut gone, mut step, mut reason) = (created, gone, Some(1), None);
    while gone - there > 1 {
        let asked = match step {
            Some(step) => (gone - step).max(there + 1),
            None => there + (gone - there) / 2,
        };
        let request = RangeRequest { revision: asked, ..requests::one(key.to_vec()) };
        // Not answered also where the history is compacted.
        let found: RangeResponse = client.call(path::RANGE, &request).await.ok()?;
        match found.kvs.first().filter(|kv| kv.create_revision == created) {
            Some(kv) => {
                reason = record::broken(&kv.value);
                (there, step) = (asked, None);
            }
            None => {
                gone = asked;
                step = step.map(|step| step * 2);
            }
        }
    }
    reason
}
