//! Which nodes are gone for good, in the queues where claims of this session wait.
//!
//! A node that went does not come back, and no node is ever created before one that exists. So
//! what one claim of the keeper has seen disappear, the next need not ask for. This is a cache:
//! with too little in it, a waiter asks the server.
//!
//! ```text
//!   listed:      40  41  42  43(ours)        floor 40
//!   event:       41 deleted                  gone {41}
//!   listed:      42  43(ours)                floor 42, gone {}
//!   event:       42 deleted                  gone {42}: nobody is left before 43
//! ```
//!
//! It is kept while a claim of this session waits in the queue, and no longer.

use super::layout;
use crate::backend::Mode;
use std::collections::{BTreeSet, HashMap};

/// How many nodes are remembered of one queue. When there are more, all of them are forgotten.
const REMEMBERED: usize = 1024;

/// A claim in a queue, by the number of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) number: i32,
    pub(super) mode: Mode,
}

/// What is known of the queues in which claims of this session wait, by the lock's node.
#[derive(Debug, Default)]
pub(super) struct GoneNodes {
    queues: HashMap<String, Queue>,
}

#[derive(Debug)]
struct Queue {
    /// The transaction that created the lock's node. A lock's node that is created again numbers
    /// its children from zero, and nothing that was known of the one before applies to it.
    made: i64,
    /// No node with a smaller number is left.
    floor: i32,
    /// Numbers above the floor that are gone.
    gone: BTreeSet<i32>,
    /// How many claims of this session wait here.
    waiting: usize,
}

impl GoneNodes {
    /// A claim begins to wait below `parent`, which was created by the transaction `made` and has
    /// no node with a number below `floor`.
    pub(super) fn join(&mut self, parent: &str, made: i64, floor: i32) {
        match self.queues.get_mut(parent) {
            Some(queue) if queue.made == made => {
                queue.waiting += 1;
                queue.raise(floor);
            }
            // A listing from before the node was created again, processed late.
            Some(queue) if queue.made > made => {}
            _ => {
                let queue = Queue { made, floor, gone: BTreeSet::new(), waiting: 1 };
                self.queues.insert(parent.to_owned(), queue);
            }
        }
    }

    /// A claim waits no longer. With the last one, what is known of the queue is forgotten.
    pub(super) fn leave(&mut self, parent: &str, made: i64) {
        if let Some(queue) = self.queue(parent, made) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                self.queues.remove(parent);
            }
        }
    }

    /// The server sent the event that this node was deleted. Events come in the order of the
    /// changes, so the node was a child of the lock's node as it was last listed.
    pub(super) fn gone(&mut self, path: &str) {
        self.gone_since(path, i64::MAX);
    }

    /// The node at `path`, created by the transaction `czxid`, is gone. One that is older than the
    /// lock's present node may have had the number of a node that exists.
    pub(super) fn gone_since(&mut self, path: &str, czxid: i64) {
        let Some((parent, node)) = path.rsplit_once('/') else { return };
        if let Some(queue) = self.queues.get_mut(parent).filter(|queue| queue.made < czxid) {
            queue.gone(node);
        }
    }

    /// The node is gone from below the parent that was created by the transaction `made`.
    pub(super) fn gone_from(&mut self, parent: &str, made: i64, node: &str) {
        if let Some(queue) = self.queue(parent, made) {
            queue.gone(node);
        }
    }

    /// Those of `claims` that may still exist.
    pub(super) fn left(
        &self,
        parent: &str,
        made: i64,
        claims: &[Numbered],
    ) -> impl Iterator<Item = Numbered> {
        let queue = self.queues.get(parent).filter(|queue| queue.made == made);
        // Without a queue that is known, every claim may still exist.
        let lacks = move |number| queue.is_some_and(|queue| queue.lacks(number));
        claims.iter().copied().filter(move |claim| !lacks(claim.number))
    }

    /// No node with a number below `floor` is left.
    pub(super) fn raise(&mut self, parent: &str, made: i64, floor: i32) {
        if let Some(queue) = self.queue(parent, made) {
            queue.raise(floor);
        }
    }

    fn queue(&mut self, parent: &str, made: i64) -> Option<&mut Queue> {
        self.queues.get_mut(parent).filter(|queue| queue.made == made)
    }
}

