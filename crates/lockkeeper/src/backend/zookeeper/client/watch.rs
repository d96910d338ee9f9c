//! A caller's watch on one or more nodes.
//!
//! A watch is set on the server by a read of the node with the watch flag ([`Request`]), and is
//! registered here to hear of the event. Dropping the `Watch` leaves the server's half in place: its
//! event is then delivered to nobody.
//!
//! [`Request`]: super::requests::Request

use super::observer::Observer;
use super::session::Session;
use super::watchers::Change;
use tokio::sync::mpsc;

/// Notified of the first change to each of some nodes.
///
/// This is the local half only. It is registered **before** the requests that set the watches on
/// the server are sent, so that no event can arrive unheard.
pub(crate) struct Watch<'a, O: Observer> {
    session: &'a Session<O>,
    id: u64,
    /// To unregister it.
    paths: Vec<String>,
    changes: mpsc::UnboundedReceiver<Change>,
}

impl<'a, O: Observer> Watch<'a, O> {
    pub(crate) fn new(session: &'a Session<O>, paths: Vec<String>) -> Self {
        let (sender, changes) = mpsc::unbounded_channel();
        let mut state = session.0.state();
        let id = state.watchers.next_id();
        paths.iter().for_each(|path| state.watchers.add(id, path, &sender));
        drop(state);
        Self { session, id, paths, changes }
    }

    /// Tells this watch from others: see [`Facts`](super::session::Facts).
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn session(&self) -> &'a Session<O> {
        self.session
    }

    /// Waits for the next change to any of the nodes.
    pub(crate) async fn changed(&mut self) -> Change {
        // Without nodes there is no sender, and nothing to wait for.
        self.changes.recv().await.unwrap_or(Change::Other)
    }
}

impl<O: Observer> Drop for Watch<'_, O> {
    fn drop(&mut self) {
        let mut state = self.session.0.state();
        self.paths.iter().for_each(|path| state.watchers.remove(self.id, path));
    }
}
