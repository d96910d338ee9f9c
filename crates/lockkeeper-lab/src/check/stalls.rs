//! A name that someone waits for and nobody holds is granted soon.
//!
//! The rule adds up, from one grant of a name to the next, the time in which someone waited for the
//! name and nothing explains why nobody got it. Two things explain it. The first is a hold that is
//! active, or that ended so recently that the store may still keep it (the release was lost, or the
//! holder died). The second is a fault of any process or of the store, for as long afterwards as a
//! claim can outlive its holder, since the affected process may have been granted the name without
//! recording it. The end of a runtime explains nothing: the keeper goes on, and releases what was
//! held there. Times are added up, so a waiter that gives up, or asks again, does not restart the
//! count.

use super::demands::Stalls;
use super::findings::{Findings, Rule};
use super::holds::span;
use super::story::Story;
use std::time::Duration;

/// A change at one moment.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// Someone begins to wait, by this record.
    Waits(usize),
    /// A waiter was answered.
    Answered,
    /// From here on something explains that the name is not granted.
    Explained,
    Unexplained,
    /// The name is granted, by this record.
    Granted(usize),
}

pub(crate) fn check(story: &Story<'_>, stalls: &Stalls, findings: &mut Findings<'_>) {
    let (explained, tolerated) = (nanos(stalls.explained), nanos(stalls.tolerated));
    let mut names: Vec<Vec<(u64, Change)>> = vec![Vec::new(); story.names.len()];
    for claim in &story.claims {
        let changes = &mut names[claim.name];
        let granted = claim.granted.map(|granted| granted.learnt);
        let killed = story.hits[claim.client].kills.first_from(claim.ask.at);
        let answers = [granted, claim.refused, killed].into_iter().flatten().map(|stamp| stamp.at);
        let answered = answers.min().unwrap_or(story.last).max(claim.ask.at);
        changes.push((claim.ask.at, Change::Waits(claim.ask.record)));
        changes.push((answered, Change::Answered));
        if let Some(granted) = granted {
            changes.push((granted.at, Change::Granted(granted.record)));
            explain(changes, granted.at, granted.at.saturating_add(explained));
        }
    }
    for hold in &story.holds {
        explain(&mut names[hold.name], hold.start, hold.end.saturating_add(explained));
    }
    for fault in story.faults.iter().filter(|fault| fault.may_lose_a_release()) {
        let end = fault.ends.saturating_add(explained);
        names.iter_mut().for_each(|changes| explain(changes, fault.begins.at, end));
    }
    for (name, mut changes) in names.into_iter().enumerate() {
        changes.sort_unstable_by_key(|(at, _)| *at);
        follow(story, story.names[name], &changes, tolerated, findings);
    }
}

fn explain(changes: &mut Vec<(u64, Change)>, from: u64, to: u64) {
    changes.extend([(from, Change::Explained), (to, Change::Unexplained)]);
}

fn follow(
    story: &Story<'_>,
    name: &str,
    changes: &[(u64, Change)],
    tolerated: u64,
    findings: &mut Findings<'_>,
) {
    let (mut waiting, mut explained, mut idle) = (0_i64, 0_i64, 0_u64);
    let (mut before, mut last_ask) = (story.first, None);
    let mut records = Vec::new();
    let mut judge = |idle: u64, records: Vec<usize>| {
        if idle > tolerated {
            findings.add(Rule::Stalled, || {
                let sentence = format!(
                    "{name:?} was waited for and nobody held it for {} that nothing explains",
                    span(idle)
                );
                (sentence, records)
            });
        }
    };
    for &(at, change) in changes {
        let at = at.min(story.last);
        if waiting > 0 && explained == 0 && at > before {
            if idle == 0 {
                records.extend(last_ask);
            }
            idle += at - before;
        }
        before = before.max(at);
        match change {
            Change::Waits(ask) => {
                waiting += 1;
                last_ask = Some(ask);
            }
            Change::Answered => waiting -= 1,
            Change::Explained => explained += 1,
            Change::Unexplained => explained -= 1,
            Change::Granted(grant) => {
                records.push(grant);
                judge(std::mem::take(&mut idle), std::mem::take(&mut records));
            }
        }
    }
    judge(idle, records);
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
