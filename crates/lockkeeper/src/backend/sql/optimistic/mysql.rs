//! The rows in MariaDB and MySQL.

use super::super::client::{MysqlClient, bytes};
use super::super::error::Failure;
use super::super::schema::Made;
use super::{Row, Rows};
use crate::backend::sql::checkup::Examined;
use crate::backend::{Capability, Claim, FencingToken, Name};
use async_trait::async_trait;
use std::time::Duration;

/// Microseconds since 1970, by the server's clock: for tokens, and for people to read.
const CLOCK: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS UNSIGNED)";
const COLUMNS: &str = "name, version, claim, token, lease_ms, owner, identity, note, since";

/// Requests on one table.
#[derive(Debug)]
pub(in crate::backend::sql) struct MysqlRows {
    client: MysqlClient,
    table: String,
}

impl MysqlRows {
    /// Makes the table unless it is there.
    pub(in crate::backend::sql) async fn open(
        client: MysqlClient,
        table: &str,
    ) -> Result<Self, Failure> {
        let table = format!("{table}_optimistic");
        let there = format!(
            "SELECT COUNT(*) FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = '{table}'"
        );
        let there = client.run(&there, true).await?;
        let there: Option<i64> = there.first().and_then(|rows| rows.first()?.get(0));
        if there != Some(1) {
            client.run(&definition(&table), true).await?;
        }
        Ok(Self { client, table })
    }

    /// Whether a change was made, by the claim and version that stand there afterwards: the number
    /// of changed rows means different things to different drivers.
    async fn changed(&self, name: &Name, set: &str, fits: &str) -> Result<bool, Failure> {
        let (table, name) = (&self.table, text(name.as_str()));
        let request = format!(
            "SET @lockkeeper_was = NULL; \
             UPDATE {table} SET version = (@lockkeeper_was := version) + 1, {set} \
               WHERE name = {name} AND {fits}; SELECT @lockkeeper_was IS NOT NULL"
        );
        let answer = self.client.run(&request, false).await?;
        let was: Option<i64> = answer.first().and_then(|rows| rows.first()?.get(0));
        Ok(was == Some(1))
    }

    async fn rows(&self, fits: &str, limit: i64) -> Result<Vec<Row>, Failure> {
        let request = format!(
            "SELECT {COLUMNS}, CAST({CLOCK} AS SIGNED) - since FROM {} WHERE {fits} \
             ORDER BY name LIMIT {limit}",
            self.table
        );
        let answer = self.client.run(&request, true).await?;
        Ok(answer.first().into_iter().flatten().map(row_of).collect())
    }
}

/// A text, in the bytes that it is.
fn text(text: &str) -> String {
    bytes(text.as_bytes())
}

/// The table, for those who make it by hand.
pub(in crate::backend::sql) fn made(table: &str) -> Made {
    let table = format!("{table}_optimistic");
    let definition = definition(&table);
    Made { tables: vec![table], definition }
}

/// What makes the table. Names are bytes, so that no two of them are one.
fn definition(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (name VARBINARY(200) PRIMARY KEY, \
           version BIGINT NOT NULL, claim VARBINARY(40) NOT NULL, token BIGINT UNSIGNED NOT NULL, \
           lease_ms BIGINT NOT NULL, owner VARBINARY(1000) NOT NULL, \
           identity VARBINARY(1000) NOT NULL, note VARBINARY(1000) NOT NULL, \
           since BIGINT NOT NULL, broken BLOB, broken_token BIGINT UNSIGNED) ENGINE = InnoDB"
    )
}

