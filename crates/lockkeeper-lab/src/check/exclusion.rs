//! Holds of one name that are active at the same time must be compatible.
//!
//! A mutex history has a legal order exactly if the cores of its holds do not overlap: every true
//! hold covers its core, and cores that do not overlap are themselves such an order. So one pass in
//! order of start is enough, and no search is needed.

use super::findings::{Findings, Rule};
use super::holds::{Hold, span};
use super::story::Story;
use crate::history::Mode;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

pub(crate) fn check(story: &Story<'_>, findings: &mut Findings<'_>) {
    for holds in story.holds.chunk_by(|one, next| one.name == next.name) {
        kinds(story, holds, findings);
        permits(story, holds, findings);
    }
}

/// Modes of the same kind may be active together, unless they are exclusive.
fn kind(mode: Mode) -> usize {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => 1,
        Mode::Permit(_) => 2,
    }
}

/// Of the holds of each kind that began earlier, it is enough to compare with the one that ends
/// last. Holds of zero length sort first among holds that begin together, and so meet none of them.
fn kinds(story: &Story<'_>, holds: &[Hold], findings: &mut Findings<'_>) {
    let mut longest: [Option<&Hold>; 3] = [None; 3];
    for hold in holds {
        let own = kind(story.held(hold).mode);
        let met = longest.iter().enumerate().find_map(|(kind, earlier)| {
            let may_meet = kind == own && own != 0;
            earlier.filter(|earlier| !may_meet && earlier.end > hold.start)
        });
        if let Some(earlier) = met {
            findings.add(Rule::Exclusion, || pair(story, earlier, hold));
        }
        if longest[own].is_none_or(|known| hold.end > known.end) {
            longest[own] = Some(hold);
        }
    }
}

fn pair(story: &Story<'_>, earlier: &Hold, hold: &Hold) -> (String, Vec<usize>) {
    let (one, other) = (story.held(earlier), story.held(hold));
    let both = earlier.end.min(hold.end) - hold.start;
    let sentence = format!(
        "{} (claim {}) and {} (claim {}) both held {:?} for {}",
        story.client_of(one),
        one.number,
        story.client_of(other),
        other.number,
        story.name_of(one),
        span(both),
    );
    (sentence, grants(story, [earlier, hold]))
}

/// The records that show when these holds began and ended.
fn grants<'h>(story: &Story<'_>, holds: impl IntoIterator<Item = &'h Hold>) -> Vec<usize> {
    let ends =
        |hold: &Hold| [story.held(hold).granted.map(|it| it.learnt.record), Some(hold.end_record)];
    holds.into_iter().flat_map(ends).flatten().collect()
}

/// At most as many holds as the smallest limit that any of the holders named.
fn permits(story: &Story<'_>, holds: &[Hold], findings: &mut Findings<'_>) {
    let mut ends = BinaryHeap::new();
    let mut allowed: BTreeMap<u32, usize> = BTreeMap::new();
    for (place, hold) in holds.iter().enumerate() {
        let Mode::Permit(of) = story.held(hold).mode else { continue };
        while let Some(&Reverse((end, _, of))) = ends.peek()
            && end <= hold.start
        {
            ends.pop();
            if let Some(count) = allowed.get_mut(&of) {
                *count -= 1;
                if *count == 0 {
                    allowed.remove(&of);
                }
            }
        }
        ends.push(Reverse((hold.end, place, of)));
        *allowed.entry(of).or_default() += 1;
        let least = allowed.first_key_value().map_or(of, |(least, _)| *least);
        let least_count = usize::try_from(least).unwrap_or(usize::MAX);
        if ends.len() <= least_count {
            continue;
        }
        findings.add(Rule::Exclusion, || {
            let mut on: Vec<_> = ends.iter().map(|Reverse((_, other, of))| (*of, *other)).collect();
            // Show this hold, the one with the smallest limit, and only as many more as exceed the
            // limit.
            on.sort_by_key(|&(of, other)| (other != place && of != least, other != place, of));
            on.truncate(least_count.saturating_add(1).max(2));
            let sentence = format!(
                "{} held {:?} at once where {least} may, the last of them {} (claim {})",
                ends.len(),
                story.name_of(story.held(hold)),
                story.client_of(story.held(hold)),
                story.held(hold).number,
            );
            (sentence, grants(story, on.iter().map(|&(_, other)| &holds[other])))
        });
    }
}
