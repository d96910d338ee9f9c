//! Issued numbers: no number twice, and always growing.
//!
//! Ranges are compared by their ends and never enumerated. A was issued before B for certain if A's
//! call had returned before B's was made; equal stamps are not a violation.

use super::claims::Stamp;
use super::findings::{Findings, Rule};
use super::story::Story;

/// One call that issued numbers, `first` and `last` included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issue {
    pub(crate) returned: Stamp,
    pub(crate) asked: u64,
    pub(crate) client: usize,
    pub(crate) generator: usize,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// One issue of numbers, or `None` if the record makes no sense.
pub(crate) fn issue(
    returned: Stamp,
    asked: u64,
    (client, generator): (usize, usize),
    (first, count): (u64, u64),
    findings: &mut Findings<'_>,
) -> Option<Issue> {
    let last = count.checked_sub(1).and_then(|more| first.checked_add(more));
    match last {
        Some(last) if asked <= returned.at => {
            Some(Issue { returned, asked, client, generator, first, last })
        }
        _ => {
            findings.add(Rule::History, || {
                let sentence = format!(
                    "{count} ids from {first} on, asked for at {asked}: no such range, or it was \
                     issued before it was asked for"
                );
                (sentence, vec![returned.record])
            });
            None
        }
    }
}

pub(crate) fn check(story: &Story<'_>, across: bool, findings: &mut Findings<'_>) {
    let mut issues: Vec<&Issue> = story.issues.iter().collect();
    twice(story, &mut issues, findings);
    if across {
        order(story, &issues, Rule::IdOrderAcross, findings);
    }
    issues.sort_by_key(|issue| issue.generator);
    for issues in issues.chunk_by(|one, next| one.generator == next.generator) {
        order(story, issues, Rule::IdOrder, findings);
    }
}

/// Of all ranges that begin no later, it is enough to compare with the one that ends highest.
fn twice(story: &Story<'_>, issues: &mut [&Issue], findings: &mut Findings<'_>) {
    issues.sort_by_key(|issue| (issue.first, issue.last, issue.returned.at));
    let mut furthest: Option<&Issue> = None;
    for &issue in &*issues {
        if let Some(other) = furthest.filter(|other| other.last >= issue.first) {
            findings.add(Rule::IdTwice, || {
                let (from, to) = (issue.first, issue.last.min(other.last));
                let sentence = format!(
                    "{} issued by {} and by {}",
                    range(from, to),
                    story.generators[other.generator],
                    story.generators[issue.generator],
                );
                (sentence, vec![other.returned.record, issue.returned.record])
            });
        }
        if furthest.is_none_or(|other| issue.last > other.last) {
            furthest = Some(issue);
        }
    }
}

/// Goes from the greatest number down. A call is wrong if, before it was made, another call had
/// returned a number at least as great. Only the earliest of those calls needs to be remembered.
fn order(story: &Story<'_>, issues: &[&Issue], rule: Rule, findings: &mut Findings<'_>) {
    let mut by_last = issues.to_vec();
    by_last.sort_by_key(|issue| std::cmp::Reverse(issue.last));
    let mut by_first = issues.to_vec();
    by_first.sort_by_key(|issue| std::cmp::Reverse(issue.first));
    let mut higher = by_last.into_iter().peekable();
    let mut earliest: Option<&Issue> = None;
    for issue in by_first {
        while let Some(other) = higher.next_if(|other| other.last >= issue.first) {
            if earliest.is_none_or(|known| other.returned.at < known.returned.at) {
                earliest = Some(other);
            }
        }
        if let Some(other) = earliest.filter(|other| other.returned.at < issue.asked) {
            findings.add(rule, || {
                let sentence = format!(
                    "{} issued {}, though {} had issued {} before that was asked for",
                    story.generators[issue.generator],
                    range(issue.first, issue.last),
                    story.generators[other.generator],
                    range(other.first, other.last),
                );
                (sentence, vec![other.returned.record, issue.returned.record])
            });
        }
    }
}

fn range(first: u64, last: u64) -> String {
    if first == last { format!("id {first}") } else { format!("ids {first} to {last}") }
}
