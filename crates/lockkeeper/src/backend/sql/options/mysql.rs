//! What a `mysql:` or `mariadb:` URL says.

use super::{
    CONNECTIONS, Common, KEEPALIVE, KNOWN, Login, RECIPE, SESSION, SESSIONS, TABLE, TAKEOVER,
    TIMEOUT, check_identifier, check_session, standby_of,
};
use crate::address::Address;
use crate::backend::support::options::{TLS, config};
use crate::backend::{Backend, Background, OpenStore, TlsOptions};
use crate::error::Result;
use crate::patience::OUTAGE;
use async_trait::async_trait;
use mysql_async::{OptsBuilder, Pool};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 3306;

/// Where MariaDB or MySQL is and how locks are kept there; see
/// [`connect_with`](crate::connect_with).
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::backend::sql::MysqlOptions;
///
/// let mut options = MysqlOptions::new("127.0.0.1", 3306, "app");
/// options.driver = options.driver.user(Some("app")).pass(Some("secret"));
/// let keeper = lockkeeper::connect_with(options).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct MysqlOptions {
    /// Where it is, who we are, which database: the driver's own options.
    pub driver: OptsBuilder,
    /// A pool of the caller's own to take connections from, instead of making them by `driver`;
    /// see [`from_pool`](Self::from_pool).
    pub pool: Option<Pool>,
    /// How locks are made; `table` unless it is said otherwise.
    pub recipe: String,
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

impl MysqlOptions {
    /// Locks in the server at this host and port, in this database.
    pub fn new(host: &str, port: u16, database: &str) -> Self {
        let driver = OptsBuilder::default()
            .ip_or_hostname(host)
            .tcp_port(port)
            .db_name(Some(database))
            .prefer_socket(false)
            .tcp_keepalive(Some(KEEPALIVE));
        Self::with(driver, format!("mysql://{host}:{port}/{database}"))
    }

    /// Locks in the server and the database that this pool leads to. The pool's runtime must
    /// outlive the keeper, for its connections live there; recipes that keep a connection while a
    /// lock is held take it out of the pool for so long.
    pub fn from_pool(pool: Pool) -> Self {
        Self { pool: Some(pool), ..Self::with(OptsBuilder::default(), "mysql://pool".to_owned()) }
    }

    fn with(driver: OptsBuilder, shown: String) -> Self {
        Self {
            driver,
            pool: None,
            recipe: RECIPE.to_owned(),
            table: TABLE.to_owned(),
            timeout: TIMEOUT,
            connections: CONNECTIONS,
            session: SESSION,
            sessions: SESSIONS,
            free_on_disconnect: false,
            standby: None,
            takeover: TAKEOVER,
            tls: None,
            outage: OUTAGE,
            shown,
        }
    }

    /// What the URL says.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[KNOWN, TLS])?;
        let common = Common::read(address)?;
        let login = Login::read(address, PORT)?;
        let Some(database) = login.database else {
            let scheme = &address.scheme;
            return Err(config(format!(
                "the locks need a database to be in: write {scheme}://host/database"
            )));
        };
        let driver = OptsBuilder::default()
            .user(login.user.or_else(|| std::env::var("USER").ok()))
            .pass(login.password.or_else(|| std::env::var("MYSQL_PWD").ok()))
            .db_name(Some(database))
            .prefer_socket(false)
            .tcp_keepalive(Some(common.keepalive));
        let driver = match (&login.socket, &login.hosts[..]) {
            (Some(socket), _) => driver.socket(Some(socket)),
            (None, [(host, port)]) => driver.ip_or_hostname(host.as_str()).tcp_port(*port),
            (None, _) => return Err(config("a MySQL URL names one host")),
        };
        Ok(Self {
            recipe: common.recipe,
            table: common.table,
            timeout: common.timeout,
            connections: common.connections,
            session: common.session,
            sessions: common.sessions,
            free_on_disconnect: common.free_on_disconnect,
            standby: standby_of(address)?.map(|it| Self::read(&it).map(Box::new)).transpose()?,
            takeover: common.takeover,
            tls: common.tls,
            ..Self::with(driver, address.to_string())
        })
    }

    /// Where it is looked for by TCP, unless the caller's pool knows.
    pub(in crate::backend::sql) fn hosts(&self) -> Vec<(String, u16)> {
        let opts = mysql_async::Opts::from(self.driver.clone());
        if self.pool.is_some() || opts.socket().is_some() {
            return Vec::new();
        }
        vec![(opts.ip_or_hostname().to_owned(), opts.tcp_port())]
    }

    /// An error for options that make no sense.
    pub(in crate::backend::sql) fn check(&self) -> Result<()> {
        check_identifier("table", &self.table)?;
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

#[async_trait]
impl OpenStore for MysqlOptions {
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>> {
        super::super::open_mysql(*self, background).await
    }

    fn outage(&self) -> Duration {
        self.outage
    }
}

/// Without the password.
impl fmt::Debug for MysqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlOptions")
            .field("shown", &self.shown)
            .field("recipe", &self.recipe)
            .field("table", &self.table)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use mysql_async::Opts;

    fn read(url: &str) -> Result<MysqlOptions> {
        let options = MysqlOptions::read(&Address::parse(url).unwrap())?;
        options.check()?;
        Ok(options)
    }

    #[test]
    fn a_url_says_where_and_who() {
        for scheme in ["mysql", "mariadb"] {
            let options = read(&format!("{scheme}://me:hunter2@h:7/app?table=t")).unwrap();
            for shown in [format!("{options:?}"), options.shown.clone()] {
                assert!(!shown.contains("hunter2"), "{shown}");
            }
            let driver = Opts::from(options.driver);
            assert_eq!((driver.ip_or_hostname(), driver.tcp_port()), ("h", 7));
            assert_eq!((driver.user(), driver.pass()), (Some("me"), Some("hunter2")));
            assert_eq!(driver.db_name(), Some("app"));
        }
    }

    #[test]
    fn nonsense_is_refused_without_the_password() {
        for url in [
            "mysql://me:hunter2@h",
            "mysql://me:hunter2@h/app?colour=red",
            "mysql://me:hunter2@h/app?schema=a",
            "mysql://me:hunter2@h/app?table=a-b",
            "mysql://me:hunter2@h,i/app",
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
