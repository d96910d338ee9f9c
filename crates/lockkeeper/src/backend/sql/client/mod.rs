//! Connections: how one is made, made anew, shared, and how a statement runs on it.
//!
//! Two ways to a connection. Statements of `table` go through a client that shares a few
//! connections among all tasks ([`PostgresClient`], [`MysqlClient`]). A recipe whose lock lives in
//! a session asks the connector for a connection of its own, and ends it by dropping it
//! ([`PostgresConnector::connect`], [`MysqlConnector::connect`]).
//!
//! No word of locks is in here.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod stranger;
#[cfg(feature = "postgres")]
mod tls;

#[cfg(feature = "mysql")]
pub(super) use mysql::{MysqlClient, MysqlConnection, MysqlConnector, bytes, hex, text};
#[cfg(feature = "postgres")]
pub(super) use postgres::{
    PostgresClient, PostgresConnection, PostgresConnector, Statement, first_columns,
};
pub(super) use stranger::speaks;

use super::error::Failure;
use crate::backend::support::life::Life;
use std::time::Duration;

/// How often a statement is sent again that the server undid because of others. Each time one of
/// the others got through, so this many in a row happen only where far more contend than a lock
/// table is for.
const CONFLICTS: u32 = 50;

/// How often a statement is tried on another connection when its own broke. All of them may have
/// ended together, as with their runtime, and each is found out by trying.
pub(super) const BREAKS: u32 = 8;

/// The answer, unless the connection's runtime ends or the time limit passes before.
async fn within<A>(
    life: &Life,
    limit: Duration,
    asked: impl Future<Output = Result<A, Failure>>,
) -> Result<A, Failure> {
    match life.unless_ended(tokio::time::timeout(limit, asked)).await {
        Some(answer) => answer.unwrap_or(Err(Failure::TimedOut)),
        None => Err(Failure::RuntimeEnded),
    }
}

/// A pause before a statement is sent again: short at first, and never the same for two.
async fn pause(conflicts: u32) {
    let mut random = [0_u8; 2];
    // Without randomness the pauses are equal, and the statements still get through in turn.
    let _ = getrandom::fill(&mut random);
    let most = 500_u64 << conflicts.min(6);
    let micros = u64::from(u16::from_le_bytes(random)) * most / u64::from(u16::MAX);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}
