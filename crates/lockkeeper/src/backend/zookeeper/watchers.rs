//! Who of this keeper waits for something to happen to which node.

use std::collections::HashMap;
use tokio::sync::mpsc;

/// What those who watch a node are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// It is gone.
    Deleted,
    /// Something else happened, or may have: the connection broke meanwhile.
    Changed,
}

/// The nodes that are watched. ZooKeeper tells a session once of a node, however many of it wait.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    by_path: HashMap<String, Vec<(u64, mpsc::UnboundedSender<Told>)>>,
    last: u64,
}

impl Watchers {
    /// A number by which whoever watches is known.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn add(&mut self, number: u64, path: &str, tell: &mpsc::UnboundedSender<Told>) {
        self.by_path.entry(path.to_owned()).or_default().push((number, tell.clone()));
    }

    pub(super) fn remove(&mut self, number: u64, path: &str) {
        if let Some(watchers) = self.by_path.get_mut(path) {
            watchers.retain(|(other, _)| *other != number);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
        }
    }

    /// Whether nothing was told yet to whoever watches `path` by this number.
    pub(super) fn stands(&self, number: u64, path: &str) -> bool {
        self.by_path.get(path).is_some_and(|all| all.iter().any(|(other, _)| *other == number))
    }

    pub(super) fn tell(&mut self, path: &str, told: &Told) {
        for (_, tell) in self.by_path.remove(path).into_iter().flatten() {
            // One who is leaving in this moment need not know.
            let _ = tell.send(told.clone());
        }
    }

    /// The watches went with the connection: everyone looks again.
    pub(super) fn disturb(&mut self) {
        for (_, tell) in std::mem::take(&mut self.by_path).into_values().flatten() {
            let _ = tell.send(Told::Changed);
        }
    }
}
