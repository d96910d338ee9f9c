//! The file: where it is, how it is opened, what is in it.

use super::error::{BUSY_LIMIT, is_busy, no_folder, store_error};
use super::time::{StoreClock, uneven};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks the file as ours: `lock` in ASCII.
const APPLICATION_ID: i32 = 0x6c6f_636b;
const VERSION: i32 = 2;

/// How opening is tried: for so long, so often at least, so far apart.
const ONE_TRY: Duration = Duration::from_millis(200);
const LEAST_TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// One row per claim, held or waiting, in the order of asking.
///
/// The row that is released last stays behind as `free`, to remember its token; the cleaner
/// takes it away later and remembers the largest such token in `meta`. A free row is always the
/// only one of its name. `high` is the largest ticket of the name that has no row any more.
///
/// The index holds only rows that some process must look after, so that an uncontended acquire
/// and release touch one page each.
const SCHEMA: &str = "
CREATE TABLE claim (
  name    TEXT    NOT NULL,
  ticket  INTEGER NOT NULL,
  state   INTEGER NOT NULL, -- 0 free, 1 held, 2 waiting, 3 handed over but not confirmed, 4 broken
  id      TEXT    NOT NULL,
  owner   TEXT    NOT NULL,
  process TEXT    NOT NULL,
  mode    INTEGER NOT NULL, -- 0 exclusive, -1 shared, n permit of n
  token   INTEGER NOT NULL,
  high    INTEGER NOT NULL,
  ttl     INTEGER NOT NULL, -- milliseconds, as are the next two
  since   INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  identity    TEXT    NOT NULL,
  note    TEXT    NOT NULL,
  PRIMARY KEY (name, ticket)
) WITHOUT ROWID;
CREATE INDEX claim_to_look_after ON claim(process) WHERE state > 1;
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('clock', ''), ('token', 0), ('sweep', ''), ('swept', 0);
CREATE VIEW lock AS
  SELECT name, owner, identity, note, count(*) AS count, min(token) AS token,
         CASE mode WHEN 0 THEN 'exclusive' WHEN -1 THEN 'shared' ELSE 'permit of ' || mode END
           AS mode, max(expires) AS expires
  FROM claim WHERE state = 1 GROUP BY name, owner;
";

/// The default file, in the user's state directory.
pub(super) fn default_path() -> Result<PathBuf> {
    // A relative one would mean another file in every folder.
    let variable = |name| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from).filter(|folder| folder.is_absolute())
    };
    let home = |name, below| variable(name).map(|home| (name, home.clone(), home.join(below)));
    let (state, home) = if cfg!(windows) {
        (None, home("LOCALAPPDATA", ""))
    } else if cfg!(target_vendor = "apple") {
        (None, home("HOME", "Library/Application Support"))
    } else {
        (variable("XDG_STATE_HOME"), home("HOME", ".local/state"))
    };
    let folder = match (state, home) {
        (Some(state), _) => state,
        // Accounts that are to have no home are given one that is not there, such as
        // /nonexistent: were it made here, they had one.
        (None, Some((name, home, _))) if !home.is_dir() => {
            let home = home.display();
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{name} is {home}, which is no directory: set it to one that is there, or \
                     name a file with sqlite:/path/to/locks.db"
                ),
            ));
        }
        (None, Some((_, _, folder))) => folder,
        (None, None) => {
            return Err(Error::new(
                ErrorKind::Config,
                "there is no home directory to keep locks in: set HOME to an absolute path, or \
                 name a file with sqlite:/path/to/locks.db",
            ));
        }
    };
    let folder = folder.join("lockkeeper");
    std::fs::create_dir_all(&folder).map_err(|error| no_folder(&folder, error))?;
    Ok(folder.join("locks.db"))
}

