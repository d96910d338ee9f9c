//! What a Redis URL says.

use super::key::PREFIX;
use super::link::Link;
use crate::address::Address;
use crate::error::{Error, ErrorKind, Result};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, Value,
};
use std::time::Duration;

const KNOWN: &[&str] = &["recipe", "prefix", "timeout", "barging", "allow_eviction"];

/// A Redis URL, taken apart.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) hosts: Vec<(String, u16)>,
    user: Option<String>,
    password: Option<String>,
    database: i64,
    pub(super) recipe: String,
    pub(super) prefix: String,
    pub(super) timeout: Duration,
    pub(super) barging: bool,
    allow_eviction: bool,
}

impl Options {
    pub(super) fn read(address: &Address) -> Result<Self> {
        address.only_options(KNOWN)?;
        let option = |name: &str| address.options.get(name).map(String::as_str);
        let database = match address.path.trim_matches('/') {
            "" => 0,
            number => number.parse().map_err(|_| {
                config(format!("{number:?} is no database: write redis://host/0 for number 0"))
            })?,
        };
        let (user, password) = address.credentials()?;
        let recipe = option("recipe").unwrap_or("queue").to_owned();
        // What others use as it is has nothing of ours in front.
        let prefix = if recipe == "queue" { PREFIX } else { "" };
        Ok(Self {
            hosts: address.hosts(6379)?,
            user,
            password,
            database,
            prefix: option("prefix").unwrap_or(prefix).to_owned(),
            recipe,
            timeout: address.span("timeout")?.unwrap_or(Duration::from_secs(2)),
            barging: address.flag("barging")?,
            allow_eviction: address.flag("allow_eviction")?,
        })
    }

    pub(super) fn info(&self) -> Result<ConnectionInfo> {
        let [(host, port)] = &self.hosts[..] else {
            return Err(config(
                "redis:// names one server: for several see redis+sentinel:// and redis+cluster://"
                    .to_owned(),
            ));
        };
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
        let address = ConnectionAddr::Tcp(host.clone(), *port);
        let info = address.into_connection_info().map_err(|error| config(error.to_string()))?;
        // Off by default, which costs up to two thirds of the throughput.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
    }

    /// Refuses a server that may throw locks away when its memory is full.
    pub(super) async fn check_eviction(&self, link: &Link) -> Result<()> {
        let mut ask = redis::cmd("CONFIG");
        ask.arg("GET").arg("maxmemory-policy");
        let policy = match link.command(&ask).await {
            Ok(Value::Map(pairs)) => pairs.into_iter().next().map(|(_, policy)| policy),
            Ok(Value::Array(pair)) => pair.into_iter().nth(1),
            Ok(_) => None,
            Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Store) => {
                tracing::warn!(%error, "cannot see whether Redis may evict locks");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let Some(Value::BulkString(policy)) = policy else { return Ok(()) };
        let policy = String::from_utf8_lossy(&policy);
        if policy == "noeviction" || self.allow_eviction {
            return Ok(());
        }
        Err(config(format!(
            "{} may throw locks away when its memory is full (maxmemory-policy is {policy}): set \
             it to noeviction, or say ?allow_eviction=true",
            link.route.shown()
        )))
    }
}

fn config(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
}
