//! Whether the file is still the one that was opened, and whether others keep it from us.

use super::super::error::BUSY_LIMIT;
use super::super::time::uneven;
use crate::backend::Moment;
use crate::backend::support::sync::lock;
use crate::error::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// How long a look at the file's name is good for: a system call that costs a good part of a
/// transaction. A file that is replaced may go unnoticed for this long.
const SEEN_LATELY: Duration = Duration::from_millis(5);
/// How long the driver waits before it tries a busy file again, at first: short, because
/// transactions are.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// The longest such pause, before it is varied by [`uneven`].
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The file, by name and by what the file system calls it. An open file lives on after its name is
/// gone or leads elsewhere, so SQLite alone would not notice either.
#[derive(Debug)]
pub(super) struct OpenedFile {
    pub(super) path: PathBuf,
    /// Device and inode, where there are such things.
    identity: Option<(u64, u64)>,
    /// When the file was last seen to be the same; only successes are remembered.
    seen: Mutex<Option<Moment>>,
}

impl OpenedFile {
    /// Remembers the identity of the file at `path`, which must have been opened already. If it
    /// cannot be read there is nothing to compare with: on Unix the first check then fails, and
    /// nothing is granted.
    pub(super) fn new(path: PathBuf) -> Self {
        let identity = identity(&path).unwrap_or_default();
        Self { path, identity, seen: Mutex::default() }
    }

    /// Refuses to go on when the file was deleted or replaced: a process that opens it again would
    /// see none of our claims. That error is lasting; a file that is out of reach may come back.
    ///
    /// Looks at the name only, and does not open the file: closing it again would drop SQLite's
    /// locks.
    pub(super) fn still_the_same(&self) -> Result<()> {
        let now = Moment::now();
        let mut seen = lock(&self.seen);
        if seen.is_some_and(|seen| now.since(seen) < SEEN_LATELY) {
            return Ok(());
        }
        let found = identity(&self.path);
        if found.as_ref().is_ok_and(|found| *found == self.identity) {
            *seen = Some(now);
            return Ok(());
        }
        let shown = self.path.display();
        let unavailable = |what| Error::new(ErrorKind::Unavailable, what);
        Err(match found {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                unavailable(format!("{shown} is out of reach ({error}): make it accessible again"))
            }
            _ => unavailable(format!(
                "{shown} was deleted or replaced while in use: end every process that uses it and \
                 start anew"
            ))
            .lasting(),
        })
    }
}

/// Since when the file was found busy at every try, if it was. Used by the driver alone, because
/// callers leave a busy file to it.
#[derive(Debug, Default)]
pub(super) struct Contention(Mutex<Option<Busy>>);

/// One stretch of time in which every try found the file busy.
#[derive(Debug)]
struct Busy {
    /// When the first try failed; pauses grow with the time since then.
    tries_since: Moment,
    /// Since when nobody else was seen to commit, and the version number then.
    kept_since: Moment,
    version: Option<i64>,
}

impl Contention {
    /// How long to wait before the next try at a busy file; `None` once a single process has kept
    /// it for too long. While there are commits of others the file is in demand, not kept:
    /// `version` returns a number that changes with them.
    ///
    /// After `None` the count starts again, so later requests get the same time as these had.
    pub(super) fn pause(
        &self,
        now: Moment,
        version: impl FnOnce() -> Option<i64>,
    ) -> Option<Duration> {
        let mut busy = lock(&self.0);
        let Some(found) = &mut *busy else {
            *busy = Some(Busy { tries_since: now, kept_since: now, version: version() });
            return Some(FIRST_PAUSE);
        };
        // The version is read only when the limit is reached: it tells whether there was any commit
        // since `kept_since`, which is all that matters.
        if now.since(found.kept_since) >= BUSY_LIMIT {
            let version = version();
            if version.is_none() || version == found.version {
                *busy = None;
                return None;
            }
            (found.kept_since, found.version) = (now, version);
        }
        // The longer the tries have been failing, the more processes want the file, so the pause
        // grows and fewer tries are in vain.
        let pause = (now.since(found.tries_since) / 4).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        Some(pause.mul_f64(uneven()))
    }

    /// A try succeeded: the next busy file is a new stretch, with a limit of its own.
    pub(super) fn over(&self) {
        *lock(&self.0) = None;
    }
}

/// Device and inode of what the name leads to now.
#[cfg(unix)]
fn identity(path: &std::path::Path) -> std::io::Result<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map(|file| Some((file.dev(), file.ino())))
}

#[cfg(not(unix))]
fn identity(_: &std::path::Path) -> std::io::Result<Option<(u64, u64)>> {
    Ok(None) // Windows does not let an open file be replaced.
}