/// Opens the file, makes it ours if it is new, and voids the claims of an earlier boot.
pub(super) fn open(path: &Path, clock: &StoreClock) -> Result<Connection> {
    let give_up = Moment::now() + BUSY_LIMIT;
    let mut tries = 1;
    let prepared = loop {
        match attempt(path, clock) {
            // Turning a new file to write-ahead logging does not wait for others who do the same.
            // On a machine that is so busy that few tries were possible, time alone says little.
            Err(error) if is_busy(&error) && (tries < LEAST_TRIES || Moment::now() < give_up) => {
                std::thread::sleep(BETWEEN_TRIES.mul_f64(uneven()));
                tries += 1;
            }
            outcome => break outcome,
        }
    };
    let refuse = |why| {
        let shown = path.display();
        Err(Error::new(ErrorKind::Config, format!("{shown} {why}: name another file")))
    };
    match prepared {
        Ok((connection, Finding::Ready)) => Ok(connection),
        Ok((_, Finding::OtherVersion)) => refuse("was made by another version of lockkeeper"),
        Ok((_, Finding::OtherClock)) => {
            refuse("is used by processes that count time otherwise, one of them without /proc")
        }
        Ok(_) => refuse("is another program's database"),
        Err(error) => Err(store_error(path, error)),
    }
}

/// What there is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Nothing,
    Ready,
    /// Claims of before the machine was started anew.
    OtherBoot,
    OtherVersion,
    /// Times that we cannot read.
    OtherClock,
    Foreign,
}

/// Opens the file once; an error that [`is_busy`] is tried again.
fn attempt(path: &Path, clock: &StoreClock) -> rusqlite::Result<(Connection, Finding)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(ONE_TRY)?;
    // One look in one transaction: another process may be making the file this very moment.
    let first_look = connection.transaction()?;
    let mut finding = look(&first_look, clock)?;
    drop(first_look);
    if !matches!(finding, Finding::Nothing | Finding::Ready | Finding::OtherBoot) {
        return Ok((connection, finding));
    }
    // Each commit writes whole pages; a lock is a small row.
    connection.pragma_update(None, "page_size", 1024)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // NORMAL does not wait for the disk: a power failure can forget the last commits. It forgets
    // no lock thereby, because no holder outlives the boot; for tokens see `make_ready`.
    connection.pragma_update(None, "synchronous", "normal")?;
    // The driver does it, away from the callers' threads.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    connection.set_prepared_statement_cache_capacity(48);
    // A file that is ready is not written to, so that one can look while another keeps it.
    if finding != Finding::Ready {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        finding = make_ready(&transaction, clock)?;
        transaction.commit()?;
    }
    // From here on nobody waits inside SQLite: the client does the waiting.
    connection.busy_timeout(Duration::ZERO)?;
    Ok((connection, finding))
}

/// What there is in the file, without changing it.
fn look(transaction: &Connection, clock: &StoreClock) -> rusqlite::Result<Finding> {
    let number = |sql| transaction.query_row(sql, [], |row| row.get::<_, i64>(0));
    if number("PRAGMA application_id")? != i64::from(APPLICATION_ID) {
        let empty = number("SELECT count(*) FROM sqlite_schema")? == 0;
        return Ok(if empty { Finding::Nothing } else { Finding::Foreign });
    }
    if number("PRAGMA user_version")? != i64::from(VERSION) {
        return Ok(Finding::OtherVersion);
    }
    let sql = "SELECT value FROM meta WHERE key = 'clock'";
    let label: String = transaction.query_row(sql, [], |row| row.get(0))?;
    let kind = |label: &str| label.split(' ').next().map(str::to_owned);
    Ok(match label == clock.label() {
        true => Finding::Ready,
        false if kind(&label) == kind(&clock.label()) => Finding::OtherBoot,
        false => Finding::OtherClock,
    })
}

/// Makes the table, or voids the claims of an earlier boot; what there is in the end.
fn make_ready(transaction: &Connection, clock: &StoreClock) -> rusqlite::Result<Finding> {
    // Another process may have done so since the first look.
    match look(transaction, clock)? {
        Finding::Nothing => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        Finding::OtherBoot => transaction.execute_batch(
            // The last commits before a power failure may be lost, and with them tokens that had
            // run ahead of the clock: a million grants are skipped, far more than those can be.
            "UPDATE meta SET value = (1 << 30) + max(value,
               coalesce((SELECT max(max(ticket, high)) FROM claim), 0)) WHERE key = 'token';
             UPDATE meta SET value = '' WHERE key = 'sweep';
             UPDATE meta SET value = 0 WHERE key = 'swept';
             DELETE FROM claim;",
        )?,
        other => return Ok(other),
    }
    transaction.execute("UPDATE meta SET value = ?1 WHERE key = 'clock'", [clock.label()])?;
    Ok(Finding::Ready)
}
