//! The way to Redis: one connection for all commands of a keeper.

use super::script::Script;
use super::trouble::{self, Remedy};
use crate::error::Result;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, PushInfo, RedisError, RedisResult,
    ServerErrorKind, Value,
};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where Redis is and how to get there.
pub(super) struct Route {
    client: Client,
    timeout: Duration,
    /// The server for people, without secrets.
    shown: String,
}

impl Route {
    pub(super) fn new(info: ConnectionInfo, timeout: Duration, shown: String) -> Result<Self> {
        let client = Client::open(info).map_err(|error| trouble::explain(error, &shown))?;
        Ok(Self { client, timeout, shown })
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout))
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        self.client.get_multiplexed_async_connection_with_config(&self.config()).await
    }

    /// A connection of its own whose messages go to `hear`.
    pub(super) async fn connect_listening(
        &self,
        hear: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection> {
        let config = self.config().set_push_sender(hear);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        connecting.await.map_err(|error| self.explain(error))
    }

    pub(super) fn explain(&self, error: RedisError) -> crate::Error {
        trouble::explain(error, &self.shown)
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

/// The connection for commands, made anew when it broke.
pub(super) struct Link {
    pub(super) route: Arc<Route>,
    current: Mutex<(u64, Option<MultiplexedConnection>)>,
    /// So that many who find the connection broken make one new one.
    connecting: tokio::sync::Mutex<()>,
}

impl Link {
    pub(super) fn new(route: Arc<Route>) -> Self {
        Self { route, current: Mutex::default(), connecting: tokio::sync::Mutex::new(()) }
    }

    /// Runs a script that does the same when it is run twice.
    pub(super) async fn call(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Value> {
        match self.send(&script.call(keys, arguments)).await {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.send(&script.call_in_full(keys, arguments)).await
            }
            answer => answer,
        }
        .map_err(|error| self.route.explain(error))
    }

    /// Sends a command that does the same when it is sent twice.
    pub(super) async fn command(&self, command: &Cmd) -> Result<Value> {
        self.send(command).await.map_err(|error| self.route.explain(error))
    }

    /// Sends it, and once more on a new connection if the old one turns out to be closed: by a
    /// server that was restarted, or with the runtime it lived on.
    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let (number, connection) = self.connection(0).await?;
        let error = match self.try_once(number, connection, command).await {
            Err(error) if trouble::remedy(&error) == Remedy::Reconnect => error,
            answer => return answer,
        };
        tracing::debug!(%error, "connecting again");
        let (number, connection) = self.connection(number).await?;
        self.try_once(number, connection, command).await
    }

    async fn try_once(
        &self,
        number: u64,
        mut connection: MultiplexedConnection,
        command: &Cmd,
    ) -> RedisResult<Value> {
        let answer = connection.req_packed_command(command).await.and_then(Value::extract_error);
        if let Err(error) = &answer
            && trouble::remedy(error) != Remedy::None
        {
            let mut current = self.current();
            if current.0 == number {
                current.1 = None;
            }
        }
        answer
    }

    /// The connection in use, if it has a number greater than `after`; else a new one.
    async fn connection(&self, after: u64) -> RedisResult<(u64, MultiplexedConnection)> {
        if let Some(found) = self.newer_than(after) {
            return Ok(found);
        }
        let _alone = self.connecting.lock().await;
        if let Some(found) = self.newer_than(after) {
            return Ok(found);
        }
        let fresh = self.route.connect().await?;
        let mut current = self.current();
        let number = current.0 + 1;
        *current = (number, Some(fresh.clone()));
        Ok((number, fresh))
    }

    fn newer_than(&self, after: u64) -> Option<(u64, MultiplexedConnection)> {
        let current = self.current();
        current.1.clone().filter(|_| current.0 > after).map(|connection| (current.0, connection))
    }

    fn current(&self) -> std::sync::MutexGuard<'_, (u64, Option<MultiplexedConnection>)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({})", self.shown)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.route.shown)
    }
}
