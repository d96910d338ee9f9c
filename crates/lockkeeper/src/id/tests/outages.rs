//! Random runs of whole generators over a store that is cut off, loses answers and whose clock is set.

use super::model::Dice;
use super::store::Breakable;
use crate::error::ErrorKind;
use crate::id::{Generator, Layout, Lease, Snowflake};
use std::collections::BTreeSet;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(5);
const STEPS: u32 = 150;
const SEEDS: u8 = 12;

#[derive(Debug, Default)]
struct Tally {
    ids: usize,
    outages: u32,
    stops: u32,
    clock_set: u32,
}

/// Takes some ids, which are above those of before and nobody else's.
async fn take(ids: &Snowflake, count: u32, last: &mut u64, seen: &mut BTreeSet<u64>) -> bool {
    match ids.next_n(count).await {
        Ok(taken) => {
            for id in taken {
                assert!(id.get() > *last, "{id} after {last}");
                assert!(seen.insert(id.get()), "{id} came twice");
                *last = id.get();
            }
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            false
        }
    }
}

async fn run(seed: u8) -> Tally {
    let (mut dice, mut tally, mut seen) = (Dice::of(seed), Tally::default(), BTreeSet::new());
    let store = Breakable::new();
    let lease = Lease { window: Some(WINDOW), cached_clock: false };
    let mut generators = Vec::new();
    for _ in 0..2 {
        let ids =
            store.keeper().ids("orders").lease(lease).snowflake(Layout::default()).await.unwrap();
        generators.push((ids, 0));
    }
    for _ in 0..STEPS {
        let (ids, last) = &mut generators[usize::try_from(dice.below(2)).unwrap()];
        match dice.below(10) {
            0..5 => {
                assert!(
                    take(ids, 1 + u32::try_from(dice.below(20)).unwrap(), last, &mut seen).await
                );
            }
            5 => {
                store.lose_answers(true);
                tokio::time::sleep(Duration::from_millis(dice.below(1_500))).await;
                store.lose_answers(false);
            }
            6 => {
                // So far that it is not followed.
                store.set_clock_ahead(60 + dice.below(3_600));
                tally.clock_set += 1;
            }
            7 => {
                tally.outages += 1;
                store.cut_off(true);
                // Below a window and above, as likely.
                let time = Duration::from_millis(dice.below(10_000));
                tokio::time::sleep(time).await;
                let given = take(ids, 1, last, &mut seen).await;
                // The last confirmation was at most a third of a window before the outage.
                assert!(given || time > WINDOW / 2, "stopped after {time:?}");
                assert!(!given || time <= WINDOW, "went on for {time:?}");
                tally.stops += u32::from(!given);
                store.cut_off(false);
                // As soon as the store is asked again.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            _ => tokio::time::sleep(Duration::from_millis(dice.below(3_000))).await,
        }
    }
    tally.ids = seen.len();
    tally
}

#[tokio::test(start_paused = true)]
async fn ids_grow_stop_at_the_mark_and_go_on() {
    for seed in 0..SEEDS {
        let tally = run(seed).await;
        let Tally { ids, outages, stops, clock_set } = tally;
        let enough = ids > 300 && outages > stops && stops > 0 && clock_set > 0;
        assert!(enough, "unknown: seed {seed} saw {tally:?}");
    }
}
