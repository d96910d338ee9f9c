//! Tables of an earlier version, and how they become those of this one.
//!
//! ```text
//! mark ─► later than ours ─► refused, and nothing is changed
//!      ─► ours            ─► nothing to do
//!      ─► earlier, or no mark and the columns that all versions have ─► step by step, under a lock
//!      ─► anything else: another program's table, which is left alone
//! ```
//!
//! A step leaves what the programs of the version before either use rightly or are refused by the
//! server: they may be at work at that moment. Tables that were brought up are the same, to the
//! default of every column, as tables made anew.
//!
//! On PostgreSQL all steps are one transaction. MariaDB and MySQL commit each change of a table by
//! itself, so there the mark comes last, and steps that were cut short are done again.

#[cfg(feature = "mysql")]
use super::client::{MysqlConnection, MysqlConnector};
#[cfg(feature = "postgres")]
use super::client::{PostgresConnector, first_columns};
use super::error::{Failure, Why};
use super::record::WAITING;
use super::schema::{CLAIM, Dialect, Tables, VERSION, check_version, not_ours};
use crate::backend::support::options::config;
use crate::error::{Error, ErrorKind, Result};

/// A number for the lock under which tables are changed: any that nobody else uses.
#[cfg(feature = "postgres")]
const CHANGING: i64 = 0x6c6f_636b_6b65_6571;

/// Whether tables that look like this may be those of an earlier version. Those of a later one may
/// look so as well.
pub(super) fn may_be_earlier(version: &Result<Option<i64>, Failure>) -> bool {
    match version {
        Ok(version) => version.unwrap_or(0) < VERSION,
        Err(failure) => failure.why() == Some(Why::OtherColumns),
    }
}

/// From version 0, which had no mark: how many wait is counted in the row of a name. Without the
/// default, programs of before cannot take a name any more, whose waiters they would not count.
fn count_who_waits(tables: &Tables, dialect: Dialect) -> Vec<String> {
    let Tables { names, claims } = tables;
    let column = match dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => "COLUMN IF NOT EXISTS",
        // MySQL has no such words; that the column is there is an error which is put up with.
        #[cfg(feature = "mysql")]
        Dialect::Mysql => "COLUMN",
    };
    vec![
        format!("ALTER TABLE {names} ADD {column} waiting bigint NOT NULL DEFAULT 0"),
        format!(
            "UPDATE {names} SET waiting = (SELECT count(*) FROM {claims} WHERE {claims}.name = \
             {names}.name AND {claims}.state = {WAITING})"
        ),
        format!("ALTER TABLE {names} ALTER COLUMN waiting DROP DEFAULT"),
        tables.mark(dialect, 1),
    ]
}

/// The statements of every step from a version to ours.
fn steps(tables: &Tables, dialect: Dialect, from: i64) -> Vec<String> {
    let all = [count_who_waits];
    let from = usize::try_from(from).unwrap_or(0);
    all.iter().skip(from).flat_map(|step| step(tables, dialect)).collect()
}

/// What the owner of the tables runs where programs may not change them.
pub(super) fn script(tables: &Tables, dialect: Dialect, from: i64) -> Result<String> {
    if from >= VERSION {
        return Err(config(format!(
            "version {from} of the tables is no earlier one than ours, {VERSION}"
        )));
    }
    let statements = steps(tables, dialect, from).join(";\n");
    let about = format!(
        "-- Brings the tables of lockkeeper from version {from} to version {VERSION}. Stop the \
         programs that use them first.\n"
    );
    Ok(match dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => format!("{about}BEGIN;\n{statements};\nCOMMIT;\n"),
        #[cfg(feature = "mysql")]
        Dialect::Mysql => format!("{about}{statements};\n"),
    })
}

/// A question that tables of every version answer, and those of others do not.
fn of_every_version(tables: &Tables) -> String {
    let Tables { names, claims } = tables;
    format!(
        "SELECT name, version, place, last, {CLAIM} FROM {names} WHERE 1 = 0; SELECT name, state, \
         ticket, {CLAIM} FROM {claims} WHERE 1 = 0"
    )
}

/// The version from the mark, if these are tables of ours and of no later version.
fn earlier(mark: Option<i64>, at: &str, tables: &Tables) -> Result<i64> {
    match mark {
        None => Ok(0),
        Some(mark) if mark <= VERSION => Ok(mark),
        later => check_version(later, at, &tables.names).map(|()| VERSION),
    }
}

