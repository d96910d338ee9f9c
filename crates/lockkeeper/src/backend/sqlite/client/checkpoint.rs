//! When the write-ahead log is moved into the file, and how.
//!
//! SQLite would do it by itself, inside the commit of whichever caller comes at the wrong moment.
//! That takes milliseconds, so it is switched off, and the driver does it.

use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How many pages are written to the log between two checkpoints: about two megabytes. Readers
/// search the log before the file, so a long log makes every query slower.
const PAGES_PER_CHECKPOINT: u32 = 2000;
/// A write-ahead log of this many bytes is checkpointed when the file is opened.
const LONG_LOG: u64 = 4 << 20;
/// How long a checkpoint waits for other processes. Callers' jobs wait as long, since the
/// connection is taken meanwhile.
const LIMIT: Duration = Duration::from_millis(200);

/// How much is in the log, as far as this process knows. An estimate is enough: a checkpoint that
/// comes early or late changes the speed and nothing else.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Written to the log since the last checkpoint.
    pages: AtomicU32,
}

impl Checkpoints {
    /// For a file that is just opened. Many short-lived processes, each of which commits little,
    /// must not leave the checkpoint to one another for ever: so a long log makes one due.
    pub(super) fn of(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let is_long = std::fs::metadata(log).is_ok_and(|log| log.len() > LONG_LOG);
        Self { pages: AtomicU32::new(if is_long { PAGES_PER_CHECKPOINT } else { 0 }) }
    }

    /// Counts the pages of a commit: about one for each job.
    pub(super) fn wrote(&self, jobs: usize) {
        self.pages.fetch_add(u32::try_from(jobs).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Whether the driver should make a checkpoint; callers leave their jobs to it until it has.
    pub(super) fn is_due(&self) -> bool {
        self.pages.load(Ordering::Relaxed) >= PAGES_PER_CHECKPOINT
    }

    /// Moves the log into the file, and resets the count even if that failed: were a checkpoint due
    /// at once again, callers would leave every job to the driver for as long as another process
    /// reads.
    pub(super) fn run(&self, connection: &Connection) {
        // RESTART, and not PASSIVE, which never gets to the end of a log that others are writing
        // to: it would grow for ever. It waits a moment for them; if in vain, there is a next time.
        let done = connection
            .busy_timeout(LIMIT)
            .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())));
        // Whatever came of it: a caller on an async thread must not wait inside SQLite.
        if let Err(error) = connection.busy_timeout(Duration::ZERO).and(done) {
            tracing::debug!(%error, "checkpoint not made");
        }
        self.pages.store(0, Ordering::Relaxed);
    }
}
