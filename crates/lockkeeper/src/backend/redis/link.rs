//! The connection for the commands of a keeper.

use super::batch::Batch;
use super::roll::Roll;
use super::route::{Host, Route, Wire};
use super::script::Script;
use super::trouble::{self, Remedy};
use crate::backend::Moment;
use crate::error::{Error, ErrorKind, Result};
use redis::{Cmd, Pipeline, RedisResult, ServerErrorKind, Value};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How often sentinels are asked whether the primary is still the one we talk to. One that was
/// cut off from them would not tell us that there is another.
const ASK_SENTINELS: Duration = Duration::from_secs(3);

/// How many claims at once wait for replicas, each on a connection of its own.
const SYNCED: usize = 8;

/// One connection that everyone shares, made anew when it broke.
pub(super) struct Link {
    pub(super) route: Arc<Route>,
    current: Mutex<Current>,
    /// So that many who find the connection broken make one new one.
    connecting: tokio::sync::Mutex<()>,
    /// Connections to wait for replicas on, which would hold up everyone else.
    synced: Mutex<Vec<Wire>>,
    /// How many of them there may be.
    places: Semaphore,
    replicas: u32,
    patience: Duration,
    /// Who may have missed something when an answer is lost.
    hearers: Option<Arc<Roll>>,
}

#[derive(Default)]
struct Current {
    number: u64,
    line: Option<Line>,
    primary: Option<Host>,
    asked_sentinels: Option<Moment>,
}

/// The connection in use.
#[derive(Clone)]
struct Line {
    number: u64,
    wire: Wire,
    batch: Arc<Batch>,
}

impl Link {
    /// With `replicas`, every claim and every renewal counts only once so many have it.
    pub(super) fn new(route: Arc<Route>, replicas: u32, timeout: Duration) -> Self {
        Self {
            route,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::new(()),
            synced: Mutex::default(),
            places: Semaphore::new(SYNCED),
            replicas,
            patience: timeout / 2,
            hearers: None,
        }
    }

    /// Answers tell those on this roll what they wait for: when some may have been lost, they are
    /// to look for themselves.
    pub(super) fn telling(self, roll: Arc<Roll>) -> Self {
        Self { hearers: Some(roll), ..self }
    }

    /// Runs a script that does the same when it is run twice.
    pub(super) async fn call(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Value> {
        self.call_or_again(script, keys, arguments, arguments).await
    }

    /// Runs a script; with the arguments `again` if it may have been run before, which in a cluster
    /// is never known: its driver repeats commands as it sees fit.
    pub(super) async fn call_telling(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: &[&[u8]],
    ) -> Result<Value> {
        let arguments = if self.route.is_cluster() { again } else { arguments };
        self.call_or_again(script, keys, arguments, again).await
    }

    async fn call_or_again(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: &[&[u8]],
    ) -> Result<Value> {
        let repeated = AtomicBool::new(false);
        let repeat = || {
            repeated.store(true, Ordering::Relaxed);
            script.call(keys, again)
        };
        let answer = match self.send(script.call(keys, arguments), repeat).await {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                let repeated = repeated.load(Ordering::Relaxed);
                let first = script.call_in_full(keys, if repeated { again } else { arguments });
                self.send(first, || script.call_in_full(keys, again)).await
            }
            answer => answer,
        };
        answer.map_err(|error| self.route.explain(error))
    }

