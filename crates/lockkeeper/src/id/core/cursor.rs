//! Ids from ranges that were reserved: one addition each, by as many threads as there are.
//!
//! Ranges are put in one after another, each above the one before. The order of steps is what keeps a
//! thread that is late from taking a number of no range:
//!
//! - who takes numbers loads the end first, then adds, then compares;
//! - who puts a range in writes the next number first, then the end.
//!
//! A number below an end that was loaded before it was taken belongs to the range of that end: a later
//! range begins at or above the end of the one before.

use super::word::{Apart, Word};
use std::sync::atomic::AtomicU64;

/// What is left of a range.
#[derive(Debug)]
pub(crate) struct Cursor<W = AtomicU64> {
    next: Apart<W>,
    /// Behind the last number of the range.
    end: Apart<W>,
    /// From here on the next range should be on its way.
    ebb: Apart<W>,
}

/// Numbers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first.
    pub(crate) first: u64,
    /// How many: as many as were asked for, or as were left.
    pub(crate) count: u64,
    /// Whether it is time to see to the next range.
    pub(crate) ebb: bool,
}

impl<W: Word> Cursor<W> {
    /// With nothing in it.
    pub(crate) fn new() -> Self {
        Self { next: Apart(W::new(0)), end: Apart(W::new(0)), ebb: Apart(W::new(0)) }
    }

    /// Takes up to `count` numbers; `None` when the range is used up.
    #[inline]
    pub(crate) fn take(&self, count: u64) -> Option<Piece> {
        let end = self.end.0.load();
        let ebb = self.ebb.0.load();
        let first = self.next.0.fetch_add(count);
        if first >= end {
            return None;
        }
        let count = count.min(end - first);
        Some(Piece { first, count, ebb: first + count > ebb })
    }

    /// Puts in the range from `first` to before `end`, which is above every range of before, once that
    /// is used up. Called by one thread at a time.
    pub(crate) fn fill(&self, first: u64, end: u64, ebb: u64) {
        debug_assert!(self.is_empty() && self.end.0.load() <= first && first < end);
        self.next.0.store(first);
        self.ebb.0.store(ebb);
        self.end.0.store(end);
    }

    /// Says once more from where on the next range should be on its way: `None` for never, since
    /// somebody sees to it. Called by one thread at a time, as [`fill`](Self::fill).
    pub(crate) fn remind(&self, from: Option<u64>) {
        self.ebb.0.store(from.unwrap_or(u64::MAX));
    }

    /// The middle of what is left.
    pub(crate) fn middle(&self) -> u64 {
        let (next, end) = (self.next.0.load(), self.end.0.load());
        end - end.saturating_sub(next) / 2
    }

    /// Whether the range is used up.
    pub(crate) fn is_empty(&self) -> bool {
        self.next.0.load() >= self.end.0.load()
    }

    /// How many are left.
    pub(crate) fn left(&self) -> u64 {
        self.end.0.load().saturating_sub(self.next.0.load())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_given_to_its_end_and_then_the_next() {
        let cursor = Cursor::<AtomicU64>::new();
        assert_eq!(cursor.take(1), None);
        cursor.fill(10, 14, 11);
        assert_eq!(cursor.take(1), Some(Piece { first: 10, count: 1, ebb: false }));
        assert_eq!(cursor.take(1), Some(Piece { first: 11, count: 1, ebb: true }));
        assert_eq!(cursor.take(5), Some(Piece { first: 12, count: 2, ebb: true }));
        assert_eq!(cursor.take(1), None);
        assert!(cursor.is_empty());
        cursor.fill(14, 16, 15);
        assert_eq!(cursor.take(1), Some(Piece { first: 14, count: 1, ebb: false }));
        assert_eq!(cursor.left(), 1);
    }

    #[test]
    fn threads_get_every_number_once() {
        let cursor = Cursor::<AtomicU64>::new();
        cursor.fill(1, 40_001, 40_001);
        let took = std::thread::scope(|scope| {
            let take = || {
                let numbers = std::iter::from_fn(|| cursor.take(1).map(|piece| piece.first));
                numbers.collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut sorted = took.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(1..=40_000));
    }
}
