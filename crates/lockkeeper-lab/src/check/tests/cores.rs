//! Where a hold begins and ends, also at equal nanoseconds.

use super::writing::Writing;
use crate::check::Rule;
use crate::history::{Mode, What};

/// A first claim from 1, valid until 10, with the events that `first` adds; then a second claim at
/// `at`.
fn second_at(at: u64, first: impl Fn(&mut Writing)) -> Vec<Rule> {
    let mut writing = Writing::default();
    writing.ask(0, "1/0", 1, Mode::Exclusive).granted(1, 1, 1, 10);
    first(&mut writing);
    writing.hold("2/0", 2, 0, at, at + 50);
    writing.broken()
}

#[test]
fn validity_ends_a_hold() {
    assert_eq!(second_at(9, |_| ()), [Rule::Exclusion]);
    assert_eq!(second_at(10, |_| ()), []);
}

#[test]
fn release_loss_and_death_end_a_hold() {
    let ends: [fn(&mut Writing); 4] = [
        |it| _ = it.release(5, 1),
        |it| _ = it.note(5, "1/0", What::Lost { claim: 1 }),
        |it| _ = it.fault(5, 6, "kill", "1"),
        |it| _ = it.fault(5, 6, "stop", "1"),
    ];
    for end in ends {
        assert_eq!(second_at(4, end), [Rule::Exclusion]);
        assert_eq!(second_at(5, end), []);
    }
}

#[test]
fn a_pause_ends_no_hold_nor_does_the_death_of_another() {
    for (kind, process) in [("pause", "1"), ("kill", "2"), ("kill", "store"), ("kill", "1/0")] {
        let broken = second_at(7, |it| _ = it.fault(5, 6, kind, process));
        assert_eq!(broken, [Rule::Exclusion], "{kind} {process}");
    }
}

#[test]
fn a_renewal_in_time_prolongs() {
    let renewal = |at, until| {
        move |it: &mut Writing| {
            _ = it.note(at, "1/0", What::Renewed { claim: 1, valid_until: until })
        }
    };
    assert_eq!(second_at(19, renewal(9, 20)), [Rule::Exclusion]);
    assert_eq!(second_at(19, renewal(10, 20)), [Rule::Exclusion], "stamped after it was learnt");
    assert_eq!(second_at(20, renewal(10, 20)), []);
    assert_eq!(second_at(19, renewal(11, 20)), [Rule::Resurrection], "and prolongs nothing");
}

#[test]
fn a_renewal_that_comes_in_after_the_release_is_nothing() {
    let broken = second_at(15, |it| {
        it.release(9, 1).note(11, "1/0", What::Renewed { claim: 1, valid_until: 20 });
    });
    assert_eq!(broken, []);
}

#[test]
fn a_process_that_came_back_is_not_dead() {
    let mut writing = Writing::default();
    writing.fault(1, 3, "kill", "1");
    writing.hold("1/0", 1, 4, 5, 9).hold("2/0", 2, 0, 8, 9);
    assert_eq!(writing.broken(), [Rule::Exclusion]);
}

#[test]
fn who_is_granted_while_he_is_killed_holds_for_a_moment() {
    let grant_at = |at, other| {
        let mut writing = Writing::default();
        writing.ask(0, "1/0", 1, Mode::Exclusive).granted(at, 1, 1, 20).fault(3, 6, "kill", "1");
        writing.hold("2/0", 2, 0, other, other + 3).broken()
    };
    assert_eq!(grant_at(5, 5), [], "he may have been dead the moment after");
    assert_eq!(grant_at(5, 6), []);
    assert_eq!(grant_at(5, 4), [Rule::Exclusion], "but he was alive when he wrote it");
}

#[test]
fn the_earliest_of_several_ends_counts() {
    for ends in [[5, 8], [8, 5]] {
        let broken = second_at(6, |it| _ = it.release(ends[0], 1).release(ends[1], 1));
        assert_eq!(broken, []);
    }
}

#[test]
fn a_hold_without_length_inside_another() {
    for (at, broken) in [(4, vec![]), (5, vec![Rule::Exclusion]), (9, vec![])] {
        let mut writing = Writing::default();
        writing.hold("1/0", 2, 0, 4, 9).hold("2/0", 1, 0, at, at);
        assert_eq!(writing.broken(), broken, "{at}");
    }
}

#[test]
fn what_was_over_when_it_was_seen_is_no_hold() {
    let mut writing = Writing::default();
    writing.ask(0, "1/0", 1, Mode::Exclusive).granted(5, 1, 1, 5);
    writing.hold("2/0", 2, 0, 4, 9);
    assert_eq!(writing.broken(), []);
    assert_eq!(writing.judge().counters.holds, 1);
}

#[test]
fn names_do_not_concern_each_other() {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 1, 9);
    let (name, mode) = ("b".to_owned(), Mode::Exclusive);
    writing.note(3, "2/0", What::Ask { claim: 2, name, mode });
    writing.granted(4, 2, 1, 9).release(8, 2);
    let report = writing.judge();
    assert_eq!(report.broken, [].into(), "{report}");
    assert_eq!((report.counters.names, report.counters.contended), (2, 0));
    assert_eq!(report.counters.hand_overs, 0);
}
