//! One connection, the statements that run on it, and what is prepared there.

use super::super::super::error::{Failure, of_postgres};
use super::super::within;
use crate::backend::support::life::Life;
use crate::backend::support::sync::lock;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Row, SimpleQueryMessage, Socket};
use tokio_util::sync::CancellationToken;

/// The parameters of a statement.
pub(in crate::backend::sql) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// A statement of ours, with table names in it.
#[derive(Debug)]
pub(in crate::backend::sql) struct Statement {
    /// What it is called among ours.
    pub(in crate::backend::sql) name: &'static str,
    pub(in crate::backend::sql) text: String,
    pub(in crate::backend::sql) types: Vec<Type>,
}

/// A connection. Dropping it ends the session once what was sent has been answered.
pub(in crate::backend::sql) struct PostgresConnection {
    pub(in crate::backend::sql) client: Client,
    life: Life,
    ended: CancellationToken,
    /// Whether the server said that it ends the connection, before it did.
    farewell: Arc<AtomicBool>,
    /// What was prepared on it, by [`Statement::name`].
    prepared: Mutex<HashMap<&'static str, tokio_postgres::Statement>>,
}

/// The texts that `NOTIFY` brings; ends with the connection.
pub(in crate::backend::sql) type Notices = mpsc::UnboundedReceiver<String>;

impl PostgresConnection {
    /// Leaves the connection's own task on the runtime that this is called on.
    pub(super) fn begin<T>(client: Client, mut connection: Connection<Socket, T>) -> (Self, Notices)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (notify, notices) = mpsc::unbounded_channel();
        let ended = CancellationToken::new();
        let ends = ended.clone().drop_guard();
        let farewell = Arc::new(AtomicBool::new(false));
        let said = farewell.clone();
        tokio::spawn(async move {
            let _ends = ends;
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        // Nobody listens on most connections.
                        let _ = notify.send(notification.payload().to_owned());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        break said.store(error.code().is_some(), Ordering::Relaxed);
                    }
                    None => break,
                }
            }
        });
        let prepared = Mutex::default();
        (Self { client, life: Life::begin(), ended, farewell, prepared }, notices)
    }

    /// Whether it is known to have ended.
    pub(in crate::backend::sql) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.ended.is_cancelled()
    }

    /// Resolves when the connection ended, whichever side ended it.
    #[allow(dead_code, reason = "for recipes whose locks live in a session")]
    pub(in crate::backend::sql) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Cancelled when the connection ended, whichever side ended it.
    pub(in crate::backend::sql) fn end(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// True, once the connection ended, if the server said so itself: it was told to end the
    /// session, or counted out its time. Else the connection broke, or its server.
    pub(in crate::backend::sql) fn farewell(&self) -> Arc<AtomicBool> {
        self.farewell.clone()
    }

    /// Prepares a statement ahead of its first use.
    pub(in crate::backend::sql) async fn prepare(
        &self,
        statement: &Statement,
        limit: Duration,
    ) -> Result<(), Failure> {
        within(&self.life, limit, self.prepared(statement)).await.map(|_| ())
    }

    /// Runs a statement, prepared, for a recipe that reads the server's own code in a refusal.
    pub(in crate::backend::sql) async fn ask(
        &self,
        statement: &Statement,
        params: &Params<'_>,
        limit: Duration,
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>, Failure> {
        let asked = async {
            let prepared = self.prepared(statement).await?;
            Ok(self.client.query(&prepared, params).await)
        };
        within(&self.life, limit, asked).await
    }

    /// Runs a statement; prepared, unless a pooler is in between.
    pub(in crate::backend::sql) async fn query(
        &self,
        statement: &Statement,
        params: &Params<'_>,
        pooler: bool,
        limit: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let asked = async {
            let rows = if pooler {
                let typed: Vec<_> =
                    params.iter().copied().zip(statement.types.iter().cloned()).collect();
                self.client.query_typed(&statement.text, &typed).await
            } else {
                let prepared = self.prepared(statement).await?;
                self.client.query(&prepared, params).await
            };
            rows.map_err(|error| of_postgres(&error))
        };
        within(&self.life, limit, asked).await
    }

    /// Runs several statements without parameters and without answers, one after the other.
    pub(in crate::backend::sql) async fn batch(
        &self,
        text: &str,
        limit: Duration,
    ) -> Result<(), Failure> {
        let asked =
            async { self.client.batch_execute(text).await.map_err(|error| of_postgres(&error)) };
        within(&self.life, limit, asked).await
    }

    /// Runs a statement by the simple protocol, which takes and gives texts only.
    pub(in crate::backend::sql) async fn simple(
        &self,
        text: &str,
        limit: Duration,
    ) -> Result<Vec<SimpleQueryMessage>, Failure> {
        let asked =
            async { self.client.simple_query(text).await.map_err(|error| of_postgres(&error)) };
        within(&self.life, limit, asked).await
    }

    async fn prepared(&self, statement: &Statement) -> Result<tokio_postgres::Statement, Failure> {
        if let Some(prepared) = lock(&self.prepared).get(statement.name) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare_typed(&statement.text, &statement.types).await;
        let prepared = prepared.map_err(|error| of_postgres(&error))?;
        lock(&self.prepared).insert(statement.name, prepared.clone());
        Ok(prepared)
    }
}

/// The first column of each row.
pub(in crate::backend::sql) fn first_columns(
    messages: Vec<SimpleQueryMessage>,
) -> Vec<Option<String>> {
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
        _ => None,
    });
    rows.collect()
}
