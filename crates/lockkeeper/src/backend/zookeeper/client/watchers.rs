//! Which callers of this session watch which nodes.
//!
//! ZooKeeper keeps at most one watch per node and session, sends one event for it and then drops
//! it. This table fans the event out to every caller that watches the node, and forgets them: a
//! caller that wants to go on watching asks the server again.

use std::collections::HashMap;
use tokio::sync::mpsc;

/// What happened to a watched node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The node was deleted.
    Deleted,
    /// Something else happened, or may have: the connection broke, and the watch with it.
    Other,
}

/// The watched nodes, each with the callers to notify.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    by_path: HashMap<String, Vec<(u64, mpsc::UnboundedSender<Change>)>>,
    /// Ids are never used again, so that a late removal removes nothing of another watcher.
    last_id: u64,
}

impl Watchers {
    /// An id for a new watcher.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Registers a watcher of one more node.
    pub(super) fn add(&mut self, id: u64, path: &str, sender: &mpsc::UnboundedSender<Change>) {
        self.by_path.entry(path.to_owned()).or_default().push((id, sender.clone()));
    }

    /// Without effect if the watcher has been notified.
    pub(super) fn remove(&mut self, id: u64, path: &str) {
        if let Some(watchers) = self.by_path.get_mut(path) {
            watchers.retain(|(other, _)| *other != id);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
        }
    }

    /// Whether the watcher `id` still watches `path`, so that nothing was reported of it yet.
    pub(super) fn is_watching(&self, id: u64, path: &str) -> bool {
        self.by_path.get(path).is_some_and(|all| all.iter().any(|(other, _)| *other == id))
    }

    /// Reports a change to every watcher of `path`.
    pub(super) fn notify(&mut self, path: &str, change: Change) {
        for (_, sender) in self.by_path.remove(path).into_iter().flatten() {
            // A watcher that is being dropped at this moment need not know.
            let _ = sender.send(change);
        }
    }

    /// The watches went with the connection: every watcher has to look again.
    pub(super) fn disconnected(&mut self) {
        for (_, sender) in std::mem::take(&mut self.by_path).into_values().flatten() {
            let _ = sender.send(Change::Other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reaches_every_watcher_of_the_node_once() {
        let (mut watchers, (sender, mut changes)) =
            (Watchers::default(), mpsc::unbounded_channel());
        let (one, two) = (watchers.next_id(), watchers.next_id());
        watchers.add(one, "/a", &sender);
        watchers.add(two, "/a", &sender);
        watchers.add(two, "/b", &sender);
        watchers.remove(one, "/b");
        watchers.notify("/a", Change::Deleted);
        watchers.notify("/a", Change::Deleted);
        assert_eq!(
            (changes.try_recv(), changes.try_recv()),
            (Ok(Change::Deleted), Ok(Change::Deleted))
        );
        assert!(changes.try_recv().is_err());
        assert!(!watchers.is_watching(two, "/a") && watchers.is_watching(two, "/b"));
        watchers.disconnected();
        assert_eq!(changes.try_recv(), Ok(Change::Other));
        assert!(!watchers.is_watching(two, "/b"));
    }
}
