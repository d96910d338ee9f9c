//! What a resource needs to refuse a holder of the past.
//!
//! A lock alone cannot stop a process that was paused past its lease and then writes. The
//! resource can: it remembers the largest token that wrote to it and refuses a smaller one. The
//! check and the write must be one atomic step of the resource itself; checking first and
//! writing after leaves the same gap one size smaller.
//!
//! **A holder that reads before it writes shows its token before it reads.** A resource that learns of a
//! new holder only by its write still takes the write of a stale one until then; the new holder, which
//! has read already, then overwrites it without having seen it. That first step is called *to enter*.
//!
//! | the resource | what to use |
//! |---|---|
//! | a value in this process | [`Register`] |
//! | a row of any table, by rusqlite, tokio-postgres or mysql_async | [`FencedTable`] with the module [`sqlite`], [`postgres`] or [`mysql`], each behind the feature of that name |
//! | a row of any table, by another driver | the statements that [`FencedTable`] writes |
//! | a hash in Redis, by the crate `redis` | the module [`redis`], behind that feature |
//! | a hash in Redis, from another language | [`REDIS_ENTER`] and [`REDIS_WRITE`] |
//!
//! [`SQL_ENTER`], [`SQL_UPDATE`] and [`SQL_IF_UNCHANGED`] show what such statements look like.

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod register;
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use register::Register;
pub use sql::{Dialect, FencedTable};

use crate::claim::FencingToken;
use crate::error::{Error, ErrorKind};
use std::fmt;

/// Shows the token of a new holder, for any SQL database: the first statement under a lock, before
/// anything is read.
///
/// Give every row that a lock protects a column `fence BIGINT NOT NULL DEFAULT 0`. No row changed
/// means: refused, somebody newer was here. The placeholders are, in order: the token, the key,
/// the token again.
///
/// MariaDB and MySQL count rows that became different, unless the connection asks them to count
/// those that were found (`CLIENT_FOUND_ROWS`, which is `client_found_rows(true)` in `mysql_async`).
/// Without that, a holder that shows its token twice looks refused.
///
/// ```sql
/// UPDATE account SET fence = ? WHERE id = ? AND fence <= ?
/// ```
pub const SQL_ENTER: &str = "UPDATE account SET fence = ? WHERE id = ? AND fence <= ?";

/// An update that a stale holder cannot make, for any SQL database.
///
/// The token is in the same statement as the change. No row changed means: refused, somebody
/// newer was here; how MariaDB and MySQL count is said at [`SQL_ENTER`]. The placeholders are, in
/// order: the value, the token, the key, the token again.
///
/// ```sql
/// UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
/// ```
pub const SQL_UPDATE: &str =
    "UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?";

/// A change of a row that nobody has changed since it was read, for any SQL database: no lock, and no
/// token, is needed for that.
///
/// Give the row a column `version BIGINT NOT NULL DEFAULT 0`, and read it with the rest. No row
/// changed means: somebody was faster; read again. The placeholders are, in order: the value, the
/// key, the version that was read.
///
/// ```sql
/// UPDATE account SET balance = ?, version = version + 1 WHERE id = ? AND version = ?
/// ```
pub const SQL_IF_UNCHANGED: &str =
    "UPDATE account SET balance = ?, version = version + 1 WHERE id = ? AND version = ?";

/// Shows the token of a new holder and reads, for Redis: `EVAL script 1 key token`, which returns
/// the value, or an error that begins with `STALE`.
///
/// The key holds a hash with the fields `fence` and `value`. Tokens are below 2⁵³, so Lua's
/// numbers compare them exactly.
pub const REDIS_ENTER: &str = "\
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < seen then return redis.error_reply('STALE ' .. ARGV[1]) end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return redis.call('HGET', KEYS[1], 'value')";

/// A write that a stale holder cannot make, for Redis: `EVAL script 1 key token value`, which
/// returns 1 if written and 0 if refused.
pub const REDIS_WRITE: &str = "\
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1";

/// The refusal of a write whose token is smaller than one already seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The token of the refused write.
    pub token: FencingToken,
    /// The largest token seen.
    pub seen: FencingToken,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} is stale: {} was here already", self.token, self.seen)
    }
}

impl std::error::Error for Stale {}

impl Stale {
    /// As an error of kind [`ErrorKind::Lost`]: a holder whose token is stale has lost its lock.
    pub fn to_error(self) -> Error {
        Error::new(ErrorKind::Lost, format!("{self}; the lock was lost, so stop the work"))
            .caused_by(self)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn the_sql_statement_refuses_a_stale_writer() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        database
            .execute_batch(
                "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER,
                   fence BIGINT NOT NULL DEFAULT 0);
                 INSERT INTO account(id, balance) VALUES (7, 100);",
            )
            .unwrap();
        let write = |balance: i64, token: i64| {
            database.execute(SQL_UPDATE, (balance, token, 7, token)).unwrap()
        };
        let enter = |token: i64| database.execute(SQL_ENTER, (token, 7, token)).unwrap();
        assert_eq!(enter(1024), 1);
        assert_eq!(write(90, 1024), 1);
        assert_eq!(enter(2048), 1);
        assert_eq!(write(0, 1024), 0, "the stale write must change no row");
        assert_eq!(enter(1024), 0, "the stale holder must not enter again");
        assert_eq!(write(80, 2048), 1);
        let balance: i64 =
            database.query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap();
        assert_eq!(balance, 80);
    }

    #[test]
    fn of_two_who_read_the_same_version_one_writes() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        database
            .execute_batch(
                "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER,
                   version BIGINT NOT NULL DEFAULT 0);
                 INSERT INTO account(id, balance) VALUES (7, 100);",
            )
            .unwrap();
        let write = |balance: i64, version: i64| {
            database.execute(SQL_IF_UNCHANGED, (balance, 7, version)).unwrap()
        };
        assert_eq!((write(90, 0), write(80, 0)), (1, 0), "both wrote what they had read once");
        assert_eq!(write(80, 1), 1);
    }
}
