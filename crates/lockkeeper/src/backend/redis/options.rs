//! What a Redis URL, or a caller's struct, says. Nothing here connects.
//!
//! A URL is read into the same [`RedisOptions`] that a program can fill by itself; whatever a URL can
//! say has a public field there. Two things only a program can say: certificates that are not in files
//! ([`TlsOptions`]), and the settings of a client that it has already ([`RedisOptions::from_client`]).
//!
//! An option that the chosen recipe would ignore is refused, as one that there is not: a URL must not
//! promise what does not happen. Passwords are in no `Debug` and in nothing that is shown; a URL is
//! shown as it was written, without its password and its options.

use super::client::{ConnectOptions, Topology};
use super::keys::PREFIX;
use crate::address::Address;
use crate::backend::support::options::{TLS, config};
use crate::backend::{Backend, Background, OpenStore, TlsOptions};
use crate::error::Result;
use crate::patience::OUTAGE;
use async_trait::async_trait;
use redis::{ConnectionAddr, ConnectionInfo};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The longest a connection or an answer is waited for, unless said otherwise.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The options that every recipe takes, besides those for TLS.
const COMMON: &[&str] =
    &["recipe", "prefix", "timeout", "allow_eviction", "sentinel_user", "sentinel_password"];

/// Which recipe makes the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RedisRecipe {
    /// A fair queue: what to use unless another library is to share the locks.
    #[default]
    Queue,
    /// Shared with Redisson's `RLock` and `RReadWriteLock`.
    Reentrant,
    /// One key per lock, shared with redis-py, redsync, rslock, node-redlock and others.
    SetNxPx,
    /// **Unsafe**, to be seen failing: `SETNX`, then `EXPIRE`.
    SetnxExpire,
    /// **Unsafe**, to be seen failing: expiry by the clients' clocks.
    GetSet,
}

/// Where Redis is and how locks are made of it; see [`connect_with`](crate::connect_with).
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::backend::redis::RedisOptions;
///
/// let mut options = RedisOptions::new("127.0.0.1", 6379);
/// options.prefix = Some("shop:".into());
/// let keeper = lockkeeper::connect_with(options).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Which servers there are.
    pub topology: Topology,
    /// The user; the default user where there is none.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// The number of the database; a cluster has only 0.
    pub database: i64,
    /// Encryption; none where there is none.
    pub tls: Option<TlsOptions>,
    /// The longest a connection or an answer is waited for.
    pub timeout: Duration,
    /// How locks are made.
    pub recipe: RedisRecipe,
    /// What keys begin with. `None` is `lockkeeper:` for the queue, and nothing for the others; it
    /// may be empty.
    pub prefix: Option<String>,
    /// Whether newcomers may take a free lock before those that wait (the queue only).
    pub barging: bool,
    /// How many replicas must have a claim or a renewal before it counts (the queue and reentrant).
    pub replicas: u32,
    /// Whether to accept a server that may evict locks when its memory is full.
    pub allow_eviction: bool,
    /// How long a claim that waits puts up with a server that does not answer.
    pub outage: Duration,
    /// The address of a client that the caller made.
    address: Option<ConnectionAddr>,
    /// The URL, without secrets.
    url: Option<String>,
}

