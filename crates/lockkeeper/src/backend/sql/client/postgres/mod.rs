//! PostgreSQL: connections, and the few that all statements of a keeper share.
//!
//! A connection carries the statements of many tasks one behind the other without waiting for
//! answers in between, so one would do; a few let the server write several commits to its disk at
//! once. A sequential program uses one of them: the others are made when all are busy.

mod connection;
mod connector;

pub(in crate::backend::sql) use connection::{PostgresConnection, Statement, first_columns};
pub(in crate::backend::sql) use connector::PostgresConnector;

use super::super::error::Failure;
use super::{BREAKS, CONFLICTS, pause};
use crate::backend::support::reconnect::Reconnecting;
use connection::Params;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_postgres::Row;

/// A few connections that all statements of a keeper share.
pub(in crate::backend::sql) struct PostgresClient {
    pub(in crate::backend::sql) connector: PostgresConnector,
    slots: Vec<Slot>,
}

/// A place for one connection.
#[derive(Default)]
struct Slot {
    current: Reconnecting<Arc<PostgresConnection>>,
    /// How many statements are under way on it.
    busy: AtomicUsize,
}

/// One statement under way.
struct Busy<'a>(&'a Slot);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PostgresClient {
    /// Connects with the first statement.
    pub(in crate::backend::sql) fn new(connector: PostgresConnector, connections: usize) -> Self {
        let slots = (0..connections.max(1)).map(|_| Slot::default()).collect();
        Self { connector, slots }
    }

    /// Runs a statement on whichever connection is least busy. One that is idempotent is sent again
    /// when its connection broke; every one that the server undid because of others is.
    pub(in crate::backend::sql) async fn query(
        &self,
        statement: &Statement,
        params: &Params<'_>,
        idempotent: bool,
    ) -> Result<Vec<Row>, Failure> {
        let limit = self.connector.timeout();
        let (mut conflicts, mut tries) = (0, BREAKS);
        loop {
            let slot = self.least_busy();
            slot.busy.fetch_add(1, Ordering::Relaxed);
            let _busy = Busy(slot);
            let (number, connection) = self.connection(slot).await?;
            let pooler = self.connector.has_pooler();
            let failure = match connection.query(statement, params, pooler, limit).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            if failure.ends_connection() {
                slot.current.give_up(number);
            }
            tries -= 1;
            match failure {
                Failure::Conflict(_) if conflicts < CONFLICTS => {
                    (conflicts, tries) = (conflicts + 1, BREAKS);
                    pause(conflicts).await;
                }
                Failure::Pooled(_) if !pooler => self.connector.note_pooler(),
                failure if idempotent && tries > 0 && failure.allows_second_try() => {}
                failure => return Err(failure),
            }
        }
    }

    /// Prepares statements on a connection ahead of their first use, all at once, so that the first
    /// claim of a keeper takes as long as any other. Nothing is prepared behind a pooler.
    pub(in crate::backend::sql) async fn warm(
        &self,
        statements: &[&Statement],
    ) -> Result<(), Failure> {
        if self.connector.has_pooler() {
            return Ok(());
        }
        let slot = self.least_busy();
        let (_, connection) = self.connection(slot).await?;
        let limit = self.connector.timeout();
        let mut preparing = Vec::new();
        for statement in statements {
            preparing.push(connection.prepare(statement, limit));
        }
        match futures_util::future::try_join_all(preparing).await {
            Ok(_) => Ok(()),
            // Found out here instead of by the first claim.
            Err(Failure::Pooled(_)) => {
                self.connector.note_pooler();
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Runs statements by the simple protocol, all in one transaction, on one of the connections;
    /// the first column of each row.
    pub(in crate::backend::sql) async fn simple(
        &self,
        text: &str,
    ) -> Result<Vec<Option<String>>, Failure> {
        let slot = self.least_busy();
        slot.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(slot);
        let (number, connection) = self.connection(slot).await?;
        let answered = connection.simple(text, self.connector.timeout()).await;
        if answered.as_ref().is_err_and(Failure::ends_connection) {
            slot.current.give_up(number);
        }
        Ok(first_columns(answered?))
    }

    /// Lets go of every connection on which nothing is under way; the next statement makes a new
    /// one.
    pub(in crate::backend::sql) fn disconnect(&self) {
        for slot in &self.slots {
            drop(slot.current.take_if(|_| slot.busy.load(Ordering::Relaxed) == 0));
        }
    }

    /// An idle connection if there is one; else a place for a new one; else the least busy.
    fn least_busy(&self) -> &Slot {
        let busy = |slot: &&Slot| {
            let connected = slot.current.current(|it| !it.is_closed()).is_some();
            let busy = slot.busy.load(Ordering::Relaxed);
            // The first place that is free and not connected comes behind every idle connection
            // and before every busy one.
            if busy == 0 && !connected { 1 } else { busy * 2 }
        };
        self.slots.iter().min_by_key(busy).unwrap_or(&self.slots[0])
    }

    async fn connection(&self, slot: &Slot) -> Result<(u64, Arc<PostgresConnection>), Failure> {
        let connect = async || {
            let (connection, _) = self.connector.connect(Some(self.connector.timeout())).await?;
            Ok(Arc::new(connection))
        };
        slot.current.get(|connection| !connection.is_closed(), connect).await
    }
}

impl fmt::Debug for PostgresClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresClient")
            .field("store", &self.connector.shown())
            .finish_non_exhaustive()
    }
}
