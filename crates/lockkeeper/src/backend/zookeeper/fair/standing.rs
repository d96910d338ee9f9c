//! Where a claim stands in a queue of nodes.
//!
//! Who holds and whom to watch is the same for every store, and decided by
//! [`queue`](mod@crate::backend::queue). What is special here are numbers that two nodes share: nodes
//! that were created by hand, and Curator's writers that also read.
//!
//! A waiter may conclude from events alone that it is its turn only if the queue before it is
//! *settled*: if every node before its own is known. Where a number may exist twice, a node that
//! was not listed could stand before it, so the queue is listed again instead.

use super::super::layout::Entry;
use crate::backend::Mode;
use crate::backend::queue::{self, Place};

/// A queue as it was listed.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The transaction that created the lock's node.
    pub(super) made: i64,
    pub(super) entries: Vec<Entry>,
}

/// How one claim stands among the others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It holds the lock.
    Holds,
    Waits {
        /// Its place among the waiters, counted from 1.
        place: usize,
        /// The nodes to watch: the end of one of them may let the claim in.
        behind: Vec<String>,
        /// No node can be created before the claim's own any more.
        settled: bool,
    },
    /// Its node does not exist.
    Absent,
}

/// Moves the node `own` behind those with the same number. ZooKeeper gives a number once, but a
/// node created by hand may have any: it is not known to have come later.
pub(super) fn give_way(entries: &mut [Entry], own: &str) {
    if let Some(index) = entries.iter().position(|entry| entry.node == own) {
        let number = entries[index].number;
        let same = entries[index..].iter().take_while(|entry| entry.number == number).count();
        entries[index..index + same].rotate_left(1);
    }
}

/// How the claim with the node `own` stands.
pub(super) fn standing(entries: &[Entry], own: &str) -> Standing {
    // The node may have been deleted by an operator, or with an older session of ours.
    let index = entries.iter().position(|entry| entry.node == own);
    let modes: Vec<Mode> = entries.iter().map(|entry| entry.mode).collect();
    let place = index.and_then(|index| Some((index, queue::place(&modes, index)?)));
    match place {
        None => Standing::Absent,
        Some((_, Place::Holds)) => Standing::Holds,
        Some((index, Place::Waits { number, behind })) => {
            let behind = entries[behind].iter().map(|entry| entry.node.clone()).collect();
            // Where a number may exist twice, another node can be before ours unseen.
            let doubled = entries[..=index].windows(2).any(|pair| pair[0].number == pair[1].number);
            let settled = !doubled && !entries[..index].iter().any(|entry| entry.may_be_doubled);
            Standing::Waits { place: number, behind, settled }
        }
    }
}

/// Whether a claim of this mode holds the lock with these claims before it. If it does with them,
/// it does with fewer of them.
pub(super) fn holds_behind(before: impl Iterator<Item = Mode>, mode: Mode) -> bool {
    // All of them hold, the last one included.
    let mut length = 0;
    let holders = queue::holders(before.chain([mode]).inspect(|_| length += 1));
    holders == length
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: Mode = Mode::Exclusive;

    fn entries(modes: &[Mode]) -> Vec<Entry> {
        let entry = |(index, mode): (usize, &Mode)| Entry {
            node: index.to_string(),
            mode: *mode,
            number: i32::try_from(index).unwrap(),
            may_be_doubled: false,
        };
        modes.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn of_equal_numbers_ours_is_the_last() {
        let mut entries = entries(&[WRITER, WRITER, WRITER, WRITER]);
        entries[1].number = 2;
        entries[2].number = 2;
        for own in ["1", "2"] {
            give_way(&mut entries, own);
            let Standing::Waits { place: 2, behind, settled: false } = standing(&entries, own)
            else {
                panic!("{own}: {entries:?}");
            };
            assert_ne!(behind, [own]);
        }
        give_way(&mut entries, "0");
        assert_eq!(standing(&entries, "0"), Standing::Holds);
    }

    #[test]
    fn a_claim_watches_the_nodes_that_the_queue_says() {
        let permit = Mode::Permit { of: 2 };
        let waits = |place, behind: &[&str]| {
            let behind = behind.iter().map(ToString::to_string).collect();
            Standing::Waits { place, behind, settled: true }
        };
        assert_eq!(standing(&entries(&[WRITER; 3]), "2"), waits(2, &["1"]));
        assert_eq!(standing(&entries(&[permit; 4]), "3"), waits(2, &["1", "2"]));
        assert_eq!(standing(&entries(&[WRITER; 3]), "0"), Standing::Holds);
        assert_eq!(standing(&entries(&[WRITER; 3]), "7"), Standing::Absent);
    }

    #[test]
    fn behind_a_number_that_may_be_doubled_nothing_is_settled() {
        let mut entries = entries(&[WRITER; 3]);
        entries[0].may_be_doubled = true;
        assert!(matches!(standing(&entries, "2"), Standing::Waits { settled: false, .. }));
        entries[0].may_be_doubled = false;
        entries[2].may_be_doubled = true;
        // Its own number, and those behind it, do not matter.
        for own in ["1", "2"] {
            assert!(matches!(standing(&entries, own), Standing::Waits { settled: true, .. }));
        }
    }

    #[test]
    fn a_claim_holds_behind_those_it_goes_with() {
        let holds = |before: &[Mode], mode| holds_behind(before.iter().copied(), mode);
        assert!(holds(&[], WRITER));
        assert!(!holds(&[WRITER], WRITER) && !holds(&[Mode::Shared], WRITER));
        assert!(holds(&[Mode::Shared, Mode::Shared], Mode::Shared));
        let permit = Mode::Permit { of: 2 };
        assert!(holds(&[permit], permit) && !holds(&[permit, permit], permit));
    }
}