impl RedisOptions {
    /// One server.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::with_topology(Topology::One(host.into(), port))
    }

    /// The servers of a topology: sentinels, a cluster.
    pub fn with_topology(topology: Topology) -> Self {
        Self {
            topology,
            user: None,
            password: None,
            database: 0,
            tls: None,
            timeout: TIMEOUT,
            recipe: RedisRecipe::default(),
            prefix: None,
            barging: false,
            replicas: 0,
            allow_eviction: false,
            outage: OUTAGE,
            address: None,
            url: None,
        }
    }

    /// The server of a client that the program has already, with its user, database and
    /// certificates. Only its settings are used: a keeper has connections of its own.
    pub fn from_client(client: &redis::Client) -> Self {
        Self::from_connection_info(client.get_connection_info())
    }

    /// As [`from_client`](Self::from_client), from the settings themselves: also a socket file.
    pub fn from_connection_info(info: &ConnectionInfo) -> Self {
        let (host, port) = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host.clone(), *port)
            }
            ConnectionAddr::Unix(path) => (path.display().to_string(), 0),
            other => (other.to_string(), 0),
        };
        let settings = info.redis_settings();
        Self {
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            database: settings.db(),
            address: Some(info.addr().clone()),
            ..Self::new(host, port)
        }
    }

    /// What a URL says.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        let option = |name: &str| address.options.get(name).map(String::as_str);
        let recipe = RedisRecipe::read(option("recipe"))?;
        address.only_options(&[COMMON, TLS, recipe.options()])?;
        if option("prefix").is_some_and(|prefix| prefix.contains(char::is_control)) {
            return Err(config("a prefix has no control characters"));
        }
        let (topology, database) = topology(address)?;
        let (user, password) = address.credentials()?;
        let encrypted = address.scheme == "rediss" || address.flag("tls")?;
        Ok(Self {
            user,
            password,
            database,
            tls: TlsOptions::read(address, encrypted)?,
            timeout: address.span("timeout")?.unwrap_or(TIMEOUT),
            recipe,
            prefix: option("prefix").map(str::to_owned),
            barging: address.flag("barging")?,
            replicas: match option("replicas") {
                None => 0,
                Some(number) => number
                    .parse()
                    .map_err(|_| config("the option replicas is a number, such as 1"))?,
            },
            allow_eviction: address.flag("allow_eviction")?,
            url: Some(address.to_string()),
            ..Self::with_topology(topology)
        })
    }

    /// The prefix that was asked for, or the recipe's own.
    pub(super) fn prefix_or_default(&self) -> String {
        let default = if self.recipe == RedisRecipe::Queue { PREFIX } else { "" };
        self.prefix.as_deref().unwrap_or(default).to_owned()
    }

    /// How to connect, with connections that live in `home`.
    pub(super) fn connect_options(&self, home: &Background) -> ConnectOptions {
        ConnectOptions {
            user: self.user.clone(),
            password: self.password.clone(),
            database: self.database,
            tls: self.tls.clone(),
            timeout: self.timeout,
            address: self.address.clone(),
            home: home.clone(),
        }
    }

    /// The store for people, without secrets.
    pub(super) fn shown(&self) -> String {
        if let Some(url) = &self.url {
            return url.clone();
        }
        let hosts = |hosts: &[(String, u16)]| {
            let hosts = hosts.iter().map(|(host, port)| format!("{host}:{port}"));
            hosts.collect::<Vec<_>>().join(",")
        };
        match &self.topology {
            Topology::One(path, 0) => format!("redis+unix:{path}"),
            Topology::One(host, port) if self.is_encrypted() => format!("rediss://{host}:{port}"),
            Topology::One(host, port) => format!("redis://{host}:{port}"),
            Topology::Sentinels { sentinels, primary, .. } => {
                format!("redis+sentinel://{}/{primary}", hosts(sentinels))
            }
            Topology::Cluster(nodes) => format!("redis+cluster://{}", hosts(nodes)),
        }
    }

    /// Whether connections are encrypted, by our own options or those of the caller's client.
    fn is_encrypted(&self) -> bool {
        self.tls.is_some() || matches!(self.address, Some(ConnectionAddr::TcpTls { .. }))
    }
}

impl RedisRecipe {
    /// The recipe that the option `recipe` names; the queue where it is left out.
    fn read(name: Option<&str>) -> Result<Self> {
        match name {
            None | Some("queue") => Ok(Self::Queue),
            Some("reentrant") => Ok(Self::Reentrant),
            Some("set-nx-px") => Ok(Self::SetNxPx),
            Some("setnx-expire") => Ok(Self::SetnxExpire),
            Some("getset") => Ok(Self::GetSet),
            Some(other) => Err(crate::recipes::unknown_recipe("redis", other)),
        }
    }

    /// The options that mean something to this recipe alone: elsewhere there is no queue to barge
    /// into, and a plain command does not wait for replicas.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Queue => &["barging", "replicas"],
            Self::Reentrant => &["replicas"],
            Self::SetNxPx | Self::SetnxExpire | Self::GetSet => &[],
        }
    }
}

