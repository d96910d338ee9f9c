#![cfg_attr(feature = "postgres", doc = include_str!("../../../docs/postgres.md"))]
#![cfg_attr(feature = "mysql", doc = include_str!("../../../docs/mysql.md"))]

#[cfg(feature = "postgres")]
mod advisory;
mod checkup;
mod cleanup;
mod client;
mod context;
mod driver;
mod error;
mod for_update;
#[cfg(feature = "mysql")]
mod get_lock;
mod inspect;
mod keys;
mod lease;
mod migration;
mod optimistic;
mod options;
mod queue;
mod record;
mod requests;
mod schema;
mod sequence;
mod session;
mod standby;
mod table;
mod waiters;

pub use for_update::own::RowLocks;
#[cfg(feature = "mysql")]
pub use options::MysqlOptions;
#[cfg(feature = "postgres")]
pub use options::PostgresOptions;

use crate::address::Address;
use crate::backend::support::options::config;
use crate::backend::{
    Backend, Background, Capability, Claim, FencingToken, Finding, Grant, Inspector, Lease,
    LockView, Name, Page, Patience, Reserve, Reserved, Sequencer, Ticket,
};
use crate::claim::ClaimIds;
use crate::error::{Error, Result};
use async_trait::async_trait;
use context::Context;
use lease::SqlLease;
use requests::Requests;
use schema::{Dialect, Tables};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The lock tables in a database.
///
/// ```text
///   SqlTable ──► table ──► lease ──► context ──► requests ──► client
///                                      ▲           queue, record, schema
///                                    driver
/// ```
///
/// An arrow means "uses". The type itself decides nothing; what all claims of a keeper share is in
/// the [`Context`].
#[derive(Debug)]
struct SqlTable {
    context: Arc<Context>,
    capability: Capability,
    /// The name of the first table, for people.
    table: String,
}

impl SqlTable {
    /// Makes the tables if they are not there, and checks all there is to check: what is wrong with
    /// the server, the user or the tables is an error here and not at the first lock.
    async fn open(
        requests: Arc<dyn Requests>,
        capability: Capability,
        table: String,
        background: &Background,
    ) -> Result<Arc<dyn Backend>> {
        requests.prepare().await?;
        let process = ClaimIds::new()?.next().to_string();
        let context = Arc::new(Context::new(requests, process, background));
        Ok(Arc::new(Self { context, capability, table }))
    }
}

/// Opens the recipe that the options name.
#[cfg(feature = "postgres")]
async fn open_postgres(
    options: PostgresOptions,
    background: &Background,
) -> Result<Arc<dyn Backend>> {
    let (shown, hosts) = (options.shown.clone(), options.hosts());
    match open_postgres_recipe(options, background).await {
        Err(error) => Err(or_stranger(error, "PostgreSQL", &shown, &hosts).await),
        opened => opened,
    }
}

#[cfg(feature = "postgres")]
async fn open_postgres_recipe(
    options: PostgresOptions,
    background: &Background,
) -> Result<Arc<dyn Backend>> {
    if let Some(standby) = &options.standby {
        only_table(&options.recipe)?;
        let servers =
            [postgres_server(&options, background)?, postgres_server(standby, background)?];
        let (capability, takeover) = (crate::recipes::POSTGRES_TABLE, options.takeover);
        return standby::Standby::open(servers, capability, takeover, background).await;
    }
    let connector = client::PostgresConnector::new(&options, background)?;
    match options.recipe.as_str() {
        "table" => {
            let (requests, table) = postgres_server(&options, background)?;
            SqlTable::open(requests, crate::recipes::POSTGRES_TABLE, table, background).await
        }
        "advisory" => Ok(Arc::new(advisory::open(options, background).await?)),
        "for-update" => Ok(Arc::new(for_update::postgres::open(options, background).await?)),
        "optimistic" => {
            let shown = connector.shown().to_owned();
            let client = client::PostgresClient::new(connector, options.connections);
            let schema = options.schema.as_deref();
            let rows = optimistic::postgres::PostgresRows::open(client, schema, &options.table);
            let rows = rows.await.map_err(|failure| failure.explain(&shown))?;
            Ok(Arc::new(optimistic::Optimistic::new(Box::new(rows), background)))
        }
        other => Err(unknown_recipe("postgres", other)),
    }
}

/// Opens the recipe that the options name.
#[cfg(feature = "mysql")]
async fn open_mysql(options: MysqlOptions, background: &Background) -> Result<Arc<dyn Backend>> {
    let (shown, hosts) = (options.shown.clone(), options.hosts());
    match open_mysql_recipe(options, background).await {
        Err(error) => Err(or_stranger(error, "MySQL", &shown, &hosts).await),
        opened => opened,
    }
}

