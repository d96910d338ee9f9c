//! What is to be written of a queue on which something was decided.

use super::super::record::{HELD, Record};
use super::{ALONE, CROWD, FREE, Queue};

/// What a name was like when it was read. Every change raises `number`, except that of a claim which
/// only steps in at the end of the queue: that one raises `last`. So a release that
/// gives the name to the first in the queue, which no claim at the end concerns, goes by the number
/// alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Version {
    pub(in super::super) number: i64,
    /// The largest ticket that the name ever had.
    pub(in super::super) last: i64,
}

/// What to write: the row of the name, and the rows of the second table.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Change {
    pub(in super::super) place: i16,
    pub(in super::super) last: i64,
    pub(in super::super) waiting: i64,
    /// The claim in the row of the name, where it is alone.
    pub(in super::super) alone: Option<Record>,
    pub(in super::super) now: i64,
    /// State and ticket of rows that go.
    pub(in super::super) deletes: Vec<(i16, i64)>,
    /// Rows that change: the state that they were in, and what they are to be.
    pub(in super::super) updates: Vec<(i16, Record)>,
    pub(in super::super) inserts: Vec<Record>,
    pub(in super::super) notices: Vec<(String, String)>,
}

impl Queue {
    /// What to write; `None` if all is as it was, unless the version is to be raised all the same.
    pub(in super::super) fn change(self, anyway: bool) -> Option<Change> {
        let alone = match &self.records[..] {
            // Only a claim that is held; the row of the name has no column for its state.
            [record] if self.waiting <= 0 && record.state == HELD => Some(record.clone()),
            _ => None,
        };
        let place = match &alone {
            Some(_) => ALONE,
            None if self.records.is_empty() && self.waiting <= 0 => FREE,
            None => CROWD,
        };
        if place == self.place && self.records == self.stored && !anyway {
            return None;
        }
        let was: &[Record] = if self.place == CROWD { &self.stored } else { &[] };
        let to_be: &[Record] = if place == CROWD { &self.records } else { &[] };
        let find = |records: &[Record], ticket| {
            records.iter().find(|record| record.ticket == ticket).cloned()
        };
        let mut deletes = Vec::new();
        let mut updates = Vec::new();
        for record in was {
            match find(to_be, record.ticket) {
                None => deletes.push((record.state, record.ticket)),
                Some(new) if new != *record => updates.push((record.state, new)),
                Some(_) => {}
            }
        }
        let inserts = to_be.iter().filter(|new| find(was, new.ticket).is_none()).cloned().collect();
        Some(Change {
            place,
            last: self.last,
            waiting: self.waiting.max(0),
            alone,
            now: self.now,
            deletes,
            updates,
            inserts,
            notices: self.notices,
        })
    }
}
