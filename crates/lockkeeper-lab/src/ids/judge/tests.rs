//! Ids broken in every way.

use super::{Piece, Refusal, Run, Taker, judge};
use crate::check::Verdict;
use crate::ids::Scheme;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

/// Calls of one generator as asked, returned, first, count.
type Call = (u64, u64, u64, u64);

fn taker(process: &str, calls: &[Call]) -> Taker {
    let piece = |&(asked, returned, first, count): &Call| Piece {
        first,
        last: first + count - 1,
        asked,
        returned,
    };
    let generators = vec![calls.iter().map(piece).collect()];
    Taker { process: process.to_owned(), generators, alive: true, ..Taker::default() }
}

fn run(scheme: Scheme, takers: Vec<Taker>) -> Run {
    let strict = matches!(scheme, Scheme::Sequence | Scheme::Dated);
    let (faults, wall) = (BTreeMap::new(), Some(0));
    let coarse = std::time::Duration::ZERO;
    Run { scheme, strict, takers, faults, healed: 0, wall, coarse, least: 1 }
}

fn reasons(run: &Run, verdict: Verdict) -> String {
    let report = judge(run);
    assert_eq!(report.verdict, verdict, "{report}");
    report.reasons.join("; ")
}

#[test]
fn growing_ids_pass() {
    let one = taker("1", &[(0, 1, 1, 10), (4, 6, 16, 1)]);
    let two = taker("2", &[(0, 3, 11, 5), (7, 8, 17, 3)]);
    let report = judge(&run(Scheme::Sequence, vec![one, two]));
    assert_eq!((report.verdict, report.ids, report.processes), (Verdict::Pass, 19, 2));
}

#[test]
fn an_id_twice_is_found_with_both_places() {
    for (one, two) in
        [((0, 9, 5, 1), (0, 9, 5, 1)), ((0, 9, 1, 10), (0, 9, 3, 1)), ((0, 9, 3, 8), (0, 9, 1, 3))]
    {
        let report = judge(&run(Scheme::Segment, vec![taker("a", &[one]), taker("b", &[two])]));
        assert_eq!(report.verdict, Verdict::Fail);
        assert!(report.reasons[0].starts_with("an id twice: 1"), "{report}");
        assert!(
            ["process a", "process b"].iter().all(|it| report.excerpts[0].contains(it)),
            "{report}"
        );
    }
    // One that is short and in between hides no long one.
    let far = [
        taker("a", &[(0, 9, 1, 100)]),
        taker("b", &[(0, 9, 101, 2)]),
        taker("c", &[(0, 9, 60, 1)]),
    ];
    assert!(reasons(&run(Scheme::Segment, far.to_vec()), Verdict::Fail).contains("an id twice: 1"));
}

#[test]
fn a_process_that_goes_back_is_found_and_a_new_generator_may() {
    let back = [(0, 1, 50, 2), (2, 3, 20, 2)];
    let other = taker("2", &[(0, 9, 90, 1)]);
    let told =
        reasons(&run(Scheme::Segment, vec![taker("1", &back), other.clone()]), Verdict::Fail);
    assert_eq!(told, "a process went back: 1");
    let mut anew = taker("1", &back[..1]);
    anew.generators.extend(taker("1", &back[1..]).generators);
    reasons(&run(Scheme::Segment, vec![anew.clone(), other.clone()]), Verdict::Pass);
    // A strict kind promises more.
    let told = reasons(&run(Scheme::Sequence, vec![anew, other]), Verdict::Fail);
    assert_eq!(told, "a smaller id after a larger one: 1");
}

#[test]
fn a_smaller_id_after_a_larger_one_is_found_across_processes() {
    let late = vec![taker("1", &[(0, 4, 7, 1), (10, 11, 8, 1)]), taker("2", &[(5, 6, 3, 1)])];
    assert_eq!(
        reasons(&run(Scheme::Sequence, late.clone()), Verdict::Fail),
        "a smaller id after a larger one: 1"
    );
    reasons(&run(Scheme::Segment, late), Verdict::Pass);
    // Calls that overlap may be answered in any order.
    let overlapping =
        vec![taker("1", &[(0, 4, 7, 1)]), taker("2", &[(4, 6, 3, 1)]), taker("3", &[(3, 9, 9, 1)])];
    reasons(&run(Scheme::Sequence, overlapping), Verdict::Pass);
}

