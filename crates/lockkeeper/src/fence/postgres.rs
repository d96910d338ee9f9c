//! Fenced rows in PostgreSQL, by [`tokio_postgres`].
//!
//! ```no_run
//! use lockkeeper::fence::{FencedTable, postgres};
//!
//! # async fn work(db: tokio_postgres::Client, guard: lockkeeper::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! // CREATE TABLE stock (sku text PRIMARY KEY, left_over int, fence bigint NOT NULL DEFAULT 0)
//! let stock = FencedTable::new("stock", "sku")?;
//! let token = guard.require_token()?;
//! postgres::enter(&db, &stock, &"tea", token).await?; // from here on nobody of before can write
//! let left: i32 = db.query_one("SELECT left_over FROM stock WHERE sku = $1", &[&"tea"]).await?.get(0);
//! postgres::update(&db, &stock, &"tea", token, &[("left_over", &(left - 1))]).await?;
//! # Ok(()) }
//! ```

use super::{Dialect, FencedTable};
use crate::claim::FencingToken;
use crate::error::{Error, ErrorKind, Result};
use tokio_postgres::GenericClient;
use tokio_postgres::types::ToSql;

const POSTGRES: Dialect = Dialect::Postgres;

/// A value, as [`tokio_postgres`] takes it.
pub type Value<'a> = &'a (dyn ToSql + Sync);

/// Shows the token of a new holder to a row: from here on every smaller token is refused. In a
/// transaction, that is so when it commits.
///
/// # Errors
/// [`ErrorKind::Lost`] when a larger token was here, [`ErrorKind::Config`] when there is no such row,
/// [`ErrorKind::Store`] with what the server said.
///
/// # Cancel safety
/// Dropped half-way, the statement may have been carried out; entering again does no harm.
pub async fn enter(
    db: &(impl GenericClient + Sync),
    table: &FencedTable,
    key: Value<'_>,
    token: FencingToken,
) -> Result<()> {
    write(db, table, &table.enter(POSTGRES), key, token, &[]).await
}

/// Changes columns of a row, unless a larger token was here: the check and the write are one statement.
///
/// # Errors
/// As [`enter`]; nothing is changed then.
///
/// # Cancel safety
/// Dropped half-way, the statement may have been carried out.
pub async fn update(
    db: &(impl GenericClient + Sync),
    table: &FencedTable,
    key: Value<'_>,
    token: FencingToken,
    changes: &[(&str, Value<'_>)],
) -> Result<()> {
    let columns: Vec<&str> = changes.iter().map(|(column, _)| *column).collect();
    write(db, table, &table.update(POSTGRES, &columns)?, key, token, changes).await
}

async fn write(
    db: &(impl GenericClient + Sync),
    table: &FencedTable,
    statement: &str,
    key: Value<'_>,
    token: FencingToken,
    changes: &[(&str, Value<'_>)],
) -> Result<()> {
    let number = token.as_i64();
    let values = changes.iter().map(|(_, value)| *value);
    let values: Vec<Value<'_>> = values.chain([&number as Value<'_>, key, &number]).collect();
    if db.execute(statement, &values).await.map_err(failed)? > 0 {
        return Ok(());
    }
    let seen = db.query_opt(&table.seen(POSTGRES), &[key]).await.map_err(failed)?;
    let seen = seen.map(|row| row.try_get(0)).transpose().map_err(failed)?;
    Err(table.refusal(token, seen))
}

fn failed(error: tokio_postgres::Error) -> Error {
    let said = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
    Error::new(ErrorKind::Store, format!("PostgreSQL refused: {said}")).caused_by(error)
}
