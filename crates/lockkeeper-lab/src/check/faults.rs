//! Which faults affected which client, and when.

use super::claims::Stamp;
use std::collections::BTreeMap;

/// Faults after which the holder no longer exists, and so believes nothing.
const DEATHS: [&str; 2] = ["kill", "stop"];
/// Faults that every keeper and the store survive: a release during such a fault takes effect.
const HARMLESS: [&str; 1] = ["runtime-end"];

/// One fault.
#[derive(Debug)]
pub(crate) struct Fault<'a> {
    pub(crate) kind: &'a str,
    pub(crate) process: &'a str,
    pub(crate) begins: Stamp,
    /// The maximum if no end was recorded.
    pub(crate) ends: u64,
    /// Whether the fault took effect. A fault that did not may have disturbed the run, but proves
    /// nothing.
    pub(crate) hit: bool,
}

impl Fault<'_> {
    /// Whether the fault can make a claim outlive its holder.
    pub(crate) fn may_lose_a_release(&self) -> bool {
        !HARMLESS.contains(&self.kind)
    }

    /// Whether it hits the process of this client.
    pub(crate) fn hits(&self, client: &str) -> bool {
        client.strip_prefix(self.process).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Whether it affects something shared, such as the store: then no client's process has its
    /// name.
    pub(crate) fn is_shared(&self, clients: &[&str]) -> bool {
        !clients.iter().any(|client| self.hits(client))
    }
}

/// Spans of time, both ends included.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    begins: Vec<Stamp>,
    /// The latest end of this span and all before it, so that one binary search covers all of them.
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

    /// The first moment at or after `from` that lies in a span.
    pub(crate) fn first_from(&self, from: u64) -> Option<Stamp> {
        let begun = self.begins.partition_point(|begins| begins.at <= from);
        if begun > 0 && self.latest_end[begun - 1] >= from {
            return Some(Stamp { at: from, record: self.begins[begun - 1].record });
        }
        self.begins.get(begun).copied()
    }
}

/// The faults that affected one client.
#[derive(Debug, Default)]
pub(crate) struct Hits<'a> {
    /// Kills of its own process. Killing the store ends no hold.
    pub(crate) kills: Windows,
    /// How its process died; the process that replaces it has another name.
    pub(crate) died_by: Option<&'a str>,
    /// Everything else, by kind.
    pub(crate) others: BTreeMap<&'a str, Windows>,
    /// Faults that had no effect.
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
