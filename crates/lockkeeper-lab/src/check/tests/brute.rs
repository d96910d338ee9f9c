//! The fast rules against slow ones that look at every moment and every pair.

use super::writing::Writing;
use crate::check::Rule;
use crate::history::{Mode, What};
use proptest::prelude::*;

/// A claim with small numbers, so that stamps are often equal.
#[derive(Debug, Clone)]
struct Small {
    mode: Mode,
    ask: u64,
    queued: Option<u64>,
    granted: u64,
    end: u64,
    token: u64,
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        4 => (1_u32..4).prop_map(Mode::Permit),
    ]
}

fn small(mode: impl Strategy<Value = Mode>) -> impl Strategy<Value = Small> {
    let numbers = (0_u64..10, 0_u64..4, 0_u64..6, 0_u64..6, 0_u64..5, any::<bool>());
    (mode, numbers).prop_map(|(mode, (ask, queued, wait, length, token, queues))| Small {
        mode,
        ask,
        queued: queues.then_some(ask + queued),
        granted: ask + wait,
        end: ask + wait + length,
        token,
    })
}

fn write(claims: &[Small]) -> Writing {
    let mut writing = Writing::default();
    for (number, small) in (1..).zip(claims) {
        let client = format!("{number}/0");
        writing.ask(small.ask, &client, number, small.mode);
        if let Some(at) = small.queued {
            writing.note(at, &client, What::Queued { claim: number });
        }
        writing.granted(small.granted, number, small.token, u64::MAX).release(small.end, number);
    }
    writing
}

fn legal(modes: &[Mode]) -> bool {
    let permits: Vec<usize> = modes
        .iter()
        .filter_map(|mode| if let Mode::Permit(of) = mode { Some(*of as usize) } else { None })
        .collect();
    modes.len() < 2 && permits.iter().all(|of| *of > 0)
        || modes.iter().all(|mode| *mode == Mode::Shared)
        || permits.len() == modes.len() && permits.iter().all(|of| permits.len() <= *of)
}

/// Looks at every moment and every midpoint between two: a hold with length is active strictly
/// between its ends, and a hold of zero length is active only at its moment, and meets only holds
/// with length.
fn exclusion(claims: &[Small]) -> bool {
    (0..60).any(|half: u64| {
        let on = |it: &&Small| 2 * it.granted < half && half < 2 * it.end;
        let long: Vec<Mode> = claims.iter().filter(on).map(|it| it.mode).collect();
        let short = claims.iter().filter(|it| it.granted == it.end && 2 * it.granted == half);
        let mut sets: Vec<Vec<Mode>> =
            short.map(|it| long.iter().copied().chain([it.mode]).collect()).collect();
        sets.push(long);
        !sets.iter().all(|set| legal(set))
    })
}

fn any_pair(claims: &[Small], bad: impl Fn(&Small, &Small) -> bool) -> bool {
    let others = |place: usize| claims.iter().enumerate().filter(move |(other, _)| *other != place);
    (claims.iter().enumerate()).any(|(place, one)| others(place).any(|(_, other)| bad(one, other)))
}

fn overtaken(one: &Small, other: &Small) -> bool {
    one.queued.is_some_and(|queued| queued < other.ask)
        && one.mode == Mode::Exclusive
        && other.mode == Mode::Exclusive
        && other.granted < one.granted
        && other.end <= one.granted
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exclusion_agrees(claims in prop::collection::vec(small(mode()), 0..7)) {
        let report = write(&claims).judge();
        prop_assert_eq!(report.breaks(Rule::Exclusion), exclusion(&claims), "{}", report);
    }

    #[test]
    fn exclusion_of_permits_agrees(
        claims in prop::collection::vec(small((1_u32..4).prop_map(Mode::Permit)), 0..7)
    ) {
        let report = write(&claims).judge();
        prop_assert_eq!(report.breaks(Rule::Exclusion), exclusion(&claims), "{}", report);
    }

    #[test]
    fn exclusive_cores_agree(claims in prop::collection::vec(small(Just(Mode::Exclusive)), 0..4)) {
        let report = write(&claims).judge();
        let meets = any_pair(&claims, |one, other| one.granted < other.end && other.granted < one.end);
        prop_assert_eq!(report.breaks(Rule::Exclusion), meets, "{}", report);
        prop_assert_eq!(meets, exclusion(&claims));
    }

    #[test]
    fn tokens_agree(claims in prop::collection::vec(small(mode()), 0..7)) {
        let report = write(&claims).judge();
        let twice = any_pair(&claims, |one, other| one.token != 0 && one.token == other.token);
        let order = any_pair(&claims, |one, other| {
            one.granted < other.ask && other.token != 0 && other.token < one.token
        });
        prop_assert_eq!(report.breaks(Rule::TokenTwice), twice, "{}", report);
        prop_assert_eq!(report.breaks(Rule::TokenOrder), order, "{}", report);
    }

    #[test]
    fn queues_agree(claims in prop::collection::vec(small(Just(Mode::Exclusive)), 0..7)) {
        let report = write(&claims).judge();
        prop_assert_eq!(report.breaks(Rule::Overtaken), any_pair(&claims, overtaken), "{}", report);
    }

    #[test]
    fn contention_agrees(claims in prop::collection::vec((small(mode()), 0..3), 0..7)) {
        let mut writing = Writing::default();
        for (number, (small, client)) in (1..).zip(&claims) {
            writing.ask(small.ask, &format!("{client}/0"), number, small.mode);
            writing.granted(small.granted, number, 0, u64::MAX).release(small.end, number);
        }
        let meets = |(one, client): &(Small, i32)| {
            let before = |it: &Small| it.granted <= one.ask || it.granted < one.granted;
            let on = |it: &Small| before(it) && one.ask < it.end;
            claims.iter().any(|(it, other)| other != client && on(it))
        };
        let contended = claims.iter().filter(|claim| meets(claim)).count();
        prop_assert_eq!(writing.judge().counters.contended, contended);
    }

    #[test]
    fn effects_agree(effects in prop::collection::vec((1_u64..5, 1_u64..7), 0..7)) {
        let mut writing = Writing::default();
        for claim in 1..5 {
            writing.hold("1/0", claim, claim * 10, claim * 10 + 1, claim * 10 + 2);
        }
        for (token, sequence) in &effects {
            writing.effect(100, *token, *token, *sequence);
        }
        let report = writing.judge();
        let back = effects.iter().any(|(token, sequence)| {
            effects.iter().any(|(later, after)| after > sequence && later < token)
        });
        let mut sequences: Vec<u64> = effects.iter().map(|(_, sequence)| *sequence).collect();
        sequences.sort_unstable();
        let counted = sequences.iter().copied().eq((1..).take(effects.len()));
        prop_assert_eq!(report.breaks(Rule::EffectSequence), !counted, "{}", report);
        if counted {
            prop_assert_eq!(report.breaks(Rule::EffectOrder), back, "{}", report);
        }
    }
}
