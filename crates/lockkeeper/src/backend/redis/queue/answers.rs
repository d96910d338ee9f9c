//! What requests of claims that wait or are handed over come to.
//!
//! Apart from `requests.rs` only for its length: each of these is made by one function there.

use crate::backend::LossReason;
use std::collections::HashSet;
use std::time::Duration;

/// What became of leaving the queue.
#[derive(Debug)]
pub(super) enum Left {
    /// The place it had; 0 if it was not in the queue.
    From(usize),
    /// It had been granted meanwhile.
    Granted(u64),
}

/// What became of telling Redis of a hand-over.
#[derive(Debug)]
pub(super) enum HandedOver {
    /// Redis has the successor on record, and these of its keeper next in the queue, if that was
    /// asked.
    OnRecord(Vec<String>),
    /// No predecessor had the name.
    Lost(LossReason),
    /// So it looks; but the step may have been carried out before, and the successor be over.
    Unknown,
}

/// What a heartbeat found.
#[derive(Debug)]
pub(super) struct Look {
    /// Whether the heartbeat before was recent enough.
    pub(super) was_alive: bool,
    pub(super) next: Duration,
    pub(super) stamp: u64,
    /// The claims of this keeper that hold the name.
    pub(super) held: Vec<(String, Option<u64>, Duration)>,
    /// Those that are in the queue, if that was asked.
    pub(super) waiting: Option<HashSet<String>>,
}

impl Look {
    /// Every claim that is said to be this keeper's.
    pub(super) fn named(&self) -> impl Iterator<Item = &str> {
        let held = self.held.iter().map(|(id, ..)| id.as_str());
        held.chain(self.waiting.iter().flatten().map(String::as_str))
    }
}
