//! Waiting in the queue: which nodes are watched, and how a waiter knows that it is its turn
//! without asking the server.

use super::super::cleanup::observer::Nodes;
use super::super::client::{Change, Request, Watch, refusal};
use super::super::gone::Numbered;
use super::super::keys::node_name;
use super::super::layout::Entry;
use super::super::session::Session;
use super::attempt::{Attempt, Enqueued};
use super::standing::{self, Queue};
use crate::backend::{ClaimId, Moment};
use std::time::Duration;

/// What a waiter finds.
pub(super) enum Turn {
    /// The claim holds, by a request that was sent then, and is registered as held.
    Ours(Moment),
    /// Nobody is before it, if its own node still exists.
    First,
    /// Somebody may be before it.
    Unknown,
}

/// Waits until one of the nodes `behind` goes; `None` when patience ran out first.
pub(super) async fn wait(
    attempt: &Attempt<'_>,
    enqueued: &mut Enqueued,
    behind: &[String],
    settled: bool,
) -> Option<Turn> {
    let queue = std::mem::take(&mut enqueued.queue);
    let behind: Vec<_> = behind.iter().map(|node| format!("{}/{node}", attempt.parent)).collect();
    // `data` and not `exists`, which would leave a watch on a node that does not exist.
    let paths = [&enqueued.path].into_iter().chain(&behind);
    let requests: Vec<_> = paths.map(|path| Request::data(path, true)).collect();
    // Registered before the requests are sent, so that no event is missed.
    let mut waiter =
        Waiter::new(attempt.session, &attempt.parent, queue, &enqueued.path, behind.clone());
    let mut change = None;
    for (index, coming) in attempt.session.send_all(requests).into_iter().enumerate() {
        match (attempt.session.answer(coming).await, index.checked_sub(1)) {
            (Ok(_), _) => {}
            (Err(failure), Some(index)) if failure.is(refusal::NO_NODE) => {
                waiter.is_gone(&behind[index]);
                change = Some(Change::Deleted);
            }
            (Err(_), _) => return Some(Turn::Unknown),
        }
    }
    if change.is_none() {
        tokio::select! {
            biased;
            next = waiter.watch.changed() => change = Some(next),
            () = attempt.patience.over() => return None,
        }
    }
    match change {
        Some(Change::Deleted) if settled => {
            let valid_for = attempt.context.valid_for(attempt.session, attempt.claim);
            Some(waiter.turn(attempt.claim.id, valid_for))
        }
        _ => Some(Turn::Unknown),
    }
}

/// One claim's wait in a queue. Its own node is watched as well as those that it is behind.
struct Waiter<'a> {
    watch: Watch<'a, Nodes>,
    /// The path of its own node.
    own: &'a str,
    parent: &'a str,
    /// The transaction that created `parent`, which tells it from one that is created again.
    made: i64,
    /// The claims before it when it looked, and itself. Not the whole queue: with many waiters,
    /// each of them would keep all the others.
    ahead: Vec<Numbered>,
}

impl<'a> Waiter<'a> {
    fn new(
        session: &'a Session,
        parent: &'a str,
        Queue { made, entries }: Queue,
        own: &'a str,
        mut watched: Vec<String>,
    ) -> Self {
        let node = node_name(own);
        let length = entries.iter().position(|entry| entry.node == node).map_or(0, |own| own + 1);
        let numbered = |entry: &Entry| Numbered { number: entry.number, mode: entry.mode };
        let ahead: Vec<_> = entries[..length].iter().map(numbered).collect();
        let floor = ahead.first().map_or(0, |first| first.number);
        session.observe(|nodes, _| nodes.gone.join(parent, made, floor));
        watched.push(own.to_owned());
        Self { watch: Watch::new(session, watched), own, parent, made, ahead }
    }

    /// The server said that a node ahead does not exist.
    fn is_gone(&self, path: &str) {
        let node = node_name(path);
        self.session().observe(|nodes, _| nodes.gone.gone_from(self.parent, self.made, node));
    }

    /// Whether it is the claim's turn, by what the session knows.
    ///
    /// *Nobody is before it.* A node that was ahead in the queue and is known to be gone stays
    /// gone, and no node can have been created before ours since.
    ///
    /// *Its own node exists.* The node is ours by the session that created it, and is watched. A
    /// server reports changes to a session in the order in which they were made: had someone
    /// deleted our node before the last node ahead went, that would have been reported first. And
    /// the watch ends with the connection, after which a report could have been missed. If our
    /// node is deleted later, or the report is on its way, then it was deleted while it was first:
    /// that is a claim taken from its holder, which learns of it by the same watch.
    ///
    /// *Its session is alive.* Reports may be late, and the session over by the leader's clock. So
    /// the claim counts from the last request of the session that the leader answered. If that is
    /// longer ago than the last renewal of a hold may be, the leader is asked.
    fn turn(&self, id: ClaimId, valid_for: Duration) -> Turn {
        let Some((own, before)) = self.ahead.split_last() else { return Turn::Unknown };
        // In one step under the session's lock, or a report could come in between.
        self.session().observe(|nodes, facts| {
            if !facts.is_watching(self.watch.id(), self.own) {
                return Turn::Unknown;
            }
            let mut left = nodes.gone.left(self.parent, self.made, before).peekable();
            let floor = left.peek().unwrap_or(own).number;
            if !standing::holds_behind(left.map(|claim| claim.mode), own.mode) {
                return Turn::Unknown;
            }
            nodes.gone.raise(self.parent, self.made, floor);
            match facts.leader_answered {
                Some(sent) if Moment::now().since(sent) < valid_for / 3 => {
                    nodes.owned.hold(id, sent + valid_for, true);
                    Turn::Ours(sent)
                }
                _ => Turn::First,
            }
        })
    }

    fn session(&self) -> &'a Session {
        self.watch.session()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.session().observe(|nodes, _| nodes.gone.leave(self.parent, self.made));
    }
}
