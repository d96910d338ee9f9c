//! The file: where it is, how it is opened, what is in it.
//!
//! Any number of processes may open the file at the same moment, also for the first time. Each of
//! them either finds a complete table or makes one in a single transaction; a process that is
//! killed while making it leaves a file without tables, which the next one makes ready.

use super::error::{BUSY_LIMIT, is_busy, no_folder, store_error};
use super::time::{StoreClock, uneven};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks the file as ours: `lock` in ASCII.
const APPLICATION_ID: i32 = 0x6c6f_636b;
/// The layout of the tables. A file with another number is refused and not converted: processes of
/// the old version may be using it at this moment.
const VERSION: i32 = 2;

/// How long SQLite itself waits for a busy file within one try at opening it.
const ONE_TRY: Duration = Duration::from_millis(200);
/// How many tries are made before opening fails, even if [`BUSY_LIMIT`] is over: on an overloaded
/// machine the limit may pass while hardly any try was made.
const LEAST_TRIES: u32 = 20;
/// The pause between two tries at opening, before it is varied by [`uneven`].
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// One row per claim, held or waiting, in the order of asking.
///
/// The row that is released last stays behind as `free`, to remember its token; the cleaner takes
/// it away later and remembers the largest such token in `meta`. A free row is always the only one
/// of its name. `high` is the largest ticket of the name that has no row any more.
///
/// The index holds only rows that some process must look after, so that an uncontended acquire and
/// release touch one page each. SQLite uses such a partial index only for a query that repeats its
/// condition, which is why the queries say `state > 1` beside the state that they want.
///
/// In `meta`, `clock` is the label of the clock that times are written on, `token` a number that
/// every token of a name without rows must exceed, `sweep` the name that the cleaning under way has
/// reached, and `swept` when the last cleaning ended. The view `lock` is for people with a SQLite
/// shell; nothing in this library reads it.
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

