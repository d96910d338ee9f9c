//! Fenced rows in SQLite, by [`rusqlite`].
//!
//! ```
//! use lockkeeper::fence::{FencedTable, sqlite};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = rusqlite::Connection::open_in_memory()?;
//! db.execute_batch(
//!     "CREATE TABLE stock (sku TEXT PRIMARY KEY, left_over INTEGER, fence BIGINT NOT NULL DEFAULT 0);
//!      INSERT INTO stock (sku, left_over) VALUES ('tea', 10);",
//! )?;
//! let stock = FencedTable::new("stock", "sku")?;
//!
//! let keeper = lockkeeper::connect("memory:").await?;
//! let guard = keeper.lock("stock/tea").fenced().acquire().await?;
//! let token = guard.require_token()?;
//! sqlite::enter(&db, &stock, "tea", token)?; // from here on nobody of before can write
//! let left: i64 = db.query_row("SELECT left_over FROM stock", [], |row| row.get(0))?;
//! sqlite::update(&db, &stock, "tea", token, &[("left_over", &(left - 1))])?;
//! # Ok(()) }
//! ```

use super::{Dialect, FencedTable};
use crate::claim::FencingToken;
use crate::error::{Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension, ToSql};

const SQLITE: Dialect = Dialect::Sqlite;

/// Shows the token of a new holder to a row: from here on every smaller token is refused.
///
/// A transaction is a `Connection` too.
///
/// # Errors
/// [`ErrorKind::Lost`] when a larger token was here, [`ErrorKind::Config`] when there is no such row,
/// [`ErrorKind::Store`] with what SQLite said.
pub fn enter(
    db: &Connection,
    table: &FencedTable,
    key: impl ToSql,
    token: FencingToken,
) -> Result<()> {
    write(db, table, &table.enter(SQLITE), &key, token, &[])
}

/// Changes columns of a row, unless a larger token was here: the check and the write are one statement.
///
/// # Errors
/// As [`enter`]; nothing is changed then.
pub fn update(
    db: &Connection,
    table: &FencedTable,
    key: impl ToSql,
    token: FencingToken,
    changes: &[(&str, &dyn ToSql)],
) -> Result<()> {
    let columns: Vec<&str> = changes.iter().map(|(column, _)| *column).collect();
    write(db, table, &table.update(SQLITE, &columns)?, &key, token, changes)
}

fn write(
    db: &Connection,
    table: &FencedTable,
    statement: &str,
    key: &dyn ToSql,
    token: FencingToken,
    changes: &[(&str, &dyn ToSql)],
) -> Result<()> {
    let number = token.as_i64();
    let values = changes.iter().map(|(_, value)| *value);
    let values: Vec<&dyn ToSql> = values.chain([&number as &dyn ToSql, key, &number]).collect();
    let failed = |error| Error::new(ErrorKind::Store, format!("SQLite refused: {error}"));
    let changed = db
        .prepare_cached(statement)
        .and_then(|mut statement| statement.execute(&*values))
        .map_err(failed)?;
    if changed > 0 {
        return Ok(());
    }
    let seen = db.query_row(&table.seen(SQLITE), [key], |row| row.get(0)).optional();
    Err(table.refusal(token, seen.map_err(failed)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn a_stale_holder_is_refused_and_an_equal_token_is_not() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(
            "CREATE TABLE \"odd `name\" (\"the key\" TEXT PRIMARY KEY, n INTEGER, note TEXT, \
             fence BIGINT NOT NULL DEFAULT 0);
             INSERT INTO \"odd `name\" (\"the key\", n) VALUES ('a', 100), ('b', 7);",
        )
        .unwrap();
        let table = FencedTable::new("odd `name", "the key").unwrap();
        let write = |token, n: i64| update(&db, &table, "a", token, &[("n", &n), ("note", &"x")]);
        enter(&db, &table, "a", token(5)).unwrap();
        enter(&db, &table, "a", token(5)).unwrap();
        write(token(5), 90).unwrap();
        write(token(5), 90).unwrap();
        enter(&db, &table, "a", token(9)).unwrap();
        for refused in [write(token(5), 0), enter(&db, &table, "a", token(8))] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Lost);
            assert!(refused.to_string().contains("9 was here already"), "{refused}");
        }
        write(token(9), 80).unwrap();
        let rows: Vec<(i64, i64)> = db
            .prepare("SELECT n, fence FROM \"odd `name\" ORDER BY \"the key\"")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .map(std::result::Result::unwrap)
            .collect();
        assert_eq!(rows, [(80, 9), (7, 0)]);
        let missing = enter(&db, &table, "c", token(9)).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Config);
        let table = FencedTable::new("odd `name", "no such column").unwrap();
        let refused = enter(&db, &table, "a", token(9)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Store, "{refused}");
    }
}
