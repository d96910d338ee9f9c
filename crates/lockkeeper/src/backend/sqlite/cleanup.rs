//! Keeps the file small. Correctness does not depend on it.
//!
//! Every name that was ever locked leaves a free row, which remembers its largest token. A minute
//! later the row goes, and the largest token of all rows that went is kept in `meta`: a name that
//! has no row begins above it.
//!
//! One number for all names is enough: tokens are compared only within a name, and to begin higher
//! than needed does no harm. A row per name for ever was rejected: programs that lock by customer
//! or by file may use millions of names.

use super::client::Client;
use super::client::transaction::Transaction;
use super::record::millis;
use rusqlite::{Result, params};
use std::time::Duration;

/// How often free rows are cleaned away, and how long after their release: a name that is locked
/// again soon finds its row and takes it with one update.
pub(super) const CLEANING: Duration = Duration::from_secs(60);
/// How many names one transaction cleans: few enough that a lock that has to wait for it is not
/// noticeably slower.
const NAMES_AT_ONCE: i64 = 200;

/// Goes through the file once, if no process has lately, a few names at a time so that no caller
/// waits long. Where the sweep has got to is kept in the file: a process that ends in the middle of
/// it leaves the rest to the next one.
///
/// Two processes that sweep at the same time share the work, since each transaction continues where
/// the last one stopped, whichever process that was.
pub(super) fn clean(client: &Client) {
    let due = client.look_at_once(is_due);
    if !matches!(due, Some(Ok(true))) {
        return;
    }
    while let Ok(true) = client.call_blocking(clean_some) {}
    client.sockets.remove_stale();
    // Of many processes that write little, none would find the log long enough by itself.
    client.checkpoint();
}

/// Whether a cleaning is under way, or the last one was long ago, whichever process did it. Only
/// reads, so that processes that start often do not write because of it.
fn is_due(tx: &Transaction<'_>) -> Result<bool> {
    let (from, swept) = progress(tx)?;
    Ok(!from.is_empty() || swept + millis(CLEANING) <= tx.now)
}

/// Where the sweep under way has got to, and when the last one ended. The name is empty when none
/// is under way; no lock has that name.
fn progress(tx: &Transaction<'_>) -> Result<(String, i64)> {
    tx.connection
        .prepare_cached(
            "SELECT a.value, b.value FROM meta a, meta b WHERE a.key = 'sweep' AND b.key = 'swept'",
        )?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Cleans the next few names; whether there are more.
///
/// The token goes to `meta` in the same transaction that deletes its row, so a crash leaves both or
/// neither, and never a name that could be granted an old token again.
pub(super) fn clean_some(tx: &Transaction<'_>) -> Result<bool> {
    let (from, _) = progress(tx)?;
    let last: Option<String> = tx
        .connection
        .prepare_cached(
            "SELECT max(name) FROM (SELECT name FROM claim WHERE name > ?1 ORDER BY name LIMIT ?2)",
        )?
        .query_row(params![from, NAMES_AT_ONCE], |row| row.get(0))?;
    let mut set = tx.connection.prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?;
    let Some(last) = last else {
        set.execute(params!["sweep", ""])?;
        set.execute(params!["swept", tx.now])?;
        return Ok(false);
    };
    let mut expired = tx.connection.prepare_cached(
        "SELECT DISTINCT name FROM claim
         WHERE name > ?1 AND name <= ?2 AND state <> 0 AND expires <= ?3",
    )?;
    let expired = expired.query_map(params![from, last, tx.now], |row| row.get::<_, String>(0))?;
    for name in expired.collect::<Result<Vec<_>>>()? {
        // Turns a queue of which everything has expired into one free row.
        tx.advance(&name)?;
    }
    let long_ago = tx.now - millis(CLEANING);
    // The token before the rows: it is read from the rows that the next statement deletes.
    tx.connection
        .prepare_cached(
            "UPDATE meta SET value = max(value, coalesce((SELECT max(ticket) FROM claim
               WHERE name > ?1 AND name <= ?2 AND state = 0 AND expires <= ?3), 0))
             WHERE key = 'token'",
        )?
        .execute(params![from, last, long_ago])?;
    tx.connection
        .prepare_cached(
            "DELETE FROM claim WHERE name > ?1 AND name <= ?2 AND state = 0 AND expires <= ?3",
        )?
        .execute(params![from, last, long_ago])?;
    set.execute(params!["sweep", last])?;
    Ok(true)
}
