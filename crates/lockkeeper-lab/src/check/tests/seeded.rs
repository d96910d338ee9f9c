//! One broken history for each rule.

use super::writing::{Writing, clean};
use crate::check::{Demands, Rule, Verdict, check};
use crate::history::{Mode, Refusal, What};

#[test]
fn a_clean_history_passes() {
    let report = check(&clean(300).0, &Demands { fair: true, ..Demands::default() });
    assert_eq!(report.verdict, Verdict::Pass, "{report}");
}

#[test]
fn order_of_the_records_does_not_matter() {
    let mut writing = clean(300);
    writing.0.reverse();
    let report = check(&writing.0, &Demands { fair: true, ..Demands::default() });
    assert_eq!(report.verdict, Verdict::Pass, "{report}");
}

#[test]
fn a_hundred_thousand_holds_pass() {
    let report = check(&clean(100_000).0, &Demands { fair: true, ..Demands::default() });
    assert_eq!(report.verdict, Verdict::Pass, "{report}");
    assert_eq!(report.counters.holds, 100_000);
}

#[test]
fn two_holders_by_one_nanosecond() {
    let mut writing = clean(300);
    writing.hold("9/0", 1000, 1, 10_189, 10_195);
    let report = writing.judge();
    assert_eq!(report.violations[0].rule, Rule::Exclusion);
    assert_eq!(report.violations[0].records.len(), 4);
    assert!(report.to_string().contains("for 1 ns"), "{report}");
}

#[test]
fn too_many_permits() {
    let mut writing = Writing::default();
    for (claim, of) in [(1, 3), (2, 2), (3, 3)] {
        writing.ask(0, "1/0", claim, Mode::Permit(of)).granted(claim, claim, 0, 100);
    }
    let report = writing.judge();
    assert_eq!(report.broken[&Rule::Exclusion], 1, "{report}");
}

#[test]
fn a_resurrected_claim() {
    let mut writing = Writing::default();
    writing.ask(0, "1/0", 1, Mode::Exclusive).granted(1, 1, 1, 10);
    writing.note(11, "1/0", What::Renewed { claim: 1, valid_until: 30 });
    assert_eq!(writing.broken(), [Rule::Resurrection]);
}

#[test]
fn a_token_twice() {
    let mut writing = clean(10);
    writing.ask(0, "9/0", 100, Mode::Exclusive).granted(5000, 100, 7, 5001);
    assert_eq!(writing.broken(), [Rule::TokenTwice]);
}

#[test]
fn a_token_that_goes_back() {
    let mut writing = Writing::default();
    writing.hold("1/0", 5, 0, 1, 2).hold("2/0", 4, 3, 4, 5);
    assert_eq!(writing.broken(), [Rule::TokenOrder]);
    let mut together = Writing::default();
    together.hold("1/0", 5, 0, 3, 4).hold("2/0", 4, 3, 4, 5);
    assert_eq!(together.broken(), [], "who asks at the moment of a grant asked beside it");
}

#[test]
fn a_write_without_a_grant() {
    let mut never = Writing::default();
    never.effect(5, 1, 1, 1);
    assert_eq!(never.broken(), [Rule::EffectWithoutGrant]);
    let mut refused = Writing::default();
    refused.ask(0, "1/0", 1, Mode::Exclusive).effect(5, 1, 1, 1);
    refused.note(9, "1/0", What::Refused { claim: 1, how: Refusal::Busy });
    assert_eq!(refused.broken(), [Rule::EffectWithoutGrant]);
    let mut early = Writing::default();
    early.hold("1/0", 1, 0, 3, 9).effect(2, 1, 1, 1);
    assert_eq!(early.broken(), [Rule::EffectWithoutGrant]);
    let mut foreign = Writing::default();
    foreign.hold("1/0", 1, 0, 1, 9).effect(5, 1, 2, 1);
    assert_eq!(foreign.broken(), [Rule::EffectWithoutGrant]);
}

#[test]
fn an_old_token_after_a_new_one() {
    let mut writing = Writing::default();
    writing.hold("1/0", 1, 0, 1, 5).hold("2/0", 2, 0, 6, 9);
    writing.effect(7, 2, 2, 1).effect(8, 1, 1, 2);
    assert_eq!(writing.broken(), [Rule::EffectOrder]);
}

#[test]
fn gaps_and_doubles_in_the_sequence() {
    let mut gap = Writing::default();
    gap.hold("1/0", 1, 0, 1, 9).effect(2, 1, 1, 1).effect(3, 1, 1, 3);
    assert_eq!(gap.broken(), [Rule::EffectSequence]);
    let mut double = Writing::default();
    double.hold("1/0", 1, 0, 1, 9).effect(2, 1, 1, 1).effect(3, 1, 1, 1);
    assert_eq!(double.broken(), [Rule::EffectSequence]);
    let mut zero = Writing::default();
    zero.hold("1/0", 1, 0, 1, 9).effect(2, 1, 1, 0);
    assert_eq!(zero.broken(), [Rule::EffectSequence]);
}

