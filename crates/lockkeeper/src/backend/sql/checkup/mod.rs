//! What an operator should know of the database: version, persistence, replication, clock.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;

use crate::backend::{Finding, Subject};
use crate::error::Result;
use async_trait::async_trait;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A server that can be asked how it is. Each question has a connection of its own.
#[async_trait]
pub(super) trait Examined: Send + Sync {
    /// As [`Backend::checkup`](crate::backend::Backend::checkup).
    async fn checkup(&self) -> Result<Vec<Finding>>;

    /// As [`Backend::round_trips`](crate::backend::Backend::round_trips).
    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>>;
}

/// The clock of a database that said so many seconds since 1970.
fn clock(seconds: &str, asked: SystemTime) -> Option<Finding> {
    let since = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
    Some(Finding::clock(UNIX_EPOCH.checked_add(since)?, asked, Duration::ZERO))
}

fn no_eviction() -> Finding {
    Finding::fine(Subject::Eviction, "a database throws nothing away")
}
