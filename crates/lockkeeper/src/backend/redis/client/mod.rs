//! The connections for the commands of a keeper.

use super::cluster::Cluster;
use super::node::{Answer, Manner, Node, Sync};
use super::roll::{Roll, lock};
use super::route::{Route, Wire};
use super::script::Script;
use super::slots::slot_of;
use super::trouble::{self, Remedy};
use crate::backend::Moment;
use crate::error::{Error, ErrorKind, Result};
use futures_util::future::{FutureExt, join_all};
use redis::{Cmd, RedisError, RedisResult, ServerErrorKind, Value};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How often sentinels are asked whether the primary is still the one we talk to. One that was
/// cut off from them would not tell us that there is another.
const ASK_SENTINELS: Duration = Duration::from_secs(3);

/// How many claims at once wait for replicas, each on a connection of its own.
const SYNCED: usize = 8;

/// The connections of a keeper, shared by everyone and made anew when they break: one, or in a
/// cluster one to each node that has locks of ours.
pub(super) struct Link {
    pub(super) route: Arc<Route>,
    servers: Servers,
    asked_sentinels: Mutex<Option<Moment>>,
    /// How many may wait for replicas at once.
    places: Semaphore,
    replicas: u32,
    patience: Duration,
    /// Who may have missed something when an answer is lost.
    hearers: Option<Arc<Roll>>,
}

enum Servers {
    One(Node),
    Cluster(Cluster),
}

/// How a script is called.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Form {
    /// With its code: the server does not know it.
    pub(super) in_full: bool,
    /// It may have been run before.
    pub(super) again: bool,
    /// By the first of its keys alone: the others may not exist, which counts as moved while a
    /// cluster moves their slot.
    pub(super) alone: bool,
}

