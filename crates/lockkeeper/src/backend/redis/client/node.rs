//! The connection to one server, for commands.
//!
//! ```text
//!   send ── connection in use? ── no ── connect, once for all that wait for it
//!    │            │ yes
//!    │            └── batch ── answer
//!    │                  └── error that breaks the connection ── disconnect: out of use,
//!    │                                                          and the registered callback runs
//!    └── wants replicas? ── a connection from the pool, command and WAIT in one pipeline
//! ```
//!
//! Invariant: a connection that lost an answer is never used again. So answers cannot be taken for
//! those of other commands, and what was not delivered by then never is (the socket lingers for zero
//! seconds).

use super::batch::{self, Batch};
use super::connector::Connector;
use super::lost_answers::LostAnswers;
use super::topology::Host;
use crate::backend::redis::error::{self, Recovery};
use crate::backend::support::life::Life;
use crate::backend::support::reconnect::Reconnecting;
use crate::backend::support::sync::lock;
use futures_util::future::BoxFuture;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use std::sync::{Arc, Mutex};

/// One connection that everyone shares, made anew when it broke. What happens to it is of no
/// consequence to the connections to other servers.
pub(super) struct Node {
    connector: Arc<Connector>,
    /// Told when answers are lost with the connection.
    lost: LostAnswers,
    /// A node of a cluster; otherwise whatever the connector finds.
    at: Option<Host>,
    current: Reconnecting<Arc<Current>>,
    /// Connections to wait for replicas on. Apart, since `WAIT` holds up every later command of its
    /// connection.
    synced: Mutex<Vec<(MultiplexedConnection, Life)>>,
}

/// The connection in use.
pub(super) struct Current {
    pub(super) host: Host,
    pub(super) connection: MultiplexedConnection,
    batch: Arc<Batch>,
    life: Life,
}

/// How a command is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivery {
    /// To a node of a cluster that is only just importing the slot.
    pub(super) asking: bool,
    pub(super) replication: Option<Replication>,
}

/// Replicas that are to have what a command did. Redis has no such option for a single command: `WAIT`,
/// sent behind it on the same connection, answers how many replicas have everything up to there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replication {
    pub(super) replicas: u32,
    pub(super) millis: u64,
}

/// What was answered, and how many replicas have it if that was asked.
pub(super) type Answer = (Value, Option<i64>);

/// Why there was no answer, or which error was one.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: RedisError,
    /// Whether there was a connection to send the command on: if not, it was not carried out.
    pub(super) sent: bool,
}

impl Node {
    /// The server that the connector finds; or, with `at`, one node of a cluster.
    pub(super) fn new(connector: Arc<Connector>, lost: LostAnswers, at: Option<Host>) -> Self {
        Self { connector, lost, at, current: Reconnecting::default(), synced: Mutex::default() }
    }

    /// Sends a command, once. When answers are lost with the connection, those that registered for
    /// that are told before this returns.
    pub(super) async fn send(&self, command: Cmd, how: Delivery) -> Result<Answer, Failure> {
        if how.replication.is_some() {
            return self.send_replicated(command, how).await;
        }
        let current = self.current().await.map_err(|error| Failure { error, sent: false })?;
        let (number, current) = current;
        let mut connection = current.connection.clone();
        let asked = async {
            if how.asking {
                // As one pipeline: ASKING counts for the next command on the connection alone.
                return in_order(&mut connection, command, how).await;
            }
            let answer = current.batch.send(connection, command).await;
            answer.and_then(Value::extract_error).map(|value| (value, None))
        };
        let answer =
            current.life.unless_ended(asked).await.unwrap_or_else(|| Err(batch::cut_off()));
        answer.map_err(|error| {
            if error::recovery(&error) != Recovery::None {
                self.disconnect(number);
            }
            Failure { error, sent: true }
        })
    }

    /// Sends a command on a connection of its own, and waits for replicas there.
    async fn send_replicated(&self, command: Cmd, how: Delivery) -> Result<Answer, Failure> {
        let kept = lock(&self.synced).pop();
        let (mut connection, life) = match kept {
            Some(kept) => kept,
            None => match self.connect().await {
                Ok((_, connection, life)) => (connection, life),
                Err(error) => return Err(Failure { error, sent: false }),
            },
        };
        let answer = life.unless_ended(in_order(&mut connection, command, how)).await;
        let answer = answer.unwrap_or_else(|| Err(batch::cut_off()));
        match &answer {
            Err(error) if error::recovery(error) != Recovery::None => lock(&self.synced).clear(),
            _ => lock(&self.synced).push((connection, life)),
        }
        answer.map_err(|error| Failure { error, sent: true })
    }

    /// The connection in use, or a new one; and its number.
    pub(super) async fn current(&self) -> RedisResult<(u64, Arc<Current>)> {
        let connect = async || {
            let (host, connection, life) = self.connect().await?;
            Ok(Arc::new(Current { host, connection, batch: Arc::default(), life }))
        };
        self.current.get(|_| true, connect).await
    }

    /// In a box: callers with many futures in one another reach a limit of the compiler.
    fn connect(&self) -> BoxFuture<'_, RedisResult<(Host, MultiplexedConnection, Life)>> {
        Box::pin(async move {
            match &self.at {
                Some(host) => {
                    let (connection, life) = self.connector.connect_to(host).await?;
                    Ok((host.clone(), connection, life))
                }
                None => self.connector.connect().await,
            }
        })
    }

    /// The connection in use, if there is one; and its number.
    pub(super) fn in_use(&self) -> Option<(u64, Arc<Current>)> {
        self.current.current(|_| true)
    }

    /// Its number.
    pub(super) fn number_in_use(&self) -> Option<u64> {
        self.current.number()
    }

    /// Makes no more use of the connection of that number. The first of those whose answers are lost
    /// with it tells of that, once for all of them.
    pub(super) fn disconnect(&self, number: u64) {
        if self.current.give_up(number).is_some() {
            lock(&self.synced).clear();
            self.lost.notify();
        }
    }

    /// Ends the connections. A command that is sent later connects again.
    pub(super) fn close(&self) {
        if let Some(number) = self.number_in_use() {
            self.current.give_up(number);
        }
        lock(&self.synced).clear();
    }
}

/// Sends a command with what goes before and after it, as one pipeline.
async fn in_order(
    connection: &mut MultiplexedConnection,
    command: Cmd,
    how: Delivery,
) -> RedisResult<Answer> {
    let mut pipeline = Pipeline::with_capacity(3);
    if how.asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(command);
    if let Some(Replication { replicas, millis }) = how.replication {
        pipeline.cmd("WAIT").arg(replicas).arg(millis);
    }
    let count = pipeline.cmd_iter().count();
    let answers = connection.req_packed_commands(&pipeline, 0, count).await?;
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    if how.asking {
        next()?;
    }
    let value = next()?;
    let acknowledged = match how.replication {
        Some(_) => Some(redis::from_redis_value(next()?)?),
        None => None,
    };
    Ok((value, acknowledged))
}
