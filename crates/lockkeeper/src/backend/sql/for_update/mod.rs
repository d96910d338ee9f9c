//! `recipe=for-update`: a row that an open transaction has locked, one session for each claim.
//!
//! ```text
//!   acquire   BEGIN; SELECT … WHERE <primary key> FOR UPDATE NOWAIT; then the holder's row
//!   wait      the same without NOWAIT: the server queues, and wakes the next
//!   renew     the holder's row says that it believes for another lease
//!   release   the row says that it does not, and COMMIT
//! ```
//!
//! How a session lives and dies, and why its holder is always the first to know, is in
//! [`session`](super::session). A transaction stays open for as long as the lock is held, so there
//! are at most `sessions` of them; one more claim is refused with
//! [`Exhausted`](crate::ErrorKind::Exhausted), at once, and nobody waits for a connection that only
//! another's release would give.
//!
//! The row is found by its primary key and is there before it is locked: a search by anything else
//! locks every row that is passed, and one for a row that is missing locks the gap between two.
//!
//! Who holds, and the count that tokens come from, cannot be written in the transaction itself: it
//! would be undone with it, and nobody could see it before. PostgreSQL has a connection beside for
//! that, MariaDB and MySQL a table that transactions do not undo.
//!
//! The same rows can be locked in a transaction of the caller's own: [`own`].

#[cfg(feature = "mysql")]
pub(super) mod mysql;
pub(super) mod own;
#[cfg(feature = "postgres")]
pub(super) mod postgres;

/// The table whose rows are locked.
fn rows_of(schema: Option<&str>, table: &str) -> String {
    let schema = schema.map(|schema| format!("{schema}.")).unwrap_or_default();
    format!("{schema}{table}_for_update")
}

/// The table of those who have them locked.
fn holders_of(rows: &str) -> String {
    format!("{rows}_holder")
}

/// What makes it: one column, which is the primary key, and no data.
fn definition(rows: &str, name: &str, engine: &str) -> String {
    format!("CREATE TABLE IF NOT EXISTS {rows} (name {name} NOT NULL PRIMARY KEY){engine}")
}

/// What makes it in PostgreSQL.
#[cfg(feature = "postgres")]
fn postgres_definition(rows: &str) -> String {
    definition(rows, "text COLLATE \"C\"", "")
}

/// What makes it in MariaDB and MySQL. Bytes, so that names are told apart to the letter.
#[cfg(feature = "mysql")]
fn mysql_definition(rows: &str) -> String {
    definition(rows, "varbinary(255)", " ENGINE = InnoDB")
}