/// The tables of what is no lock: sequences with their last numbers, records, and a column that SQLite
/// counts by itself. Made when the first of them is written: files without these tables are not of
/// another version, and programs that do not know the tables go on using the locks.
pub(super) const NUMBERS: &str = "
CREATE TABLE IF NOT EXISTS sequence (name TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS record (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ids (id INTEGER PRIMARY KEY AUTOINCREMENT);
";

/// The default file, in the user's state directory, so that all programs of one user meet in it.
/// Makes the folder `lockkeeper` and what is missing above it, but never a home directory.
///
/// Not in a temporary directory: those are cleaned by age, and a file that is deleted while in use
/// splits its users into two groups that do not exclude each other.
pub(super) fn default_path() -> Result<PathBuf> {
    // A relative path would mean another file in every folder, and two programs would not meet.
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
        // Accounts without a home are given one that does not exist, such as /nonexistent. Creating
        // that folder here would give the account a home that its administrator did not want.
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
///
/// Guarantees of a connection that it returns: the file has our table, in this version; its times
/// are on the same clock as ours; and no statement waits inside SQLite. A file that is found to be
/// another program's is not written to.
pub(super) fn open(path: &Path, clock: &StoreClock) -> Result<Connection> {
    let give_up = Moment::now() + BUSY_LIMIT;
    let mut tries = 1;
    let prepared = loop {
        match attempt(path, clock) {
            // The switch of a new file to write-ahead logging does not wait for other processes
            // that do the same, whatever the busy timeout is, so waiting for it is done here.
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
        Ok((_, Finding::OtherVersion(found))) if found > VERSION.into() => Err(Error::new(
            ErrorKind::Config,
            format!(
                "{} was made by a later lockkeeper (version {found} of its tables, we know {VERSION}): \
                 upgrade this program, or name another file",
                path.display()
            ),
        )),
        Ok((_, Finding::OtherVersion(_))) => refuse("was made by an earlier lockkeeper"),
        Ok((_, Finding::OtherClock)) => {
            refuse("is used by processes that count time otherwise, one of them without /proc")
        }
        Ok(_) => refuse("is another program's database"),
        Err(error) => Err(store_error(path, error)),
    }
}

/// What there is in the file. `Nothing`, `Ready` and `OtherBoot` lead to a usable connection; the
/// others are refused, and the file is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    /// No table at all: a file that was just created, or whose maker was killed before its commit.
    Nothing,
    Ready,
    /// Claims of before the machine was started again. Every process that made one is gone, so all
    /// of them are void.
    OtherBoot,
    /// Which one.
    OtherVersion(i64),
    /// Times of another kind of clock: time since boot for us and the wall clock for the maker of
    /// the file, or the reverse. The two cannot be compared, so no claim could be said to have
    /// expired.
    OtherClock,
    /// A database without our mark that has tables: some other program works with it.
    Foreign,
}

/// Opens the file once; an error that [`is_busy`] is tried again.
fn attempt(path: &Path, clock: &StoreClock) -> rusqlite::Result<(Connection, Finding)> {
    // NO_MUTEX: the client has a mutex around the connection, and SQLite's own would be a second
    // one.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(ONE_TRY)?;
    // One look in one transaction: another process may be making the file this very moment, and a
    // mark read before its commit with a table count read after it would look like a foreign
    // database.
    let first_look = connection.transaction()?;
    let mut finding = look(&first_look, clock)?;
    drop(first_look);
    // Before the first pragma that writes: the journal mode is stored in the file, and a database
    // of another program must not be switched to write-ahead logging by being named here.
    if !matches!(finding, Finding::Nothing | Finding::Ready | Finding::OtherBoot) {
        return Ok((connection, finding));
    }
    // Each commit writes whole pages; a lock is a small row.
    connection.pragma_update(None, "page_size", 1024)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // NORMAL does not wait for the disk: a power failure can forget the last commits. It forgets no
    // lock thereby, because no holder outlives the boot; for tokens see `make_ready`. A killed
    // process forgets nothing either way, because the operating system has what was written.
    connection.pragma_update(None, "synchronous", "normal")?;
    // The driver makes checkpoints, away from the callers' threads.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    connection.set_prepared_statement_cache_capacity(48);
    // A file that is ready is not written to here: so `list` and `show` work in a new process also
    // while a stopped one keeps the file.
    if finding != Finding::Ready {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        finding = make_ready(&transaction, clock)?;
        transaction.commit()?;
    }
    // From here on nobody waits inside SQLite, where an async thread would be blocked: a busy file
    // is reported at once, and the driver does the waiting.
    connection.busy_timeout(Duration::ZERO)?;
    Ok((connection, finding))
}

/// What there is in the file, without changing it. Wants a transaction, so that all of its reads
/// see the same commit.
fn look(transaction: &Connection, clock: &StoreClock) -> rusqlite::Result<Finding> {
    let number = |sql| transaction.query_row(sql, [], |row| row.get::<_, i64>(0));
    if number("PRAGMA application_id")? != i64::from(APPLICATION_ID) {
        let empty = number("SELECT count(*) FROM sqlite_schema")? == 0;
        return Ok(if empty { Finding::Nothing } else { Finding::Foreign });
    }
    let version = number("PRAGMA user_version")?;
    if version != i64::from(VERSION) {
        return Ok(Finding::OtherVersion(version));
    }
    let sql = "SELECT value FROM meta WHERE key = 'clock'";
    let label: String = transaction.query_row(sql, [], |row| row.get(0))?;
    // The label is the kind of clock and, for a clock that starts at boot, which boot it was: `boot
    // <id>`.
    let kind = |label: &str| label.split(' ').next().map(str::to_owned);
    Ok(match label == clock.label() {
        true => Finding::Ready,
        false if kind(&label) == kind(&clock.label()) => Finding::OtherBoot,
        false => Finding::OtherClock,
    })
}

/// Makes the table, or voids the claims of an earlier boot; what there is in the end.
///
/// The transaction must be an immediate one: of several processes that saw the same state before,
/// the first one changes it, and every later one sees that here and changes nothing. A crash before
/// the commit leaves the file as it was.
fn make_ready(transaction: &Connection, clock: &StoreClock) -> rusqlite::Result<Finding> {
    // Another process may have done so since the first look. Voiding the claims twice would delete
    // those that were made in between.
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
