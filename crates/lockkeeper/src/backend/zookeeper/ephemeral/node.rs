//! The one node of `recipe=ephemeral`: how it is deleted safely, and what must not be beside it.
//!
//! Used by the recipe, by leases and by withdrawals. The driver does the same in steps of its own,
//! since it cannot wait: see [`cleanup`](super::super::cleanup).

use super::super::client::{Failure, Request, refusal};
use super::super::layout::SINGLE_NODE;
use super::super::record;
use super::super::session::Session;
use crate::backend::ClaimId;
use crate::error::{Error, ErrorKind};

/// Deletes the node of a claim if it exists, and nobody else's: whether it existed.
///
/// The node's record says whose it is, but a deletion cannot depend on a record. It depends on the
/// parent's version instead, as read in the same breath: every new holder raises it.
pub(crate) async fn remove(session: &Session, parent: &str, id: ClaimId) -> Result<bool, Failure> {
    let path = format!("{parent}/{SINGLE_NODE}");
    loop {
        session.connected().await?;
        let requests =
            [Request::sync(parent), Request::exists(parent, false), Request::data(&path, false)];
        let [synced, lock, node] = session.send(requests);
        session.answer(synced).await?;
        let lock = session.answer(lock).await.and_then(|answer| answer.stat());
        let node = session.answer(node).await.and_then(|answer| answer.data());
        let version = match (lock, node) {
            (Ok(lock), Ok((data, _))) if record::is_of(&data, &id.to_string()) => lock.version,
            (Ok(_), Ok(_)) => return Ok(false),
            (Err(failure), _) | (_, Err(failure)) if failure.is(refusal::NO_NODE) => {
                return Ok(false);
            }
            (Err(failure), _) | (_, Err(failure)) => return Err(failure),
        };
        let delete = Request::delete_if(&path, parent, version);
        match session.call(delete).await.and_then(|answer| answer.all_done()) {
            Ok(()) => return Ok(true),
            // Written to or gone meanwhile: look again.
            Err(failure) if failure.is(refusal::BAD_VERSION) || failure.is(refusal::NO_NODE) => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Why the lock cannot be used, where its node has other children than the one there can be.
pub(crate) fn conflict(parent: &str, children: &[String]) -> Option<Error> {
    let other = children.iter().find(|child| *child != SINGLE_NODE)?;
    let error = Error::new(
        ErrorKind::Config,
        "the lock has claims of another recipe or library, and neither side would wait for the \
         other: leave recipe=ephemeral out here, or use another name",
    );
    Some(error.with("node", format!("{parent}/{other}")))
}
