//! Ids on stdout, as fast as they are made: in large pieces, and until nobody reads any more.

use crate::exit::{self, Failure};
use std::io::{ErrorKind, StdoutLock, Write};

/// How much is collected before it is written.
const PIECE: usize = 1 << 16;

/// One id per line, or one array.
pub(crate) struct Lines {
    out: StdoutLock<'static>,
    piece: Vec<u8>,
    json: bool,
    begun: bool,
    /// Nobody reads any more.
    gone: bool,
}

impl Lines {
    pub(crate) fn new(json: bool) -> Self {
        let out = std::io::stdout().lock();
        let piece = Vec::with_capacity(PIECE + 256);
        Self { out, piece, json, begun: false, gone: false }
    }

    /// Adds an id, which `write` writes.
    #[inline]
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failure> {
        if self.json {
            self.piece.extend_from_slice(if self.begun { b",\"" } else { b"[\"" });
        }
        write(&mut self.piece);
        self.piece.push(if self.json { b'"' } else { b'\n' });
        self.begun = true;
        if self.piece.len() < PIECE { Ok(()) } else { self.flush() }
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Writes what was collected.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if self.gone {
            self.piece.clear();
            return Ok(());
        }
        let written = self.out.write_all(&self.piece).and_then(|()| self.out.flush());
        self.piece.clear();
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            Err(error) => {
                self.gone = true;
                Err(Failure::new(exit::NO_OUTPUT, format!("cannot print: {error}")))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Ends the array, also of those that came before an error.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if self.json && self.begun {
            self.piece.extend_from_slice(b"]\n");
        }
        self.flush()
    }
}
