//! Which servers there are, and how a connection to one of them is made.
//!
//! Connections live in the keeper's background or on the caller's runtime, whichever drives itself
//! ([`Background`]); a connection that ends with its runtime is made anew as after any other break.
//! Every wait here has a limit, the option `timeout`.

use crate::backend::TlsOptions;
use crate::backend::support::life::Life;
use crate::background::Background;
use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisResult, TlsCertificates,
    TlsMode,
};
use std::fmt;
use std::time::Duration;

/// A host and its port.
pub(crate) type Host = (String, u16);

/// Which servers there are.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// One server.
    One(String, u16),
    /// The primary of a name, found through sentinels.
    Sentinels {
        /// The sentinels: name all of them, since more than half must answer.
        sentinels: Vec<(String, u16)>,
        /// The name under which they watch the primary.
        primary: String,
        /// The user that the sentinels themselves ask for.
        user: Option<String>,
        /// Its password.
        password: Option<String>,
    },
    /// A cluster, by some of its nodes; the others are learned from them.
    Cluster(Vec<(String, u16)>),
}

/// How a connection to any of the servers is made: who we are, encryption, limits.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
    pub(crate) tls: Option<TlsOptions>,
    pub(crate) timeout: Duration,
    /// The address of a client that the caller made: it may be a socket file, or have TLS settings
    /// that cannot be read from outside. Used as it is, instead of a host and a port.
    pub(crate) address: Option<ConnectionAddr>,
    /// Where connections live.
    pub(crate) home: Background,
}

impl ConnectOptions {
    /// As these, but for a sentinel, which has users and databases of its own.
    pub(super) fn for_sentinels(&self, user: Option<&String>, password: Option<&String>) -> Self {
        let (user, password) = (user.cloned(), password.cloned());
        Self { user, password, database: 0, ..self.clone() }
    }

    /// Connects to one server. With `config`, messages can be heard on the connection.
    pub(super) async fn open(
        &self,
        host: &Host,
        config: Option<AsyncConnectionConfig>,
    ) -> RedisResult<MultiplexedConnection> {
        self.open_with_life(host, config).await.map(|(connection, _)| connection)
    }

    /// As [`open`](Self::open); and whether the runtime that the connection lives on still runs.
    pub(super) async fn open_with_life(
        &self,
        host: &Host,
        config: Option<AsyncConnectionConfig>,
    ) -> RedisResult<(MultiplexedConnection, Life)> {
        let info = self.info(host)?;
        let client = match &self.tls {
            Some(tls) => Client::build_with_tls(info, certificates(tls))?,
            None => Client::open(info)?,
        };
        let config = config.unwrap_or_else(|| self.config());
        let opened = self.home.settle(move || {
            let (client, config) = (client.clone(), config.clone());
            async move {
                let opened = client.get_multiplexed_async_connection_with_config(&config).await;
                opened.map(|connection| (connection, Life::begin()))
            }
        });
        opened.await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
    }

    /// Connects to a cluster by the driver's own cluster connection, which is only used to hear
    /// messages at every node.
    pub(super) async fn open_cluster(
        &self,
        client: ClusterClient,
    ) -> RedisResult<ClusterConnection> {
        let opened = self.home.settle(move || {
            let client = client.clone();
            async move { client.get_async_connection().await }
        });
        opened.await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
    }

    /// The limits of a connection: no answer is waited for without one.
    pub(super) fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout))
    }

    /// The driver's cluster client for these nodes.
    pub(super) fn cluster(&self, hosts: &[Host]) -> RedisResult<ClusterClientBuilder> {
        let nodes: Vec<ConnectionInfo> =
            hosts.iter().map(|host| self.info(host)).collect::<RedisResult<_>>()?;
        let mut builder = ClusterClient::builder(nodes)
            .use_protocol(ProtocolVersion::RESP3)
            .connection_timeout(self.timeout)
            .response_timeout(self.timeout)
            .overall_response_timeout(Some(self.timeout * 2))
            .retries(3)
            .tcp_settings(self.tcp(TcpSettings::default()));
        if let Some(user) = &self.user {
            builder = builder.username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password);
        }
        if let Some(tls) = &self.tls {
            builder = builder.tls(TlsMode::Secure).certs(certificates(tls));
        }
        Ok(builder)
    }

    /// Where to connect to and as whom, as the driver wants it.
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
        let address = match (&self.address, &self.tls) {
            (Some(address), _) => address.clone(),
            (None, None) => ConnectionAddr::Tcp(host, port),
            (None, Some(_)) => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
        };
        let info = address.into_connection_info()?;
        let tcp = self.tcp(info.tcp_settings().clone());
        Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
    }

    /// How the socket is set up; a vanished peer is noticed after `timeout`, where the system can.
    fn tcp(&self, settings: TcpSettings) -> TcpSettings {
        // Linger zero: what has not left this machine when a connection is dropped must never
        // leave it. A claim that arrives after its withdrawal would hold the lock for nobody.
        // No delay: with Nagle's algorithm up to two thirds of the throughput is lost.
        let settings = settings.set_nodelay(true).set_linger_time(Duration::ZERO);
        #[cfg(target_os = "linux")]
        let settings = settings.set_user_timeout(self.timeout);
        settings
    }
}

/// The certificates as the driver wants them.
fn certificates(tls: &TlsOptions) -> TlsCertificates {
    let client_tls = tls
        .identity
        .clone()
        .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    TlsCertificates { client_tls, root_cert: tls.ca.clone() }
}

/// Without passwords.
impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::One(host, port) => write!(f, "{host}:{port}"),
            Topology::Sentinels { sentinels, primary, .. } => {
                write!(f, "{primary} of {sentinels:?}")
            }
            Topology::Cluster(hosts) => write!(f, "cluster {hosts:?}"),
        }
    }
}

/// Without passwords.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Read};

    /// See `tcp`: a claim that arrives after its withdrawal would hold the lock for nobody.
    #[tokio::test]
    async fn what_was_not_delivered_when_we_let_go_never_is() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let options = ConnectOptions {
            user: None,
            password: None,
            database: 0,
            tls: None,
            timeout: Duration::from_millis(100),
            address: None,
            home: Background::new(),
        };
        // It takes the connection and says nothing.
        assert!(options.open(&("127.0.0.1".to_owned(), port), None).await.is_err());
        let end = tokio::task::spawn_blocking(move || {
            let (mut taken, _) = listener.accept()?;
            taken.read_to_end(&mut Vec::new())
        });
        // Cut off; not closed, for which everything else would be delivered first.
        assert_eq!(end.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
