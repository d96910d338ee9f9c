//! Random sequences of requests on one name, by three processes. A process that was told that it
//! holds the name must be right, for as long as it may believe so.
//!
//! The model knows nothing of rows: it keeps only what processes were told, as the engine would,
//! and compares that with the rule which modes may be held together. So it does not depend on how
//! the table is laid out, and cannot share a mistake with it.

use super::{Bench, TTL};
use crate::backend::sqlite::client::transaction::Granted;
use crate::backend::sqlite::requests::{Asked, Left};
use crate::backend::{Claim, Mode, Standing};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// Three: one that releases, one that is handed the lock, and one behind it.
const PROCESSES: [&str; 3] = ["p", "q", "r"];

/// One request of one process, or something that happens to the clocks.
#[derive(Debug, Clone)]
enum Step {
    Ask {
        process: usize,
        mode: Mode,
        queue: bool,
    },
    Release(usize),
    Renew(usize),
    Leave(usize),
    /// The heartbeat of a process as the driver does it: confirm, extend, move the queue on.
    Round(usize),
    /// Time passes: less than a heartbeat, about a waiter's lease, or about a ttl, so that some
    /// rows expire and others do not.
    Pass(u64),
    /// The wall clock is set, also far back; tokens must grow all the same.
    WallClock(i64),
}

/// Steps with weights such that names are contended most of the time. A number that fits nothing is
/// skipped.
fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![
        3 => Just(Mode::Exclusive),
        2 => Just(Mode::Shared),
        2 => Just(Mode::Permit { of: 2 }),
        1 => Just(Mode::Permit { of: 3 }),
    ];
    prop_oneof![
        6 => (0..3usize, mode, any::<bool>())
            .prop_map(|(process, mode, queue)| Step::Ask { process, mode, queue }),
        5 => (0..8usize).prop_map(Step::Release),
        2 => (0..8usize).prop_map(Step::Renew),
        2 => (0..8usize).prop_map(Step::Leave),
        6 => (0..3usize).prop_map(Step::Round),
        3 => prop_oneof![1..600u64, 1500..2600u64, 20_000..40_000u64].prop_map(Step::Pass),
        1 => prop_oneof![Just(5i64), Just(1_700_000_000_000), Just(1_800_000_000_000)]
            .prop_map(Step::WallClock),
    ]
}

/// A claim that was told that it holds the name.
struct Believer {
    process: &'static str,
    claim: Claim,
    granted: Granted,
    /// It may believe that until this moment, by the file's time.
    until: i64,
}

/// What all processes were told so far.
#[derive(Default)]
struct World {
    waiting: Vec<Waiter>,
    believers: Vec<Believer>,
    /// Every token that any process was told.
    tokens: BTreeSet<u64>,
}

/// A claim that was told that it waits.
struct Waiter {
    process: &'static str,
    claim: Claim,
    /// The largest token that any process had been told when this claim asked; its own must be
    /// larger.
    floor: u64,
}

impl World {
    /// Zero while nothing was granted.
    fn largest_token(&self) -> u64 {
        self.tokens.last().copied().unwrap_or(0)
    }

    /// Notes a grant, and fails if its token is not larger than those before it or if another claim
    /// excludes it.
    fn believe(&mut self, bench: &Bench, waiter: Waiter, granted: Granted) {
        let Waiter { process, claim, floor } = waiter;
        // Readers that waited together may be told in any order, so only the tokens of before they
        // asked count; a writer comes after all.
        let alone = claim.mode == Mode::Exclusive;
        let floor = if alone { self.largest_token() } else { floor };
        assert!(granted.token.get() > floor, "{} after {floor}", granted.token);
        assert!(self.tokens.insert(granted.token.get()), "{} twice", granted.token);
        let until = bench.now.get() + i64::try_from(TTL.as_millis()).unwrap();
        self.believers.push(Believer { process, claim, granted, until });
        self.check(bench);
    }

    /// No two claims may believe at the same time what excludes each other. Checked after every
    /// step and every grant.
    fn check(&self, bench: &Bench) {
        let now = bench.now.get();
        let valid: Vec<_> = self.believers.iter().filter(|b| now < b.until).collect();
        for (index, one) in valid.iter().enumerate() {
            let others = valid.iter().enumerate().filter(|(other, _)| *other != index);
            let others: Vec<_> = others.map(|(_, b)| (b.claim.mode, b.granted.token)).collect();
            assert!(
                crate::backend::queue::fits(one.claim.mode, others.clone()),
                "{:?} beside {others:?}",
                one.claim.mode
            );
        }
    }

