//! Where Redis is and how to get there.

use super::roll::lock;
use super::sentinel::{Verdict, Word, judge};
use super::trouble;
use crate::background::Background;
use crate::error::{Error, Result};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind as Cause,
    IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError,
    RedisFuture, RedisResult, TlsCertificates, TlsMode, Value,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A host and its port.
pub(super) type Host = (String, u16);

/// Which servers there are.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Way {
    One(Host),
    Sentinels {
        sentinels: Vec<Host>,
        master: String,
        user: Option<String>,
        password: Option<String>,
    },
    Cluster(Vec<Host>),
}

/// How to get in.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    pub(super) tls: Option<TlsCertificates>,
    pub(super) timeout: Duration,
    /// Where connections live.
    pub(super) home: Background,
}

/// One connection, whatever is at its other end.
#[derive(Clone)]
pub(super) enum Wire {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// The way and the door.
pub(super) struct Route {
    way: Way,
    door: Door,
    /// The store for people, without secrets.
    shown: String,
    /// Which node of a cluster to listen at next: any will do, and the last may be dead.
    turn: AtomicUsize,
    /// The nodes of a cluster, the one that told of them first.
    learned: Mutex<Vec<Host>>,
}

impl Route {
    pub(super) fn new(way: Way, door: Door, shown: String) -> Self {
        if door.tls.is_some() {
            // Rustls wants one for the whole process. One that is there already is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { way, door, shown, turn: AtomicUsize::new(0), learned: Mutex::default() }
    }

    /// A connection for commands, and to whom; in a cluster, to any of its nodes.
    pub(super) async fn connect(&self) -> RedisResult<(Host, Wire)> {
        let host = match &self.way {
            Way::One(host) => host.clone(),
            Way::Sentinels { .. } => self.primary().boxed().await?,
            Way::Cluster(_) => self.hosts().swap_remove(0),
        };
        let mut connection = self.door.open(&host, None).await?;
        if self.has_sentinels() {
            // The sentinels may not have noticed yet that it was demoted.
            let role: Value = redis::cmd("ROLE").query_async(&mut connection).await?;
            let is_primary = matches!(&role, Value::Array(role)
                if role.first() == Some(&Value::BulkString(b"master".to_vec())));
            if !is_primary {
                return Err(no_primary("the sentinels name a server that is no primary", None));
            }
        }
        Ok((host, Wire::Node(connection)))
    }

    /// A connection to this server.
    pub(super) async fn connect_to(&self, host: &Host) -> RedisResult<Wire> {
        self.door.open(host, None).await.map(Wire::Node)
    }

    /// A connection of its own, whose messages go to `hear`: to one server, or with `shards` to
    /// every node of a cluster.
    pub(super) async fn connect_listening(
        &self,
        shards: bool,
        hear: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> RedisResult<Wire> {
        let hosts = match &self.way {
            Way::One(host) => vec![host.clone()],
            Way::Sentinels { .. } => vec![self.primary().boxed().await?],
            Way::Cluster(_) if shards => {
                let client = self.cluster(&self.hosts())?.push_sender(hear).build()?;
                return self.door.open_cluster(client).await;
            }
            // What is published at one node of a cluster is heard at all of them.
            Way::Cluster(_) => {
                let mut hosts = self.hosts();
                let first = self.turn.fetch_add(1, Ordering::Relaxed) % hosts.len();
                hosts.rotate_left(first);
                hosts
            }
        };
        let config = self.door.config().set_push_sender(hear);
        let mut last = no_primary("no host is named", None);
        for host in &hosts {
            match self.door.open(host, Some(config.clone())).await {
                Ok(connection) => return Ok(Wire::Node(connection)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Asks the sentinels who is the primary now; `None` where there are none.
    pub(super) async fn current_primary(&self) -> Option<Host> {
        match self.way {
            Way::Sentinels { .. } => self.primary().boxed().await.ok(),
            _ => None,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.way, Way::Cluster(_))
    }

    /// Every host of a cluster that is known: the nodes that one of them told of, and those in the
    /// URL, which may be gone by now or be the only ones that are left.
    pub(super) fn hosts(&self) -> Vec<Host> {
        let mut hosts = lock(&self.learned).clone();
        if let Way::Cluster(named) = &self.way {
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
        self.door.timeout
    }

    pub(super) fn has_sentinels(&self) -> bool {
        matches!(self.way, Way::Sentinels { .. })
    }

    /// Asks all sentinels at once: one that is silent must not hold up those who wait for an
    /// answer, and one that knows less than the others must not decide.
    async fn primary(&self) -> RedisResult<Host> {
        let Way::Sentinels { sentinels, master, user, password } = &self.way else {
            return Err(no_primary("there are no sentinels to ask", None));
        };
        let mut door = self.door.clone();
        (door.user, door.password, door.database) = (user.clone(), password.clone(), 0);
        let door = &door;
        let mut asked: FuturesUnordered<_> = sentinels
            .iter()
            .map(|sentinel| async move {
                let mut connection = door.open(sentinel, None).await?;
                word_of(&mut connection, master).await
            })
            .collect();
        let (mut words, mut silent) = (Vec::new(), None);
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(word) => words.push(word),
                // One that answers and does not know is told of rather than one that is away.
                Err(error) if silent.is_none() || error.kind() != Cause::Io => silent = Some(error),
                Err(_) => {}
            }
            if let Verdict::Primary(host) = judge(&words, sentinels.len()) {
                return Ok(host.clone());
            }
        }
        let (said, all) = (words.len(), sentinels.len());
        match silent {
            Some(error) if words.is_empty() => Err(error),
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

    fn cluster(&self, hosts: &[Host]) -> RedisResult<ClusterClientBuilder> {
        let nodes: Vec<ConnectionInfo> =
            hosts.iter().map(|host| self.door.info(host)).collect::<RedisResult<_>>()?;
        let mut builder = ClusterClient::builder(nodes)
            .use_protocol(ProtocolVersion::RESP3)
            .connection_timeout(self.door.timeout)
            .response_timeout(self.door.timeout)
            .overall_response_timeout(Some(self.door.timeout * 2))
            .retries(3)
            .tcp_settings(self.door.tcp(TcpSettings::default()));
        if let Some(user) = &self.door.user {
            builder = builder.username(user);
        }
        if let Some(password) = &self.door.password {
            builder = builder.password(password);
        }
        if let Some(tls) = &self.door.tls {
            builder = builder.tls(TlsMode::Secure).certs(tls.clone());
        }
        Ok(builder)
    }

    pub(super) fn explain(&self, error: RedisError) -> Error {
        trouble::explain(error, &self.shown)
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

impl Door {
    fn info(&self, (host, port): &Host) -> RedisResult<ConnectionInfo> {
        let mut settings = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("lockkeeper", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let (host, port) = (host.clone(), *port);
        let address = match self.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        };
        let info = address.into_connection_info()?;
        let tcp = self.tcp(info.tcp_settings().clone());
        Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
    }

    fn tcp(&self, settings: TcpSettings) -> TcpSettings {
        // What has not left this machine when we let go of a connection is never to: a claim that
        // arrives after its withdrawal would hold the lock for nobody. And without delay: with it
        // up to two thirds of the throughput is lost.
        let settings = settings.set_nodelay(true).set_linger_time(Duration::ZERO);
        #[cfg(target_os = "linux")]
        let settings = settings.set_user_timeout(self.timeout);
        settings
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout))
    }

    async fn open(
        &self,
        host: &Host,
        config: Option<AsyncConnectionConfig>,
    ) -> RedisResult<MultiplexedConnection> {
        let info = self.info(host)?;
        let client = match &self.tls {
            Some(tls) => Client::build_with_tls(info, tls.clone())?,
            None => Client::open(info)?,
        };
        let config = config.unwrap_or_else(|| self.config());
        let opened = self.home.settle(move || {
            let (client, config) = (client.clone(), config.clone());
            async move { client.get_multiplexed_async_connection_with_config(&config).await }
        });
        opened.await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
    }

    async fn open_cluster(&self, client: ClusterClient) -> RedisResult<Wire> {
        let opened = self.home.settle(move || {
            let client = client.clone();
            async move { client.get_async_connection().await.map(Wire::Cluster) }
        });
        opened.await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
    }
}

fn no_primary(why: &'static str, details: Option<String>) -> RedisError {
    match details {
        Some(details) => RedisError::from((Cause::MasterNameNotFoundBySentinel, why, details)),
        None => RedisError::from((Cause::MasterNameNotFoundBySentinel, why)),
    }
}

/// What a sentinel says of the primary of that name. Not all it knows is asked of it alone: some
/// that only speak like a sentinel, or whose user may do little, name the primary and no more.
async fn word_of(connection: &mut MultiplexedConnection, master: &str) -> RedisResult<Word> {
    let mut ask = Pipeline::with_capacity(2);
    ask.cmd("SENTINEL").arg("get-master-addr-by-name").arg(master);
    ask.cmd("SENTINEL").arg("master").arg(master);
    let mut answers = connection.req_packed_commands(&ask, 0, 2).await?.into_iter();
    let (named, known) = (answers.next().unwrap_or(Value::Nil), answers.next());
    let host = redis::from_redis_value::<Option<Host>>(named.extract_error()?)?;
    let unknown = || no_primary("the sentinels know no primary of that name", None);
    let primary = host.ok_or_else(unknown)?;
    let known = known.and_then(|known| {
        redis::from_redis_value::<HashMap<String, String>>(known.extract_error().ok()?).ok()
    });
    let epoch = known.and_then(|known| known.get("config-epoch")?.parse().ok());
    Ok(Word { primary, epoch: epoch.unwrap_or_default() })
}

impl Wire {
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Wire::Cluster(_))
    }

    /// Subscribes to a channel that all of a cluster tells of.
    pub(super) async fn subscribe(&mut self, name: &str) -> RedisResult<()> {
        match self {
            Wire::Node(connection) => connection.subscribe(name).await,
            Wire::Cluster(connection) => connection.subscribe(name).await,
        }
    }

    /// Subscribes to channels of one lock: in a cluster, where the lock is.
    pub(super) async fn subscribe_to_lock(&mut self, names: &[String]) -> RedisResult<()> {
        match self {
            Wire::Node(connection) => connection.subscribe(names).await,
            Wire::Cluster(connection) => connection.ssubscribe(names).await,
        }
    }

    /// Ends what [`subscribe_to_lock`](Self::subscribe_to_lock) began, for any locks.
    pub(super) async fn unsubscribe_from_locks(&mut self, names: &[String]) -> RedisResult<()> {
        match self {
            Wire::Node(connection) => connection.unsubscribe(names).await,
            Wire::Cluster(connection) => {
                // One by one: they may be on several nodes.
                for name in names {
                    connection.sunsubscribe(name).await?;
                }
                Ok(())
            }
        }
    }
}

impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Wire::Node(connection) => connection.req_packed_command(command),
            Wire::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Wire::Node(connection) => connection.req_packed_commands(pipeline, offset, count),
            Wire::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Wire::Node(connection) => connection.get_db(),
            Wire::Cluster(connection) => connection.get_db(),
        }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({})", self.shown)
    }
}

/// Without passwords.
impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::One((host, port)) => write!(f, "{host}:{port}"),
            Way::Sentinels { sentinels, master, .. } => write!(f, "{master} of {sentinels:?}"),
            Way::Cluster(hosts) => write!(f, "cluster {hosts:?}"),
        }
    }
}

/// Without passwords.
impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Read};

    #[tokio::test]
    async fn what_was_not_delivered_when_we_let_go_never_is() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let door = Door {
            user: None,
            password: None,
            database: 0,
            tls: None,
            timeout: Duration::from_millis(100),
            home: Background::new(),
        };
        // It takes the connection and says nothing.
        assert!(door.open(&("127.0.0.1".to_owned(), port), None).await.is_err());
        let end = tokio::task::spawn_blocking(move || {
            let (mut taken, _) = listener.accept()?;
            taken.read_to_end(&mut Vec::new())
        });
        // Cut off; not closed, for which everything else would be delivered first.
        assert_eq!(end.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
