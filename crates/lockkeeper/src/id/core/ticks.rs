//! Ids by the clock: each tick is given once, never goes back, and never passes the mark that the
//! store has on record.
//!
//! One word has the last tick that was given and, in its low bits, the worker number that gave it, so
//! that no reader ever sees the tick of one worker with the number of another. A second word has the
//! mark. The order of steps is what makes a change of worker safe:
//!
//! - who takes a tick loads the mark first, then takes the tick, then compares;
//! - who changes the worker writes tick and number first, then the mark, which never goes down before
//!   the close.
//!
//! So a tick with a new number compared with an old mark is refused too early, never too late, and a new
//! mark is never seen with an old number.

use super::word::{Apart, Word};
use std::sync::atomic::AtomicU64;

/// The last tick given, by which worker, and the last that may be.
#[derive(Debug)]
pub(crate) struct Ticks<W = AtomicU64> {
    /// `tick << bits | worker`.
    last: Apart<W>,
    /// Read by everyone and written rarely.
    bounds: Apart<Bounds<W>>,
    /// How many bits the worker number has.
    bits: u32,
}

#[derive(Debug)]
struct Bounds<W> {
    /// The last tick that may be given.
    mark: W,
    /// A tick that `last` has reached, so that it need not be read before it is counted up: two threads
    /// would send its cache line to and fro twice for each tick. Zero sends them to read it.
    reached: W,
}

/// The mark of ticks that were never begun, or were closed.
const CLOSED: u64 = 0;

/// A tick, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The first of as many ticks as were asked for, and whose they are.
    From { tick: u64, worker: u64 },
    /// The ticks up to this far ahead of the clock are given: later.
    Full,
    /// The store has not confirmed the worker number for so long.
    PastMark,
}

impl<W: Word> Ticks<W> {
    /// Nothing may be given until [`begin`](Self::begin).
    pub(crate) fn new(worker_bits: u32) -> Self {
        let bounds = Bounds { mark: W::new(CLOSED), reached: W::new(0) };
        Self { last: Apart(W::new(0)), bounds: Apart(bounds), bits: worker_bits }
    }

    /// Takes `count` ticks in a row: not below `now`, above every tick taken before, and at most `ahead`
    /// beyond `now`.
    #[inline]
    pub(crate) fn take(&self, now: u64, ahead: u64, count: u64) -> Taken {
        let Bounds { mark, reached } = &self.bounds.0;
        let mark = mark.load();
        let most = mark.min(now.saturating_add(ahead));
        if count == 1 && now > 0 && now <= reached.load() {
            let before = self.last.0.fetch_add(1 << self.bits);
            let tick = (before >> self.bits) + 1;
            if tick <= most {
                return Taken::From { tick, worker: before & self.mask() };
            }
            // This tick is given to nobody, and the next who comes too early reads first and adds nothing.
            reached.store(0);
            return self.refused(tick, mark, now.saturating_add(ahead));
        }
        self.take_slowly(now, ahead, count)
    }

    /// Why a tick is not given.
    fn refused(&self, tick: u64, mark: u64, most: u64) -> Taken {
        // What is ahead of the clock comes later, whatever the mark is by then: a lease of a new key
        // begins with a floor that the clock has to reach first.
        if mark != CLOSED && tick > most { Taken::Full } else { Taken::PastMark }
    }

    /// As [`take`](Self::take), where the clock may have moved on.
    fn take_slowly(&self, now: u64, ahead: u64, count: u64) -> Taken {
        let Bounds { mark, reached } = &self.bounds.0;
        let mark = mark.load();
        let most = mark.min(now.saturating_add(ahead));
        let mut last = self.last.0.load();
        while last >> self.bits < now {
            let worker = last & self.mask();
            let end = now + (count - 1);
            if end > mark {
                return Taken::PastMark;
            }
            if self.last.0.replace(last, end << self.bits | worker) {
                reached.store(now);
                return Taken::From { tick: now, worker };
            }
            last = self.last.0.load();
        }
        // A thread that fails here adds nothing: else waiting threads would push the ticks on.
        if (last >> self.bits) + count > most {
            return self.refused((last >> self.bits) + count, mark, now.saturating_add(ahead));
        }
        let before = self.last.0.fetch_add(count << self.bits);
        let tick = (before >> self.bits) + 1;
        if tick + (count - 1) > mark {
            return Taken::PastMark;
        }
        Taken::From { tick, worker: before & self.mask() }
    }