/// Which servers a URL names, and the database.
fn topology(address: &Address) -> Result<(Topology, i64)> {
    let option = |name: &str| address.options.get(name).cloned();
    let path = address.path.trim_matches('/');
    let (topology, database) = match address.scheme.as_str() {
        "redis+sentinel" => {
            let (primary, database) = path.split_once('/').unwrap_or((path, ""));
            if primary.is_empty() {
                return Err(config(
                    "which primary do the sentinels watch? Write \
                     redis+sentinel://host1,host2,host3/its-name",
                ));
            }
            let topology = Topology::Sentinels {
                sentinels: address.hosts(26379)?,
                primary: primary.to_owned(),
                user: option("sentinel_user"),
                password: option("sentinel_password"),
            };
            (topology, database)
        }
        "redis+cluster" => match path {
            "" | "0" => (Topology::Cluster(address.hosts(6379)?), ""),
            _ => return Err(config("a cluster has only database 0: leave it out")),
        },
        _ => match &address.hosts(6379)?[..] {
            [(host, port)] => (Topology::One(host.clone(), *port), path),
            _ => {
                return Err(config(
                    "redis:// names one server: for several see redis+sentinel:// and \
                     redis+cluster://",
                ));
            }
        },
    };
    let database = match database {
        "" => 0,
        number => number.parse().map_err(|_| {
            config(format!("{number:?} is no database: write redis://host/0 for number 0"))
        })?,
    };
    Ok((topology, database))
}

#[async_trait]
impl OpenStore for RedisOptions {
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>> {
        super::open(*self, background).await
    }

    fn outage(&self) -> Duration {
        self.outage
    }
}

/// Without passwords.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("topology", &self.topology)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .field("recipe", &self.recipe)
            .field("prefix", &self.prefix)
            .field("barging", &self.barging)
            .field("replicas", &self.replicas)
            .field("allow_eviction", &self.allow_eviction)
            .field("outage", &self.outage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<RedisOptions> {
        RedisOptions::read(&Address::parse(url).unwrap())
    }

    /// An option that a recipe would ignore is refused: it would promise what does not happen.
    #[test]
    fn each_recipe_takes_its_own_options_and_no_other() {
        assert!(read("redis://h?barging=true&replicas=2").is_ok());
        assert!(read("redis://h?recipe=reentrant&replicas=2").is_ok());
        for url in [
            "redis://h?recipe=reentrant&barging=true",
            "redis://h?recipe=set-nx-px&replicas=1",
            "redis://h?recipe=getset&barging=true",
            "redis://h?recipe=nonsense",
            "redis://h?ca=/nowhere",
        ] {
            assert_eq!(read(url).unwrap_err().kind(), crate::ErrorKind::Config, "{url}");
        }
    }

    /// The locks of another library have no prefix, and those of the queue may do without theirs.
    #[test]
    fn an_empty_prefix_is_not_the_default_one() {
        assert_eq!(read("redis://h").unwrap().prefix_or_default(), PREFIX);
        assert_eq!(read("redis://h?prefix=").unwrap().prefix_or_default(), "");
        assert_eq!(read("redis://h?recipe=reentrant").unwrap().prefix_or_default(), "");
        assert_eq!(read("redis://h?recipe=set-nx-px&prefix=a:").unwrap().prefix_or_default(), "a:");
    }

    /// Neither in `Debug` nor in what people are shown, whatever the options came from.
    #[test]
    fn no_password_is_shown() {
        let mut sentinels =
            read("redis+sentinel://me:hunter2@h/m?sentinel_password=hunter2").unwrap();
        let client = redis::Client::open("redis://me:hunter2@h:7/2").unwrap();
        let theirs = RedisOptions::from_client(&client);
        for options in [&sentinels, &theirs] {
            assert!(!format!("{options:?}{}", options.shown()).contains("hunter2"), "{options:?}");
            let connect = options.connect_options(&Background::new());
            assert!(!format!("{connect:?}").contains("hunter2"));
        }
        sentinels.url = None;
        assert_eq!(sentinels.shown(), "redis+sentinel://h:26379/m");
    }

    #[test]
    fn a_client_says_where_to_connect_and_as_whom() {
        let client = redis::Client::open("redis://me:pass@h:7/2").unwrap();
        let theirs = RedisOptions::from_client(&client);
        assert_eq!(theirs.topology, Topology::One("h".to_owned(), 7));
        assert_eq!(
            (theirs.user.as_deref(), theirs.password.as_deref()),
            (Some("me"), Some("pass"))
        );
        assert_eq!((theirs.database, theirs.shown().as_str()), (2, "redis://h:7"));
        let file = redis::Client::open("redis+unix:///run/redis.sock").unwrap();
        assert_eq!(RedisOptions::from_client(&file).shown(), "redis+unix:/run/redis.sock");
    }
}
