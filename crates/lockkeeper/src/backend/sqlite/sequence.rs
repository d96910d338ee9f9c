//! Numbers that nobody else gets, and small records: a row for each, in tables of their own.
//!
//! Each request is one transaction, with those of others that came meanwhile. After an error nothing
//! of it is in the file, as far as SQLite can tell.

use super::client::transaction::Transaction;
use super::schema::NUMBERS;
use crate::backend::{Name, Reserve, Reserved};
use crate::error::{Error, ErrorKind};
use rusqlite::{OptionalExtension, Result, params};

impl Transaction<'_> {
    /// As [`Sequencer::reserve`](crate::backend::Sequencer::reserve).
    pub(super) fn reserve(&self, name: &str, wish: &Reserve) -> Result<Reserved> {
        self.with_tables(|| {
            let last: Option<i64> = self
                .connection
                .prepare_cached("SELECT last FROM sequence WHERE name = ?1")?
                .query_row([name], |row| row.get(0))
                .optional()?;
            let last = last.map(|last| u64::try_from(last).unwrap_or(0));
            let reserved = Reserved::of(last, wish);
            if let Reserved::From(first) = reserved {
                let last = first + u64::from(wish.count.max(1)) - 1;
                // No number is beyond what a column can have.
                let last = i64::try_from(last).unwrap_or(i64::MAX);
                self.connection
                    .prepare_cached("INSERT OR REPLACE INTO sequence (name, last) VALUES (?1, ?2)")?
                    .execute(params![name, last])?;
            }
            Ok(reserved)
        })
    }

    /// What a record says.
    pub(super) fn read_record(&self, name: &str) -> Result<Option<String>> {
        let read = || {
            self.connection
                .prepare_cached("SELECT value FROM record WHERE name = ?1")?
                .query_row([name], |row| row.get(0))
                .optional()
        };
        if_there(read()).map(Option::flatten)
    }

    /// Writes a record if it says `expected`, or is absent; whether it did.
    pub(super) fn write_record(
        &self,
        name: &str,
        value: &str,
        expected: Option<&str>,
    ) -> Result<bool> {
        if self.read_record(name)?.as_deref() != expected {
            return Ok(false);
        }
        self.with_tables(|| {
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO record (name, value) VALUES (?1, ?2)")?
                .execute([name, value])
        })?;
        Ok(true)
    }

    /// The records whose names begin with `prefix`, in order. Reads from the first such name on and
    /// stops behind the last.
    pub(super) fn list_records(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        let read = || {
            let mut statement = self
                .connection
                .prepare_cached("SELECT name, value FROM record WHERE name >= ?1 ORDER BY name")?;
            let mut rows = statement.query([prefix])?;
            let mut records = Vec::new();
            while let Some(row) = rows.next()? {
                let name: String = row.get(0)?;
                if !name.starts_with(prefix) {
                    break;
                }
                // A name that this library would not accept was written by another program.
                if let Ok(name) = Name::new(&name) {
                    records.push((name, row.get(1)?));
                }
            }
            Ok(records)
        };
        if_there(read()).map(Option::unwrap_or_default)
    }

    /// The first and the last of the numbers that SQLite's own counter goes on by; `None` at its end.
    ///
    /// The rows go again at once: what the counter has reached is written elsewhere in the file.
    pub(super) fn auto_increment(&self, count: u32) -> Result<Option<(i64, i64)>> {
        self.with_tables(|| {
            let last: Option<i64> = self
                .connection
                .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'ids'")?
                .query_row([], |row| row.get(0))
                .optional()?;
            let Some(end) = last.unwrap_or(0).checked_add(i64::from(count.max(1))) else {
                return Ok(None);
            };
            let mut insert = self.connection.prepare_cached("INSERT INTO ids DEFAULT VALUES")?;
            insert.execute([])?;
            let first = self.connection.last_insert_rowid();
            if first < end {
                // The counter follows the largest number that a row was given.
                self.connection
                    .prepare_cached("INSERT INTO ids (id) VALUES (?1)")?
                    .execute([end])?;
            }
            self.connection.prepare_cached("DELETE FROM ids")?.execute([])?;
            Ok(Some((first, end)))
        })
    }

    /// Makes the tables where they are missing, which is found out by their absence.
    fn with_tables<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if is_no_table(&error) => {
                self.connection.execute_batch(NUMBERS)?;
                work()
            }
            outcome => outcome,
        }
    }
}

/// The numbers from the first to the last.
pub(super) fn numbers(range: Option<(i64, i64)>) -> crate::error::Result<Vec<u64>> {
    let unsigned = |number| u64::try_from(number).ok();
    match range.map(|(first, last)| (unsigned(first), unsigned(last))) {
        Some((Some(first), Some(last))) => Ok((first..=last).collect()),
        _ => Err(Error::new(ErrorKind::Config, "the counter of the file is at its end")),
    }
}

/// `None` where the table is not there yet.
fn if_there<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(error) if is_no_table(&error) => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn is_no_table(error: &rusqlite::Error) -> bool {
    error.to_string().contains("no such table")
}
