//! Every order of the steps by which threads take ids: of the library's own files, with atomic words that
//! also return every value that the memory model allows.

#[allow(dead_code, reason = "the library's own files, of which this needs a part")]
#[path = "../../../lockkeeper/src/id/core/mod.rs"]
mod parts;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use parts::cursor::Cursor;
use parts::ticks::{Taken, Ticks};
use parts::word::Word;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// With the orderings of the library's own word.
///
/// A store is an exchange here: loom keeps only a partial order of plain stores and additions to one word,
/// and lets an addition read what another addition wrote before a store that the reader has already
/// seen, which no memory model allows. Exchanges have one order, and every place in it is tried.
impl Word for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.swap(value, Ordering::Release);
    }

    fn fetch_add(&self, by: u64) -> u64 {
        self.fetch_add(by, Ordering::AcqRel)
    }

    fn replace(&self, before: u64, after: u64) -> bool {
        self.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The bits of a worker number here, and how far ahead of the clock ticks may be.
const BITS: u32 = 2;
const AHEAD: u64 = 100;

/// The leases: a worker number is good for ticks above its floor and up to its mark.
const FIRST: (u64, u64, u64) = (1, 10, 14);
const SECOND: (u64, u64, u64) = (2, 12, 16);

/// What was seen in at least one order; a model that never came to it tells nothing.
#[derive(Default)]
struct Seen(Mutex<BTreeSet<&'static str>>);

impl Seen {
    fn note(&self, what: &'static str, seen: bool) {
        if seen {
            self.0.lock().unwrap().insert(what);
        }
    }

    fn all(&self, wanted: &[&'static str]) {
        let seen = self.0.lock().unwrap();
        assert!(wanted.iter().all(|it| seen.contains(it)), "unknown: only {seen:?} of {wanted:?}");
    }
}

/// Tries the orders in which a thread is interrupted four times at most, where it could have gone on;
/// with `LOCKKEEPER_MODEL=full` all of them, which takes minutes.
fn every_order(steps: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    if std::env::var_os("LOCKKEEPER_MODEL").is_none_or(|wanted| wanted != "full") {
        model.preemption_bound = Some(4);
    }
    model.check(steps);
}

fn ticks() -> Arc<Ticks<AtomicU64>> {
    let ticks = Ticks::new(BITS);
    let (worker, floor, mark) = FIRST;
    assert!(ticks.begin(worker, floor, mark));
    Arc::new(ticks)
}

/// Takes one tick for each of these readings of the clock, on a thread of its own.
fn taker(ticks: &Arc<Ticks<AtomicU64>>, clock: &'static [u64]) -> thread::JoinHandle<Vec<Taken>> {
    let ticks = ticks.clone();
    thread::spawn(move || clock.iter().map(|now| ticks.take(*now, AHEAD, 1)).collect())
}

/// The ticks of all, with whose they are: none twice, those of each thread in order.
fn given(threads: Vec<Vec<Taken>>) -> BTreeSet<(u64, u64)> {
    let mut all = BTreeSet::new();
    for taken in threads {
        let mut last = 0;
        for taken in taken {
            if let Taken::From { tick, worker } = taken {
                assert!(tick > last, "a thread went back from {last} to {tick}");
                assert!(all.insert((tick, worker)), "tick {tick} of worker {worker} twice");
                last = tick;
            }
        }
    }
    all
}

fn within((tick, worker): (u64, u64), (of, floor, mark): (u64, u64, u64)) -> bool {
    worker == of && tick > floor && tick <= mark
}

#[test]
fn a_change_of_worker_gives_no_tick_to_the_wrong_one() {
    let seen = std::sync::Arc::new(Seen::default());
    let notes = seen.clone();
    every_order(move || {
        let ticks = ticks();
        let (one, two) = (taker(&ticks, &[14]), taker(&ticks, &[14]));
        let (worker, floor, mark) = SECOND;
        assert!(ticks.begin(worker, floor, mark));
        let given = given(vec![one.join().unwrap(), two.join().unwrap()]);
        for id in &given {
            assert!(within(*id, FIRST) || within(*id, SECOND), "{id:?} is outside its lease");
        }
        let of = |worker| given.iter().any(|(_, by)| *by == worker);
        notes.note("both workers", of(1) && of(2));
        notes.note("ticks above the first mark", given.iter().any(|(tick, _)| *tick > FIRST.2));
        notes.note("none left", given.len() < 2);
    });
    seen.all(&["both workers", "ticks above the first mark", "none left"]);
}

#[test]
fn an_extension_gives_no_tick_twice_or_past_it() {
    let seen = std::sync::Arc::new(Seen::default());
    let notes = seen.clone();
    every_order(move || {
        let ticks = ticks();
        let (one, two) = (taker(&ticks, &[14]), taker(&ticks, &[14]));
        ticks.extend(15);
        let given = given(vec![one.join().unwrap(), two.join().unwrap()]);
        assert!(given.iter().all(|id| within(*id, (1, 10, 15))), "{given:?} is outside the lease");
        notes.note("only what was on record", given.len() == 1);
        notes.note("all that is", given.len() == 2);
    });
    seen.all(&["only what was on record", "all that is"]);
}

#[test]
fn what_was_closed_gives_nothing_beyond_the_last_tick_it_told() {
    let seen = std::sync::Arc::new(Seen::default());
    let notes = seen.clone();
    every_order(move || {
        let ticks = ticks();
        let (one, two) = (taker(&ticks, &[12]), taker(&ticks, &[13]));
        let last = ticks.close();
        assert_eq!(ticks.take(14, AHEAD, 1), Taken::PastMark);
        let given = given(vec![one.join().unwrap(), two.join().unwrap()]);
        assert!(given.iter().all(|id| within(*id, FIRST) && id.0 <= last), "{given:?}, {last}");
        notes.note("closed in between", given.len() == 1);
        notes.note("closed before", given.is_empty());
    });
    seen.all(&["closed in between", "closed before"]);
}

#[test]
fn a_number_is_of_a_range_and_of_one_taker() {
    let seen = std::sync::Arc::new(Seen::default());
    let notes = seen.clone();
    every_order(move || {
        let cursor = Cursor::<AtomicU64>::new();
        cursor.fill(1, 2, 2);
        let cursor = Arc::new(cursor);
        let taker = |count: usize| {
            let cursor = cursor.clone();
            let take = move || cursor.take(1).map(|piece| piece.first);
            thread::spawn(move || (0..count).filter_map(|_| take()).collect::<Vec<_>>())
        };
        let (one, two) = (taker(2), taker(1));
        let empty = cursor.is_empty();
        if empty {
            cursor.fill(10, 12, 12);
        }
        let mut taken = one.join().unwrap();
        assert!(taken.is_sorted_by(|one, two| one < two), "{taken:?} is not in order");
        taken.extend(two.join().unwrap());
        let all: BTreeSet<u64> = taken.iter().copied().collect();
        assert_eq!(all.len(), taken.len(), "{taken:?}: one twice");
        assert!(all.iter().all(|number| [1, 10, 11].contains(number)), "{taken:?}: of no range");
        notes.note("both ranges", all.contains(&1) && all.contains(&10));
        notes.note("late", empty && taken.len() == 1);
    });
    seen.all(&["both ranges", "late"]);
}
