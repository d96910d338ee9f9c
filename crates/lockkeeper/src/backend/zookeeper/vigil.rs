//! Those who wait: what they watch, and how they know that it is their turn.

use super::known::Numbered;
use super::layout::Entry;
use super::line;
use super::session::Session;
use super::watchers::Told;
use crate::backend::{ClaimId, Moment};
use std::time::Duration;
use tokio::sync::mpsc;

/// Nodes that are being watched, whose watcher is told of what happens to any of them.
pub(super) struct Watch<'a> {
    session: &'a Session,
    number: u64,
    paths: Vec<String>,
    told: mpsc::UnboundedReceiver<Told>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(session: &'a Session, paths: Vec<String>) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let mut state = session.0.state();
        let number = state.watchers.number();
        paths.iter().for_each(|path| state.watchers.add(number, path, &tell));
        drop(state);
        Self { session, number, paths, told }
    }

    pub(super) async fn told(&mut self) -> Told {
        self.told.recv().await.unwrap_or(Told::Changed)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut state = self.session.0.state();
        self.paths.iter().for_each(|path| state.watchers.remove(self.number, path));
    }
}

/// A queue as it was seen.
#[derive(Default)]
pub(super) struct Queue {
    /// The transaction that made the lock's node.
    pub(super) made: i64,
    pub(super) entries: Vec<Entry>,
}

/// What one who waits finds.
pub(super) enum Turn {
    /// The claim is held, by a request sent then, and entered in the estate as such.
    Ours(Moment),
    /// Nobody is before it, if its node is still there.
    Next,
    /// Someone may be before it.
    NotKnown,
}

/// One claim's wait in a queue, with its own node watched as well as those that it is behind.
pub(super) struct Vigil<'a> {
    watch: Watch<'a>,
    own: &'a str,
    parent: &'a str,
    made: i64,
    /// Those before it when it looked, and itself. Not the whole queue: when many wait, each is
    /// behind all the others.
    line: Vec<Numbered>,
}

impl<'a> Vigil<'a> {
    pub(super) fn new(
        session: &'a Session,
        parent: &'a str,
        Queue { made, entries }: Queue,
        own: &'a str,
        mut behind: Vec<String>,
    ) -> Self {
        let node = name_in(own);
        let length = entries.iter().position(|entry| entry.node == node).map_or(0, |own| own + 1);
        let numbered = |entry: &Entry| Numbered { number: entry.number, mode: entry.mode };
        let line: Vec<_> = entries[..length].iter().map(numbered).collect();
        let floor = line.first().map_or(0, |first| first.number);
        session.0.state().known.join(parent, made, floor);
        behind.push(own.to_owned());
        Self { watch: Watch::new(session, behind), own, parent, made, line }
    }

    pub(super) async fn told(&mut self) -> Told {
        self.watch.told().await
    }

    /// The server said that one that it is behind is gone.
    pub(super) fn is_gone(&self, path: &str) {
        let mut state = self.watch.session.0.state();
        state.known.gone_from(self.parent, self.made, name_in(path));
    }

    /// Whether it is the claim's turn, by what the session knows.
    ///
    /// Who was before it in the queue and is known to be gone stays gone, and nobody can have
    /// come before it since. What remains to be known is that its own node is there: that is
    /// ours by the session that made it, and is watched. A server tells a session of changes
    /// in the order in which they were made: had someone deleted our node before the last of
    /// those before us went, we would have been told that first; and the watch is disturbed with
    /// the connection, from which on we could have missed it. If it is deleted later, or the news
    /// is on its way, then while it was first: that is a claim taken from its holder, who learns
    /// of it by the same watch.
    ///
    /// News may be old, though, and our session over for others. So the claim counts from the
    /// last request of the session that the leader answered; if that is longer ago than a hold's
    /// last renewal may be, it is to be asked.
    pub(super) fn turn(&self, id: ClaimId, valid_for: Duration) -> Turn {
        let session = self.watch.session;
        let mut state = session.0.state();
        let Some((own, before)) = self.line.split_last() else { return Turn::NotKnown };
        if !state.watchers.stands(self.watch.number, self.own) {
            return Turn::NotKnown;
        }
        let mut left = state.known.left(self.parent, self.made, before).peekable();
        let floor = left.peek().unwrap_or(own).number;
        if !line::holds_behind(left.map(|claim| claim.mode), own.mode) {
            return Turn::NotKnown;
        }
        state.known.raise(self.parent, self.made, floor);
        match state.assured {
            Some(sent) if Moment::now().since(sent) < valid_for / 3 => {
                session.0.hold(&mut state, id, sent + valid_for, true);
                Turn::Ours(sent)
            }
            _ => Turn::Next,
        }
    }
}

impl Drop for Vigil<'_> {
    fn drop(&mut self) {
        self.watch.session.0.state().known.leave(self.parent, self.made);
    }
}

fn name_in(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