#[test]
fn a_wrong_time_in_an_id_is_found() {
    let kind = Scheme::Snowflake.kind().expect("a kind");
    let id = 1_000_000u64 << 22;
    let time = kind.inspect(&id.to_string()).expect("an id").time.expect("a time");
    let time = time.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos();
    let at = u64::try_from(time).expect("before 2554");
    let second = 1_000_000_000;
    let other = taker("2", &[(at - 5 * second, at + 5 * second, id + 9, 1)]);
    for (asked, verdict) in [
        (at, Verdict::Pass),
        (at - second / 2, Verdict::Pass),
        (at + 2 * second, Verdict::Fail),
        (at - 2 * second, Verdict::Fail),
    ] {
        let calls = [(asked, asked + 1000, id, 2)];
        let mut faked = run(Scheme::Snowflake, vec![taker("1", &calls), other.clone()]);
        let told = reasons(&faked, verdict);
        assert!(verdict == Verdict::Pass || told == "a wrong time in an id: 1", "{told}");
        faked.coarse = std::time::Duration::from_secs(2);
        reasons(&faked, Verdict::Pass);
        (faked.wall, faked.coarse) = (None, std::time::Duration::ZERO);
        reasons(&faked, Verdict::Pass);
    }
}

#[test]
fn who_gets_no_ids_after_the_faults_is_found() {
    let mut stalled =
        run(Scheme::Segment, vec![taker("1", &[(0, 5, 1, 1)]), taker("2", &[(0, 50, 2, 1)])]);
    stalled.healed = 10;
    assert_eq!(reasons(&stalled, Verdict::Fail), "a process got no ids after the faults: 1");
    stalled.takers[0].done = true;
    reasons(&stalled, Verdict::Pass);
}

fn refusal(kind: &str, message: &str) -> Refusal {
    let retryable = kind == "Unavailable";
    Refusal { at: 1, retryable, kind: kind.to_owned(), message: message.to_owned() }
}

#[test]
fn only_errors_that_a_fault_explains_are_fine() {
    let mut run =
        run(Scheme::Sequence, vec![taker("1", &[(0, 5, 1, 1)]), taker("2", &[(0, 5, 2, 1)])]);
    run.takers[0].refusals = vec![refusal("Unavailable", "no answer")];
    assert_eq!(reasons(&run, Verdict::Fail), "an error that no fault explains: 1");
    run.faults.insert("server-kill", 1);
    reasons(&run, Verdict::Pass);
    run.takers[0].refusals.push(refusal("Store", "x has lost the count of the ids"));
    reasons(&run, Verdict::Fail);
    run.faults.insert("server-restart-empty", 1);
    reasons(&run, Verdict::Pass);
    run.takers[0].refusals.push(refusal("Config", "another kind"));
    reasons(&run, Verdict::Fail);
}

#[test]
fn too_little_is_unknown() {
    let both = || vec![taker("1", &[(0, 5, 1, 1)]), taker("2", &[(0, 5, 2, 1)])];
    let mut few = run(Scheme::Sequence, both());
    few.least = 3;
    assert_eq!(reasons(&few, Verdict::Unknown), "only 2 ids, wanted 3");
    let mut unbroken = run(Scheme::Sequence, both());
    unbroken.faults.insert("kill", 0);
    assert_eq!(reasons(&unbroken, Verdict::Unknown), "no kill within the run");
    let apart = vec![taker("1", &[(0, 5, 1, 1)]), taker("2", &[(5, 9, 2, 1)])];
    assert!(reasons(&run(Scheme::Segment, apart), Verdict::Unknown).contains("at the same time"));
    let mut unnoticed = run(Scheme::Sequence, both());
    unnoticed.faults.insert("server-restart-empty", 1);
    assert!(reasons(&unnoticed, Verdict::Unknown).contains("count was lost"));
    let mut reached = run(Scheme::Snowflake, both());
    reached.wall = None;
    reached.faults.insert("partition", 1);
    assert!(reasons(&reached, Verdict::Unknown).contains("out of reach"));
}

proptest! {
    /// As a judge that enumerates, and compares every call with every other.
    #[test]
    fn agrees_with_a_slow_judge(
        calls in prop::collection::vec((0usize..3, 0u64..30, 0u64..10, 1u64..40, 1u64..5), 1..25)
    ) {
        let mut takers = vec![taker("0", &[]), taker("1", &[]), taker("2", &[])];
        for &(who, asked, took, first, count) in &calls {
            let piece = taker("", &[(asked, asked + took, first, count)]).generators[0][0];
            takers[who].generators[0].push(piece);
        }
        let all: Vec<Piece> = takers.iter().flat_map(|it| it.generators[0].clone()).collect();
        let mut seen = HashSet::new();
        let twice = all.iter().flat_map(|piece| piece.first..=piece.last).any(|id| !seen.insert(id));
        let across = all.iter().any(|one| {
            all.iter().any(|two| one.returned < two.asked && one.last >= two.first)
        });
        let back = takers.iter().any(|it| {
            it.generators[0].windows(2).any(|pair| pair[1].first <= pair[0].last)
        });
        let report = judge(&run(Scheme::Sequence, takers));
        let broken = |rule: &str| report.reasons.iter().any(|it| it.starts_with(rule));
        prop_assert_eq!(broken("an id twice"), twice);
        prop_assert_eq!(broken("a smaller id"), across);
        prop_assert_eq!(broken("a process went back"), back);
    }
}
