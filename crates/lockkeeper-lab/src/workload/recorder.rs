//! Records events as they happen.

use crate::history::{Record, What};
use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Nanoseconds on the history's clock, which is the same for every process of the machine.
pub(crate) fn now() -> u64 {
    let reading = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
    u64::try_from(reading.as_nanos()).unwrap_or(u64::MAX)
}

/// A span in nanoseconds.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Appends events to a file, one system call each, so that nothing is lost when the process is
/// killed.
#[derive(Debug, Clone)]
pub(crate) struct Recorder(Arc<Mutex<File>>);

impl Recorder {
    pub(crate) fn append_to(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Records an event that happened at `at`.
    pub(crate) fn write(&self, at: u64, client: &str, what: What) {
        let record = Record { at, client: client.to_owned(), what };
        let mut line = serde_json::to_vec(&record).unwrap_or_default();
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&line) {
            eprintln!("lab: the history cannot be written: {error}");
            std::process::exit(3);
        }
    }

    /// Records an event that happened just now.
    pub(crate) fn note(&self, client: &str, what: What) {
        self.write(now(), client, what);
    }
}