    /// As [`call`](Self::call), with other arguments if it may have been run before; and if
    /// replicas were asked for, waits until they have it. An error means that it is not known to
    /// be safe from a failover.
    pub(super) async fn call_safely(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: &[&[u8]],
    ) -> Result<Value> {
        // The driver of a cluster repeats commands as it sees fit.
        let arguments = if self.route.is_cluster() { again } else { arguments };
        if self.replicas == 0 {
            return self.call_or_again(script, keys, arguments, again).await;
        }
        // Never closed, so this never fails.
        let _place = self.places.acquire().await;
        let kept = self.idle().pop();
        let answers = match kept {
            Some(wire) => match self.sync(wire, script, keys, arguments).await {
                Err(error) if trouble::remedy(&error) == Remedy::Reconnect => {
                    self.idle().clear();
                    self.sync_anew(script, keys, again).await
                }
                answers => answers,
            },
            None => self.sync_anew(script, keys, arguments).await,
        };
        let (answer, acknowledged) = answers.map_err(|error| self.route.explain(error))?;
        if acknowledged < i64::from(self.replicas) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "only {acknowledged} of the {} replicas that ?replicas asks for have the lock",
                    self.replicas
                ),
            ));
        }
        Ok(answer)
    }

    pub(super) fn asks_replicas(&self) -> bool {
        self.replicas > 0
    }

    async fn sync_anew(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> RedisResult<(Value, i64)> {
        self.sync(self.route.connect().await?, script, keys, arguments).await
    }

    async fn sync(
        &self,
        mut wire: Wire,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> RedisResult<(Value, i64)> {
        let first = self.then_wait(&mut wire, script.call(keys, arguments)).await;
        let answers = match first {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.then_wait(&mut wire, script.call_in_full(keys, arguments)).await
            }
            answers => answers,
        }?;
        self.idle().push(wire);
        Ok(answers)
    }

    async fn then_wait(&self, wire: &mut Wire, command: Cmd) -> RedisResult<(Value, i64)> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(command);
        let patience = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        pipeline.cmd("WAIT").arg(self.replicas).arg(patience);
        pipeline.query_async(wire).await
    }

    /// A connection to every server that has keys of its own.
    pub(super) async fn every_primary(&self) -> Result<Vec<Wire>> {
        let explain = |error| self.route.explain(error);
        if !self.route.is_cluster() {
            let line = self.connection(0).await.map_err(explain)?;
            return Ok(vec![line.wire]);
        }
        let mut ask = redis::cmd("CLUSTER");
        ask.arg("NODES");
        let nodes = match self.command(&ask).await? {
            Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
            Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
            _ => String::new(),
        };
        let mut wires = Vec::new();
        for host in primaries_in(&nodes) {
            wires.push(self.route.connect_to(&host).await.map_err(explain)?);
        }
        Ok(wires)
    }

    /// Sends a command that does the same when it is sent twice.
    pub(super) async fn command(&self, command: &Cmd) -> Result<Value> {
        let send = self.send(command.clone(), || command.clone());
        send.await.map_err(|error| self.route.explain(error))
    }

    /// Sends it, and `again` on a new connection if the old one turns out to be closed: by a
    /// server that was restarted, or with the runtime it lived on.
    async fn send(&self, command: Cmd, again: impl Fn() -> Cmd) -> RedisResult<Value> {
        if self.route.has_sentinels() {
            self.follow_the_primary().await;
        }
        let line = self.connection(0).await?;
        let number = line.number;
        let error = match self.try_once(line, command).await {
            Err(error) if trouble::remedy(&error) == Remedy::Reconnect => error,
            answer => return answer,
        };
        tracing::debug!(%error, "connecting again");
        let line = self.connection(number).await?;
        self.try_once(line, again()).await
    }

    async fn try_once(&self, line: Line, command: Cmd) -> RedisResult<Value> {
        let Line { number, wire, batch } = line;
        let answer = batch.send(wire, command).await.and_then(Value::extract_error);
        if let Err(error) = &answer
            && trouble::remedy(error) != Remedy::None
        {
            self.let_go(number);
        }
        answer
    }

    fn let_go(&self, number: u64) {
        let mut current = self.current();
        // Once for all whose answers are lost with it.
        if current.number != number || current.line.take().is_none() {
            return;
        }
        drop(current);
        self.idle().clear();
        if let Some(roll) = &self.hearers {
            roll.hurry();
        }
    }

    /// The connection in use, if it has a number greater than `after`; else a new one.
    async fn connection(&self, after: u64) -> RedisResult<Line> {
        if let Some(found) = self.newer_than(after) {
            return Ok(found);
        }
        let _alone = self.connecting.lock().await;
        if let Some(found) = self.newer_than(after) {
            return Ok(found);
        }
        let fresh = self.route.connect().await?;
        let mut current = self.current();
        current.number += 1;
        let line = Line { number: current.number, wire: fresh, batch: Arc::default() };
        current.line = Some(line.clone());
        Ok(line)
    }

    fn newer_than(&self, after: u64) -> Option<Line> {
        self.current().line.clone().filter(|line| line.number > after)
    }

    /// Lets go of a primary that the sentinels have replaced.
    async fn follow_the_primary(&self) {
        let number = {
            let mut current = self.current();
            let now = Moment::now();
            if current.asked_sentinels.is_some_and(|asked| now.since(asked) < ASK_SENTINELS) {
                return;
            }
            current.asked_sentinels = Some(now);
            current.number
        };
        let Some(primary) = self.route.current_primary().await else { return };
        let mut current = self.current();
        let before = current.primary.replace(primary);
        if before.is_some() && before != current.primary {
            drop(current);
            self.let_go(number);
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Wire>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The primaries that answer, in what CLUSTER NODES says: a line each, with
/// `id host:port@bus[,name] flags …`.
fn primaries_in(nodes: &str) -> Vec<Host> {
    let primary = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (address, flags) = (words.next()?, words.next()?);
        let mut flags = flags.split(',');
        if !flags.clone().any(|flag| flag == "master") || flags.any(|flag| flag == "fail") {
            return None;
        }
        let (host, port) = address.split('@').next()?.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    };
    nodes.lines().filter_map(primary).collect()
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.route.shown())
    }
}
