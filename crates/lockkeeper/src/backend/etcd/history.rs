//! What a key said before it went, as etcd remembers it.

use super::link::Link;
use super::proto::{RangeRequest, RangeResponse, path};
use super::{record, requests};
use crate::backend::LossReason;
use std::time::Duration;

/// How long a holder may be kept from learning of its loss by asking for the reason.
const MOMENT: Duration = Duration::from_millis(50);

/// Why the claim whose key was created at revision `created` is lost, if what was just found in
/// its place says so. A key that is gone may have said before that it was broken, and why.
pub(super) async fn loss(
    link: &Link,
    key: &[u8],
    created: i64,
    found: &RangeResponse,
) -> Option<LossReason> {
    let reason = record::loss(found, created)?;
    let (LossReason::Gone, Some(header)) = (&reason, &found.header) else { return Some(reason) };
    let asked = tokio::time::timeout(MOMENT, last_words(link, key, created, header.revision));
    match asked.await {
        Ok(Some(said)) => Some(LossReason::Broken { reason: said }),
        _ => Some(reason),
    }
}

/// The reason in the last version of a key that was there at `created` and is gone at `gone`: it
/// most likely went a moment ago, so the steps back from there grow.
async fn last_words(link: &Link, key: &[u8], created: i64, gone: i64) -> Option<String> {
    let (mut there, mut gone, mut step, mut said) = (created, gone, Some(1), None);
    while gone - there > 1 {
        let asked = match step {
            Some(step) => (gone - step).max(there + 1),
            None => there + (gone - there) / 2,
        };
        let request = RangeRequest { revision: asked, ..requests::one(key.to_vec()) };
        // Not answered also where the history is compacted.
        let found: RangeResponse = link.call(path::RANGE, &request).await.ok()?;
        match found.kvs.first().filter(|kv| kv.create_revision == created) {
            Some(kv) => {
                said = record::broken(&kv.value);
                (there, step) = (asked, None);
            }
            None => {
                gone = asked;
                step = step.map(|step| step * 2);
            }
        }
    }
    said
}
