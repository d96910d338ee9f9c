//! How far the numbers of a lock's node last, and how they start over before they end.
//!
//! ZooKeeper numbers the children of a node with a counter of 32 bits. At its end it neither
//! refuses nor begins again: from then on every child gets the largest number, and of those that
//! are asked for together some get negative ones. Numbers are unique and in order up to there, so
//! the counter is made to start over long before: the node is deleted and made anew in one step,
//! which ZooKeeper does only while nobody is below it. Tokens are transactions, and go on growing.

use super::layout;
use super::queue::{Attempt, Place, Stop};
use super::request::Request;
use super::session::Session;
use super::trouble::{Fault, refusal};
use super::vigil::Watch;
use crate::backend::Moment;
use crate::error::{Error, ErrorKind};
use std::time::Duration;

/// From here on, whoever gives a lock back has its node start over, if it was the last.
const LATE: i32 = 1 << 30;
/// From here on, who would have to wait goes away until it did. Only where some have always been
/// waiting since `LATE` does it come to this, which costs those who go their order.
const CLOSING: i32 = LATE + (1 << 28);
/// From here on no claim is held. As far from the end as this, programs with other libraries
/// that go on counting meet none of ours there, unless it is held for days.
const END: i32 = LATE + (1 << 29);

/// How often one who went away looks whether the node can start over, where nothing tells it.
const LOOK: Duration = Duration::from_millis(500);
/// One of ours that has to go is gone by then.
const LINGER: Duration = Duration::from_secs(3);

/// How far a counter has come, by a number that it gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    Young,
    Late,
    Closing,
    /// The number may not be the only one of its kind, or not in order.
    Ended,
}

impl Age {
    pub(super) fn of(number: i32) -> Self {
        match number {
            0..LATE => Self::Young,
            LATE..CLOSING => Self::Late,
            CLOSING..END => Self::Closing,
            END.. | ..0 => Self::Ended,
        }
    }
}

/// Has the numbers of a lock's node start over, if nobody is below it: whether they did. Where
/// the node was made by another transaction than `made`, someone else has done so.
///
/// What it says stays, and who may use it.
pub(super) async fn start_over(
    session: &Session,
    parent: &str,
    made: Option<i64>,
) -> Result<bool, Fault> {
    loop {
        session.connected().await?;
        let [said, rights] = session.ask([Request::data(parent, false), Request::rights(parent)]);
        let answers = session.answer(said).await.and_then(|answer| answer.data());
        let rights = session.answer(rights).await.and_then(|answer| answer.rights());
        let ((said, stat), rights) = match (answers, rights) {
            (Ok(said), Ok(rights)) => (said, rights),
            (Err(fault), _) | (_, Err(fault)) if fault.is(refusal::NO_NODE) => return Ok(true),
            (Err(fault), _) | (_, Err(fault)) => return Err(fault),
        };
        if made.is_some_and(|made| made != stat.czxid) {
            return Ok(true);
        }
        if stat.children > 0 {
            return Ok(false);
        }
        let request = Request::make_anew(parent, &said, stat.version, &rights);
        match session.call(request).await.and_then(|answer| answer.all_done()) {
            Ok(()) => return Ok(true),
            Err(fault) if fault.is(refusal::NO_NODE) => return Ok(true),
            Err(fault) if fault.is(refusal::NOT_EMPTY) => return Ok(false),
            // Someone wrote to it.
            Err(fault) if fault.is(refusal::BAD_VERSION) => {}
            Err(fault) => return Err(fault),
        }
    }
}

impl Attempt<'_> {
    /// Gives up our place and waits until the numbers started over; `false` when patience ran
    /// out first.
    pub(super) async fn step_back(&self, place: Place) -> Result<bool, Stop> {
        let (parent, made) = (&self.parent, place.queue.made);
        tracing::warn!(node = parent, "the numbers of a lock come to their end and start over");
        self.leave(&place).await?;
        let mut seen: (Moment, Vec<String>) = (Moment::now(), Vec::new());
        loop {
            match start_over(self.session, parent, Some(made)).await {
                Ok(true) => return Ok(true),
                Ok(false) | Err(Fault::Unanswered(_)) => {}
                Err(fault) if fault.is(refusal::NO_AUTH) => return Err(self.may_not().into()),
                Err(fault) => return Err(fault.into()),
            }
            if self.patience.is_over() {
                return Ok(false);
            }
            self.patience.queued(0);
            let mut watch = Watch::new(self.session, vec![parent.clone()]);
            // If it fails, what it was for is seen at the next look.
            let _ = self.session.call(Request::data(parent, true)).await;
            let (_, listing) = self.list().await?;
            let Some((children, stat)) = listing else { return Ok(true) };
            if stat.czxid != made {
                return Ok(true);
            }
            let stays = |node: &String| {
                layout::number_of(node).is_none_or(|number| Age::of(number) == Age::Ended)
            };
            let staying: Vec<String> = children.into_iter().filter(stays).collect();
            let (since, before) = &seen;
            let is_long_ago = Moment::now().since(*since) >= LINGER;
            let still = staying.iter().find(|node| before.contains(*node));
            if let Some(node) = still.filter(|_| is_long_ago) {
                return Err(self.obstructed(node).into());
            }
            if before.is_empty() || is_long_ago {
                seen = (Moment::now(), staying);
            }
            tokio::select! {
                biased;
                _ = watch.told() => {}
                () = tokio::time::sleep(LOOK) => {}
                () = self.patience.over() => return Ok(false),
            }
        }
    }

    fn obstructed(&self, node: &str) -> Error {
        Error::new(
            ErrorKind::Store,
            format!(
                "ZooKeeper has nearly used up the numbers for claims on {}, and they start over \
                 only when nobody is below it: have everyone leave the lock for a moment, or use \
                 another name",
                self.parent
            ),
        )
        .with("node", node)
    }

    fn may_not(&self) -> Error {
        Error::new(
            ErrorKind::Denied,
            format!(
                "ZooKeeper has nearly used up the numbers for claims on {}, and we may not delete \
                 it and make it anew: have someone do so who may, while nobody uses the lock",
                self.parent
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_relied_on_that_may_come_twice() {
        assert_eq!(Age::of(0), Age::Young);
        assert_eq!(Age::of(LATE), Age::Late);
        assert_eq!(Age::of(CLOSING), Age::Closing);
        for number in [END, i32::MAX - 1, i32::MAX, i32::MIN, -1] {
            assert_eq!(Age::of(number), Age::Ended, "{number}");
        }
    }
}
