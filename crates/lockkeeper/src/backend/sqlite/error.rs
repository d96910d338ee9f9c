//! What SQLite says, and what the user is told.
//!
//! The kind decides what the engine does. `Unavailable` is an outage, unless it is lasting: a claim
//! that waits is made again until its limit. Every other kind ends the claim at once, because
//! waiting repairs neither a wrong path nor a damaged file.

use crate::error::{Error, ErrorKind};
use rusqlite::ErrorCode;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long another process may keep the file before we call it unavailable. Transactions are
/// short, so a file in which nobody commits for this long is most likely kept by a process that was
/// stopped in the middle of one.
pub(super) const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// Why SQLite cannot open the file, which it does not say itself.
///
/// Only by looking at names: to open and close the file ourselves would drop the locks that another
/// connection of this process has on it. POSIX file locks belong to the process, and closing any
/// descriptor of a file releases all of them.
fn cannot_open(path: &Path) -> (ErrorKind, String) {
    let shown = path.display();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if path.is_dir() {
        return (ErrorKind::Config, format!("{shown} is a folder: name a file in it"));
    }
    match std::fs::metadata(parent) {
        Ok(folder) if folder.is_dir() => {}
        Ok(_) => {
            let why = format!("{} is not a folder, so {shown} cannot be", parent.display());
            return (ErrorKind::Config, why);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = parent.display();
            let what = format!("the folder {parent} does not exist: make it, or name another file");
            return (ErrorKind::Config, what);
        }
        Err(error) => return (ErrorKind::Denied, format!("no way to {shown}: {error}")),
    }
    (ErrorKind::Denied, format!("no permission to write {shown}, or to make files beside it"))
}

/// The folder of the default file could not be made. The user named no file, so the message says
/// how to name one.
pub(super) fn no_folder(folder: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::StorageFull => ErrorKind::Store,
        _ => ErrorKind::Config,
    };
    let shown = folder.display();
    let what = format!("cannot make the folder {shown} ({error}): name a file with sqlite:PATH");
    Error::new(kind, what).caused_by(error)
}

/// Whether another connection has the file: a reason to wait, not to fail. Nothing was changed when
/// SQLite says so, so the same statement can be tried again.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// What SQLite said, and what to do about it.
///
/// A failed read or write counts as an outage, since it may pass; a full disk does not, since it
/// stays full until somebody acts.
pub(super) fn store_error(path: &Path, error: rusqlite::Error) -> Error {
    let shown = path.display();
    let (kind, message) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            format!("another process has kept {shown} locked for {BUSY_LIMIT:?}: is one stopped?"),
        ),
        Some(ErrorCode::DiskFull) => (ErrorKind::Store, disk_full(path)),
        Some(ErrorCode::NotADatabase) => {
            (ErrorKind::Store, format!("{shown} is not a file of lockkeeper: name another"))
        }
        Some(ErrorCode::DatabaseCorrupt) => (
            ErrorKind::Store,
            format!(
                "{shown} is damaged: end every process that uses it, move it away, and a new one \
                 is made"
            ),
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            cannot_open(path)
        }
        Some(ErrorCode::SystemIoFailure) => {
            (ErrorKind::Unavailable, format!("the disk failed to read or write {shown}: {error}"))
        }
        _ => (ErrorKind::Store, format!("{shown}: {error}")),
    };
    Error::new(kind, message).caused_by(error)
}

/// The message for a full disk. "Nothing was changed" is true because SQLite rolls back a
/// transaction that does not fit.
fn disk_full(path: &Path) -> String {
    format!(
        "the disk of {} is full: free some space. Nothing was changed, and locks already held run \
         out unless there is space before they need renewing",
        path.display()
    )
}

/// A busy file as SQLite reports it, for one that was busy for too long. SQLite itself never
/// reports that: its own waiting is switched off (see `schema`), and the limit is kept by the
/// driver.
pub(super) fn busy() -> rusqlite::Error {
    let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(busy, None)
}

/// The same error once more: every caller that shared a transaction is told. The copy has the kind,
/// the text and whether the error is lasting, on which the engine decides; it has no cause, because
/// causes cannot be cloned.
pub(super) fn copy_of(error: &Error) -> Error {
    let copy = Error::new(error.kind(), error.to_string());
    if error.is_lasting() { copy.lasting() } else { copy }
}