/// The error, or a better one where a server of another kind is there instead.
async fn or_stranger(error: Error, wanted: &str, at: &str, hosts: &[(String, u16)]) -> Error {
    if error.kind() != crate::ErrorKind::Unavailable {
        return error;
    }
    for (host, port) in hosts {
        match client::speaks(host, *port).await {
            Some(other) if other != wanted => {
                return config(format!(
                    "{at} does not lead to a server that speaks {wanted}'s protocol: port {port} of \
                     {host} speaks {other}'s; check the host and the port of the URL"
                ));
            }
            _ => {}
        }
    }
    error
}

#[cfg(feature = "mysql")]
async fn open_mysql_recipe(
    options: MysqlOptions,
    background: &Background,
) -> Result<Arc<dyn Backend>> {
    if let Some(standby) = &options.standby {
        only_table(&options.recipe)?;
        let servers = [mysql_server(&options, background)?, mysql_server(standby, background)?];
        let (capability, takeover) = (crate::recipes::MARIADB_TABLE, options.takeover);
        return standby::Standby::open(servers, capability, takeover, background).await;
    }
    let connector = client::MysqlConnector::new(&options, background)?;
    match options.recipe.as_str() {
        "table" => {
            let (requests, table) = mysql_server(&options, background)?;
            SqlTable::open(requests, crate::recipes::MARIADB_TABLE, table, background).await
        }
        "get-lock" => Ok(Arc::new(get_lock::open(&options, connector, background).await?)),
        "for-update" => {
            Ok(Arc::new(for_update::mysql::open(&options, connector, background).await?))
        }
        "optimistic" => {
            let shown = connector.shown().to_owned();
            let client = client::MysqlClient::new(connector, options.connections);
            let rows = optimistic::mysql::MysqlRows::open(client, &options.table).await;
            let rows = rows.map_err(|failure| failure.explain(&shown))?;
            Ok(Arc::new(optimistic::Optimistic::new(Box::new(rows), background)))
        }
        other => Err(unknown_recipe("mariadb", other)),
    }
}

/// The tables at one server; connects to nothing.
#[cfg(feature = "postgres")]
fn postgres_server(options: &PostgresOptions, background: &Background) -> Result<standby::Server> {
    let connector = client::PostgresConnector::new(options, background)?;
    let tables = Tables::new(options.schema.as_deref(), &options.table);
    let table = tables.names.clone();
    let client = client::PostgresClient::new(connector, options.connections);
    Ok((Arc::new(requests::PostgresRequests::new(client, tables)), table))
}

/// The tables at one server; connects to nothing.
#[cfg(feature = "mysql")]
fn mysql_server(options: &MysqlOptions, background: &Background) -> Result<standby::Server> {
    let connector = client::MysqlConnector::new(options, background)?;
    let tables = Tables::new(None, &options.table);
    let table = tables.names.clone();
    let client = client::MysqlClient::new(connector, options.connections);
    Ok((Arc::new(requests::MysqlRequests::new(client, tables)), table))
}

/// The refusal of a standby for a recipe whose locks no other server could know of.
fn only_table(recipe: &str) -> Result<()> {
    if recipe == "table" {
        return Ok(());
    }
    Err(Error::new(
        crate::ErrorKind::Unsupported,
        format!("recipe={recipe} has no standby: use recipe=table, whose locks are replicated"),
    ))
}

/// The statements that make the tables which locks at `url` need, and the rights that are enough to
/// use them: for databases in which programs may not create tables. Connects to nothing.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that makes no sense, or whose store
/// has no tables.
///
/// ```
/// # #[cfg(feature = "postgres")] {
/// let script = lockkeeper::backend::sql::schema_script("postgres://host/app?table=locks")?;
/// assert!(script.contains("CREATE TABLE IF NOT EXISTS locks_claim"));
/// # }
/// # Ok::<(), lockkeeper::Error>(())
/// ```
pub fn schema_script(url: &str) -> Result<String> {
    let mut address = Address::parse(url)?;
    address.options.remove("outage");
    match address.scheme.as_str() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let options = PostgresOptions::read(&address)?;
            options.check()?;
            let (schema, table) = (options.schema.as_deref(), &options.table);
            let mut optional = String::new();
            let made = match options.recipe.as_str() {
                "table" => {
                    let tables = Tables::new(schema, table);
                    optional = tables.optional_script(Dialect::Postgres);
                    tables.made(Dialect::Postgres)
                }
                "advisory" => advisory::made(schema, table),
                "for-update" => for_update::postgres::made(schema, table),
                "optimistic" => optimistic::postgres::made(schema, table),
                other => return Err(unknown_recipe("postgres", other)),
            };
            Ok(made.script(Dialect::Postgres, schema) + &optional)
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => {
            let options = MysqlOptions::read(&address)?;
            options.check()?;
            let table = &options.table;
            let mut optional = String::new();
            let made = match options.recipe.as_str() {
                "table" => {
                    let tables = Tables::new(None, table);
                    optional = tables.optional_script(Dialect::Mysql);
                    tables.made(Dialect::Mysql)
                }
                "get-lock" => get_lock::made(table),
                "for-update" => for_update::mysql::made(table),
                "optimistic" => optimistic::mysql::made(table),
                other => return Err(unknown_recipe("mariadb", other)),
            };
            Ok(made.script(Dialect::Mysql, None) + &optional)
        }
        other => Err(no_tables(other)),
    }
}

