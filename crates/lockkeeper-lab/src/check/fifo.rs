//! A claim that stood in the queue is served before a claim that came later.
//!
//! A stood in the queue for certain at `queued(A)`; B cannot have been in it before `ask(B)`. So A
//! is ahead if `queued(A) < ask(B)`. The moment at which the store granted a claim is not known,
//! only that it was before the stamp of the grant, which may be late. But both claims are
//! exclusive: if A had been served first, A's hold would have been over when B's began, and A's
//! hold covers its core, which begins at `granted(A)`. So if B's whole core lies before
//! `granted(A)`, B was served first, however late the stamps are. If A has no core, nothing
//! follows. If a fault affected A while it waited, A may rightly have lost its place in the queue.
//! The same holds for every claim that waited during a standstill, as when a paused process keeps a
//! file locked: a place in the queue is kept by heartbeats, and nobody could send one.

use super::findings::{Findings, Rule};
use super::holds::Hold;
use super::story::Story;
use crate::history::Mode;

/// If nobody was granted anything for this long, everything stood still. Shorter than any store's
/// heartbeat timeout, longer than a dead holder keeps a name.
const STANDSTILL: u64 = 1_500_000_000;

/// A claim that waited in the queue.
struct Waiter<'h> {
    queued: u64,
    hold: &'h Hold,
}

pub(crate) fn check(story: &Story<'_>, findings: &mut Findings<'_>) {
    let standstills = standstills(story);
    for holds in story.holds.chunk_by(|one, next| one.name == next.name) {
        let exclusive = |hold: &&Hold| story.held(hold).mode == Mode::Exclusive;
        let mut waiters: Vec<Waiter<'_>> = holds
            .iter()
            .filter(exclusive)
            .filter_map(|hold| waiter(story, &standstills, hold))
            .collect();
        waiters.sort_by_key(|waiter| waiter.queued);
        // One that goes on with another's claim was before all who waited.
        let anew = |hold: &&Hold| story.held(hold).continues.is_none();
        let mut later: Vec<&Hold> = holds.iter().filter(exclusive).filter(anew).collect();
        later.sort_by_key(|hold| story.held(hold).ask.at);
        // Of all claims that are ahead, the one that was granted last was overtaken if any was.
        let mut ahead = waiters.iter().peekable();
        let mut last: Option<&Hold> = None;
        for hold in later {
            let ask = story.held(hold).ask.at;
            while let Some(waiter) = ahead.next_if(|waiter| waiter.queued < ask) {
                if last.is_none_or(|known| waiter.hold.start > known.start) {
                    last = Some(waiter.hold);
                }
            }
            if let Some(first) = last.filter(|first| overtakes(hold, first)) {
                findings.add(Rule::Overtaken, || describe(story, first, hold));
            }
        }
    }
}

/// The spans of time in which nobody was granted anything, in order.
fn standstills(story: &Story<'_>) -> Vec<(u64, u64)> {
    let mut grants: Vec<u64> = story.holds.iter().map(|hold| hold.start).collect();
    grants.sort_unstable();
    let pairs = grants.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(from, to)| to - from >= STANDSTILL).collect()
}

fn waiter<'h>(story: &Story<'_>, standstills: &[(u64, u64)], hold: &'h Hold) -> Option<Waiter<'h>> {
    let claim = story.held(hold);
    let queued = claim.queued?.at;
    let after = standstills.partition_point(|(_, to)| *to <= claim.ask.at);
    let stood_still = standstills.get(after).is_some_and(|(from, _)| *from < hold.start);
    let undisturbed = claim.refused.is_none()
        && !stood_still
        && !story.hits[claim.client].any_in(claim.ask.at, hold.start);
    undisturbed.then_some(Waiter { queued, hold })
}

/// Whether all of `hold` lies before `first` began. Equal stamps are not a violation.
fn overtakes(hold: &Hold, first: &Hold) -> bool {
    hold.start < first.start && hold.end <= first.start
}

fn describe(story: &Story<'_>, first: &Hold, hold: &Hold) -> (String, Vec<usize>) {
    let (one, other) = (story.held(first), story.held(hold));
    let sentence = format!(
        "claim {} on {:?} stood in the queue before claim {} was asked for, and was served after it",
        one.number,
        story.name_of(one),
        other.number,
    );
    let mut records = vec![other.ask.record];
    records.extend(one.queued.map(|queued| queued.record));
    records.extend([one, other].iter().filter_map(|it| it.granted.map(|it| it.learnt.record)));
    (sentence, records)
}
