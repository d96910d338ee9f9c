//! What comes back from MariaDB and MySQL: columns, and claims made of them.

use super::super::super::record::{Record, mode_of};
use mysql_async::Row;
use mysql_async::prelude::FromValue;

/// A column; nothing of a wrong type is in tables whose columns were checked.
pub(super) fn value<T: FromValue>(row: &Row, column: usize) -> T {
    row.get(column).unwrap_or_else(|| T::from_value(mysql_async::Value::Bytes(b"0".to_vec())))
}

/// A claim from ten columns in the order of [`CLAIM`](super::super::super::schema::CLAIM).
pub(super) fn record(row: &Row, from: usize, ticket: i64, state: i16) -> Record {
    Record {
        ticket,
        state,
        id: value(row, from),
        owner: value(row, from + 1),
        process: value(row, from + 2),
        mode: mode_of(value(row, from + 3)),
        token: value(row, from + 4),
        ttl: value(row, from + 5),
        since: value(row, from + 6),
        expires: value(row, from + 7),
        identity: value(row, from + 8),
        note: value(row, from + 9),
    }
}