#[test]
fn who_is_killed_may_leave_one_write_unrecorded() {
    let mut writing = Writing::default();
    writing.ask(0, "1/0", 1, Mode::Exclusive).granted(1, 1, 1, 9).fault(4, 5, "kill", "1");
    writing.hold("2/0", 2, 6, 7, 9).effect(8, 2, 2, 2);
    assert_eq!(writing.broken(), []);
    writing.effect(9, 2, 2, 4);
    assert_eq!(writing.broken(), [Rule::EffectSequence], "but not two");
}

#[test]
fn a_lost_write() {
    let tally = |fenced| What::Tally { name: "a".to_owned(), fenced, acknowledged: 5, present: 3 };
    let mut fenced = Writing::default();
    fenced.note(1, "", tally(true));
    assert_eq!(fenced.broken(), [Rule::LostWrite]);
    let mut unfenced = Writing::default();
    unfenced.note(1, "", tally(false));
    assert_eq!(unfenced.broken(), []);
    assert_eq!(unfenced.judge().counters.lost_writes, 2);
}

/// Claim 1 stands in the queue at 2; claim 2 is asked for at 3 and served first.
fn overtaken() -> Writing {
    let mut writing = Writing::default();
    writing.ask(1, "1/0", 1, Mode::Exclusive).note(2, "1/0", What::Queued { claim: 1 });
    writing.hold("2/0", 2, 3, 4, 6);
    writing.granted(6, 1, 3, 9);
    writing
}

#[test]
fn one_that_is_overtaken() {
    assert_eq!(overtaken().broken(), [Rule::Overtaken]);
    let unfair = check(&overtaken().0, &Demands::none());
    assert_eq!(unfair.verdict, Verdict::Pass);
}

#[test]
fn who_was_broken_may_lose_his_place() {
    for process in ["1", "store"] {
        assert_eq!(overtaken().fault(2, 3, "pause", process).broken(), [], "{process}");
    }
    assert_eq!(overtaken().fault(2, 3, "pause", "2").broken(), [Rule::Overtaken]);
}

#[test]
fn who_waited_while_everything_stood_still_may_lose_his_place() {
    // Something is granted at 1 and then, after the pause, at 4: as in `overtaken`.
    let second = 1_000_000_000;
    for (pause, expected) in [(2 * second, vec![]), (second, vec![Rule::Overtaken])] {
        let mut writing = Writing::default();
        writing.hold("3/0", 1, 0, 1, 2);
        writing.ask(1, "1/0", 2, Mode::Exclusive).note(2, "1/0", What::Queued { claim: 2 });
        writing.hold("2/0", 3, pause + 3, pause + 4, pause + 6);
        writing.granted(pause + 6, 2, 4, pause + 9);
        assert_eq!(writing.broken(), expected, "after {pause} ns");
    }
}

#[test]
fn one_that_is_starved() {
    let mut unanswered = clean(10);
    unanswered.ask(2000, "1/0", 77, Mode::Exclusive);
    assert_eq!(unanswered.broken(), [Rule::Starved]);
    let mut refused = Writing::default();
    refused.note(0, "", What::Healed).ask(1, "1/0", 1, Mode::Exclusive);
    refused.note(2, "1/0", What::Refused { claim: 1, how: Refusal::TimedOut });
    assert_eq!(refused.broken(), [Rule::Starved], "the name was never granted");
}

#[test]
fn only_what_comes_after_the_healing_counts() {
    let mut before = Writing::default();
    before.ask(1, "1/0", 1, Mode::Exclusive).note(2, "", What::Healed);
    assert_eq!(before.broken(), [], "asked while things were broken");
    let mut stale = Writing::default();
    stale.hold("1/0", 1, 0, 1, 2).note(3, "", What::Healed).ask(4, "2/0", 2, Mode::Exclusive);
    stale.note(5, "2/0", What::Refused { claim: 2, how: Refusal::Busy });
    assert_eq!(stale.broken(), [Rule::Starved], "a grant from before is none");
}

#[test]
fn something_left_over() {
    let mut writing = Writing::default();
    writing.note(1, "", What::Leftover { name: "a".to_owned() });
    assert_eq!(writing.broken(), [Rule::Leftover]);
}

#[test]
fn a_history_that_contradicts_itself() {
    let mut unknown = Writing::default();
    unknown.release(1, 1);
    let mut twice = Writing::default();
    twice.hold("1/0", 1, 0, 1, 2).ask(3, "1/0", 1, Mode::Shared);
    let mut answers = Writing::default();
    answers.hold("1/0", 1, 0, 1, 2).granted(3, 1, 2, 9);
    let mut early = Writing::default();
    early.hold("1/0", 1, 5, 4, 6);
    for writing in [unknown, twice, answers, early] {
        assert_eq!(writing.broken(), [Rule::History]);
    }
}
