//! What a `postgres:` URL says.

use super::passfile::{self, Whom};
use super::{
    CONNECTIONS, Common, KEEPALIVE, KEEPALIVE_INTERVAL, KEEPALIVE_TRIES, KNOWN, Login, RECIPE,
    SESSION, SESSIONS, TABLE, TAKEOVER, TIMEOUT, check_identifier, check_session, standby_of,
};
use crate::address::Address;
use crate::backend::support::options::{TLS, config};
use crate::backend::{Backend, Background, OpenStore, TlsOptions};
use crate::error::Result;
use crate::patience::OUTAGE;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Config;

const PORT: u16 = 5432;

/// Where PostgreSQL is and how locks are kept there; see [`connect_with`](crate::connect_with).
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::backend::sql::PostgresOptions;
///
/// let mut options = PostgresOptions::new("127.0.0.1", 5432);
/// options.config.user("app").password("secret").dbname("app");
/// options.schema = Some("locks".to_owned());
/// let keeper = lockkeeper::connect_with(options).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Where it is, who we are, which database: the driver's own configuration, with whatever it
    /// has been given. Keepalives and time limits of ours are in it already, to be changed.
    pub config: Config,
    /// How locks are made; `table` unless it is said otherwise.
    pub recipe: String,
    /// The schema of the tables; `None` for the first one of the user's `search_path`.
    pub schema: Option<String>,
    /// What the tables are called: this, and this with `_claim` behind it.
    pub table: String,
    /// How long one statement may take.
    pub timeout: Duration,
    /// How many connections there are at most for the statements of all tasks.
    pub connections: usize,
    /// Recipes that keep a session for each lock: how long the server keeps a session that says
    /// nothing. A longer ttl is cut to this.
    pub session: Duration,
    /// Such recipes: how many sessions there are at most; then a claim is refused with
    /// [`Exhausted`](crate::ErrorKind::Exhausted).
    pub sessions: usize,
    /// Such recipes: whether a session that ended frees its lock at once. Else the next one waits
    /// until the lease of a holder that did not give back is over, since that holder may be alive
    /// behind a connection that was cut, and believe. With this, two may hold until it hears of the
    /// end, and [`Capability::sound`](crate::backend::Capability::sound) is false.
    pub free_on_disconnect: bool,
    /// Whether a pooler such as pgbouncer is in between that gives each transaction whichever
    /// connection is free. Then no statement is prepared and waiters poll. A pooler that refuses
    /// what a server takes is noticed without this.
    pub pooler: bool,
    /// The standby that the keeper moves to when this server is gone; `recipe=table` only.
    pub standby: Option<Box<Self>>,
    /// With a standby: the longest ttl, and how long the other server has to be the one that takes
    /// writes before it grants. The same in every program.
    pub takeover: Duration,
    /// How to encrypt; plain where there is none.
    pub tls: Option<TlsOptions>,
    /// How long a claim that waits puts up with a store that does not answer.
    pub outage: Duration,
    /// The URL without its secrets.
    pub(in crate::backend::sql) shown: String,
}

impl PostgresOptions {
    /// Locks in the PostgreSQL at this host and port.
    pub fn new(host: &str, port: u16) -> Self {
        let mut config = Config::new();
        config.host(host).port(port);
        Self { shown: format!("postgres://{host}:{port}"), ..Self::from_config(config) }
    }

    /// Locks in the PostgreSQL that the driver's configuration leads to. What it says of time
    /// limits and keepalives is kept.
    pub fn from_config(config: Config) -> Self {
        let shown = format!("postgres:///{}", config.get_dbname().unwrap_or_default());
        Self {
            config: with_limits(config, KEEPALIVE),
            recipe: RECIPE.to_owned(),
            schema: None,
            table: TABLE.to_owned(),
            timeout: TIMEOUT,
            connections: CONNECTIONS,
            session: SESSION,
            sessions: SESSIONS,
            free_on_disconnect: false,
            pooler: false,
            standby: None,
            takeover: TAKEOVER,
            tls: None,
            outage: OUTAGE,
            shown,
        }
    }

