//! The rows in PostgreSQL.

use super::super::client::{PostgresClient, Statement};
use super::super::error::Failure;
use super::super::schema::Made;
use super::{Row, Rows};
use crate::backend::sql::checkup::Examined;
use crate::backend::{Capability, Claim, FencingToken, Name};
use async_trait::async_trait;
use std::time::Duration;
use tokio_postgres::types::{ToSql, Type};

/// Microseconds since 1970, by the server's clock: for tokens, and for people to read.
const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/// The lock under which the table is made: any number that nobody else uses.
const MAKING: i64 = 7_812_047_126_012_102;
const COLUMNS: &str = "name, version, claim, token, lease_ms, owner, identity, note, since";

/// Statements on one table.
#[derive(Debug)]
pub(in crate::backend::sql) struct PostgresRows {
    client: PostgresClient,
    read: Statement,
    make: Statement,
    take: Statement,
    renew: Statement,
    free: Statement,
    break_hold: Statement,
    broken: Statement,
    list: Statement,
}

impl PostgresRows {
    /// Makes the table unless it is there.
    pub(in crate::backend::sql) async fn open(
        client: PostgresClient,
        schema: Option<&str>,
        table: &str,
    ) -> Result<Self, Failure> {
        let table = table_of(schema, table);
        let there = statement("there", format!("SELECT to_regclass('{table}') IS NOT NULL"), &[]);
        let there = client.query(&there, &[], true).await?;
        if !there.first().is_some_and(|row| row.get(0)) {
            let (connection, _) =
                client.connector.connect(Some(client.connector.timeout())).await?;
            // One after the other: two that create the same table at once get an error.
            let make = format!("SELECT pg_advisory_xact_lock({MAKING}); {}", definition(&table));
            connection.batch(&make, client.connector.timeout()).await?;
        }
        let rows = Self::new(client, &table);
        rows.client.warm(&[&rows.read, &rows.make, &rows.take, &rows.renew, &rows.free]).await?;
        Ok(rows)
    }

    fn new(client: PostgresClient, table: &str) -> Self {
        let select = format!("SELECT {COLUMNS}, {CLOCK} - since FROM {table}");
        Self {
            client,
            read: statement("read", format!("{select} WHERE name = $1"), &[Type::TEXT]),
            make: statement(
                "make",
                format!(
                    "INSERT INTO {table} ({COLUMNS}) VALUES ($1, 1, '', 0, 0, '', '', '', 0) \
                     ON CONFLICT (name) DO NOTHING"
                ),
                &[Type::TEXT],
            ),
            take: statement(
                "take",
                format!(
                    "UPDATE {table} SET version = version + 1, claim = $3, \
                       token = greatest(token + 1, {CLOCK}), lease_ms = $4, owner = $5, \
                       identity = $6, note = $7, since = {CLOCK} \
                     WHERE name = $1 AND version = $2 RETURNING token"
                ),
                &[
                    Type::TEXT,
                    Type::INT8,
                    Type::TEXT,
                    Type::INT8,
                    Type::TEXT,
                    Type::TEXT,
                    Type::TEXT,
                ],
            ),
            renew: statement(
                "renew",
                format!(
                    "UPDATE {table} SET version = version + 1 WHERE name = $1 AND claim = $2 \
                     RETURNING version"
                ),
                &[Type::TEXT, Type::TEXT],
            ),
            free: statement(
                "free",
                format!(
                    "UPDATE {table} SET version = version + 1, claim = '' \
                     WHERE name = $1 AND claim = $2 RETURNING version"
                ),
                &[Type::TEXT, Type::TEXT],
            ),
            break_hold: statement(
                "break_hold",
                format!(
                    "UPDATE {table} SET version = version + 1, claim = '', broken = $3, \
                       broken_token = token \
                     WHERE name = $1 AND token = $2 AND claim <> '' RETURNING version"
                ),
                &[Type::TEXT, Type::INT8, Type::TEXT],
            ),
            broken: statement(
                "broken",
                format!("SELECT broken FROM {table} WHERE name = $1 AND broken_token = $2"),
                &[Type::TEXT, Type::INT8],
            ),
            list: statement(
                "list",
                format!(
                    "{select} WHERE name >= $1 AND name > $2 AND starts_with(name, $1) \
                     AND claim <> '' ORDER BY name LIMIT $3"
                ),
                &[Type::TEXT, Type::TEXT, Type::INT8],
            ),
        }
    }

