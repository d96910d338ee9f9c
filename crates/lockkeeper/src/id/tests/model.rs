//! Random runs of three processes over three worker numbers, with the library's own leases and ticks:
//! pauses, clocks that are set, crashes, answers that are lost, a store that is emptied. No id may come
//! twice; and designs without one of the rules give ids twice, so that such a run would find it.

use super::nodes::{Book, Design, Node, Tally};
use super::store::{Breakable, START};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::time::Duration;

const NODES: usize = 3;
const STEPS: u32 = 2_500;
const SEEDS: u8 = 12;

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum World {
    /// Every clock may be set, by an hour and more; the store keeps what it has.
    ClocksAreSet,
    /// The store loses everything now and then. Clocks follow its own, and may be late: of two stores
    /// that know nothing of each other, only the time tells which is the later.
    StoreIsEmptied,
}

pub(super) struct Dice(TestRng);

impl Dice {
    pub(super) fn of(seed: u8) -> Self {
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    /// A length of which short ones are as likely as long ones: from `least` on, doubled so often.
    fn length(&mut self, least: u64, doublings: u64) -> u64 {
        let least = least << self.below(doublings + 1);
        least + self.below(least)
    }
}

/// What the store's clock says, in milliseconds since 1970.
fn now(begin: tokio::time::Instant) -> u64 {
    START * 1000 + u64::try_from(begin.elapsed().as_millis()).unwrap()
}

async fn run(seed: u8, world: World, design: Design) -> Tally {
    let (mut dice, mut book) = (Dice::of(seed), Book::default());
    let (store, begin) = (Breakable::new(), tokio::time::Instant::now());
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(Node::start(number, &store, design).await);
    }
    for _ in 0..STEPS {
        let at = usize::try_from(dice.below(NODES as u64)).unwrap();
        let (node, now) = (&mut nodes[at], now(begin));
        if now < node.wakes {
            tokio::time::advance(Duration::from_millis(dice.below(200))).await;
            continue;
        }
        match dice.below(1_000) {
            0..400 => node.give(now, 1 + u32::try_from(dice.below(6)).unwrap(), &mut book),
            400..640 => {
                // The request or its answer is lost now and then.
                let fate = dice.below(20);
                store.cut_off(fate == 0);
                store.lose_answers(fate == 1 || fate == 2);
                node.confirm(now, &mut book).await;
                store.cut_off(false);
                store.lose_answers(false);
            }
            640..900 => {
                let time = dice.below(400);
                tokio::time::advance(Duration::from_millis(time)).await;
            }
            900..920 => {
                // Sometimes with a request in its hands.
                if world == World::ClocksAreSet && dice.below(2) == 0 {
                    node.read_clock(now);
                }
                node.wakes = now + dice.length(500, 3);
            }
            920..940 if world == World::ClocksAreSet => {
                let step = i64::try_from(dice.length(600, 12)).unwrap();
                node.ahead = if dice.below(2) == 0 { step } else { -step };
            }
            920..940 => node.ahead = -i64::try_from(dice.below(300)).unwrap(),
            940..960 => node.ahead = 0,
            960..975 => {
                book.tally.crashes += 1;
                *node = Node::start(at, &store, design).await;
            }
            975..985 => {
                node.close().await;
                *node = Node::start(at, &store, design).await;
            }
            985..990 if world == World::StoreIsEmptied => {
                book.tally.losses += 1;
                store.forget_everything();
            }
            _ => {
                let time = dice.length(1_000, if world == World::ClocksAreSet { 12 } else { 2 });
                tokio::time::advance(Duration::from_millis(time)).await;
            }
        }
    }
    book.tally
}

/// All runs together; each must have seen what it is about.
async fn runs(world: World, design: Design) -> Tally {
    let mut sum = Tally::default();
    for seed in 0..SEEDS {
        let tally = run(seed, world, design).await;
        let seen =
            [tally.contention, tally.crashes, tally.take_overs, tally.lost_answers, tally.stops];
        let lost = world != World::StoreIsEmptied || tally.losses > 0;
        assert!(seen.iter().all(|it| *it > 0) && lost, "unknown: seed {seed} saw {tally:?}");
        assert!(tally.ids > 200, "unknown: seed {seed} gave {tally:?}");
        if design == Design::Marks {
            assert_eq!(tally.duplicates, 0, "seed {seed}: {tally:?}");
        }
        sum.ids += tally.ids;
        sum.duplicates += tally.duplicates;
        sum.take_overs += tally.take_overs;
    }
    println!("{world:?} {design:?}: {sum:?}");
    sum
}

#[tokio::test(start_paused = true)]
async fn no_id_comes_twice_whatever_clocks_and_pauses_do() {
    runs(World::ClocksAreSet, Design::Marks).await;
}

#[tokio::test(start_paused = true)]
async fn no_id_comes_twice_from_a_store_that_lost_everything() {
    runs(World::StoreIsEmptied, Design::Marks).await;
}

#[tokio::test(start_paused = true)]
async fn each_rule_is_needed() {
    for design in [Design::TtlOnly, Design::NoFloor, Design::Unconfirmed] {
        let tally = runs(World::ClocksAreSet, design).await;
        assert!(tally.duplicates > 0, "{design:?} gave no id twice: the model finds nothing");
    }
}