    /// What the URL says.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[KNOWN, &["schema", "pooler", "passfile"], TLS])?;
        let common = Common::read(address)?;
        let login = Login::read(address, PORT)?;
        let mut config = Config::new();
        for (host, port) in &login.hosts {
            config.host(host).port(*port);
        }
        if let Some(socket) = &login.socket {
            config.host(socket).port(PORT);
        }
        // The driver's own default is the name of the user who runs the process, which it asks of
        // the system.
        let user = login.user.clone().or_else(|| std::env::var("PGUSER").ok());
        let user = user.unwrap_or_else(|| "postgres".to_owned());
        config.user(&user);
        let named = address.options.get("passfile").map(String::as_str);
        let password = login.password.clone().or_else(|| std::env::var("PGPASSWORD").ok());
        let password = match (password, passfile::file(named)) {
            (None, Some(file)) => passfile::password(&file, &whom(&login, &user))?,
            (password, _) => password,
        };
        if let Some(password) = password {
            config.password(password);
        }
        if let Some(database) = &login.database {
            config.dbname(database);
        }
        config.connect_timeout(common.timeout);
        Ok(Self {
            config: with_limits(config, common.keepalive),
            recipe: common.recipe,
            schema: address.options.get("schema").cloned(),
            table: common.table,
            timeout: common.timeout,
            connections: common.connections,
            session: common.session,
            sessions: common.sessions,
            free_on_disconnect: common.free_on_disconnect,
            pooler: address.flag("pooler")?,
            standby: standby_of(address)?.map(|it| Self::read(&it).map(Box::new)).transpose()?,
            takeover: common.takeover,
            tls: common.tls,
            outage: OUTAGE,
            shown: address.to_string(),
        })
    }

    /// Where it is looked for by TCP.
    pub(in crate::backend::sql) fn hosts(&self) -> Vec<(String, u16)> {
        let ports = self.config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
        let hosts = self.config.get_hosts().iter().enumerate();
        let by_tcp = hosts.filter_map(|(at, host)| match host {
            tokio_postgres::config::Host::Tcp(host) => Some((host.clone(), port(at))),
            #[cfg(unix)]
            tokio_postgres::config::Host::Unix(_) => None,
        });
        by_tcp.collect()
    }

    /// An error for options that make no sense.
    pub(in crate::backend::sql) fn check(&self) -> Result<()> {
        check_identifier("table", &self.table)?;
        if let Some(schema) = &self.schema {
            check_identifier("schema", schema)?;
        }
        check_session(self.session)?;
        if let Some(standby) = &self.standby {
            standby.check()?;
        }
        if self.connections == 0 || self.timeout.is_zero() {
            return Err(config("connections and timeout must be more than nothing"));
        }
        Ok(())
    }
}

/// Every server that the URL names, as a file with passwords has them.
fn whom<'a>(login: &'a Login, user: &'a str) -> Vec<Whom<'a>> {
    let database = login.database.as_deref().unwrap_or(user);
    let whom = |host: &'a str, port| Whom { host, port, database, user };
    let hosts = login.hosts.iter().map(|(host, port)| whom(host, *port));
    hosts.chain(login.socket.as_deref().map(|socket| whom(socket, PORT))).collect()
}

/// Keepalives, so that the time is known after which a vanished server is given up.
fn with_limits(mut config: Config, idle: Duration) -> Config {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("lockkeeper");
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_idle(idle);
        config.keepalives_interval(KEEPALIVE_INTERVAL);
        config.keepalives_retries(KEEPALIVE_TRIES);
        config.tcp_user_timeout(super::keepalive_bound(idle));
    }
    config
}

#[async_trait]
impl OpenStore for PostgresOptions {
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>> {
        super::super::open_postgres(*self, background).await
    }

    fn outage(&self) -> Duration {
        self.outage
    }
}

/// Without the password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("shown", &self.shown)
            .field("recipe", &self.recipe)
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use tokio_postgres::config::Host;

    fn read(url: &str) -> Result<PostgresOptions> {
        let options = PostgresOptions::read(&Address::parse(url).unwrap())?;
        options.check()?;
        Ok(options)
    }

    #[test]
    fn a_url_says_where_and_who() {
        let options =
            read("postgres://me:hunter2@h:7/app?schema=locks&table=t&timeout=1s").unwrap();
        let config = &options.config;
        assert_eq!(config.get_hosts(), [Host::Tcp("h".into())]);
        assert_eq!((config.get_ports(), config.get_user()), (&[7][..], Some("me")));
        assert_eq!(config.get_password(), Some(&b"hunter2"[..]));
        assert_eq!(config.get_dbname(), Some("app"));
        assert_eq!((options.schema.as_deref(), options.table.as_str()), (Some("locks"), "t"));
        for shown in [format!("{options:?}"), options.shown] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_stands_for_the_host() {
        let options = read("postgres:///app?socket=/run/postgresql").unwrap();
        assert_eq!(options.config.get_hosts(), [Host::Unix("/run/postgresql".into())]);
    }

    #[test]
    fn nonsense_is_refused_without_the_password() {
        for url in [
            "postgres://me:hunter2@h?colour=red",
            "postgres://me:hunter2@h?table=a-b",
            "postgres://me:hunter2@h?schema=A",
            "postgres://me:hunter2@h?connections=0",
            "postgres://me:hunter2@h?socket=/run",
            "postgres://me:hunter2@h?ca=/etc/authority.pem",
            "postgres://me:hunter2@h?pooler=perhaps",
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
