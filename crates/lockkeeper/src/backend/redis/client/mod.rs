//! The client: commands and scripts for one server, a primary behind sentinels, or a cluster.
//!
//! ```text
//!   Client ── call(script), command ──► Node ──► Batch ──► redis crate
//!     │                                   ▲
//!     └─ clusters: Cluster ── slot ───────┘      Connector: which server, and a way in
//!   Subscriber ── messages ◄── a connection of its own
//! ```
//!
//! Nothing here knows of locks. Two signals go up to a recipe: [`LostAnswers`] when a connection
//! broke under commands, and [`Notice`] for what arrives, or may have been missed, on the
//! connection for messages.
//!
//! A command is sent at most twice: once more on a new connection if the first turns out to be
//! closed. So every command must be idempotent, or be told by its [`CallForm`] that it may have
//! been carried out before. A command that is not answered in time is not repeated: it may be
//! carried out yet, and what that means only its caller knows.
//!
//! Scripts are sent by digest, and in full once a server says that it does not know them: a restarted
//! server, a new primary and every node of a cluster learn them that way, one by one.
//!
//! Commands of one connection arrive in the order in which they were sent, also when their callers have
//! given up (`batch.rs`); across connections there is no order. A connection that lost an answer is
//! dropped with what it has not sent yet, so that nothing arrives late (`topology.rs`).

mod batch;
mod channels;
mod cluster;
mod connector;
mod everywhere;
mod lost_answers;
mod message_connection;
mod node;
mod sentinel;
mod slots;
mod subscriber;
mod topology;

pub(crate) use connector::Connector;
pub(crate) use lost_answers::LostAnswers;
pub(crate) use subscriber::{Notice, Subscriber};
pub(crate) use topology::ConnectOptions;
pub use topology::Topology;

use super::error::{self, Recovery};
use crate::backend::Moment;
use crate::backend::support::sync::lock;
use crate::error::{Error, ErrorKind, Result};
use cluster::Cluster;
use futures_util::future::FutureExt;
use node::{Answer, Delivery, Node, Replication};
use redis::{Cmd, RedisError, RedisResult, ServerErrorKind, Value};
use slots::slot_of;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How often sentinels are asked whether the primary is still the one we talk to. A primary that
/// was cut off from them would not tell us that there is another.
const ASK_SENTINELS: Duration = Duration::from_secs(3);

/// How many requests at once wait for replicas, each on a connection of its own.
const REPLICATED_AT_ONCE: usize = 8;

/// The connections of a keeper for commands, shared by everyone and made anew when they break: one,
/// or in a cluster one to each node that has keys of ours.
pub(crate) struct Client {
    pub(crate) connector: Arc<Connector>,
    /// When answers may have been lost.
    pub(crate) lost: LostAnswers,
    servers: Servers,
    asked_sentinels: Mutex<Option<Moment>>,
    /// Permits to wait for replicas.
    replicated: Semaphore,
    replicas: u32,
    /// How long replicas, and sentinels, are waited for.
    patience: Duration,
}

/// Where commands go.
enum Servers {
    One(Node),
    Cluster(Cluster),
}

impl Client {
    /// Connects to nothing yet. With `replicas`, what is called safely counts only once that many
    /// replicas have it.
    pub(crate) fn new(connector: Connector, replicas: u32) -> Self {
        let (connector, lost) = (Arc::new(connector), LostAnswers::default());
        let patience = connector.timeout() / 2;
        let servers = match connector.is_cluster() {
            true => Servers::Cluster(Cluster::new(connector.clone(), lost.clone())),
            false => Servers::One(Node::new(connector.clone(), lost.clone(), None)),
        };
        let (asked_sentinels, replicated) = (Mutex::default(), Semaphore::new(REPLICATED_AT_ONCE));
        Self { connector, lost, servers, asked_sentinels, replicated, replicas, patience }
    }

    /// Whether `?replicas` was asked for.
    pub(crate) fn asks_replicas(&self) -> bool {
        self.replicas > 0
    }

