//! The judge of ids: none twice, each process's in the promised order, the time in them true, and nobody
//! left without ids once the faults are over.
//!
//! Ids that follow each other are kept as one piece, so that fifty million fit: pieces are compared by
//! their ends, and never enumerated. Stamps are taken before a call and after it, so that an order that
//! is found broken was broken.

mod read;
mod report;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use read::read;
pub use report::Report;

use super::scheme::Scheme;
use crate::check::Verdict;
use std::collections::BTreeMap;
use std::time::Duration;

/// Ids in a row that were given to one caller, `first` and `last` included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Before the call, and after it.
    pub(crate) asked: u64,
    pub(crate) returned: u64,
}

/// Why a process got no ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) at: u64,
    pub(crate) retryable: bool,
    pub(crate) kind: String,
    pub(crate) message: String,
}

/// What one process got.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taker {
    pub(crate) process: String,
    /// By the generators that it opened, one after another; each in the order of its calls.
    pub(crate) generators: Vec<Vec<Piece>>,
    pub(crate) refusals: Vec<Refusal>,
    /// It took as many as it was asked to.
    pub(crate) done: bool,
    /// It ran at the end.
    pub(crate) alive: bool,
}

/// A run, to be judged.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scheme: Scheme,
    /// Whether an id that is asked for when another was given is larger, whoever asks.
    pub(crate) strict: bool,
    pub(crate) takers: Vec<Taker>,
    /// What was to be broken, and how often it was.
    pub(crate) faults: BTreeMap<&'static str, usize>,
    /// When the last fault was over.
    pub(crate) healed: u64,
    /// What to add to a stamp for nanoseconds since 1970; `None` where a clock was faked.
    pub(crate) wall: Option<u64>,
    /// What the store's clock is off by itself.
    pub(crate) coarse: Duration,
    /// How many ids must have been seen.
    pub(crate) least: u64,
}

/// Judges a run.
pub(crate) fn judge(run: &Run) -> Report {
    let mut findings = rules::Findings::default();
    rules::twice(run, &mut findings);
    rules::order(run, &mut findings);
    rules::across(run, &mut findings);
    rules::time(run, &mut findings);
    rules::stalls(run, &mut findings);
    rules::errors(run, &mut findings);
    let lacks = rules::lacks(run);
    let verdict = match (findings.broken.is_empty(), lacks.is_empty()) {
        (false, _) => Verdict::Fail,
        (true, true) => Verdict::Pass,
        (true, false) => Verdict::Unknown,
    };
    Report::new(run, verdict, findings, lacks)
}