    /// Whether a statement changed a row. Sent once only: a second time would find nothing.
    async fn changed(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<bool, Failure> {
        Ok(!self.client.query(statement, params, false).await?.is_empty())
    }
}

fn statement(name: &'static str, text: String, types: &[Type]) -> Statement {
    Statement { name, text, types: types.to_vec() }
}

/// The table, for those who make it by hand.
pub(in crate::backend::sql) fn made(schema: Option<&str>, table: &str) -> Made {
    let table = table_of(schema, table);
    let definition = definition(&table);
    Made { tables: vec![table], definition }
}

fn table_of(schema: Option<&str>, table: &str) -> String {
    let schema = schema.map(|schema| format!("{schema}.")).unwrap_or_default();
    format!("{schema}{table}_optimistic")
}

/// What makes the table.
fn definition(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (name text COLLATE \"C\" PRIMARY KEY, \
           version bigint NOT NULL, claim text NOT NULL, token bigint NOT NULL, \
           lease_ms bigint NOT NULL, owner text NOT NULL, identity text NOT NULL, \
           note text NOT NULL, since bigint NOT NULL, broken text, broken_token bigint)"
    )
}

fn row_of(row: &tokio_postgres::Row) -> Row {
    let whole = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
    Row {
        name: row.get(0),
        version: row.get(1),
        claim: row.get(2),
        token: whole(3),
        lease: Duration::from_millis(whole(4)),
        owner: row.get(5),
        identity: row.get(6),
        note: row.get(7),
        held_for: Duration::from_micros(whole(9)),
    }
}

#[async_trait]
impl Rows for PostgresRows {
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
        let rows = self.client.query(&self.read, &[&name.as_str()], true).await?;
        Ok(rows.first().map(row_of))
    }

    async fn make(&self, name: &Name) -> Result<(), Failure> {
        self.client.query(&self.make, &[&name.as_str()], true).await.map(|_| ())
    }

    async fn take(&self, claim: &Claim, version: i64) -> Result<Option<FencingToken>, Failure> {
        let (name, id, owner) = (claim.name.as_str(), claim.id.to_string(), claim.owner.id());
        let lease = i64::try_from(claim.ttl.as_millis()).unwrap_or(i64::MAX);
        let (identity, note) = (&*claim.identity, &*claim.note);
        let params: [&(dyn ToSql + Sync); 7] =
            [&name, &version, &id, &lease, &owner, &identity, &note];
        let rows = self.client.query(&self.take, &params, false).await?;
        let token = rows.first().and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok());
        Ok(token.and_then(FencingToken::new))
    }

    async fn renew(&self, name: &Name, claim: &str) -> Result<bool, Failure> {
        let rows = self.client.query(&self.renew, &[&name.as_str(), &claim], true).await?;
        Ok(!rows.is_empty())
    }

    async fn free(&self, name: &Name, claim: &str) -> Result<bool, Failure> {
        self.changed(&self.free, &[&name.as_str(), &claim]).await
    }

    async fn break_hold(&self, name: &Name, token: u64, why: &str) -> Result<bool, Failure> {
        let token = i64::try_from(token).unwrap_or(i64::MAX);
        self.changed(&self.break_hold, &[&name.as_str(), &token, &why]).await
    }

    async fn broken(&self, name: &Name, token: u64) -> Result<Option<String>, Failure> {
        let token = i64::try_from(token).unwrap_or(i64::MAX);
        let rows = self.client.query(&self.broken, &[&name.as_str(), &token], true).await?;
        Ok(rows.first().and_then(|row| row.get(0)))
    }

    async fn list(&self, beginning: &str, after: &str, limit: i64) -> Result<Vec<Row>, Failure> {
        let rows = self.client.query(&self.list, &[&beginning, &after, &limit], true).await?;
        Ok(rows.iter().map(row_of).collect())
    }

    fn disconnect(&self) {
        self.client.disconnect();
    }
}
