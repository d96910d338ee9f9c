//! What a `postgres:` or `mysql:` URL says, and the same as structs.
//!
//! No I/O but for files with certificates and passwords. Both stores have the same options
//! beside those of their drivers, so they are read here once.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod passfile;
#[cfg(feature = "postgres")]
mod postgres;

#[cfg(feature = "mysql")]
pub use mysql::MysqlOptions;
#[cfg(feature = "postgres")]
pub use postgres::PostgresOptions;

use crate::address::Address;
use crate::backend::TlsOptions;
use crate::backend::support::options::config;
use crate::error::Result;
use std::time::Duration;

/// The options of both, beside those for TLS.
pub(super) const KNOWN: &[&str] = &[
    "recipe",
    "table",
    "timeout",
    "connections",
    "socket",
    "keepalive",
    "session",
    "sessions",
    "free_on_disconnect",
    "standby",
    "takeover",
];

/// The recipe of a URL that names none.
pub(super) const RECIPE: &str = "table";
/// What the two tables are called unless the URL says otherwise.
pub(super) const TABLE: &str = "lockkeeper";
/// How long one statement may take, and how long it may take to connect.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// How many connections a busy keeper has at most. Statements of many tasks share them; a few are
/// enough for the server to write the commits of several to its disk at once.
pub(super) const CONNECTIONS: usize = 4;
/// How long a server keeps a session of ours that says nothing, and with it the lock in it.
pub(super) const SESSION: Duration = Duration::from_secs(10);
/// How short and how long that may be. MariaDB and MySQL count whole seconds.
const SESSION_BOUNDS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(300);
/// How many sessions a keeper has at most with a recipe that keeps one for each lock.
pub(super) const SESSIONS: usize = 50;
/// How long a connection may be silent before the system asks whether the other side is there.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);
/// How often it asks when nobody answers, and how many times before the connection is given up.
#[cfg(feature = "postgres")]
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// See [`KEEPALIVE_INTERVAL`].
#[cfg(feature = "postgres")]
pub(super) const KEEPALIVE_TRIES: u32 = 3;
/// The longest name of a table that both servers take, with our longest suffix behind it.
const LONGEST_TABLE: usize = 48;

/// The longest ttl with a standby, and how long a move to it takes.
pub(super) const TAKEOVER: Duration = Duration::from_secs(30);

/// The address of the standby that a URL names: what it does not say itself is as in the URL.
pub(super) fn standby_of(address: &Address) -> Result<Option<Address>> {
    let Some(url) = address.options.get("standby") else { return Ok(None) };
    let mut standby = Address::parse(url)?;
    if standby.scheme != address.scheme {
        let scheme = &address.scheme;
        return Err(config(format!(
            "the standby of a {scheme}: URL is named by another {scheme}: URL"
        )));
    }
    let credentials = |it: &Address| {
        let authority = it.authority.as_deref().unwrap_or_default();
        authority.rsplit_once('@').map(|(credentials, _)| credentials.to_owned())
    };
    if let (None, Some(own)) = (credentials(&standby), credentials(address)) {
        let host = standby.authority.take().unwrap_or_default();
        standby.authority = Some(format!("{own}@{host}"));
    }
    if standby.path.trim_matches('/').is_empty() {
        standby.path.clone_from(&address.path);
    }
    for (option, value) in &address.options {
        if !matches!(option.as_str(), "standby" | "takeover" | "socket") {
            standby.options.entry(option.clone()).or_insert_with(|| value.clone());
        }
    }
    Ok(Some(standby))
}

/// Where a server is, and how we introduce ourselves.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) socket: Option<String>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
}

