//! The statements of `lockkeeper::fence`, with the rows counted as a driver counts them.

use super::start;
use crate::{changed, query};
use anyhow::{Result, ensure};
use lockkeeper::fence::{SQL_ENTER, SQL_IF_UNCHANGED, SQL_UPDATE};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;

cases!(fences_count_rows_as_drivers_do);

/// The statement with its values in place of the question marks.
fn filled(statement: &str, values: &[i64]) -> String {
    let mut values = values.iter();
    let piece = |c: char| match c {
        '?' => values.next().map_or_else(|| "?".to_owned(), i64::to_string),
        other => other.to_string(),
    };
    statement.chars().map(piece).collect()
}

async fn fences_count_rows_as_drivers_do(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    query(
        &server,
        "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT, \
         fence BIGINT NOT NULL DEFAULT 0, version BIGINT NOT NULL DEFAULT 0)",
    )?;
    query(&server, "INSERT INTO account (id, balance) VALUES (7, 100)")?;
    for (statement, values, wanted) in [
        (SQL_ENTER, &[1024, 7, 1024][..], 1),
        // Once more with the same token, as after an answer that was lost.
        (SQL_ENTER, &[1024, 7, 1024], 1),
        (SQL_UPDATE, &[90, 1024, 7, 1024], 1),
        (SQL_UPDATE, &[90, 1024, 7, 1024], 1),
        (SQL_ENTER, &[2048, 7, 2048], 1),
        // Of the one before, which is stale now.
        (SQL_ENTER, &[1024, 7, 1024], 0),
        (SQL_UPDATE, &[0, 1024, 7, 1024], 0),
        (SQL_UPDATE, &[80, 2048, 7, 2048], 1),
        (SQL_IF_UNCHANGED, &[70, 7, 0], 1),
        (SQL_IF_UNCHANGED, &[60, 7, 0], 0),
    ] {
        let statement = filled(statement, values);
        let counted = changed(&server, &statement).await?;
        ensure!(counted == wanted, "{counted} rows instead of {wanted}: {statement}");
    }
    ensure!(query(&server, "SELECT balance FROM account")? == ["70"], "another balance");
    Ok(())
}
