//! Issued numbers, broken in every way, and against a slow judge that enumerates them.

use super::writing::Writing;
use crate::check::{Demands, Rule, Verdict, check};
use crate::history::What;
use proptest::prelude::*;
use std::collections::HashSet;

type Call = (u64, u64, u64, u64, u64);

/// Calls as generator, asked, returned, first, count.
fn write(calls: &[Call]) -> Writing {
    let mut writing = Writing::default();
    for &(generator, asked, returned, first, count) in calls {
        let client = format!("{generator}/0");
        let generator = format!("g{generator}");
        writing.note(returned, &client, What::Issued { generator, asked, first, count });
    }
    writing
}

fn broken(calls: &[Call], across: bool) -> Vec<Rule> {
    let demands = Demands { ids_across: across, ..Demands::none() };
    check(&write(calls).0, &demands).broken.into_keys().collect()
}

#[test]
fn growing_ids_pass() {
    let calls = [(1, 0, 1, 1, 10), (2, 0, 3, 11, 5), (1, 2, 4, 16, 1), (2, 5, 6, 17, 100)];
    assert_eq!(broken(&calls, true), []);
    let counters = write(&calls).judge().counters;
    assert_eq!((counters.ids, counters.id_calls, counters.generators), (116, 4, 2));
}

#[test]
fn an_id_twice() {
    for calls in [
        [(1, 0, 9, 5, 1), (2, 0, 9, 5, 1)],
        [(1, 0, 9, 1, 10), (2, 0, 9, 3, 1)],
        [(1, 0, 9, 3, 8), (2, 0, 9, 1, 3)],
    ] {
        assert_eq!(broken(&calls, true), [Rule::IdTwice], "{calls:?}");
    }
    let both = [(1, 0, 9, 1, 100), (2, 0, 9, 5, 1), (3, 0, 9, 60, 1)];
    assert_eq!(write(&both).judge().broken[&Rule::IdTwice], 2, "a short one hides no long one");
    let far = [(1, 0, 9, 1, 100), (2, 0, 9, 101, 2), (3, 0, 9, 60, 1)];
    assert_eq!(broken(&far, false), [Rule::IdTwice]);
    let report = write(&far).judge();
    assert_eq!(report.violations[0].records, [0, 2]);
    assert!(report.to_string().contains("id 60 issued by g1 and by g3"), "{report}");
}

#[test]
fn a_generator_that_goes_back() {
    assert_eq!(broken(&[(1, 0, 1, 50, 5), (1, 2, 3, 40, 5)], false), [Rule::IdOrder]);
    assert_eq!(broken(&[(1, 0, 2, 50, 5), (1, 2, 3, 40, 5)], false), [], "beside each other");
    assert_eq!(broken(&[(1, 0, 1, 50, 5), (2, 2, 3, 40, 5)], false), [], "not promised");
}

#[test]
fn generators_out_of_order() {
    assert_eq!(broken(&[(1, 0, 1, 50, 5), (2, 2, 3, 40, 5)], true), [Rule::IdOrderAcross]);
}

#[test]
fn the_ends_of_the_numbers() {
    assert_eq!(broken(&[(1, 0, 1, 0, u64::MAX), (1, 2, 3, u64::MAX, 1)], true), []);
    assert_eq!(
        broken(&[(1, 0, 1, 0, u64::MAX), (1, 2, 3, u64::MAX - 1, 1)], false),
        [Rule::IdTwice, Rule::IdOrder]
    );
    for nonsense in [(1, 0, 1, u64::MAX, 2), (1, 0, 1, 5, 0), (1, 2, 1, 5, 1)] {
        assert_eq!(broken(&[nonsense], false), [Rule::History], "{nonsense:?}");
    }
}

#[test]
fn too_few_ids_are_unknown() {
    let demands = Demands::of_ids(true);
    let few = check(&write(&[(1, 0, 1, 1, 1)]).0, &demands);
    assert_eq!((few.verdict, few.reasons.len()), (Verdict::Unknown, 2), "{few}");
    let many: Vec<Call> = (1..=200).map(|n| (n % 2, 2 * n, 2 * n + 1, n * 10, 10)).collect();
    let report = check(&write(&many).0, &demands);
    assert_eq!(report.verdict, Verdict::Pass, "{report}");
    assert!(
        report.to_string().contains("ids         2000 in 200 calls of 2 generators"),
        "{report}"
    );
}

#[test]
fn a_hundred_thousand_calls_are_judged() {
    let calls: Vec<Call> = (0..100_000).map(|n| (n % 5, n, n + 3, n << 40, 1 << 40)).collect();
    assert_eq!(broken(&calls, true), []);
}

#[test]
fn a_call_and_its_violation_are_drawn() {
    let records = write(&[(1, 0, 9, 5, 1), (2, 0, 9, 5, 1)]).0;
    let report = check(&records, &Demands::none());
    let page = crate::picture::timeline(&records, &report);
    assert!(page.contains("g1: id 5"), "{page}");
    assert!(page.contains("<circle class=\"violation\""), "{page}");
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = (0_u64..3, 0_u64..8, 0_u64..4, 0_u64..12, 1_u64..5);
    let call =
        call.prop_map(|(who, asked, took, first, count)| (who, asked, asked + took, first, count));
    prop::collection::vec(call, 0..6)
}

fn goes_back(calls: &[Call], same: bool) -> bool {
    calls.iter().any(|one| {
        calls.iter().any(|other| {
            let ids = |call: &Call| call.3..call.3 + call.4;
            one.2 < other.1
                && (!same || one.0 == other.0)
                && ids(one).any(|id| ids(other).any(|later| later <= id))
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ids_agree(calls in calls()) {
        let broken = broken(&calls, true);
        let mut seen = HashSet::new();
        let twice = calls.iter().any(|call| (call.3..call.3 + call.4).any(|id| !seen.insert(id)));
        prop_assert_eq!(broken.contains(&Rule::IdTwice), twice);
        prop_assert_eq!(broken.contains(&Rule::IdOrder), goes_back(&calls, true));
        prop_assert_eq!(broken.contains(&Rule::IdOrderAcross), goes_back(&calls, false));
    }
}
