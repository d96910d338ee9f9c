//! Fenced rows in MariaDB and MySQL, by [`mysql_async`]. They count right whether or not the connection
//! was made with `client_found_rows`.
//!
//! ```no_run
//! use lockkeeper::fence::{FencedTable, mysql};
//! use mysql_async::prelude::Queryable;
//!
//! # async fn work(mut db: mysql_async::Conn, guard: lockkeeper::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! // CREATE TABLE stock (sku varchar(40) PRIMARY KEY, left_over int, fence bigint NOT NULL DEFAULT 0)
//! let stock = FencedTable::new("stock", "sku")?;
//! let token = guard.require_token()?;
//! mysql::enter(&mut db, &stock, "tea", token).await?; // from here on nobody of before can write
//! let left: Option<i64> =
//!     db.exec_first("SELECT left_over FROM stock WHERE sku = ?", ("tea",)).await?;
//! let left = left.unwrap_or(0) - 1;
//! mysql::update(&mut db, &stock, "tea", token, [("left_over", left.into())]).await?;
//! # Ok(()) }
//! ```

use super::{Dialect, FencedTable};
use crate::claim::FencingToken;
use crate::error::{Error, ErrorKind, Result};
use mysql_async::Value;
use mysql_async::prelude::Queryable;

const MYSQL: Dialect = Dialect::MySql;

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
    db: &mut impl Queryable,
    table: &FencedTable,
    key: impl Into<Value>,
    token: FencingToken,
) -> Result<()> {
    write(db, table, table.enter(MYSQL), key.into(), token, Vec::new()).await
}

/// Changes columns of a row, unless a larger token was here: the check and the write are one statement.
///
/// # Errors
/// As [`enter`]; nothing is changed then.
///
/// # Cancel safety
/// Dropped half-way, the statement may have been carried out.
pub async fn update(
    db: &mut impl Queryable,
    table: &FencedTable,
    key: impl Into<Value>,
    token: FencingToken,
    changes: impl IntoIterator<Item = (&str, Value)>,
) -> Result<()> {
    let (columns, values): (Vec<&str>, Vec<Value>) = changes.into_iter().unzip();
    let statement = table.update(MYSQL, &columns)?;
    write(db, table, statement, key.into(), token, values).await
}

async fn write(
    db: &mut impl Queryable,
    table: &FencedTable,
    statement: String,
    key: Value,
    token: FencingToken,
    mut values: Vec<Value>,
) -> Result<()> {
    let number = Value::Int(token.as_i64());
    values.extend([number.clone(), key.clone(), number]);
    let answer = db.exec_iter(statement, values).await.map_err(failed)?;
    let changed = answer.affected_rows();
    answer.drop_result().await.map_err(failed)?;
    if changed > 0 {
        return Ok(());
    }
    // Either refused, or found just as it was to become, which these servers do not count. A fence never
    // goes back: if it is ours now, it was no larger then.
    let seen: Option<i64> = db.exec_first(table.seen(MYSQL), vec![key]).await.map_err(failed)?;
    match seen {
        Some(seen) if seen == token.as_i64() => Ok(()),
        seen => Err(table.refusal(token, seen)),
    }
}

fn failed(error: mysql_async::Error) -> Error {
    Error::new(ErrorKind::Store, format!("the database refused: {error}")).caused_by(error)
}