impl Link {
    /// With `replicas`, every claim and every renewal counts only once so many have it.
    pub(super) fn new(route: Arc<Route>, replicas: u32, timeout: Duration) -> Self {
        let servers = match route.is_cluster() {
            true => Servers::Cluster(Cluster::default()),
            false => Servers::One(Node::default()),
        };
        Self {
            route,
            servers,
            asked_sentinels: Mutex::default(),
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
        self.call_telling(script, keys, arguments, arguments).await
    }

    /// Runs a script; with the arguments `again` if it may have been run before.
    pub(super) async fn call_telling(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: &[&[u8]],
    ) -> Result<Value> {
        let make = |form: Form| script.call(form, keys, if form.again { again } else { arguments });
        let answer = self.send(keys.first().copied(), &make, Manner::default()).await;
        answer.map(|(value, _)| value).map_err(|error| self.explain(error, keys))
    }

    /// As [`call_telling`](Self::call_telling); and if
    /// replicas were asked for, waits until they have it. An error means that it is not known to
    /// be safe from a failover.
    pub(super) async fn call_safely(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: &[&[u8]],
    ) -> Result<Value> {
        let make = |form: Form| script.call(form, keys, if form.again { again } else { arguments });
        let millis = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        let replicas = self.replicas;
        let sync = self.asks_replicas().then_some(Sync { replicas, millis });
        // Never closed, so this never fails.
        let _place = if sync.is_some() { self.places.acquire().await.ok() } else { None };
        let answer = self.send(keys.first().copied(), &make, Manner { sync, asking: false }).await;
        let (value, acknowledged) = answer.map_err(|error| self.explain(error, keys))?;
        match acknowledged {
            Some(acknowledged) if acknowledged < i64::from(replicas) => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "only {acknowledged} of the {replicas} replicas that ?replicas asks for have \
                     the lock"
                ),
            )),
            _ => Ok(value),
        }
    }

    /// With the key, where it is at fault.
    fn explain(&self, error: RedisError, keys: &[&str]) -> Error {
        let is_foreign = trouble::is_foreign(&error);
        let explained = self.route.explain(error);
        match keys.first() {
            Some(key) if is_foreign => explained.with("key", trouble::brief(key)),
            _ => explained,
        }
    }

    pub(super) fn asks_replicas(&self) -> bool {
        self.replicas > 0
    }

    /// A connection to every server that has keys of its own.
    pub(super) async fn every_primary(&self) -> Result<Vec<Wire>> {
        let explain = |error| self.route.explain(error);
        match &self.servers {
            Servers::One(node) => {
                let line = node.line(&self.route).await.map_err(explain)?;
                Ok(vec![line.wire])
            }
            Servers::Cluster(cluster) => {
                let mut wires = Vec::new();
                for host in cluster.primaries(&self.route).boxed().await.map_err(explain)? {
                    let line = cluster.node(&host).line(&self.route).await.map_err(explain)?;
                    wires.push(line.wire);
                }
                Ok(wires)
            }
        }
    }

    /// Sends a command, which does the same when it is sent twice, to where that key is; to any
    /// node of a cluster if there is none.
    pub(super) async fn command(&self, key: Option<&str>, command: &Cmd) -> Result<Value> {
        self.raw(key, command).await.map_err(|error| self.route.explain(error))
    }

    /// As [`command`](Self::command), with the error as Redis says it.
    pub(super) async fn raw(&self, key: Option<&str>, command: &Cmd) -> RedisResult<Value> {
        let answer = self.send(key, &|_| command.clone(), Manner::default()).await;
        answer.map(|(value, _)| value)
    }

    /// Sends a command to every server that has keys of its own. Those of a cluster that do not
    /// answer are left out, unless none does.
    pub(super) async fn everywhere(&self, command: &Cmd) -> Result<Vec<Value>> {
        let cluster = match &self.servers {
            Servers::One(_) => return Ok(vec![self.command(None, command).await?]),
            Servers::Cluster(cluster) => cluster,
        };
        let explain = |error| self.route.explain(error);
        let hosts = cluster.primaries(&self.route).boxed().await.map_err(explain)?;
        let answers = join_all(hosts.iter().map(|host| async move {
            let node = cluster.node(host);
            node.send(&self.route, None, command.clone(), Manner::default()).await
        }));
        let (mut found, mut failed) = (Vec::new(), None);
        for answer in answers.await {
            match answer {
                Ok((value, _)) => found.push(value),
                Err(error) => failed = Some(error.error),
            }
        }
        match failed {
            Some(error) if found.is_empty() || trouble::remedy(&error) == Remedy::None => {
                Err(explain(error))
            }
            _ => Ok(found),
        }
    }

    /// Sends what `make` makes; and once more on a new connection if the old one turns out to be
    /// closed: by a server that was restarted, or with the runtime it lived on.
    async fn send(
        &self,
        key: Option<&str>,
        make: &(dyn Fn(Form) -> Cmd + std::marker::Sync),
        manner: Manner,
    ) -> RedisResult<Answer> {
        let roll = self.hearers.as_deref();
        let node = match &self.servers {
            Servers::One(node) => node,
            Servers::Cluster(cluster) => {
                let slot = key.map(|key| slot_of(key.as_bytes()));
                // In a box: callers with many futures in one another reach a limit of the compiler.
                return cluster.send(&self.route, roll, slot, make, manner).boxed().await;
            }
        };
        if self.route.has_sentinels() {
            self.follow_the_primary(node).await;
        }
        let mut form = Form::default();
        loop {
            let failed = match node.send(&self.route, roll, make(form), manner).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if failed.error.kind() == ServerErrorKind::NoScript.into() && !form.in_full {
                form.in_full = true;
            } else if failed.sent
                && !form.again
                && trouble::remedy(&failed.error) == Remedy::Reconnect
            {
                tracing::debug!(error = %failed.error, "connecting again");
                form.again = true;
            } else {
                return Err(failed.error);
            }
        }
    }

    /// Lets go of a primary that the sentinels have replaced.
    async fn follow_the_primary(&self, node: &Node) {
        let Some(line) = node.in_use() else { return };
        {
            let mut asked = lock(&self.asked_sentinels);
            let now = Moment::now();
            if asked.is_some_and(|asked| now.since(asked) < ASK_SENTINELS) {
                return;
            }
            *asked = Some(now);
        }
        // Whoever renews must not be late because too many of them are silent.
        let limit = self.patience / 2;
        let asked = tokio::time::timeout(limit, self.route.current_primary()).await;
        if let Ok(Some(primary)) = asked
            && primary != line.host
        {
            node.let_go(line.number, self.hearers.as_deref());
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.route.shown())
    }
}