    /// Runs a script that does the same when it is run twice. The node is that of the first key.
    pub(crate) async fn call(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Value> {
        self.call_telling(script, keys, arguments, arguments).await
    }

    /// Runs a script; with the arguments `again` if it may have been run before.
    pub(crate) async fn call_telling(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: &[&[u8]],
    ) -> Result<Value> {
        let make =
            |form: CallForm| script.call(form, keys, if form.again { again } else { arguments });
        let answer = self.send(keys.first().copied(), &make, Delivery::default()).await;
        answer.map(|(value, _)| value).map_err(|error| self.explain(error, keys))
    }

    /// As [`call_telling`](Self::call_telling); and if replicas were asked for, waits until they have
    /// it. An error then means that it is not known to survive a failover.
    pub(crate) async fn call_safely(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: &[&[u8]],
    ) -> Result<Value> {
        if !self.asks_replicas() {
            return self.call_telling(script, keys, arguments, again).await;
        }
        let make =
            |form: CallForm| script.call(form, keys, if form.again { again } else { arguments });
        let (replicas, millis) = (self.replicas, self.patience.as_millis());
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        // The semaphore is never closed, so this never fails.
        let _permit = self.replicated.acquire().await.ok();
        let replication = Some(Replication { replicas, millis });
        let how = Delivery { replication, asking: false };
        let answer = self.send(keys.first().copied(), &make, how).await;
        let (value, acknowledged) = answer.map_err(|error| self.explain(error, keys))?;
        match acknowledged {
            Some(acknowledged) if acknowledged < i64::from(replicas) => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "only {acknowledged} of the {replicas} replicas that ?replicas asks for have \
                     what was written"
                ),
            )),
            _ => Ok(value),
        }
    }

    /// Sends a command, which does the same when it is sent twice, to where that key is; to any
    /// node of a cluster if there is none.
    pub(crate) async fn command(&self, key: Option<&str>, command: &Cmd) -> Result<Value> {
        self.raw(key, command).await.map_err(|error| self.connector.explain(error))
    }

    /// As [`command`](Self::command), with the error as Redis says it.
    pub(crate) async fn raw(&self, key: Option<&str>, command: &Cmd) -> RedisResult<Value> {
        let answer = self.send(key, &|_| command.clone(), Delivery::default()).await;
        answer.map(|(value, _)| value)
    }

    /// Sends what `make` makes; and once more on a new connection if the old one turns out to be
    /// closed: by a server that was restarted, or with the runtime it lived on.
    async fn send(
        &self,
        key: Option<&str>,
        make: &(dyn Fn(CallForm) -> Cmd + Sync),
        how: Delivery,
    ) -> RedisResult<Answer> {
        let node = match &self.servers {
            Servers::One(node) => node,
            Servers::Cluster(cluster) => {
                let slot = key.map(|key| slot_of(key.as_bytes()));
                // In a box: callers with many futures in one another reach a limit of the compiler.
                return cluster.send(slot, make, how).boxed().await;
            }
        };
        if self.connector.has_sentinels() {
            self.follow_the_primary(node).await;
        }
        let mut form = CallForm::default();
        loop {
            let failure = match node.send(make(form), how).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            // Refused before anything was done: not a repetition.
            if failure.error.kind() == ServerErrorKind::NoScript.into() && !form.in_full {
                form.in_full = true;
            } else if failure.sent
                && !form.again
                && error::recovery(&failure.error) == Recovery::Reconnect
            {
                tracing::debug!(error = %failure.error, "connecting again");
                form.again = true;
            } else {
                return Err(failure.error);
            }
        }
    }

    /// Drops the connection to a primary that the sentinels have replaced.
    async fn follow_the_primary(&self, node: &Node) {
        let Some((number, current)) = node.in_use() else { return };
        {
            let mut asked = lock(&self.asked_sentinels);
            let now = Moment::now();
            if asked.is_some_and(|asked| now.since(asked) < ASK_SENTINELS) {
                return;
            }
            *asked = Some(now);
        }
        // A renewal must not be late because too many sentinels are silent.
        let limit = self.patience / 2;
        let asked = tokio::time::timeout(limit, self.connector.current_primary()).await;
        if let Ok(Some(primary)) = asked
            && primary != current.host
        {
            node.disconnect(number);
        }
    }

    /// The library's error; with the key, where that is at fault.
    fn explain(&self, error: RedisError, keys: &[&str]) -> Error {
        let at_fault = error::is_foreign(&error) || error::is_later(&error);
        let explained = self.connector.explain(error);
        match keys.first() {
            Some(key) if at_fault => explained.with("key", error::brief(key)),
            _ => explained,
        }
    }

    /// The number of the connection in use, if there is one; zero in a cluster, which has many. A server
    /// that was restarted is reached by a connection of another number.
    pub(crate) fn connection(&self) -> Option<u64> {
        match &self.servers {
            Servers::One(node) => node.number_in_use(),
            Servers::Cluster(_) => Some(0),
        }
    }

    /// Ends every connection. What is sent later connects again.
    pub(crate) fn close(&self) {
        match &self.servers {
            Servers::One(node) => node.close(),
            Servers::Cluster(cluster) => cluster.close(),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.connector.shown())
    }
}

