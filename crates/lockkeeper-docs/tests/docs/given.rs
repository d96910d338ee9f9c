//! What blocks of the pages take for granted.
#![allow(dead_code)]

use lockkeeper::FencingToken;
use std::error::Error;

/// What `sqlite:` stands for here: a file in cargo's folder for tests, for each process of theirs another.
pub(crate) fn embedded() -> String {
    format!("sqlite:{}/docs-{}.db", env!("CARGO_TARGET_TMPDIR"), std::process::id())
}

/// A database of the reader's.
pub(crate) struct Database;

impl Database {
    pub(crate) async fn write(&self, _: u64, _: FencingToken) -> Result<(), Box<dyn Error>> {
        Ok(())
    }
}

pub(crate) async fn make_report() -> String {
    "a report".to_owned()
}

pub(crate) async fn job() {}

/// A leader's work.
pub(crate) async fn lead(_: FencingToken) -> lockkeeper::Result<()> {
    Ok(())
}

/// A database with an account in it that has a fence.
pub(crate) fn sql() -> rusqlite::Result<rusqlite::Connection> {
    let sql = rusqlite::Connection::open_in_memory()?;
    sql.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0);
         INSERT INTO account (id, balance) VALUES (7, 100);",
    )?;
    Ok(sql)
}