/// The statements that bring the tables which `recipe=table` has at `url` from an earlier version to
/// that of this library: for databases in which programs may not change tables. Connects to nothing.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that makes no sense or has another
/// recipe, and for a version that is no earlier one.
///
/// ```
/// # #[cfg(feature = "postgres")] {
/// let script = lockkeeper::backend::sql::migration_script("postgres://host/app", 0)?;
/// assert!(script.contains("ALTER TABLE lockkeeper ADD COLUMN"));
/// # }
/// # Ok::<(), lockkeeper::Error>(())
/// ```
pub fn migration_script(url: &str, from: u32) -> Result<String> {
    let mut address = Address::parse(url)?;
    address.options.remove("outage");
    let (recipe, tables, dialect) = match address.scheme.as_str() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let options = PostgresOptions::read(&address)?;
            options.check()?;
            let tables = Tables::new(options.schema.as_deref(), &options.table);
            (options.recipe, tables, Dialect::Postgres)
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => {
            let options = MysqlOptions::read(&address)?;
            options.check()?;
            (options.recipe, Tables::new(None, &options.table), Dialect::Mysql)
        }
        other => return Err(no_tables(other)),
    };
    if recipe != "table" {
        return Err(config(format!("the tables of recipe={recipe} have had one version only")));
    }
    migration::script(&tables, dialect, from.into())
}

/// The error for a store that keeps no tables.
fn no_tables(scheme: &str) -> Error {
    config(format!(
        "{scheme}: keeps no tables in a database: name one such as postgres://host/database"
    ))
}

/// The error for a recipe that there is not.
fn unknown_recipe(scheme: &str, recipe: &str) -> Error {
    crate::recipes::unknown_recipe(scheme, recipe)
}

#[async_trait]
impl Backend for SqlTable {
    fn capability(&self) -> Capability {
        self.capability
    }

    fn recipe(&self) -> &'static str {
        "table"
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        table::acquire(&self.context, claim, patience).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        table::withdraw(&self.context, claim).await
    }

    /// Forgets the keeper in the tables, and lets go of the connections that nothing is under way
    /// on. Claims that are held stay, and connect again when they are renewed or released.
    async fn close(&self) -> Result<()> {
        let context = &self.context;
        context.waiters.close();
        if context.has_heart().await && !context.waiters.has_waiters() {
            let ended = context.requests.end(&context.process).await;
            ended.map_err(|failure| context.explain(failure))?;
        }
        context.requests.disconnect();
        Ok(())
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        Some(Box::new(SqlLease::of_ticket(&self.context, ticket)))
    }

    /// The query that shows the row, to be pasted into the server's own client. Quotes in the name
    /// are doubled for that; the backend's own statements pass names as parameters.
    fn keys(&self, name: &Name) -> Vec<String> {
        let quoted = name.as_str().replace('\'', "''");
        vec![format!("SELECT * FROM {} WHERE name = '{quoted}'", self.table)]
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }

    async fn incarnation(&self) -> Result<Option<String>> {
        let context = &self.context;
        context.requests.incarnation().await.map_err(|failure| context.explain(failure))
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        self.context.requests.server().checkup().await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        self.context.requests.server().round_trips(count).await
    }
}

#[async_trait]
impl Inspector for SqlTable {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        inspect::list(&self.context, prefix).await
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        inspect::list_page(&self.context, prefix, after, limit).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        inspect::show(&self.context, name).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        inspect::break_hold(&self.context, name, token, reason).await
    }
}

#[async_trait]
impl Sequencer for SqlTable {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        sequence::reserve(&self.context, name, wish).await
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        sequence::read(&self.context, name).await
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        sequence::write(&self.context, name, value, expected).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        sequence::list(&self.context, prefix).await
    }

    async fn time(&self) -> Result<Option<SystemTime>> {
        sequence::time(&self.context).await
    }

    async fn auto_increment(&self, count: u32) -> Result<Option<Vec<u64>>> {
        sequence::auto_increment(&self.context, count).await.map(Some)
    }
}

impl fmt::Display for SqlTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.context.requests.shown())
    }
}