/// How a script is called. Each flag is set by a failure of the call before, and stays set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallForm {
    /// With its code: the server does not know it.
    in_full: bool,
    /// It may have been run before.
    again: bool,
    /// By the first of its keys alone: the others may not exist, which counts as moved while a
    /// cluster moves their slot.
    alone: bool,
}

/// Lua that runs inside Redis, and the digest that Redis knows it by.
pub(crate) struct Script {
    code: String,
    digest: String,
}

/// The keys of a script that has several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyCount {
    /// How many there are.
    pub(crate) all: usize,
    /// The first of them are keys, this many; those behind are channels.
    pub(crate) keys: usize,
    /// A Lua expression: whether, while a cluster moves the keys, the script needs only the first.
    pub(crate) first_is_enough: &'static str,
}

impl Script {
    /// A script with one key.
    pub(crate) fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        let digest = sha1_smol::Sha1::from(&code).digest().to_string();
        Self { code, digest }
    }

    /// A script with several keys, all of them in one slot.
    ///
    /// While a cluster moves the slot, a command with several keys is refused (TRYAGAIN) for as long
    /// as some of them do not exist, which is most of the time. So it can be called by its first key
    /// alone, with the others behind the arguments; the node then looks at each key as it is used.
    /// One that does not exist where the slot comes from is refused there, and must be found so
    /// before anything is written.
    pub(crate) fn with_keys(count: KeyCount, code: &str) -> Self {
        let KeyCount { all, keys, first_is_enough } = count;
        Self::new(format!(
            "if #KEYS == 1 then
  for _ = 2, {all} do table.insert(KEYS, 2, table.remove(ARGV)) end
  for at = 2, {keys} do
    if type(redis.pcall('EXISTS', KEYS[at])) == 'table' and not ({first_is_enough}) then
      return redis.error_reply('TRYAGAIN the slot is being moved')
    end
  end
end
{code}"
        ))
    }

    /// The call by digest, as long as Redis remembers the script; or with the code itself, which
    /// also makes Redis remember it. SCRIPT LOAD was rejected: it would have to reach every node of
    /// a cluster, and this reaches the one that lacks the script.
    fn call(&self, form: CallForm, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        let (verb, script) =
            if form.in_full { ("EVAL", &self.code) } else { ("EVALSHA", &self.digest) };
        let (keys, behind) = keys.split_at(if form.alone { 1.min(keys.len()) } else { keys.len() });
        let words = keys.iter().chain(behind).map(|key| key.len());
        let words = words.chain(arguments.iter().map(|a| a.len()));
        let length = verb.len() + script.len() + 1 + words.sum::<usize>();
        let count = 3 + keys.len() + behind.len() + arguments.len();
        let mut command = Cmd::with_capacity(count, length);
        command.arg(verb).arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for argument in arguments {
            command.arg(argument);
        }
        for key in behind {
            command.arg(key);
        }
        command
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.digest)
    }
}
