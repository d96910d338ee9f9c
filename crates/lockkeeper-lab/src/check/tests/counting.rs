//! The counters, and the verdict when they are too small.

use super::writing::{Writing, clean};
use crate::check::{Demands, FaultCount, Verdict, check};
use crate::history::{Mode, What};

#[test]
fn counts_what_happened() {
    let counters = clean(300).judge().counters;
    assert_eq!((counters.clients, counters.names), (3, 1));
    assert_eq!((counters.holds, counters.hand_overs, counters.expiries), (300, 299, 0));
    assert_eq!((counters.asks, counters.contended), (300, 299), "the first met nobody");
    assert!(counters.healed);
}

#[test]
fn what_passes_on_within_a_process_is_told_apart() {
    let mut writing = Writing::default();
    // To another client of the process, and to another process; to the next token, and to a later one.
    let clients = [("1/0", 5), ("1/1", 6), ("2/0", 7), ("2/1", 9), ("2/1", 10), ("2/0", 11)];
    for (client, claim) in clients {
        writing.hold(client, claim, claim * 10, claim * 10 + 1, claim * 10 + 9);
    }
    let counters = writing.judge().counters;
    assert_eq!((counters.hand_overs, counters.passed_on), (4, 2));
}

#[test]
fn own_holds_are_no_contention() {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 1, 9).hold("1/0", 2, 5, 9, 12);
    assert_eq!(writing.judge().counters.contended, 0);
    writing.hold("2/0", 3, 5, 12, 13).hold("2/0", 4, 13, 14, 15);
    assert_eq!(writing.judge().counters.contended, 1);
}

#[test]
fn who_was_served_first_is_contention_though_both_asked_at_once() {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 5, 9).hold("2/0", 2, 0, 10, 12);
    assert_eq!(writing.judge().counters.contended, 1, "claim 2 waited for claim 1");
    writing.ask(20, "3/0", 3, Mode::Exclusive).hold("1/0", 4, 21, 22, 23);
    assert_eq!(writing.judge().counters.contended, 1, "claim 3 was not answered");
}

#[test]
fn contention_is_counted_by_name() {
    let mut writing = Writing::default();
    writing.ask(0, "1/0", 1, Mode::Exclusive).granted(1, 1, 1, 50);
    writing.ask(2, "1/0", 4, Mode::Exclusive);
    let ask = |claim| What::Ask { claim, name: "b".to_owned(), mode: Mode::Exclusive };
    writing.note(2, "2/0", ask(2)).granted(3, 2, 1, 50);
    writing.note(4, "1/0", ask(3));
    assert_eq!(writing.judge().counters.contended, 1, "claim 3 meets claim 2, whatever 1/0 holds");
}

#[test]
fn counts_what_faults_hit() {
    let mut writing = Writing::default();
    writing.ask(0, "1/0", 1, Mode::Exclusive).granted(1, 1, 1, 10);
    writing.fault(3, 4, "pause", "1").fault(20, 21, "pause", "1").fault(5, 6, "kill", "1");
    writing.hold("1/0", 2, 7, 8, 9).hold("2/0", 3, 9, 10, 15);
    let counters = writing.judge().counters;
    assert_eq!(counters.faults["pause"], FaultCount { done: 2, holds: 1 });
    assert_eq!(counters.faults["kill"], FaultCount { done: 1, holds: 1 });
    assert_eq!(counters.expiries, 0);
}

#[test]
fn a_fault_that_broke_nothing_hit_nothing() {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 1, 9).fault(3, 4, "lost-reply", "1");
    assert_eq!(writing.judge().counters.faults["lost-reply"].holds, 1);
    writing.0.retain(|record| !matches!(record.what, What::FaultEnds { .. }));
    writing.note(4, "", What::FaultEnds { fault: 3, hit: false });
    assert_eq!(writing.judge().counters.faults["lost-reply"], FaultCount { done: 1, holds: 0 });
}

#[test]
fn what_hits_the_server_hits_every_hold() {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 1, 9).hold("2/0", 2, 0, 10, 19).fault(3, 12, "server-kill", "server");
    assert_eq!(writing.judge().counters.faults["server-kill"], FaultCount { done: 1, holds: 2 });
    assert_eq!(writing.broken(), [], "and ends none");
}

#[test]
fn counts_validities_that_ended_but_not_those_that_go_on() {
    let mut writing = Writing::default();
    writing.ask(0, "1/0", 1, Mode::Exclusive).granted(1, 1, 1, 10);
    writing.ask(0, "2/0", 2, Mode::Exclusive).granted(11, 2, 2, 20);
    assert_eq!(writing.judge().counters.expiries, 1);
}

#[test]
fn too_little_is_unknown() {
    let history = clean(300).0;
    let base = Demands::none();
    let faults = [("pause".to_owned(), 1)].into();
    for demands in [
        Demands { hand_overs: 300, ..base.clone() },
        Demands { contended_percent: 100, ..base.clone() },
        Demands { clients: 4, ..base.clone() },
        Demands { expiries: 1, ..base.clone() },
        Demands { faults, ..base.clone() },
    ] {
        let report = check(&history, &demands);
        assert_eq!(report.verdict, Verdict::Unknown, "{demands:?}");
        assert_eq!(report.reasons.len(), 1, "{report}");
        assert!(report.to_string().starts_with("UNKNOWN\n  because "), "{report}");
    }
    assert_eq!(check(&[], &Demands::default()).verdict, Verdict::Unknown);
    assert_eq!(check(&[], &base).verdict, Verdict::Pass);
}

#[test]
fn a_run_must_have_felt_its_faults() {
    let demands = Demands::of_a_run(vec!["kill".to_owned(), "pause".to_owned()]);
    let report = check(&clean(300).0, &demands);
    assert_eq!(report.reasons.len(), 3, "{report}");
    let faultless = Demands::of_a_run(Vec::new());
    assert_eq!(check(&clean(300).0, &faultless).verdict, Verdict::Pass);
}

#[test]
fn prints_at_most_five_violations_and_counts_all() {
    let mut writing = Writing::default();
    for claim in 1..=500 {
        writing.hold("1/0", claim, 0, claim, 1000);
    }
    let report = writing.judge();
    assert_eq!(report.violations.len(), 100);
    assert_eq!(report.reasons, ["exclusion: 499"]);
    let printed = report.to_string();
    assert_eq!(printed.matches("both held").count(), 5, "{printed}");
    assert!(printed.ends_with("and 494 more violations\n"), "{printed}");
}
