//! What a session knows of the queues in which it waits: which nodes are gone for good.
//!
//! A node that went does not come back, and none is ever made before one that is there: so what
//! one claim of a keeper has seen go, the next need not look for. Nothing here is ever needed:
//! whoever finds too little asks the server.

use super::layout;
use crate::backend::Mode;
use std::collections::{BTreeSet, HashMap};

/// No more nodes are remembered of a queue. With so many, all are forgotten.
const MOST: usize = 1024;

/// A claim in a queue, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) number: i32,
    pub(super) mode: Mode,
}

/// The queues in which someone waits.
#[derive(Debug, Default)]
pub(super) struct Known {
    queues: HashMap<String, Queue>,
}

#[derive(Debug)]
struct Queue {
    made: i64,
    /// No node with a smaller number is left.
    floor: i32,
    gone: BTreeSet<i32>,
    waiting: usize,
}

impl Known {
    /// Someone waits below `parent`, which was made by the transaction `made` and has no node
    /// with a number below `floor`.
    ///
    /// One that is made anew counts from the beginning: of the other nothing is true of it.
    pub(super) fn join(&mut self, parent: &str, made: i64, floor: i32) {
        match self.queues.get_mut(parent) {
            Some(queue) if queue.made == made => {
                queue.waiting += 1;
                queue.raise(floor);
            }
            // A listing that was read late.
            Some(queue) if queue.made > made => {}
            _ => {
                let queue = Queue { made, floor, gone: BTreeSet::new(), waiting: 1 };
                self.queues.insert(parent.to_owned(), queue);
            }
        }
    }

    pub(super) fn leave(&mut self, parent: &str, made: i64) {
        if let Some(queue) = self.queue(parent, made) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                self.queues.remove(parent);
            }
        }
    }

    /// The server told of the end of this node, and of nothing later yet: so it is of the lock
    /// as it was listed.
    pub(super) fn gone(&mut self, path: &str) {
        self.gone_since(path, i64::MAX);
    }

    /// The node at `path` is gone, that was made by the transaction `czxid`. One from before the
    /// lock was made anew may have had the number of one that is there.
    pub(super) fn gone_since(&mut self, path: &str, czxid: i64) {
        let Some((parent, node)) = path.rsplit_once('/') else { return };
        if let Some(queue) = self.queues.get_mut(parent).filter(|queue| queue.made < czxid) {
            queue.gone(node);
        }
    }

    /// As [`gone`](Self::gone), by one who knows of which parent it was said.
    pub(super) fn gone_from(&mut self, parent: &str, made: i64, node: &str) {
        if let Some(queue) = self.queue(parent, made) {
            queue.gone(node);
        }
    }

    /// Those of `claims` that may still be there.
    pub(super) fn left(
        &self,
        parent: &str,
        made: i64,
        claims: &[Numbered],
    ) -> impl Iterator<Item = Numbered> {
        let queue = self.queues.get(parent).filter(|queue| queue.made == made);
        let lacks = move |number| queue.is_some_and(|queue| queue.lacks(number));
        claims.iter().copied().filter(move |claim| !lacks(claim.number))
    }

    /// No node with a smaller number is left.
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
        if self.gone.len() >= MOST {
            self.gone.clear();
        }
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

    fn left(known: &Known, made: i64, numbers: &[i32]) -> Vec<i32> {
        let numbered = |number: &i32| Numbered { number: *number, mode: Mode::Exclusive };
        let claims: Vec<Numbered> = numbers.iter().map(numbered).collect();
        known.left("/l/n", made, &claims).map(|claim| claim.number).collect()
    }

    #[test]
    fn what_went_is_not_looked_for_again() {
        let mut known = Known::default();
        known.join("/l/n", 7, 2);
        assert_eq!(left(&known, 7, &[1, 2, 3, 4]), [2, 3, 4]);
        known.gone("/l/n/_c_1-lock-0000000003");
        known.gone("/l/other/_c_1-lock-0000000004");
        assert_eq!(left(&known, 7, &[2, 3, 4]), [2, 4]);
        known.raise("/l/n", 7, 4);
        known.raise("/l/n", 7, 3);
        assert_eq!(left(&known, 7, &[2, 3, 4]), [4]);
    }

    #[test]
    fn of_a_parent_made_anew_nothing_is_known() {
        let mut known = Known::default();
        known.join("/l/n", 7, 100);
        known.gone("/l/n/_c_1-lock-0000000101");
        assert_eq!(left(&known, 9, &[0, 101]), [0, 101]);
        known.join("/l/n", 9, 0);
        assert_eq!(left(&known, 9, &[0, 101]), [0, 101]);
        assert_eq!(left(&known, 7, &[0, 101]), [0, 101]);
        // Those who were below the other and only now notice that it went.
        known.raise("/l/n", 7, 200);
        known.gone_from("/l/n", 7, "_c_1-lock-0000000101");
        known.join("/l/n", 7, 200);
        known.leave("/l/n", 7);
        known.leave("/l/n", 7);
        known.gone_since("/l/n/_c_1-lock-0000000000", 8);
        assert_eq!(left(&known, 9, &[0, 101]), [0, 101]);
        known.gone_since("/l/n/_c_1-lock-0000000000", 10);
        assert_eq!(left(&known, 9, &[0, 101]), [101]);
    }

    #[test]
    fn a_number_that_may_be_there_twice_is_not_gone() {
        let mut known = Known::default();
        known.join("/l/n", 7, 0);
        known.gone("/l/n/_c_1-__READ__0000000001");
        known.gone("/l/n/no claim at all");
        assert_eq!(left(&known, 7, &[1]), [1]);
    }

    #[test]
    fn with_the_last_who_waits_all_is_forgotten() {
        let mut known = Known::default();
        known.join("/l/n", 7, 5);
        known.join("/l/n", 7, 6);
        known.leave("/l/n", 7);
        assert_eq!(left(&known, 7, &[5]), [0; 0]);
        known.leave("/l/n", 7);
        assert!(known.queues.is_empty());
    }
}
