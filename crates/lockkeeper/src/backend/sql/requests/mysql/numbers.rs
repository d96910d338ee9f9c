//! Numbers, records and the clock of MariaDB and MySQL.

use super::super::super::client::{bytes, text};
use super::super::super::error::Failure;
use super::super::super::schema::{CLAIM, Dialect};
use super::super::numbers::{BEHIND_RECORDS, Numbers, RECORD_ROW, SEQUENCE_ROW, Step};
use super::MysqlRequests;
use super::rows::value;
use super::statements::{NOW, Statements};
use async_trait::async_trait;

impl Statements {
    /// What the count is, and what it was before: the same where nothing was changed. Each assignment
    /// goes by what was there before, in whatever order the server carries them out.
    fn reserve(&self, name: &str, step: Step) -> String {
        let (names, row) = (&self.tables.names, sequence_row(name));
        let Step { count, least, room, existing } = step;
        let never = i64::MAX;
        let set = format!(
            "token = last, last = IF(last <= {room}, GREATEST(last + {count}, {least}), last)"
        );
        let change = match existing {
            true => format!("UPDATE {names} SET {set} WHERE name = {row}"),
            false => format!(
                "INSERT INTO {names} (name, version, place, last, waiting, {CLAIM}) VALUES \
                 ({row}, 0, 0, {least}, 0, '', '', '', 0, 0, 0, 0, {never}, '', '') \
                 ON DUPLICATE KEY UPDATE {set}"
            ),
        };
        format!("BEGIN; {change}; SELECT last, token FROM {names} WHERE name = {row}; COMMIT")
    }

    fn last_number(&self, name: &str) -> String {
        format!("SELECT last FROM {} WHERE name = {}", self.tables.names, sequence_row(name))
    }

    fn read_record(&self, name: &str) -> String {
        format!("SELECT note FROM {} WHERE name = {}", self.tables.names, record_row(name))
    }

    /// Whether the record was written is read from `id`, which is another with every write: how many
    /// rows were changed says nothing where a record is written that says the same already.
    fn write_record(&self, name: &str, value: &str, expected: Option<&str>, id: &str) -> String {
        let (names, row, never) = (&self.tables.names, record_row(name), i64::MAX);
        let (value, id) = (text(value), text(id));
        let change = match expected {
            None => format!(
                "INSERT INTO {names} (name, version, place, last, waiting, {CLAIM}) VALUES \
                 ({row}, 0, 0, 0, 0, {id}, '', '', 0, 0, 0, 0, {never}, '', {value}) \
                 ON DUPLICATE KEY UPDATE name = name"
            ),
            // By bytes: texts of the column are equal also where one has blanks behind it.
            Some(expected) => format!(
                "UPDATE {names} SET id = {id}, note = {value}, version = version + 1 \
                 WHERE name = {row} AND CAST(note AS BINARY) = {}",
                bytes(expected.as_bytes())
            ),
        };
        format!("BEGIN; {change}; SELECT id = {id} FROM {names} WHERE name = {row}; COMMIT")
    }

    fn list_records(&self, prefix: &str) -> String {
        let (from, behind) = (record_row(prefix), bytes(BEHIND_RECORDS.as_bytes()));
        let (names, length) = (&self.tables.names, RECORD_ROW.len() + prefix.len());
        format!(
            "SELECT name, note FROM {names} WHERE name >= {from} AND name < {behind} \
             AND LEFT(name, {length}) = {from} ORDER BY name"
        )
    }

    /// The first of the new numbers, and from each to the next. A row is deleted only when a later
    /// one is there: a server that counts from the rows that it finds when it starts must find the
    /// last.
    fn auto_increment(&self, count: u32) -> String {
        let ids = self.tables.ids();
        let rows = vec!["(NULL)"; usize::try_from(count).unwrap_or(1)].join(", ");
        format!(
            "INSERT INTO {ids} (id) VALUES {rows}; \
             SELECT LAST_INSERT_ID(), @@auto_increment_increment; \
             DELETE FROM {ids} WHERE id < LAST_INSERT_ID() ORDER BY id LIMIT {}",
            u64::from(count) * 2 + 8
        )
    }
}

#[async_trait]
impl Numbers for MysqlRequests {
    async fn reserve(&self, name: &str, step: Step) -> Result<Option<i64>, Failure> {
        let answers = self.client.run(&self.statements.reserve(name, step), true).await?;
        let row = answers.last().and_then(|rows| rows.first());
        let counted = row.map(|row| (value::<i64>(row, 0), value::<i64>(row, 1)));
        Ok(counted.filter(|(last, before)| last != before).map(|(last, _)| last))
    }

    async fn last_number(&self, name: &str) -> Result<Option<i64>, Failure> {
        self.ask(&self.statements.last_number(name), true).await
    }

    async fn read_record(&self, name: &str) -> Result<Option<String>, Failure> {
        self.ask(&self.statements.read_record(name), true).await
    }

    async fn write_record(
        &self,
        name: &str,
        value: &str,
        expected: Option<&str>,
    ) -> Result<bool, Failure> {
        let mut id = [0_u8; 16];
        if let Err(error) = getrandom::fill(&mut id) {
            return Err(Failure::Unreachable(format!("no random numbers: {error}")));
        }
        let id = format!("{:032x}", u128::from_be_bytes(id));
        let request = self.statements.write_record(name, value, expected, &id);
        Ok(self.ask::<i64>(&request, false).await?.is_some_and(|written| written != 0))
    }

    async fn list_records(&self, prefix: &str) -> Result<Vec<(String, String)>, Failure> {
        let rows = self.rows(&self.statements.list_records(prefix)).await?;
        let listed = rows.iter().map(|row| {
            let name: String = value(row, 0);
            (name[RECORD_ROW.len()..].to_owned(), value(row, 1))
        });
        Ok(listed.collect())
    }

    async fn time(&self) -> Result<i64, Failure> {
        Ok(self.ask(&format!("SELECT {NOW}"), true).await?.unwrap_or(0))
    }

    async fn auto_increment(&self, count: u32) -> Result<Vec<i64>, Failure> {
        let answers = self.client.run(&self.statements.auto_increment(count), true).await?;
        let Some(row) = answers.first().and_then(|rows| rows.first()) else {
            return Ok(Vec::new());
        };
        // An insert of a number of rows that is known beforehand gets numbers in a row.
        let (first, apart): (i64, i64) = (value(row, 0), value(row, 1));
        Ok((0..i64::from(count)).map(|index| first + index * apart.max(1)).collect())
    }

    async fn make_ids(&self) -> Result<(), Failure> {
        self.client.run(&self.tables.create_ids(Dialect::Mysql), true).await.map(|_| ())
    }

    fn ids_script(&self) -> String {
        self.tables.ids_script(Dialect::Mysql)
    }
}

fn sequence_row(name: &str) -> String {
    bytes(format!("{SEQUENCE_ROW}{name}").as_bytes())
}

fn record_row(name: &str) -> String {
    bytes(format!("{RECORD_ROW}{name}").as_bytes())
}
