//! When which client was being broken.

use super::claims::Stamp;
use std::collections::BTreeMap;

/// The kinds of fault after which a holder believes nothing any more.
const DEATHS: [&str; 2] = ["kill", "stop"];
/// The kinds of fault through which every keeper and the store go on: what is given back meanwhile
/// is given back.
const HARMLESS: [&str; 1] = ["runtime-end"];

/// One fault.
#[derive(Debug)]
pub(crate) struct Fault<'a> {
    pub(crate) kind: &'a str,
    pub(crate) process: &'a str,
    pub(crate) begins: Stamp,
    /// The end of time where no end was recorded.
    pub(crate) ends: u64,
    /// Whether it broke anything. If not, it disturbed perhaps, but shows nothing.
    pub(crate) hit: bool,
}

impl Fault<'_> {
    /// Whether a claim may outlive its holder by it.
    pub(crate) fn may_lose_a_release(&self) -> bool {
        !HARMLESS.contains(&self.kind)
    }

    /// Whether it hits the process of this client.
    pub(crate) fn hits(&self, client: &str) -> bool {
        client.strip_prefix(self.process).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Whether it hits what all share, such as the store: no client's process bears its name.
    pub(crate) fn is_shared(&self, clients: &[&str]) -> bool {
        !clients.iter().any(|client| self.hits(client))
    }
}

/// Spans of time, both ends included.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    begins: Vec<Stamp>,
    /// The latest end of this span and those before it: one search answers for all of them.
    latest_end: Vec<u64>,
}

impl Windows {
    fn new(mut spans: Vec<(Stamp, u64)>) -> Self {
        spans.sort_by_key(|(begins, _)| begins.at);
        let mut windows = Self::default();
        let mut latest = 0;
        for (begins, ends) in spans {
            latest = latest.max(ends);
            windows.begins.push(begins);
            windows.latest_end.push(latest);
        }
        windows
    }

    pub(crate) fn overlap(&self, from: u64, to: u64) -> bool {
        let begun = self.begins.partition_point(|begins| begins.at <= to);
        begun > 0 && self.latest_end[begun - 1] >= from
    }

    /// The first moment from `from` on that lies in a span.
    pub(crate) fn first_from(&self, from: u64) -> Option<Stamp> {
        let begun = self.begins.partition_point(|begins| begins.at <= from);
        if begun > 0 && self.latest_end[begun - 1] >= from {
            return Some(Stamp { at: from, record: self.begins[begun - 1].record });
        }
        self.begins.get(begun).copied()
    }
}

/// What hits one client.
#[derive(Debug, Default)]
pub(crate) struct Hits<'a> {
    /// The kills of its own process. That of a store ends no hold.
    pub(crate) kills: Windows,
    /// How its process died; one that takes its place has another name.
    pub(crate) died_by: Option<&'a str>,
    /// Everything else, by kind.
    pub(crate) others: BTreeMap<&'a str, Windows>,
    /// What was done without breaking anything.
    missed: Windows,
}

impl<'a> Hits<'a> {
    pub(crate) fn on(client: &str, clients: &[&str], faults: &[Fault<'a>]) -> Self {
        let (mut kills, mut died_by) = (Vec::new(), None);
        let mut missed = Vec::new();
        let mut others: BTreeMap<&'a str, Vec<(Stamp, u64)>> = BTreeMap::new();
        for fault in faults {
            let own = fault.hits(client);
            if own && DEATHS.contains(&fault.kind) {
                died_by.get_or_insert(fault.kind);
                kills.push((fault.begins, fault.ends));
            } else if own || fault.is_shared(clients) {
                let spans =
                    if fault.hit { others.entry(fault.kind).or_default() } else { &mut missed };
                spans.push((fault.begins, fault.ends));
            }
        }
        let others = others.into_iter().map(|(kind, spans)| (kind, Windows::new(spans)));
        let missed = Windows::new(missed);
        Self { kills: Windows::new(kills), died_by, others: others.collect(), missed }
    }

    pub(crate) fn any_in(&self, from: u64, to: u64) -> bool {
        self.kills.overlap(from, to)
            || self.missed.overlap(from, to)
            || self.others.values().any(|each| each.overlap(from, to))
    }
}
