//! Where Redis is and how to get there.

use super::trouble;
use crate::background::Background;
use crate::error::{Error, Result};
use futures_util::future::select_ok;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind as Cause,
    IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError,
    RedisFuture, RedisResult, TlsCertificates, TlsMode, Value,
};
use std::fmt;
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
}

impl Route {
    pub(super) fn new(way: Way, door: Door, shown: String) -> Self {
        if door.tls.is_some() {
            // Rustls wants one for the whole process. One that is there already is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { way, door, shown, turn: AtomicUsize::new(0) }
    }

    /// A connection for commands.
    pub(super) async fn connect(&self) -> RedisResult<Wire> {
        match &self.way {
            Way::One(host) => self.door.open(host, None).await.map(Wire::Node),
            Way::Sentinels { .. } => {
                let primary = self.primary().await?;
                let mut connection = self.door.open(&primary, None).await?;
                // The sentinels may not have noticed yet that it was demoted.
                let role: Value = redis::cmd("ROLE").query_async(&mut connection).await?;
                match role {
                    Value::Array(role)
                        if role.first() == Some(&Value::BulkString(b"master".to_vec())) =>
                    {
                        Ok(Wire::Node(connection))
                    }
                    _ => Err(no_primary("the sentinels name a server that is no primary")),
                }
            }
            Way::Cluster(hosts) => self.door.open_cluster(self.cluster(hosts)?.build()?).await,
        }
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
            Way::Sentinels { .. } => vec![self.primary().await?],
            Way::Cluster(hosts) if shards => {
                let client = self.cluster(hosts)?.push_sender(hear).build()?;
                return self.door.open_cluster(client).await;
            }
            // What is published at one node of a cluster is heard at all of them.
            Way::Cluster(hosts) => {
                let mut hosts = hosts.clone();
                let first = self.turn.fetch_add(1, Ordering::Relaxed) % hosts.len();
                hosts.rotate_left(first);
                hosts
            }
        };
        let config = self.door.config().set_push_sender(hear);
        let mut last = no_primary("no host is named");
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
            Way::Sentinels { .. } => self.primary().await.ok(),
            _ => None,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.way, Way::Cluster(_))
    }

    pub(super) fn has_sentinels(&self) -> bool {
        matches!(self.way, Way::Sentinels { .. })
    }

    async fn primary(&self) -> RedisResult<Host> {
        let Way::Sentinels { sentinels, master, user, password } = &self.way else {
            return Err(no_primary("there are no sentinels to ask"));
        };
        let mut door = self.door.clone();
        (door.user, door.password, door.database) = (user.clone(), password.clone(), 0);
        // All at once: one that is silent must not hold up those who wait for an answer.
        let asked = sentinels.iter().map(|sentinel| {
            let door = &door;
            Box::pin(async move {
                let mut connection = door.open(sentinel, None).await?;
                let mut ask = redis::cmd("SENTINEL");
                ask.arg("get-master-addr-by-name").arg(master);
                let host = ask.query_async::<Option<Host>>(&mut connection).await?;
                host.ok_or_else(|| no_primary("the sentinels know no primary of that name"))
            })
        });
        select_ok(asked).await.map(|(host, _)| host)
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

fn no_primary(why: &'static str) -> RedisError {
    RedisError::from((Cause::MasterNameNotFoundBySentinel, why))
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
