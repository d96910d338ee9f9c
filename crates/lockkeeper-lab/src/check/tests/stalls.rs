//! Names that nobody gets: seeded, and against a slow rule that looks at every moment.

use super::writing::Writing;
use crate::check::{Demands, Rule, Stalls, check};
use crate::history::{Mode, Refusal, What};
use proptest::prelude::*;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn stalled(writing: &Writing, stalls: Stalls) -> usize {
    let demands = Demands { stalls: Some(stalls), ..Demands::none() };
    check(&writing.0, &demands).broken.get(&Rule::Stalled).copied().unwrap_or_default()
}

/// Judged as a run whose claims outlive their holders by two seconds.
fn stalls(writing: &Writing) -> usize {
    stalled(writing, Stalls::beyond(Duration::from_secs(2)))
}

/// Claim 1 is over at 1 s; claim 2 has been waiting since, and is granted this many seconds later.
fn granted_after(seconds: u64) -> Writing {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 1, SECOND);
    let granted = SECOND + seconds * SECOND;
    writing.hold("2/0", 2, SECOND / 2, granted, granted + 1);
    writing
}

#[test]
fn a_name_that_nobody_gets_is_stalled_after_five_seconds_beyond_ttl_and_session() {
    assert_eq!(stalls(&granted_after(7)), 0);
    assert_eq!(stalls(&granted_after(8)), 1);
    let none = check(&granted_after(100).0, &Demands::none());
    assert!(!none.breaks(Rule::Stalled), "it is looked for only where it is known what explains");
    let mut never = Writing::default();
    never.hold("1/0", 1, 0, 1, SECOND).ask(2, "2/0", 2, Mode::Exclusive);
    never.hold("3/0", 3, 2, 9 * SECOND, 9 * SECOND + 1);
    assert_eq!(stalls(&never), 1);
}

#[test]
fn who_gives_up_and_asks_anew_does_not_begin_the_count_again() {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 1, 2);
    for turn in 0..4 {
        let (claim, ask) = (turn + 2, (3 * turn) * SECOND + 3);
        writing.ask(ask, "2/0", claim, Mode::Exclusive);
        let how = Refusal::TimedOut;
        writing.note(ask + 3 * SECOND - 100, "2/0", What::Refused { claim, how });
    }
    assert_eq!(stalls(&writing), 1);
}

#[test]
fn while_nobody_waits_nothing_is_stalled() {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 1, 2).hold("2/0", 2, 100 * SECOND, 100 * SECOND + 1, 101 * SECOND);
    assert_eq!(stalls(&writing), 0);
}

#[test]
fn what_is_held_or_broken_explains_it() {
    let mut held = Writing::default();
    held.hold("1/0", 1, 0, 1, 20 * SECOND).hold("2/0", 2, 2, 21 * SECOND, 22 * SECOND);
    assert_eq!(stalls(&held), 0, "held all the time");
    for process in ["1", "3", "store"] {
        let fault = |to| granted_after(20).fault(SECOND, to, "pause", process).clone();
        assert_eq!(stalls(&fault(15 * SECOND)), 0, "{process}");
        assert_eq!(stalls(&fault(9 * SECOND)), 1, "{process}: but not for ever");
    }
    // A waiter that died no longer waits.
    let mut dead = Writing::default();
    dead.hold("1/0", 1, 0, 1, 2).ask(2, "2/0", 2, Mode::Exclusive).fault(3, 4, "kill", "2");
    dead.hold("3/0", 3, 30 * SECOND, 30 * SECOND + 1, 31 * SECOND);
    assert_eq!(stalls(&dead), 0);
}

#[test]
fn the_end_of_a_runtime_explains_nothing() {
    let lost_release = |seconds, kind| {
        let mut writing = granted_after(seconds);
        writing.fault(SECOND - 1, 2 * SECOND, kind, "1");
        stalled(&writing, Stalls::of_lost_releases(Duration::from_secs(2)))
    };
    assert_eq!(lost_release(1, "runtime-end"), 0, "a part of the ttl is nothing yet");
    assert_eq!(lost_release(2, "runtime-end"), 1);
    assert_eq!(lost_release(2, "pause"), 0, "which may have lost it");
}

#[test]
fn each_name_is_judged_by_itself() {
    let mut writing = granted_after(20);
    for claim in 10..30 {
        let at = claim * SECOND;
        let name = "b".to_owned();
        writing.note(at, "4/0", What::Ask { claim, name, mode: Mode::Exclusive });
        writing.granted(at + 1, claim, claim, u64::MAX).release(at + 2, claim);
    }
    assert_eq!(stalls(&writing), 1, "another name that goes from hand to hand excuses nothing");
}

/// When a claim is asked for, how long it waits, and how long it is held; `None` if it is refused.
type Small = (u64, u64, Option<u64>);

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stalls_agree(
        claims in prop::collection::vec((0_u64..30, 0_u64..20, prop::option::of(0_u64..4)), 1..5),
        faults in prop::collection::vec((0_u64..40, 0_u64..5), 0..3),
        explained in 0_u64..5,
        tolerated in 0_u64..8,
    ) {
        let mut writing = Writing::default();
        for (number, (ask, wait, held)) in (1..).zip(&claims) {
            let client = format!("{number}/0");
            writing.ask(*ask, &client, number, Mode::Shared);
            match held {
                Some(held) => {
                    writing.granted(ask + wait, number, 0, u64::MAX);
                    writing.release(ask + wait + held, number);
                }
                None => {
                    let how = Refusal::TimedOut;
                    writing.note(ask + wait, &client, What::Refused { claim: number, how });
                }
            }
        }
        for (number, (from, length)) in (100..).zip(&faults) {
            let (kind, process) = ("pause".to_owned(), "store".to_owned());
            writing.note(*from, "", What::FaultBegins { fault: number, kind, process });
            writing.note(from + length, "", What::FaultEnds { fault: number, hit: true });
        }
        let by = Stalls {
            explained: Duration::from_nanos(explained),
            tolerated: Duration::from_nanos(tolerated),
        };
        prop_assert_eq!(stalled(&writing, by), slowly(&claims, &faults, explained, tolerated));
    }
}

/// Looks at every nanosecond; `at` stands for the nanosecond after that moment.
fn slowly(claims: &[Small], faults: &[(u64, u64)], explained: u64, tolerated: u64) -> usize {
    let (mut idle, mut found) = (0, 0);
    for at in 0..100 {
        for _ in claims.iter().filter(|(ask, wait, held)| held.is_some() && ask + wait == at) {
            found += usize::from(idle > tolerated);
            idle = 0;
        }
        let waits = claims.iter().any(|(ask, wait, _)| *ask <= at && at < ask + wait);
        let held = claims.iter().any(|(ask, wait, held)| {
            held.is_some_and(|held| ask + wait <= at && at < ask + wait + held + explained)
        });
        let broken =
            faults.iter().any(|(from, length)| *from <= at && at < from + length + explained);
        idle += u64::from(waits && !held && !broken);
    }
    found + usize::from(idle > tolerated)
}
