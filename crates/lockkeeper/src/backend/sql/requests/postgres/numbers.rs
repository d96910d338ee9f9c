//! Numbers, records and the clock of PostgreSQL.

use super::super::super::client::Statement;
use super::super::super::error::Failure;
use super::super::super::schema::{CLAIM, Dialect, Tables, literal};
use super::super::numbers::{BEHIND_RECORDS, Numbers, RECORD_ROW, SEQUENCE_ROW, Step};
use super::statements::NOW;
use super::{MAKING, PostgresRequests};
use async_trait::async_trait;
use tokio_postgres::types::{ToSql, Type as T};

/// One of each, by the name of its request.
pub(super) struct Statements {
    reserve: Statement,
    reserve_existing: Statement,
    last_number: Statement,
    read: Statement,
    create: Statement,
    replace: Statement,
    list: Statement,
    time: Statement,
    auto_increment: Statement,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        let (names, ids) = (&tables.names, tables.ids());
        let (never, behind) = (i64::MAX, literal(Dialect::Postgres, BEHIND_RECORDS));
        let statement = |name, types: &[T], text| Statement { name, text, types: types.to_vec() };
        let insert =
            format!("INSERT INTO {names} AS l (name, version, place, last, waiting, {CLAIM})");
        Self {
            reserve: statement(
                "reserve",
                &[T::TEXT, T::INT8, T::INT8, T::INT8],
                format!(
                    "{insert} VALUES ($1, 0, 0, $3, 0, '', '', '', 0, 0, 0, 0, {never}, '', '')
                     ON CONFLICT (name) DO UPDATE SET last = GREATEST(l.last + $2, excluded.last)
                       WHERE l.last <= $4
                     RETURNING last"
                ),
            ),
            reserve_existing: statement(
                "reserve-existing",
                &[T::TEXT, T::INT8, T::INT8, T::INT8],
                format!(
                    "UPDATE {names} SET last = GREATEST(last + $2, $3)
                     WHERE name = $1 AND last <= $4 RETURNING last"
                ),
            ),
            last_number: statement(
                "last-number",
                &[T::TEXT],
                format!("SELECT last FROM {names} WHERE name = $1"),
            ),
            read: statement(
                "read-record",
                &[T::TEXT],
                format!("SELECT note FROM {names} WHERE name = $1"),
            ),
            create: statement(
                "create-record",
                &[T::TEXT, T::TEXT],
                format!(
                    "{insert} VALUES ($1, 0, 0, 0, 0, '', '', '', 0, 0, 0, 0, {never}, '', $2)
                     ON CONFLICT (name) DO NOTHING RETURNING 1"
                ),
            ),
            // By bytes, whatever the database's collation takes for equal.
            replace: statement(
                "replace-record",
                &[T::TEXT, T::TEXT, T::TEXT],
                format!(
                    "UPDATE {names} SET note = $2, version = version + 1
                     WHERE name = $1 AND note COLLATE \"C\" = $3 RETURNING 1"
                ),
            ),
            list: statement(
                "list-records",
                &[T::TEXT],
                format!(
                    "SELECT name, note FROM {names} WHERE name >= $1 AND name < {behind}
                       AND starts_with(name, $1) ORDER BY name"
                ),
            ),
            time: statement("time", &[], format!("SELECT {NOW}")),
            // What others took before goes with it, so that the table stays small; the counter of the
            // column goes on whatever is deleted.
            auto_increment: statement(
                "auto-increment",
                &[T::INT8],
                format!(
                    "WITH earlier AS (SELECT id FROM {ids} ORDER BY id LIMIT 2 * $1 + 8 \
                       FOR UPDATE SKIP LOCKED), \
                     gone AS (DELETE FROM {ids} i USING earlier WHERE i.id = earlier.id)
                     INSERT INTO {ids} (taken) SELECT true FROM generate_series(1, $1)
                     RETURNING id"
                ),
            ),
        }
    }
}

#[async_trait]
impl Numbers for PostgresRequests {
    async fn reserve(&self, name: &str, step: Step) -> Result<Option<i64>, Failure> {
        let Step { count, least, room, existing } = step;
        let row = format!("{SEQUENCE_ROW}{name}");
        let params: [&(dyn ToSql + Sync); 4] = [&row, &count, &least, &room];
        let Statements { reserve, reserve_existing, .. } = &self.numbers;
        let statement = if existing { reserve_existing } else { reserve };
        let rows = self.client.query(statement, &params, true).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    async fn last_number(&self, name: &str) -> Result<Option<i64>, Failure> {
        let row = format!("{SEQUENCE_ROW}{name}");
        let rows = self.client.query(&self.numbers.last_number, &[&row], true).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    async fn read_record(&self, name: &str) -> Result<Option<String>, Failure> {
        let row = format!("{RECORD_ROW}{name}");
        let rows = self.client.query(&self.numbers.read, &[&row], true).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    async fn write_record(
        &self,
        name: &str,
        value: &str,
        expected: Option<&str>,
    ) -> Result<bool, Failure> {
        let row = format!("{RECORD_ROW}{name}");
        let Statements { create, replace, .. } = &self.numbers;
        let rows = match expected {
            None => self.client.query(create, &[&row, &value], false).await?,
            Some(expected) => self.client.query(replace, &[&row, &value, &expected], false).await?,
        };
        Ok(!rows.is_empty())
    }

    async fn list_records(&self, prefix: &str) -> Result<Vec<(String, String)>, Failure> {
        let from = format!("{RECORD_ROW}{prefix}");
        let rows = self.client.query(&self.numbers.list, &[&from], true).await?;
        let listed = rows.iter().map(|row| {
            let name: String = row.get(0);
            (name[RECORD_ROW.len()..].to_owned(), row.get(1))
        });
        Ok(listed.collect())
    }

    async fn time(&self) -> Result<i64, Failure> {
        let rows = self.client.query(&self.numbers.time, &[], true).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    async fn auto_increment(&self, count: u32) -> Result<Vec<i64>, Failure> {
        let count = i64::from(count);
        let rows = self.client.query(&self.numbers.auto_increment, &[&count], true).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// One process at a time, in the one transaction that several statements in one message are:
    /// tables that are made at the same time fail, even when they are only made if they are not there.
    async fn make_ids(&self) -> Result<(), Failure> {
        let made = self.tables.create_ids(Dialect::Postgres);
        let text = format!("SELECT pg_advisory_xact_lock({MAKING}); {made}");
        self.client.simple(&text).await.map(|_| ())
    }

    fn ids_script(&self) -> String {
        self.tables.ids_script(Dialect::Postgres)
    }
}