/// The error for a question about the tables that was not answered.
fn unanswered(failure: Failure, at: &str, tables: &Tables) -> Error {
    match failure.why() {
        Some(Why::OtherColumns | Why::NoTable) => not_ours(at, &tables.names),
        _ => failure.explain(at),
    }
}

/// The error for tables that could not be changed.
fn unchanged(failure: Failure, at: &str, tables: &Tables, dialect: Dialect, from: i64) -> Error {
    let Failure::Refused(refusal) = &failure else { return failure.explain(at) };
    if refusal.why != Why::Privilege {
        return failure.explain(at);
    }
    let said = &refusal.said;
    let script = script(tables, dialect, from).unwrap_or_default();
    Error::new(
        ErrorKind::Denied,
        format!(
            "the tables at {at} are of version {from}, this program needs version {VERSION}, and \
             its user may not change them ({said}): have their owner run what `lockkeeper schema \
             --store URL --from {from}` prints, which is\n{script}"
        ),
    )
}

/// Brings tables of an earlier version up, in one transaction and one process at a time.
///
/// # Errors
/// For tables that are not ours, or of a later version, or that may not be changed: nothing was
/// changed.
#[cfg(feature = "postgres")]
pub(super) async fn migrate_postgres(connector: &PostgresConnector, tables: &Tables) -> Result<()> {
    let (at, limit, dialect) = (connector.shown(), connector.timeout(), Dialect::Postgres);
    let explain = |failure: Failure| failure.explain(at);
    // What is not committed is undone with the connection.
    let (connection, _) = connector.connect(Some(limit)).await.map_err(explain)?;
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({CHANGING})");
    connection.batch(&lock, limit).await.map_err(explain)?;
    let unanswered = |failure| unanswered(failure, at, tables);
    let mark = connection.simple(&tables.ask_mark(dialect), limit).await.map_err(unanswered)?;
    let mark = first_columns(mark).into_iter().next().flatten();
    let from = earlier(mark.and_then(|mark| mark.parse().ok()), at, tables)?;
    connection.batch(&of_every_version(tables), limit).await.map_err(unanswered)?;
    let statements = steps(tables, dialect, from);
    if from == VERSION || statements.is_empty() {
        // Another process was faster, or a column is missing that no step makes.
        return Ok(());
    }
    let text = format!("{}; COMMIT", statements.join("; "));
    let changed = connection.batch(&text, limit).await;
    changed.map_err(|failure| unchanged(failure, at, tables, dialect, from))
}

/// Brings tables of an earlier version up, on a connection that has the lock under which tables are
/// made.
///
/// # Errors
/// For tables that are not ours, or of a later version, or that may not be changed: nothing was
/// changed.
#[cfg(feature = "mysql")]
pub(super) async fn migrate_mysql(
    connection: &mut MysqlConnection,
    connector: &MysqlConnector,
    tables: &Tables,
) -> Result<()> {
    let (at, limit, dialect) = (connector.shown(), connector.timeout(), Dialect::Mysql);
    let unanswered = |failure| unanswered(failure, at, tables);
    let mark = connection.run(&tables.ask_mark(dialect), limit).await.map_err(unanswered)?;
    let mark = mark.first().and_then(|rows| rows.first()).and_then(|row| row.get(0));
    let from = earlier(mark, at, tables)?;
    connection.run(&of_every_version(tables), limit).await.map_err(unanswered)?;
    for statement in steps(tables, dialect, from) {
        match connection.run(&statement, limit).await {
            // By somebody who did not come to its end.
            Err(failure) if failure.why() == Some(Why::ColumnThere) => {}
            Err(failure) => return Err(unchanged(failure, at, tables, dialect, from)),
            Ok(_) => {}
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "postgres", feature = "mysql"))]
mod tests {
    use super::*;

    #[test]
    fn every_earlier_version_has_its_steps() {
        let tables = Tables::new(None, "locks");
        for dialect in [Dialect::Postgres, Dialect::Mysql] {
            for from in 0..VERSION {
                let script = script(&tables, dialect, from).unwrap();
                assert!(script.contains("ALTER TABLE locks ADD COLUMN"), "{script}");
            }
            assert!(script(&tables, dialect, VERSION).is_err());
            assert!(steps(&tables, dialect, VERSION).is_empty());
        }
    }
}
