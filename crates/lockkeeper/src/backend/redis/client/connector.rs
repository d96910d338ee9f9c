//! Finds the server to talk to, and connects to it.
//!
//! | topology | commands go to | messages come from |
//! |---|---|---|
//! | one server | that server | that server |
//! | sentinels | the primary that a majority of them names, if it says itself that it is one | the same |
//! | cluster | the node of the key's slot ([`cluster`](super::cluster)) | any node; sharded channels, every node |
//!
//! Connections are never kept here: [`Node`](super::node::Node) and the subscriber keep theirs, and ask
//! for a new one when it broke. So the question "which server?" is asked anew each time, and a failover
//! is followed by a reconnect.

use super::message_connection::MessageConnection;
use super::sentinel::{self, Decision, decide, no_primary};
use super::topology::{ConnectOptions, Host, Topology};
use crate::backend::redis::error;
use crate::backend::support::life::Life;
use crate::backend::support::sync::lock;
use crate::error::{Error, Result};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind as Cause, PushInfo, RedisError, RedisResult, Value};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Makes connections, to whichever server is the right one at that moment.
pub(crate) struct Connector {
    topology: Topology,
    options: ConnectOptions,
    /// The store for people, without secrets.
    shown: String,
    /// Which node of a cluster to listen at next: any will do, and the last may be dead.
    turn: AtomicUsize,
    /// The nodes of a cluster, the one that told of them first.
    learned: Mutex<Vec<Host>>,
}

impl Connector {
    /// Connects to nothing yet. `shown` is the store for people, without secrets.
    pub(crate) fn new(topology: Topology, options: ConnectOptions, shown: String) -> Self {
        if options.tls.is_some() {
            // The redis crate builds its TLS settings from the process's default provider, and takes
            // no other: without one it picks by crate features, and panics where those leave a
            // choice. So one is set, unless the program has set its own, which this does not touch.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { topology, options, shown, turn: AtomicUsize::new(0), learned: Mutex::default() }
    }

    /// A connection for commands, and the host it leads to; in a cluster, to any of its nodes.
    pub(super) async fn connect(&self) -> RedisResult<(Host, MultiplexedConnection, Life)> {
        let host = match &self.topology {
            Topology::One(host, port) => (host.clone(), *port),
            Topology::Sentinels { .. } => self.primary().boxed().await?,
            Topology::Cluster(_) => self.hosts().swap_remove(0),
        };
        let (mut connection, life) = self.options.open_with_life(&host, None).await?;
        if self.has_sentinels() {
            // The sentinels may not have noticed yet that the server was demoted.
            let role: Value = redis::cmd("ROLE").query_async(&mut connection).await?;
            let is_primary = matches!(&role, Value::Array(role)
                if role.first() == Some(&Value::BulkString(b"master".to_vec())));
            if !is_primary {
                return Err(no_primary("the sentinels name a server that is no primary", None));
            }
        }
        Ok((host, connection, life))
    }

    /// A connection to this very server.
    pub(super) async fn connect_to(
        &self,
        host: &Host,
    ) -> RedisResult<(MultiplexedConnection, Life)> {
        self.options.open_with_life(host, None).await
    }

    /// A connection of its own whose messages go to `on_push`: to one server, or with `sharded` to
    /// every node of a cluster.
    pub(super) async fn connect_for_messages(
        &self,
        sharded: bool,
        on_push: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> RedisResult<MessageConnection> {
        let hosts = match &self.topology {
            Topology::One(host, port) => vec![(host.clone(), *port)],
            Topology::Sentinels { .. } => vec![self.primary().boxed().await?],
            Topology::Cluster(_) if sharded => {
                let client = self.options.cluster(&self.hosts())?.push_sender(on_push).build()?;
                return self.options.open_cluster(client).await.map(MessageConnection::Cluster);
            }
            // What is published at one node of a cluster is heard at all of them.
            Topology::Cluster(_) => {
                let mut hosts = self.hosts();
                let first = self.turn.fetch_add(1, Ordering::Relaxed) % hosts.len();
                hosts.rotate_left(first);
                hosts
            }
        };
        let config = self.options.config().set_push_sender(on_push);
        let mut last = no_primary("no host is named", None);
        for host in &hosts {
            match self.options.open(host, Some(config.clone())).await {
                Ok(connection) => return Ok(MessageConnection::Node(connection)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Asks the sentinels who is the primary now; `None` where there are none.
    pub(super) async fn current_primary(&self) -> Option<Host> {
        match self.topology {
            Topology::Sentinels { .. } => self.primary().boxed().await.ok(),
            _ => None,
        }
    }

    /// Whether keys are spread over several nodes.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// Whether the primary is found through sentinels, and may change.
    pub(crate) fn has_sentinels(&self) -> bool {
        matches!(self.topology, Topology::Sentinels { .. })
    }

    /// Every host of a cluster that is known: the nodes that one of them told of, and those in the
    /// URL, which may be gone by now or be the only ones that are left.
    pub(super) fn hosts(&self) -> Vec<Host> {
        let mut hosts = lock(&self.learned).clone();
        if let Topology::Cluster(named) = &self.topology {
            let more: Vec<_> = named.iter().filter(|host| !hosts.contains(host)).cloned().collect();
            hosts.extend(more);
        }
        hosts
    }

    /// Remembers the nodes of a cluster, and which of them answers.
    pub(super) fn learned(&self, by: Host, mut nodes: Vec<Host>) {
        nodes.retain(|host| *host != by);
        nodes.insert(0, by);
        *lock(&self.learned) = nodes;
    }

    /// The longest an answer is waited for.
    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Asks all sentinels at once: one that is silent must not hold up the others' answer, and one
    /// that knows less than the others must not decide.
    async fn primary(&self) -> RedisResult<Host> {
        let Topology::Sentinels { sentinels, primary, user, password } = &self.topology else {
            return Err(no_primary("there are no sentinels to ask", None));
        };
        let options = &self.options.for_sentinels(user.as_ref(), password.as_ref());
        let mut asked: FuturesUnordered<_> = sentinels
            .iter()
            .map(|sentinel| async move {
                let mut connection = options.open(sentinel, None).await?;
                sentinel::ask(&mut connection, primary).await
            })
            .collect();
        let (mut answers, mut silent) = (Vec::new(), None);
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(answer) => answers.push(answer),
                // A sentinel that answers and does not know explains more than one that is away.
                Err(error) if silent.is_none() || error.kind() != Cause::Io => silent = Some(error),
                Err(_) => {}
            }
            if let Decision::Primary(host) = decide(&answers, sentinels.len()) {
                return Ok(host.clone());
            }
        }
        let (said, all) = (answers.len(), sentinels.len());
        match silent {
            Some(error) if answers.is_empty() => Err(error),
            _ if said <= all / 2 => Err(no_primary(
                "which primary is the right one takes a majority",
                Some(format!("only {said} of the {all} sentinels in the URL tell of one")),
            )),
            _ => Err(no_primary(
                "the sentinels do not agree on a primary",
                Some(format!("of the {all} in the URL {said} answer")),
            )),
        }
    }

    /// The library's error for one of the driver.
    pub(crate) fn explain(&self, error: RedisError) -> Error {
        error::explain(error, &self.shown)
    }

    /// The store for people, without secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connector({})", self.shown)
    }
}
