//! The suite, tried itself: it must fail a store with a flaw, and pass the same without.

mod flawed;

use flawed::{Flaw, Flawed};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper::backend::Backend;
use lockkeeper_contract::{Subject, Verdict, verdicts};
use std::sync::Arc;

/// Each flaw, the groups that are run against it, and the promise that must be seen broken.
const FLAWS: &[(Flaw, &[&str], &str)] = &[
    (Flaw::ValidityFromReply, &["expiry"], "nobody_is_granted_what_another_may_still_believe"),
    (Flaw::ValidityFromReply, &["expiry"], "claims_do_not_overlap_while_some_expire"),
    (Flaw::ExpiresEarly, &["expiry"], "the_shortest_ttl_keeps_others_out_as_well"),
    (Flaw::BlindRelease, &["expiry"], "a_late_release_leaves_the_next_holder_alone"),
    (Flaw::BlindRelease, &["doubt"], "a_release_made_twice_leaves_the_next_holder_alone"),
    (Flaw::NoSecondLook, &["exclusion"], "exclude_each_other"),
    (Flaw::LateRenewal, &["loss"], "a_renewal_that_arrives_late"),
    (Flaw::ReleasesAnything, &["loss"], "a_release_of_what_the_store_no_longer_has_says_so"),
    (Flaw::PlaceLeaks, &["cancel"], "a_lock_waited_for_and_forsaken"),
    (Flaw::TokensStartAnew, &["tokens"], "they_grow_over_releases"),
    (Flaw::OneTooMany, &["permits"], "never_too_many_and_none_lost"),
    (Flaw::LastNumberCounts, &["permits"], "the_smallest_number_counts"),
    (Flaw::NeverExpires, &["expiry"], "a_claim_left_alone_ends"),
    (Flaw::ExpiresEarly, &["expiry"], "nobody_is_granted_what_another_may_still_believe"),
    (Flaw::WithdrawsNothing, &["doubt"], "whose_answer_was_lost_is_withdrawn"),
    (Flaw::TriesOvertake, &["sharing"], "a_reader_waits_behind_a_writer"),
    (Flaw::ReadersOvertake, &["sharing"], "a_reader_waits_behind_a_writer"),
    (Flaw::BreaksAny, &["inspection"], "broken_by_its_token_only"),
    (Flaw::BreaksSilently, &["inspection", "events"], "a_broken_hold_tells_its_holder"),
    (Flaw::AlarmsTooLate, &["inspection"], "broken_before_its_holder_knew_of_it"),
    (Flaw::FoldsCase, &["names"], "no_two_of_them_are_one"),
    (Flaw::ForgetsMinHold, &["bounds"], "min_hold_keeps_it_after_the_release"),
    (Flaw::NewTokenOnReentry, &["reentry"], "from_another_keeper"),
    (Flaw::CountsInTwoSteps, &["sequences"], "many_at_once_get_numbers_of_their_own"),
    (Flaw::CountsInTwoSteps, &["sequences"], "many_at_once_under_a_ceiling_share_all_of_it"),
    (Flaw::CountsLate, &["sequences"], "lost_answers_leave_gaps_and_no_number_twice"),
    (Flaw::CountsLate, &["sequences"], "numbers_of_two_keepers_never_meet_and_grow"),
    (Flaw::ForgetsFloor, &["sequences"], "a_floor_is_kept"),
    (Flaw::CountsInFloats, &["sequences"], "a_floor_is_kept"),
    (Flaw::CountsBeyond, &["sequences"], "what_passes_a_ceiling_reserves_nothing"),
    (Flaw::BeginsAnyway, &["sequences"], "what_must_be_there_is_not_begun"),
    (Flaw::CountsInCircles, &["sequences"], "they_end_and_never_begin_again"),
    (Flaw::FoldsCase, &["sequences"], "no_two_names_are_one"),
    (Flaw::FoldsCase, &["sequences"], "records_of_odd_names_are_apart"),
    (Flaw::WritesInTwoSteps, &["sequences"], "a_record_is_begun_once"),
    (Flaw::WritesInTwoSteps, &["sequences"], "a_chain_of_writes_loses_none"),
    (Flaw::ForgivesBlanks, &["sequences"], "a_record_that_says_otherwise_is_left_alone"),
    (Flaw::WritesBlindly, &["sequences"], "a_lost_answer_leaves_a_record_as_it_was_or_written"),
    (Flaw::ListsAll, &["sequences"], "records_are_listed_by_prefix_and_in_order"),
    (Flaw::CutsRecords, &["sequences"], "what_records_say_comes_back_as_it_was"),
    (Flaw::ClockGoesBack, &["sequences"], "the_clock_does_not_go_back"),
    (Flaw::IncrementsTwice, &["sequences"], "auto_increments_ascend_and_are_unique"),
    (Flaw::ListsNumbers, &["sequences"], "numbers_records_and_locks_of_a_name_are_apart"),
    (Flaw::OneReleaseFreesAll, &["reentry"], "elsewhere_keeps_it_when_the_first_lets_go"),
];

/// Processes that each have a store of their own do not exclude each other at all.
fn apart() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    let subject = Subject::url(&url, "").across_processes("memory:", env!("CARGO_BIN_EXE_taker"));
    let verdicts = verdicts(&subject, &["processes", "sequences"]);
    for promise in [
        "five_processes_exclude_each_other",
        "permits_are_never_too_many",
        "a_process_killed_while_it_reserves_leaves_no_number_twice",
    ] {
        if !verdicts.iter().any(|verdict| broken(verdict, promise)) {
            return Err(format!("processes apart were not seen by {promise:?}").into());
        }
    }
    Ok(())
}

fn broken(verdict: &Verdict, promise: &str) -> bool {
    let unknown = verdict.outcome.as_ref().is_err_and(|why| why.starts_with("unknown"));
    verdict.outcome.is_err() && !unknown && verdict.name.contains(promise)
}

fn judge(flaw: Flaw, groups: &[&str]) -> Vec<Verdict> {
    let store = Arc::new(Flawed::new(flaw));
    let subject = Subject::from_fn("flawed", move || {
        let handle: Arc<dyn Backend> = store.clone();
        async move { Ok(handle) }
    });
    verdicts(&subject, groups)
}

fn caught(flaw: Flaw, groups: &[&str], promise: &str) -> Result<(), Failed> {
    let verdicts = judge(flaw, groups);
    match verdicts.iter().any(|verdict| broken(verdict, promise)) {
        true => Ok(()),
        false => Err(format!("{flaw:?} was not seen by {promise:?}: {verdicts:#?}").into()),
    }
}

fn main() {
    let mut arguments = Arguments::from_args();
    // A broken promise is waited for in vain, for a long time, at little cost.
    arguments.test_threads.get_or_insert(FLAWS.len());
    let mut trials = vec![Trial::test("a_sound_store_passes_every_case", || {
        let failed: Vec<_> = judge(Flaw::Sound, &[])
            .into_iter()
            .filter(|verdict| verdict.outcome.is_err())
            .collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("{failed:#?}").into()) }
    })];
    trials.push(Trial::test("processes_apart_are_caught", apart));
    trials.extend(FLAWS.iter().map(|&(flaw, groups, promise)| {
        Trial::test(format!("{flaw:?}_is_caught_by_{}_{promise}", groups.join("_")), move || {
            caught(flaw, groups, promise)
        })
    }));
    libtest_mimic::run(&arguments, trials).exit();
}
