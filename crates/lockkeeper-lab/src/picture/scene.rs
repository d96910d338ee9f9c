//! Which part of a history is shown, and on which lanes.

use crate::check::{Hold, Report, Story};
use crate::history::Record;
use std::collections::{HashMap, HashSet};

const SECOND: u64 = 1_000_000_000;
/// The longest time shown on one page.
const LONGEST: u64 = 20 * SECOND;
/// The most claims shown on one page.
const MOST: usize = 2_000;

/// What is shown.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) from: u64,
    pub(super) to: u64,
    /// The claims to draw, as indexes into the story.
    pub(super) claims: Vec<usize>,
    /// The calls for numbers to draw, as indexes into the story.
    pub(super) issues: Vec<usize>,
    /// The holds of all claims, by the claim's index.
    pub(super) holds: HashMap<usize, Hold>,
    /// Clients from top to bottom.
    pub(super) lanes: Vec<usize>,
    /// Claims that a violation mentions, as indexes into the story.
    pub(super) bad: HashSet<usize>,
    /// What was left out.
    pub(super) note: Option<String>,
}

impl Scene {
    pub(super) fn choose(story: &Story<'_>, records: &[Record], report: &Report) -> Self {
        let bad = bad(story, report);
        let (mut from, mut to) = (story.first, story.last.max(story.first + 1));
        let mut why = "the beginning";
        let first = report.violations.first().map(|violation| &violation.records);
        if let Some(last) = first.and_then(|first| first.last()).map(|&index| records[index].at) {
            // The records of a violation may begin long before it happens; it happens at the last
            // of them.
            let early = first.and_then(|first| first.first()).map_or(last, |&it| records[it].at);
            let early = early.max(last.saturating_sub(LONGEST / 2));
            let mut margin = SECOND.max((last - early) / 4);
            loop {
                from = early.saturating_sub(margin).max(story.first);
                to = last.saturating_add(margin).min(story.last).max(from + 1);
                if margin < 1_000 || within(story, from, to).count() <= MOST {
                    break;
                }
                margin /= 2;
            }
            why = "the time around the first violation";
        } else {
            to = to.min(from.saturating_add(LONGEST));
            let mut ends: Vec<u64> =
                within(story, from, to).map(|place| story.claims[place].ask.at).collect();
            ends.sort_unstable();
            if let Some(end) = ends.get(MOST) {
                to = (*end).max(from + 1);
            }
        }
        let mut claims: Vec<usize> = within(story, from, to).collect();
        claims.sort_by_key(|place| (!bad.contains(place), story.claims[*place].ask.at));
        claims.truncate(MOST);
        let issues = story.issues.iter().enumerate();
        let shown = issues.filter(|(_, it)| it.asked <= to && it.returned.at >= from);
        let issues: Vec<usize> = shown.map(|(place, _)| place).take(MOST).collect();
        let part = claims.len() < story.claims.len() || issues.len() < story.issues.len();
        let note = part.then(|| {
            let (shown, all) = (claims.len(), story.claims.len());
            let mut note = format!("This page shows {why}: {shown} of {all} claims");
            if !story.issues.is_empty() {
                note += &format!(", {} of {} calls for ids", issues.len(), story.issues.len());
            }
            note + "."
        });
        let lanes = lanes(story, &claims, &issues);
        let holds = story.holds.iter().map(|hold| (hold.claim, *hold)).collect();
        Self { from, to, claims, issues, holds, lanes, bad, note }
    }

    /// Shows every claim, whatever was left out.
    pub(super) fn show_all(&mut self, story: &Story<'_>) {
        self.claims = (0..story.claims.len()).collect();
        self.lanes = lanes(story, &self.claims, &[]);
        self.note = None;
    }

    pub(super) fn shows(&self, at: u64) -> bool {
        (self.from..=self.to).contains(&at)
    }

    pub(super) fn lane(&self, client: usize) -> Option<usize> {
        self.lanes.iter().position(|lane| *lane == client)
    }
}

/// The last known moment of a claim.
pub(super) fn last_of(story: &Story<'_>, place: usize) -> u64 {
    let claim = &story.claims[place];
    let stamps = [claim.refused, claim.lost, claim.release, claim.released];
    let told = stamps.iter().flatten().map(|stamp| stamp.at).max();
    let valid = claim.renewals.iter().chain(&claim.granted).map(|it| it.until).max();
    let unanswered = claim.granted.is_none() && claim.refused.is_none();
    let open = if unanswered { story.last } else { claim.ask.at };
    told.or(valid).unwrap_or(open).min(story.last)
}

fn within(story: &Story<'_>, from: u64, to: u64) -> impl Iterator<Item = usize> {
    let in_time =
        move |place: &usize| story.claims[*place].ask.at <= to && last_of(story, *place) >= from;
    (0..story.claims.len()).filter(in_time)
}

fn bad(story: &Story<'_>, report: &Report) -> HashSet<usize> {
    let records: HashSet<usize> =
        report.violations.iter().flat_map(|it| it.records.iter().copied()).collect();
    let named = |place: &usize| {
        let claim = &story.claims[*place];
        let validities = claim.granted.iter().chain(&claim.renewals).map(|it| it.learnt.record);
        let ends = [claim.queued, claim.lost, claim.release, claim.refused];
        let ends = ends.into_iter().flatten().map(|it| it.record);
        validities.chain(ends).chain([claim.ask.record]).any(|record| records.contains(&record))
    };
    if records.is_empty() {
        return HashSet::new();
    }
    (0..story.claims.len()).filter(named).collect()
}

/// The clients that do something here, by process. Sorting shorter names first puts `2` before
/// `10`.
fn lanes(story: &Story<'_>, claims: &[usize], issues: &[usize]) -> Vec<usize> {
    let claiming = claims.iter().map(|place| story.claims[*place].client);
    let issued = issues.iter().map(|place| story.issues[*place].client);
    let seen: HashSet<usize> = claiming.chain(issued).collect();
    let mut lanes: Vec<usize> = seen.into_iter().collect();
    lanes.sort_by_key(|&lane| {
        let client = story.clients[lane];
        let process = process(client);
        (process.len(), process, client.len(), client)
    });
    lanes
}

/// The process of a client.
pub(super) fn process(client: &str) -> &str {
    client.rsplit_once('/').map_or(client, |(process, _)| process)
}
