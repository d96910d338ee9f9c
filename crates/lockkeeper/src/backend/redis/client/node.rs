//! The connection to one server.

use super::batch::Batch;
use super::roll::{Roll, lock};
use super::route::{Host, Route, Wire};
use super::trouble::{self, Remedy};
use futures_util::future::BoxFuture;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use std::sync::{Arc, Mutex};

/// One connection that everyone shares, made anew when it broke. What happens to it is of no
/// consequence to the connections to other servers.
#[derive(Default)]
pub(super) struct Node {
    /// A node of a cluster; otherwise whatever the route leads to.
    at: Option<Host>,
    current: Mutex<Current>,
    /// So that many who find the connection broken make one new one.
    connecting: tokio::sync::Mutex<()>,
    /// Connections to wait for replicas on, which would hold up everyone else.
    synced: Mutex<Vec<Wire>>,
}

#[derive(Default)]
struct Current {
    number: u64,
    line: Option<Line>,
}

/// The connection in use.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) host: Host,
    pub(super) wire: Wire,
    batch: Arc<Batch>,
}

/// How a command is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manner {
    /// To a node of a cluster that has not quite got the slot yet.
    pub(super) asking: bool,
    pub(super) sync: Option<Sync>,
}

/// Replicas that are to have what a command did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sync {
    pub(super) replicas: u32,
    pub(super) millis: u64,
}

/// What was answered, and how many replicas have it if that was asked.
pub(super) type Answer = (Value, Option<i64>);

/// Why there was no answer, or which error was one.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: RedisError,
    /// Whether there was a connection to send it on.
    pub(super) sent: bool,
}

impl Node {
    pub(super) fn at(host: Host) -> Self {
        Self { at: Some(host), ..Self::default() }
    }

    /// Sends a command, once. Whoever is on the roll is told to look for itself when answers are
    /// lost with a connection.
    pub(super) async fn send(
        &self,
        route: &Route,
        roll: Option<&Roll>,
        command: Cmd,
        manner: Manner,
    ) -> Result<Answer, Failed> {
        if manner.sync.is_some() {
            return self.send_synced(route, command, manner).await;
        }
        let line = self.line(route).await.map_err(|error| Failed { error, sent: false })?;
        let Line { number, mut wire, batch, .. } = line;
        let answer = if manner.asking {
            // In one go: what is asked for counts for the next command on the connection alone.
            in_order(&mut wire, command, manner).await
        } else {
            batch
                .send(wire, command)
                .await
                .and_then(Value::extract_error)
                .map(|value| (value, None))
        };
        answer.map_err(|error| {
            if trouble::remedy(&error) != Remedy::None {
                self.let_go(number, roll);
            }
            Failed { error, sent: true }
        })
    }

    async fn send_synced(
        &self,
        route: &Route,
        command: Cmd,
        manner: Manner,
    ) -> Result<Answer, Failed> {
        let kept = lock(&self.synced).pop();
        let mut wire = match kept {
            Some(wire) => wire,
            None => match self.connect(route).await {
                Ok((_, wire)) => wire,
                Err(error) => return Err(Failed { error, sent: false }),
            },
        };
        let answer = in_order(&mut wire, command, manner).await;
        match &answer {
            Err(error) if trouble::remedy(error) != Remedy::None => lock(&self.synced).clear(),
            _ => lock(&self.synced).push(wire),
        }
        answer.map_err(|error| Failed { error, sent: true })
    }

    /// The connection in use, or a new one.
    pub(super) async fn line(&self, route: &Route) -> RedisResult<Line> {
        if let Some(found) = self.in_use() {
            return Ok(found);
        }
        let _alone = self.connecting.lock().await;
        if let Some(found) = self.in_use() {
            return Ok(found);
        }
        let (host, wire) = self.connect(route).await?;
        let mut current = lock(&self.current);
        current.number += 1;
        let line = Line { number: current.number, host, wire, batch: Arc::default() };
        current.line = Some(line.clone());
        Ok(line)
    }

    /// In a box: callers with many futures in one another reach a limit of the compiler.
    fn connect<'a>(&'a self, route: &'a Route) -> BoxFuture<'a, RedisResult<(Host, Wire)>> {
        Box::pin(async move {
            match &self.at {
                Some(host) => Ok((host.clone(), route.connect_to(host).await?)),
                None => route.connect().await,
            }
        })
    }

    pub(super) fn in_use(&self) -> Option<Line> {
        lock(&self.current).line.clone()
    }

    /// Makes no more use of the connection of that number.
    pub(super) fn let_go(&self, number: u64, roll: Option<&Roll>) {
        let mut current = lock(&self.current);
        // Once for all whose answers are lost with it.
        if current.number != number || current.line.take().is_none() {
            return;
        }
        drop(current);
        lock(&self.synced).clear();
        if let Some(roll) = roll {
            roll.hurry();
        }
    }
}

/// Sends a command with what goes before and after it.
async fn in_order(wire: &mut Wire, command: Cmd, manner: Manner) -> RedisResult<Answer> {
    let mut pipeline = Pipeline::with_capacity(3);
    if manner.asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(command);
    if let Some(Sync { replicas, millis }) = manner.sync {
        pipeline.cmd("WAIT").arg(replicas).arg(millis);
    }
    let count = pipeline.cmd_iter().count();
    let answers = wire.req_packed_commands(&pipeline, 0, count).await?;
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    if manner.asking {
        next()?;
    }
    let value = next()?;
    let acknowledged = match manner.sync {
        Some(_) => Some(redis::from_redis_value(next()?)?),
        None => None,
    };
    Ok((value, acknowledged))
}
