//! Judges a history: which promises were broken, and whether enough happened for "no violation" to
//! mean anything.
//!
//! Every rule reads the stamps in the direction that shortens holds and widens calls. So a slow
//! recorder can hide a violation shorter than its delay, but cannot invent one.

mod claims;
mod counters;
mod demands;
mod effects;
mod exclusion;
mod faults;
mod fifo;
mod findings;
mod holds;
mod ids;
mod liveness;
mod places;
mod report;
mod stalls;
mod story;
#[cfg(test)]
mod tests;
mod tokens;

pub use counters::{Counters, FaultCount};
pub use demands::{Demands, Stalls};
pub use findings::{Rule, Violation};
pub use report::{Report, Verdict};

pub(crate) use holds::{End, Hold};
pub(crate) use story::Story;

use crate::history::Record;
use findings::Findings;

/// Judges the records of one run, in any order.
///
/// Takes O(n log n) time for every history.
#[must_use]
pub fn check(records: &[Record], demands: &Demands) -> Report {
    let mut findings = Findings::new(records);
    let story = Story::read(records, &mut findings);
    exclusion::check(&story, &mut findings);
    tokens::check(&story, &mut findings);
    effects::check(&story, &mut findings);
    if demands.fair {
        fifo::check(&story, &mut findings);
    }
    ids::check(&story, demands.ids_across, &mut findings);
    liveness::check(&story, &mut findings);
    if let Some(stalls) = &demands.stalls {
        stalls::check(&story, stalls, &mut findings);
    }
    let counters = Counters::count(&story);
    Report::new(counters, findings, demands)
}
