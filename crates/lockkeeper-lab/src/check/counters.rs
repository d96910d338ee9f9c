//! Counts of what happened in a run.

use super::claims::Claim;
use super::holds::{End, Hold};
use super::story::Story;
use serde::Serialize;
use std::collections::BTreeMap;

/// One kind of fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FaultCount {
    /// How often the fault was injected.
    pub done: usize,
    /// How many holds were active in an affected process during the fault.
    pub holds: usize,
}

/// What happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Clients that held something.
    pub clients: usize,
    /// Names that were held.
    pub names: usize,
    /// Claims that were asked for.
    pub asks: usize,
    /// Asks during which another client held the name: the hold was active when the ask began, or
    /// began before the ask was answered. The second kind counts too. Otherwise a lock would seem
    /// less contended when its store is slow to hand it over.
    pub contended: usize,
    /// Holds.
    pub holds: usize,
    /// Holds that followed a hold of another client on the same name.
    pub hand_overs: usize,
    /// Of those, how many were to a client of the same process with the very next token: what a keeper
    /// passes on among its own claims, in a store that leaves room between the tokens it gives.
    pub passed_on: usize,
    /// Holds whose validity ended before they were released.
    pub expiries: usize,
    /// Faults by kind.
    pub faults: BTreeMap<String, FaultCount>,
    /// Acknowledged writes that are missing from resources without a fence: the damage that locks
    /// alone cannot prevent.
    pub lost_writes: u64,
    /// Writes that fenced resources rejected.
    pub fenced_off: usize,
    /// Numbers that were issued.
    pub ids: u64,
    /// Calls that issued them.
    pub id_calls: usize,
    /// Generators that issued them.
    pub generators: usize,
    /// Whether the history records that all faults were over before its end.
    pub healed: bool,
}

impl Counters {
    pub(crate) fn count(story: &Story<'_>) -> Self {
        let mut counters = Self {
            asks: story.claims.iter().filter(asks_anew).count(),
            contended: contended(story),
            holds: story.holds.len(),
            ids: story.issues.iter().fold(0, |sum, issue| {
                sum.saturating_add(issue.last - issue.first).saturating_add(1)
            }),
            id_calls: story.issues.len(),
            generators: story.generators.len(),
            healed: story.healed.is_some(),
            ..Self::default()
        };
        let mut held = vec![false; story.clients.len()];
        for fault in &story.faults {
            counters.faults.entry(fault.kind.to_owned()).or_default().done += 1;
        }
        for holds in story.holds.chunk_by(|one, next| one.name == next.name) {
            counters.names += 1;
            let client = |hold: &Hold| story.held(hold).client;
            let process = |hold: &Hold| {
                let name = story.clients[client(hold)];
                name.split_once('/').map_or(name, |(process, _)| process)
            };
            let token = |hold: &Hold| story.held(hold).token;
            for pair in holds.windows(2) {
                let (one, next) = (&pair[0], &pair[1]);
                let passed = client(one) != client(next);
                counters.hand_overs += usize::from(passed);
                let within =
                    process(one) == process(next) && token(one).saturating_add(1) == token(next);
                counters.passed_on += usize::from(passed && within);
            }
        }
        for hold in &story.holds {
            let client = story.held(hold).client;
            held[client] = true;
            counters.expiries += usize::from(hold.ended_by == End::Expired);
            for (kind, count) in &mut counters.faults {
                let windows = story.hits[client].others.get(kind.as_str());
                let hit = windows.is_some_and(|windows| windows.overlap(hold.start, hold.end))
                    || (hold.ended_by == End::Killed
                        && story.hits[client].died_by == Some(kind.as_str()));
                count.holds += usize::from(hit);
            }
        }
        counters.clients = held.into_iter().filter(|held| *held).count();
        for tally in story.tallies.iter().filter(|tally| !tally.fenced) {
            counters.lost_writes += tally.acknowledged.saturating_sub(tally.present);
        }
        let off = story.effects.iter().filter(|effect| effect.fenced && !effect.accepted);
        counters.fenced_off = off.count();
        counters
    }

    /// The percentage of asks that met another client's hold, rounded down.
    #[must_use]
    pub fn contended_percent(&self) -> usize {
        (self.contended * 100).checked_div(self.asks).unwrap_or(0)
    }
}

/// Counts all holds of a name, minus the asking client's own.
fn contended(story: &Story<'_>) -> usize {
    let mut all: BTreeMap<usize, Spans> = BTreeMap::new();
    let mut own: BTreeMap<(usize, usize), Spans> = BTreeMap::new();
    for hold in &story.holds {
        all.entry(hold.name).or_default().add(hold);
        own.entry((hold.name, story.held(hold).client)).or_default().add(hold);
    }
    all.values_mut().chain(own.values_mut()).for_each(Spans::sort);
    let met = |claim: &&Claim| {
        let meetings = |spans: Option<&Spans>| spans.map_or(0, |spans| spans.met_by(claim));
        meetings(all.get(&claim.name)) > meetings(own.get(&(claim.name, claim.client)))
    };
    story.claims.iter().filter(asks_anew).filter(met).count()
}

/// One that goes on with another's claim is in nobody's way.
fn asks_anew(claim: &&Claim) -> bool {
    claim.continues.is_none()
}

/// When the holds of a group began, and when they ended.
#[derive(Debug, Default)]
struct Spans {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl Spans {
    fn add(&mut self, hold: &Hold) {
        self.begins.push(hold.start);
        self.ends.push(hold.end);
    }

    fn sort(&mut self) {
        self.begins.sort_unstable();
        self.ends.sort_unstable();
    }

    /// How many of the holds were active when the claim was asked for, or began before it was
    /// answered.
    fn met_by(&self, claim: &Claim) -> usize {
        let asked = claim.ask.at;
        let granted = claim.granted.map(|granted| granted.learnt.at);
        let answered = granted.or(claim.refused.map(|refused| refused.at)).unwrap_or(asked);
        let begun = self.begins.partition_point(|begins| *begins <= asked || *begins < answered);
        begun - self.ends.partition_point(|ends| *ends <= asked)
    }
}
