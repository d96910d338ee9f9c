//! The database's own auto-increment column.

use super::generator::Generator;
use super::order::{Health, Order};
use super::store::Store;
use super::value::Id;
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of the database's own auto-increment column, which all keys of a store share: each call is one
/// request, and so is a batch. On SQLite, PostgreSQL and MariaDB.
///
/// They grow in the order in which the database gives them, which for callers that overlap is not the order
/// of their answers.
#[derive(Debug, Clone)]
pub struct AutoIncrement {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    reservations: AtomicU64,
}

impl AutoIncrement {
    pub(crate) fn new(store: Store) -> Self {
        Self { shared: Arc::new(Shared { store, reservations: AtomicU64::new(0) }) }
    }

    async fn insert(&self, count: u32) -> Result<Vec<Id>> {
        let Shared { store, reservations } = &*self.shared;
        let numbers = store.auto_increment(count).await?.ok_or_else(|| refused(store))?;
        reservations.fetch_add(1, Ordering::Relaxed);
        numbers.into_iter().map(Id::try_from).collect()
    }
}

/// Refuses a store that has no such column.
pub(crate) fn refused(store: &Store) -> Error {
    let backend = &store.engine().backend;
    let message = format!(
        "{backend} has no auto-increment column: sqlite:, postgres:// and mariadb:// do; the kind \
         `sequence` is the same on every store"
    );
    Error::new(ErrorKind::Unsupported, message)
}

impl Generator for AutoIncrement {
    type Id = Id;

    /// Always `None`: each number is asked for.
    fn try_next(&self) -> Result<Option<Id>> {
        Ok(None)
    }

    async fn next(&self) -> Result<Id> {
        let ids = self.insert(1).await?;
        ids.first().copied().ok_or_else(|| refused(&self.shared.store))
    }

    async fn next_n(&self, count: u32) -> Result<Vec<Id>> {
        if count == 0 { Ok(Vec::new()) } else { self.insert(count).await }
    }

    fn order(&self) -> Order {
        Order::Strict
    }

    fn health(&self) -> Health {
        let reservations = self.shared.reservations.load(Ordering::Relaxed);
        Health { left: Some(0), reservations, ..Health::default() }
    }
}