    /// Notes the grants that a transaction told waiters of. Fails if a claim is granted that does
    /// not wait.
    fn woken(&mut self, bench: &Bench, turns: Vec<Granted>) {
        for granted in turns {
            let index = self.waiting.iter().position(|w| w.claim.id.to_string() == granted.id);
            let waiter = self.waiting.remove(index.expect("only those who wait are woken"));
            self.believe(bench, waiter, granted);
        }
    }

    /// Does one step. A renewal must succeed exactly as long as the holder may believe: earlier
    /// loss and later revival are both failures.
    fn take(&mut self, bench: &Bench, step: Step) {
        match step {
            Step::Ask { process, mode, queue } => {
                let (process, claim) = (PROCESSES[process], bench.claim("n", mode));
                let (asked, woken) = bench.as_process(process, |tx| tx.ask(&claim, queue).unwrap());
                self.woken(bench, woken);
                let waiter = Waiter { process, claim, floor: self.largest_token() };
                match asked {
                    Asked::Granted(granted) => self.believe(bench, waiter, granted),
                    Asked::Queued { .. } => self.waiting.push(waiter),
                    Asked::Busy => assert!(!queue),
                    Asked::Uncovered(_) | Asked::OtherTerms(..) => {
                        panic!("every claim has its own owner and id")
                    }
                }
            }
            Step::Release(which) if which < self.believers.len() => {
                let gone = self.believers.remove(which);
                let woken = bench.release(gone.process, &gone.claim, &gone.granted);
                self.woken(bench, woken);
            }
            Step::Renew(which) if which < self.believers.len() => {
                let (now, one) = (bench.now.get(), &mut self.believers[which]);
                let standing = bench.as_process(one.process, |tx| {
                    tx.renew("n", Some(one.granted.ticket), &one.granted.id, TTL).unwrap()
                });
                match standing.0 {
                    Standing::Held | Standing::HeldFor(_) => {
                        assert!(now < one.until, "a late renewal revived a claim");
                        one.until = now + i64::try_from(TTL.as_millis()).unwrap();
                    }
                    Standing::Lost(_) => {
                        assert!(now >= one.until, "lost while it was valid");
                    }
                }
            }
            Step::Leave(which) if which < self.waiting.len() => {
                let waiter = self.waiting.remove(which);
                let id = waiter.claim.id.to_string();
                let (left, woken) =
                    bench.as_process(waiter.process, |tx| tx.leave("n", &id).unwrap());
                self.woken(bench, woken);
                if let Left::Granted(granted) = left {
                    self.believe(bench, waiter, granted);
                }
            }
            Step::Round(process) => {
                let process = PROCESSES[process];
                let (alive, woken) = bench.as_process(process, |tx| {
                    tx.confirm().unwrap();
                    let alive = tx.beat().unwrap();
                    // As the driver does: only from where this process's first waiter stands.
                    if let Some(first) = alive.iter().map(|queued| queued.ticket).min() {
                        tx.look_ahead("n", first).unwrap();
                    }
                    alive.into_iter().map(|queued| queued.id).collect::<Vec<_>>()
                });
                let told: Vec<_> = woken.iter().map(|granted| granted.id.clone()).collect();
                self.woken(bench, woken);
                // Waiters whose rows are gone would be told to queue again; here they give up.
                self.waiting.retain(|waiter| {
                    let id = waiter.claim.id.to_string();
                    waiter.process != process || alive.contains(&id) || told.contains(&id)
                });
            }
            Step::Pass(millis) => bench.pass(Duration::from_millis(millis)),
            Step::WallClock(wall) => bench.wall.set(wall),
            Step::Release(_) | Step::Renew(_) | Step::Leave(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The property itself. At the end all claims leave and their times pass: at most the free row
    /// may stay, and none at all if nothing was ever granted.
    #[test]
    fn whoever_was_told_that_he_holds_it_is_right(
        steps in proptest::collection::vec(step(), 20..80)
    ) {
        let bench = Bench::new();
        let mut world = World::default();
        for step in steps {
            world.take(&bench, step);
            world.check(&bench);
        }
        // In the end all claims leave, and nothing but the memory of a token stays.
        while !world.waiting.is_empty() {
            world.take(&bench, Step::Leave(0));
        }
        while !world.believers.is_empty() {
            world.take(&bench, Step::Release(0));
        }
        bench.pass(TTL);
        bench.as_process("p", |tx| tx.advance("n").unwrap());
        prop_assert!(bench.rows() <= 1);
        prop_assert!(!world.tokens.is_empty() || bench.rows() == 0);
    }
}