impl Login {
    /// What the part of the URL before the `?` says, and the option `socket`.
    pub(super) fn read(address: &Address, port: u16) -> Result<Self> {
        let (user, password) = address.credentials()?;
        let socket = address.options.get("socket").cloned();
        let authority = address.authority.as_deref().unwrap_or_default();
        let nameless = authority.rsplit_once('@').map_or(authority, |(_, host)| host).is_empty();
        let hosts = match (&socket, nameless) {
            (Some(_), true) => Vec::new(),
            (Some(_), false) => {
                return Err(config(
                    "a URL has a host or the option socket, not both: write \
                     postgres:///database?socket=/path",
                ));
            }
            (None, true) => vec![("localhost".to_owned(), port)],
            (None, false) => address.hosts(port)?,
        };
        let database = address.path.strip_prefix('/').unwrap_or(&address.path);
        let database = (!database.is_empty()).then(|| database.to_owned());
        Ok(Self { hosts, socket, user, password, database })
    }
}

/// What both stores take from the options of a URL.
pub(super) struct Common {
    pub(super) recipe: String,
    pub(super) table: String,
    pub(super) timeout: Duration,
    pub(super) connections: usize,
    pub(super) session: Duration,
    pub(super) sessions: usize,
    pub(super) free_on_disconnect: bool,
    pub(super) keepalive: Duration,
    pub(super) takeover: Duration,
    pub(super) tls: Option<TlsOptions>,
}

impl Common {
    pub(super) fn read(address: &Address) -> Result<Self> {
        let text = |option: &str, default: &str| {
            address.options.get(option).cloned().unwrap_or_else(|| default.to_owned())
        };
        let connections = match address.options.get("connections") {
            None => CONNECTIONS,
            Some(count) => count
                .parse()
                .ok()
                .filter(|count| (1..=64).contains(count))
                .ok_or_else(|| config("the option connections is a number from 1 to 64"))?,
        };
        let sessions = match address.options.get("sessions") {
            None => SESSIONS,
            Some(count) => count
                .parse()
                .ok()
                .filter(|count| (1..=10_000).contains(count))
                .ok_or_else(|| config("the option sessions is a number from 1 to 10000"))?,
        };
        Ok(Self {
            recipe: text("recipe", RECIPE),
            table: text("table", TABLE),
            timeout: address.span("timeout")?.unwrap_or(TIMEOUT),
            connections,
            session: address.span("session")?.unwrap_or(SESSION),
            sessions,
            free_on_disconnect: address.flag("free_on_disconnect")?,
            keepalive: address.span("keepalive")?.unwrap_or(KEEPALIVE),
            takeover: address.span("takeover")?.unwrap_or(TAKEOVER),
            tls: TlsOptions::read(address, address.flag("tls")?)?,
        })
    }
}

/// Checks a name that becomes a part of statements: a parameter cannot stand for a table.
///
/// Small letters only, so that the name means the same with and without quotes, in every
/// statement and in every tool.
pub(super) fn check_identifier(option: &str, name: &str) -> Result<()> {
    let first = |c: char| c.is_ascii_lowercase() || c == '_';
    let rest = |c: char| first(c) || c.is_ascii_digit();
    if name.starts_with(first) && name.chars().all(rest) && name.len() <= LONGEST_TABLE {
        return Ok(());
    }
    Err(config(format!(
        "the option {option} is a name of small letters, digits and _, at most {LONGEST_TABLE} long"
    )))
}

/// Checks how long a session may say nothing.
pub(super) fn check_session(session: Duration) -> Result<()> {
    if SESSION_BOUNDS.contains(&session) {
        return Ok(());
    }
    Err(config("the option session is between 1s and 5m"))
}

/// After how long the system gives up a connection whose other side vanished.
#[cfg(feature = "postgres")]
pub(super) fn keepalive_bound(idle: Duration) -> Duration {
    idle + KEEPALIVE_INTERVAL * KEEPALIVE_TRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_plain_words() {
        for good in ["lockkeeper", "_a", "locks_2"] {
            check_identifier("table", good).unwrap();
        }
        for bad in ["", "Locks", "2a", "a-b", "a b", "a;b", "a\"b", &"a".repeat(49)] {
            assert!(check_identifier("table", bad).is_err(), "{bad}");
        }
    }
}