impl Queue {
    fn gone(&mut self, node: &str) {
        // Forgetting costs each waiter a listing, remembering for ever would cost memory.
        if self.gone.len() >= REMEMBERED {
            self.gone.clear();
        }
        // Only a number that no other node can have: two of Curator's nodes may share one.
        let number = layout::only_number(node).filter(|number| *number >= self.floor);
        self.gone.extend(number);
    }

    fn raise(&mut self, floor: i32) {
        if self.floor < floor {
            self.floor = floor;
            self.gone.retain(|number| *number >= floor);
        }
    }

    fn lacks(&self, number: i32) -> bool {
        number < self.floor || self.gone.contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(nodes: &GoneNodes, made: i64, numbers: &[i32]) -> Vec<i32> {
        let numbered = |number: &i32| Numbered { number: *number, mode: Mode::Exclusive };
        let claims: Vec<Numbered> = numbers.iter().map(numbered).collect();
        nodes.left("/l/n", made, &claims).map(|claim| claim.number).collect()
    }

    #[test]
    fn a_node_that_went_is_not_looked_for_again() {
        let mut nodes = GoneNodes::default();
        nodes.join("/l/n", 7, 2);
        assert_eq!(left(&nodes, 7, &[1, 2, 3, 4]), [2, 3, 4]);
        nodes.gone("/l/n/_c_1-lock-0000000003");
        nodes.gone("/l/other/_c_1-lock-0000000004");
        assert_eq!(left(&nodes, 7, &[2, 3, 4]), [2, 4]);
        nodes.raise("/l/n", 7, 4);
        nodes.raise("/l/n", 7, 3);
        assert_eq!(left(&nodes, 7, &[2, 3, 4]), [4]);
    }

    #[test]
    fn nothing_is_known_of_a_parent_created_again() {
        let mut nodes = GoneNodes::default();
        nodes.join("/l/n", 7, 100);
        nodes.gone("/l/n/_c_1-lock-0000000101");
        assert_eq!(left(&nodes, 9, &[0, 101]), [0, 101]);
        nodes.join("/l/n", 9, 0);
        assert_eq!(left(&nodes, 9, &[0, 101]), [0, 101]);
        assert_eq!(left(&nodes, 7, &[0, 101]), [0, 101]);
        // Claims that were below the parent before it and only now notice that it went.
        nodes.raise("/l/n", 7, 200);
        nodes.gone_from("/l/n", 7, "_c_1-lock-0000000101");
        nodes.join("/l/n", 7, 200);
        nodes.leave("/l/n", 7);
        nodes.leave("/l/n", 7);
        nodes.gone_since("/l/n/_c_1-lock-0000000000", 8);
        assert_eq!(left(&nodes, 9, &[0, 101]), [0, 101]);
        nodes.gone_since("/l/n/_c_1-lock-0000000000", 10);
        assert_eq!(left(&nodes, 9, &[0, 101]), [101]);
    }

    #[test]
    fn a_number_that_may_be_there_twice_is_not_gone() {
        let mut nodes = GoneNodes::default();
        nodes.join("/l/n", 7, 0);
        nodes.gone("/l/n/_c_1-__READ__0000000001");
        nodes.gone("/l/n/no claim at all");
        assert_eq!(left(&nodes, 7, &[1]), [1]);
    }

    #[test]
    fn with_the_last_waiter_all_is_forgotten() {
        let mut nodes = GoneNodes::default();
        nodes.join("/l/n", 7, 5);
        nodes.join("/l/n", 7, 6);
        nodes.leave("/l/n", 7);
        assert_eq!(left(&nodes, 7, &[5]), [0; 0]);
        nodes.leave("/l/n", 7);
        assert!(nodes.queues.is_empty());
    }
}
