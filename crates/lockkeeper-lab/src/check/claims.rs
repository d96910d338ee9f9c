//! The events of a history, grouped by claim.

use crate::history::Mode;

/// A moment, and the record that shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) at: u64,
    pub(crate) record: usize,
}

/// How long a holder may believe its claim, and when the holder learnt that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validity {
    pub(crate) learnt: Stamp,
    pub(crate) until: u64,
}

/// Everything about one claim.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) number: u64,
    pub(crate) name: usize,
    pub(crate) client: usize,
    pub(crate) mode: Mode,
    pub(crate) ask: Stamp,
    pub(crate) queued: Option<Stamp>,
    pub(crate) granted: Option<Validity>,
    pub(crate) token: u64,
    /// The claim that the store granted, where this one goes on with it by its ticket.
    pub(crate) continues: Option<u64>,
    pub(crate) refused: Option<Stamp>,
    pub(crate) renewals: Vec<Validity>,
    pub(crate) lost: Option<Stamp>,
    pub(crate) release: Option<Stamp>,
    pub(crate) released: Option<Stamp>,
}

impl Claim {
    pub(crate) fn new(number: u64, name: usize, client: usize, mode: Mode, ask: Stamp) -> Self {
        Self {
            number,
            name,
            client,
            mode,
            ask,
            queued: None,
            granted: None,
            token: 0,
            continues: None,
            refused: None,
            renewals: Vec::new(),
            lost: None,
            release: None,
            released: None,
        }
    }
}

impl Claim {
    /// The claim that the store granted: this one, or the one that it goes on with.
    pub(crate) fn first(&self) -> u64 {
        self.continues.unwrap_or(self.number)
    }
}

/// One write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effect {
    pub(crate) stamp: Stamp,
    /// The claim's number as the writer gave it; no claim of that number need exist.
    pub(crate) number: u64,
    pub(crate) name: usize,
    pub(crate) fenced: bool,
    pub(crate) token: u64,
    pub(crate) accepted: bool,
    pub(crate) sequence: u64,
}

/// What a resource holds at the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) record: usize,
    pub(crate) name: usize,
    pub(crate) fenced: bool,
    pub(crate) acknowledged: u64,
    pub(crate) present: u64,
}
