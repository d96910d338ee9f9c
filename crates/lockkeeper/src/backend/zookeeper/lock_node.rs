//! The lock's own node: how it is created, and how its counter starts over.
//!
//! ZooKeeper numbers the children of a node with a counter of 32 bits. At its end it neither
//! refuses nor begins again: from then on every child gets the largest number, and of children that
//! are created together some get negative ones. Up to there numbers are unique and in order, so the
//! counter is made to start over long before. The node is deleted and created again in one step,
//! which ZooKeeper does only while it has no children. Fencing tokens are transaction numbers, and
//! go on growing.
//!
//! ```text
//!   0 ───────────── 2^30 ─────────── 5·2^28 ─────────── 3·2^29 ──────── 2^31
//!        Young              Late              Closing            Ended
//!                    the last release    waiting claims     no claim is
//!                    starts it over      leave              granted
//! ```

use super::client::{Access, Failure, NodeKind, Request, refusal};
use super::keys;
use super::session::Session;

/// From here on, the release of the last claim has the counter start over.
const LATE: i32 = 1 << 30;
/// From here on, a claim that would have to wait leaves until the counter has started over. It
/// comes to this only where claims have been waiting without a break since `LATE`; those that
/// leave lose their order.
const CLOSING: i32 = LATE + (1 << 28);
/// From here on no claim is granted. Programs with other libraries that go on counting need days
/// from here to the end, and meet none of our holders there.
const END: i32 = LATE + (1 << 29);

/// How far a counter has come, by a number that it gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterAge {
    /// Nothing is to be done.
    Young,
    /// The release of the last claim starts it over.
    Late,
    /// Claims that would have to wait leave.
    Closing,
    /// The number may not be unique, or not in order.
    Ended,
}

impl CounterAge {
    pub(super) fn of(number: i32) -> Self {
        match number {
            0..LATE => Self::Young,
            LATE..CLOSING => Self::Late,
            CLOSING..END => Self::Closing,
            END.. | ..0 => Self::Ended,
        }
    }
}

/// What became of a node that was to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Created {
    Exists,
    /// We may not create it.
    Denied,
    /// One of its ancestors was removed meanwhile, as ZooKeeper does with empty containers.
    Vanished,
}

/// Creates a lock's node and its ancestors, as far as they do not exist. They are containers,
/// which ZooKeeper removes some time after the last claim went.
pub(super) async fn create(session: &Session, path: &str, access: Access) -> Result<(), Failure> {
    /// How often an ancestor may vanish.
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        match create_once(session, path, access).await? {
            Created::Exists => return Ok(()),
            Created::Vanished => {}
            // It may exist, though we may not create it.
            Created::Denied => {
                return match session.call(Request::exists(path, false)).await {
                    Err(failure) if failure.is(refusal::NO_NODE) => {
                        Err(Failure::Refused(refusal::NO_AUTH))
                    }
                    other => other.map(drop),
                };
            }
        }
    }
    Err(Failure::Unanswered("nodes that are made for a lock vanish at once".into()))
}

/// Sends the creation of all of them in one round trip. The answer for each says something about the
/// one above it, too.
async fn create_once(session: &Session, path: &str, access: Access) -> Result<Created, Failure> {
    let nodes = keys::ancestors(path).chain([path]);
    let create = |node| Request::create(node, &[], NodeKind::Container, access);
    let mut above = Created::Exists;
    for coming in session.send_all(nodes.map(create)) {
        above = match session.answer(coming).await {
            Ok(_) => Created::Exists,
            Err(failure) if failure.is(refusal::NODE_EXISTS) => Created::Exists,
            // ZooKeeper does not say whether a node exists to a client that may not create it.
            Err(failure) if failure.is(refusal::NO_AUTH) => Created::Denied,
            // The node above does not exist, or not any more.
            Err(failure) if failure.is(refusal::NO_NODE) => match above {
                Created::Denied => return Err(Failure::Refused(refusal::NO_AUTH)),
                Created::Exists | Created::Vanished => return Ok(Created::Vanished),
            },
            Err(failure) => return Err(failure),
        };
    }
    Ok(above)
}

/// Has the counter of a lock's node start over, if the node has no children: whether it did. With
/// `made`, the node is left alone if it was created by another transaction: then someone else has
/// done it.
///
/// The node keeps its data and its access control list.
pub(super) async fn restart_counter(
    session: &Session,
    path: &str,
    made: Option<i64>,
) -> Result<bool, Failure> {
    loop {
        session.connected().await?;
        let [data, acl] = session.send([Request::data(path, false), Request::acl(path)]);
        let data = session.answer(data).await.and_then(|answer| answer.data());
        let acl = session.answer(acl).await.and_then(|answer| answer.acl());
        let ((data, stat), acl) = match (data, acl) {
            (Ok(data), Ok(acl)) => (data, acl),
            (Err(failure), _) | (_, Err(failure)) if failure.is(refusal::NO_NODE) => {
                return Ok(true);
            }
            (Err(failure), _) | (_, Err(failure)) => return Err(failure),
        };
        if made.is_some_and(|made| made != stat.czxid) {
            return Ok(true);
        }
        if stat.children > 0 {
            return Ok(false);
        }
        let request = Request::recreate(path, &data, stat.version, &acl);
        match session.call(request).await.and_then(|answer| answer.all_done()) {
            Ok(()) => return Ok(true),
            Err(failure) if failure.is(refusal::NO_NODE) => return Ok(true),
            Err(failure) if failure.is(refusal::NOT_EMPTY) => return Ok(false),
            // The node was written to meanwhile.
            Err(failure) if failure.is(refusal::BAD_VERSION) => {}
            Err(failure) => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_relied_on_that_may_come_twice() {
        assert_eq!(CounterAge::of(0), CounterAge::Young);
        assert_eq!(CounterAge::of(LATE), CounterAge::Late);
        assert_eq!(CounterAge::of(CLOSING), CounterAge::Closing);
        for number in [END, i32::MAX - 1, i32::MAX, i32::MIN, -1] {
            assert_eq!(CounterAge::of(number), CounterAge::Ended, "{number}");
        }
    }
}
