//! What is looked at when a keeper connects: whether the server will do, and whether the tables are
//! there and ours.

use super::super::super::client::{MysqlClient, text};
use super::super::super::error::{Failure, Why};
use super::super::super::migration;
use super::super::super::schema::{self, Dialect, Tables};
use super::rows::value;
use crate::backend::support::options::config;
use crate::error::{Error, Result};
use mysql_async::prelude::FromValue;

/// How long the lock may take under which tables are made.
const MAKING: u32 = 4;

/// The tables at a server.
pub(super) struct Prepare<'a> {
    pub(super) client: &'a MysqlClient,
    pub(super) tables: &'a Tables,
}

impl Prepare<'_> {
    /// Makes the tables if they are not there, and checks them and the server; whether that is a
    /// MariaDB.
    pub(super) async fn run(&self) -> Result<bool> {
        let maria = self.check_server().await?;
        let (at, names) = (self.shown(), &self.tables.names);
        let explain = |failure: Failure| -> Error { failure.explain(at) };
        let version = match self.version().await {
            Ok(Some(version)) => Ok(Some(version)),
            _ => self.make().await?,
        };
        schema::check_version(version.map_err(explain)?, at, names)?;
        Ok(maria)
    }

    fn shown(&self) -> &str {
        self.client.connector.shown()
    }

    /// The first column of the first row of the last answer.
    async fn ask<T: FromValue>(&self, request: &str) -> Result<Option<T>, Failure> {
        let answers = self.client.run(request, true).await?;
        Ok(answers.last().and_then(|rows| rows.first()).map(|row| value(row, 0)))
    }

    /// Makes the tables if they are not there, one process at a time: statements that make tables
    /// commit by themselves, so another process could see half of it. The lock is on a connection
    /// of its own, which gives it back whatever happens.
    async fn make(&self) -> Result<Result<Option<i64>, Failure>> {
        let (at, Tables { names, claims }) = (self.shown(), self.tables);
        let explain = |failure: Failure| -> Error { failure.explain(at) };
        let (connector, limit) = (&self.client.connector, self.client.connector.timeout());
        let mut connection = connector.connect().await.map_err(explain)?;
        let lock = text(&format!("{names}.make"));
        let locked = connection.run(&format!("DO GET_LOCK({lock}, {MAKING})"), limit).await;
        locked.map_err(explain)?;
        let version = self.version().await;
        if migration::may_be_earlier(&version) {
            migration::migrate_mysql(&mut connection, connector, self.tables).await?;
            return Ok(self.version().await);
        }
        if version.as_ref().err().and_then(Failure::why) != Some(Why::NoTable) {
            return Ok(version);
        }
        for table in [names, claims] {
            // The one without the other was not made by us.
            let there = format!("SELECT 1 FROM {table} LIMIT 1");
            if self.ask::<i64>(&there).await.is_ok() {
                return Err(schema::not_ours(at, table));
            }
        }
        let statements = self.tables.create(Dialect::Mysql).join("; ");
        connection.run(&statements, limit).await.map_err(explain)?;
        Ok(self.version().await)
    }

    /// Whether this server can be used at all; whether it is a MariaDB.
    async fn check_server(&self) -> Result<bool> {
        let at = self.shown();
        let about = "SELECT CONCAT(VERSION(), '|', @@global.read_only)";
        let about: Option<String> = self.ask(about).await.map_err(|failure| failure.explain(at))?;
        let about = about.unwrap_or_default();
        let (version, read_only) = about.split_once('|').unwrap_or_default();
        let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let number: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let maria = version.to_lowercase().contains("mariadb");
        if number < if maria { (10, 5) } else { (8, 0) } {
            return Err(config(format!(
                "{at} is version {version}, and the locks need MariaDB 10.5 or MySQL 8.0: upgrade \
                 it"
            )));
        }
        if !matches!(read_only, "0" | "OFF") {
            return Err(config(format!(
                "{at} is read-only, as replicas are: name the primary in the URL"
            )));
        }
        Ok(maria)
    }

    /// The version of the tables, if there are any, after a check of all columns and rights.
    async fn version(&self) -> Result<Option<i64>, Failure> {
        let mark = self.tables.ask_mark(Dialect::Mysql);
        let request = format!("{mark}; {}", self.tables.probes().join("; "));
        let answers = self.client.run(&request, true).await?;
        Ok(answers.first().and_then(|rows| rows.first()).map(|row| value(row, 0)))
    }
}