    /// From now on gives ticks above `floor` and up to `mark`, as `worker`. Returns whether it does: a
    /// mark that is below the one of before is refused.
    pub(crate) fn begin(&self, worker: u64, floor: u64, mark: u64) -> bool {
        if mark < self.bounds.0.mark.load() {
            return false;
        }
        loop {
            let last = self.last.0.load();
            let tick = (last >> self.bits).max(floor);
            if self.last.0.replace(last, tick << self.bits | worker) {
                break;
            }
        }
        self.bounds.0.mark.store(mark);
        true
    }

    /// Moves the mark on. Called by one task at a time.
    pub(crate) fn extend(&self, mark: u64) {
        if mark > self.bounds.0.mark.load() {
            self.bounds.0.mark.store(mark);
        }
    }

    /// Gives nothing from now on, and returns the last tick that may have been given.
    pub(crate) fn close(&self) -> u64 {
        let mark = self.bounds.0.mark.load();
        loop {
            let last = self.last.0.load();
            let worker = last & self.mask();
            // Every thread that loaded the mark before finds its tick past it.
            if self.last.0.replace(last, (mark + 1).max(last >> self.bits) << self.bits | worker) {
                self.bounds.0.mark.store(CLOSED);
                return (last >> self.bits).min(mark);
            }
        }
    }

    /// The last tick that may be given.
    pub(crate) fn mark(&self) -> u64 {
        self.bounds.0.mark.load()
    }

    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticks(mark: u64) -> Ticks {
        let ticks = Ticks::new(4);
        assert!(ticks.begin(7, 100, mark));
        ticks
    }

    #[test]
    fn follows_the_clock_and_counts_within_it() {
        let ticks = ticks(10_000);
        let from = |tick| Taken::From { tick, worker: 7 };
        assert_eq!(ticks.take(1_000, 5, 1), from(1_000));
        assert_eq!(ticks.take(1_000, 5, 1), from(1_001));
        // The clock went back: later than the last one all the same, within the bound.
        assert_eq!(ticks.take(998, 5, 1), from(1_002));
        assert_eq!(ticks.take(998, 5, 3), Taken::Full);
        assert_eq!(ticks.take(2_000, 5, 3), from(2_000));
        assert_eq!(ticks.take(2_000, 5, 1), from(2_003));
    }

    #[test]
    fn nothing_is_given_below_the_floor_or_past_the_mark() {
        let ticks = ticks(200);
        assert_eq!(ticks.take(50, 60, 1), Taken::From { tick: 101, worker: 7 });
        assert_eq!(ticks.take(199, 60, 2), Taken::From { tick: 199, worker: 7 });
        assert_eq!(ticks.take(199, 60, 1), Taken::PastMark);
        assert_eq!(ticks.take(500, 60, 1), Taken::PastMark);
        ticks.extend(500);
        assert_eq!(ticks.take(500, 60, 1), Taken::From { tick: 500, worker: 7 });
        assert_eq!(Ticks::<AtomicU64>::new(4).take(1, 5, 1), Taken::PastMark);
    }

    #[test]
    fn a_floor_ahead_of_the_clock_is_waited_for() {
        let ticks = Ticks::<AtomicU64>::new(4);
        assert!(ticks.begin(7, 200, 200));
        assert_eq!(ticks.take(100, 5, 1), Taken::Full);
        ticks.extend(210);
        assert_eq!(ticks.take(101, 5, 1), Taken::Full);
        assert_eq!(ticks.take(196, 5, 1), Taken::From { tick: 201, worker: 7 });
    }

    #[test]
    fn nothing_is_given_after_the_close() {
        let ticks = ticks(10_000);
        assert_eq!(ticks.take(1_000, 5, 1), Taken::From { tick: 1_000, worker: 7 });
        assert_eq!(ticks.close(), 1_000);
        for (now, ahead) in [(1_001, 5), (1_001, 50_000), (20_000, 5)] {
            assert_eq!(ticks.take(now, ahead, 1), Taken::PastMark);
        }
    }

    #[test]
    fn a_change_of_worker_takes_no_mark_back() {
        let ticks = ticks(200);
        assert!(!ticks.begin(3, 0, 199));
        assert!(ticks.begin(3, 150, 300));
        assert_eq!(ticks.take(120, 60, 1), Taken::From { tick: 151, worker: 3 });
    }

    proptest! {
        /// Whatever the clock does, ticks grow, stay above the floor and below the mark.
        #[test]
        fn ticks_only_grow(clock in prop::collection::vec((0u64..400, 1u64..4), 1..200)) {
            let ticks = ticks(300);
            let mut last = 100;
            for (now, count) in clock {
                if let Taken::From { tick, worker } = ticks.take(now, 20, count) {
                    prop_assert!(tick > last && tick + count - 1 <= 300 && worker == 7);
                    // One tick may be passed over where the clock was too far behind.
                    prop_assert!(tick <= now.max(last + 2));
                    last = tick + count - 1;
                }
            }
        }
    }
}