fn row_of(row: &mysql_async::Row) -> Row {
    let words = |column: usize| {
        let bytes: Vec<u8> = row.get(column).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let whole = |column: usize| {
        let number: i64 = row.get(column).unwrap_or_default();
        u64::try_from(number).unwrap_or(0)
    };
    Row {
        name: words(0),
        version: row.get(1).unwrap_or_default(),
        claim: words(2),
        token: whole(3),
        lease: Duration::from_millis(whole(4)),
        owner: words(5),
        identity: words(6),
        note: words(7),
        held_for: Duration::from_micros(whole(9)),
    }
}

#[async_trait]
impl Rows for MysqlRows {
    fn shown(&self) -> &str {
        self.client.connector.shown()
    }

    fn server(&self) -> &dyn Examined {
        &self.client.connector
    }

    fn capability(&self) -> Capability {
        crate::recipes::SQL_OPTIMISTIC
    }

    async fn read(&self, name: &Name) -> Result<Option<Row>, Failure> {
        let rows = self.rows(&format!("name = {}", text(name.as_str())), 1).await?;
        Ok(rows.into_iter().next())
    }

    async fn make(&self, name: &Name) -> Result<(), Failure> {
        let request = format!(
            "INSERT IGNORE INTO {} ({COLUMNS}) VALUES ({}, 1, '', 0, 0, '', '', '', 0)",
            self.table,
            text(name.as_str())
        );
        self.client.run(&request, true).await.map(|_| ())
    }

    async fn take(&self, claim: &Claim, version: i64) -> Result<Option<FencingToken>, Failure> {
        let id = text(&claim.id.to_string());
        let set = format!(
            "claim = {id}, token = GREATEST(token + 1, {CLOCK}), lease_ms = {}, owner = {}, \
             identity = {}, note = {}, since = {CLOCK}",
            claim.ttl.as_millis(),
            text(claim.owner.id()),
            text(&claim.identity),
            text(&claim.note),
        );
        let (table, name) = (&self.table, text(claim.name.as_str()));
        let request = format!(
            "UPDATE {table} SET version = version + 1, {set} \
               WHERE name = {name} AND version = {version}; \
             SELECT token FROM {table} WHERE name = {name} AND claim = {id}"
        );
        let answer = self.client.run(&request, false).await?;
        let token: Option<u64> = answer.first().and_then(|rows| rows.first()?.get(0));
        Ok(token.and_then(FencingToken::new))
    }

    async fn renew(&self, name: &Name, claim: &str) -> Result<bool, Failure> {
        let (table, name, id) = (&self.table, text(name.as_str()), text(claim));
        let request = format!(
            "UPDATE {table} SET version = version + 1 WHERE name = {name} AND claim = {id}; \
             SELECT COUNT(*) FROM {table} WHERE name = {name} AND claim = {id}"
        );
        let answer = self.client.run(&request, true).await?;
        let there: Option<i64> = answer.first().and_then(|rows| rows.first()?.get(0));
        Ok(there == Some(1))
    }

    async fn free(&self, name: &Name, claim: &str) -> Result<bool, Failure> {
        self.changed(name, "claim = ''", &format!("claim = {}", text(claim))).await
    }

    async fn break_hold(&self, name: &Name, token: u64, why: &str) -> Result<bool, Failure> {
        let set = format!("claim = '', broken = {}, broken_token = token", text(why));
        self.changed(name, &set, &format!("token = {token} AND claim <> ''")).await
    }

    async fn broken(&self, name: &Name, token: u64) -> Result<Option<String>, Failure> {
        let (table, name) = (&self.table, text(name.as_str()));
        let request =
            format!("SELECT broken FROM {table} WHERE name = {name} AND broken_token = {token}");
        let answer = self.client.run(&request, true).await?;
        let why: Option<Vec<u8>> = answer.first().and_then(|rows| rows.first()?.get(0));
        Ok(why.map(|why| String::from_utf8_lossy(&why).into_owned()))
    }

    async fn list(&self, beginning: &str, after: &str, limit: i64) -> Result<Vec<Row>, Failure> {
        let (length, text, after) = (beginning.len(), text(beginning), text(after));
        let fits = format!(
            "name >= {text} AND name > {after} AND LEFT(name, {length}) = {text} AND claim <> ''"
        );
        self.rows(&fits, limit).await
    }

    fn disconnect(&self) {
        self.client.disconnect();
    }
}
