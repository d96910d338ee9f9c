//! From the file of a process to what it got.

use super::{Piece, Refusal, Taker};
use crate::ids::file::{self, Entry};
use anyhow::Result;
use std::path::Path;

/// Reads the file of a process.
pub(crate) fn read(process: &str, path: &Path) -> Result<Taker> {
    let mut taker = Taker { process: process.to_owned(), ..Taker::default() };
    file::read(path, |(asked, returned), entry| match entry {
        Entry::Opened => taker.generators.push(Vec::new()),
        Entry::Done => taker.done = true,
        Entry::Refused { retryable, kind, message } => {
            taker.refusals.push(Refusal { at: returned, retryable, kind, message });
        }
        Entry::Ids(ids) => {
            if taker.generators.is_empty() {
                taker.generators.push(Vec::new());
            }
            let pieces = taker.generators.last_mut();
            pieces.into_iter().for_each(|pieces| add(pieces, &ids, asked, returned));
        }
    })?;
    Ok(taker)
}

/// Adds the ids of one record, those that follow each other as one piece.
fn add(pieces: &mut Vec<Piece>, ids: &[u64], asked: u64, returned: u64) {
    for run in ids.chunk_by(|one, next| one.checked_add(1) == Some(*next)) {
        if let (Some(&first), Some(&last)) = (run.first(), run.last()) {
            pieces.push(Piece { first, last, asked, returned });
        }
    }
}
