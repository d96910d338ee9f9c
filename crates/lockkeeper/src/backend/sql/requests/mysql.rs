//! The requests as MariaDB and MySQL take them.
//!
//! A request is one text: a statement that is its own transaction, or a transaction from `BEGIN` to
//! `COMMIT`, with a question behind it for what came of it. Each first changes the row of the name,
//! found by the primary key, and then rows of that name only; so there is no order in which two of
//! them could wait for each other.
//!
//! How many rows a statement changed is asked only where a change is certain to change something,
//! since drivers and servers count differently what was found and left as it was. Every request has
//! as few statements as it can: the server answers each by itself, and each answer wakes the client.

use super::super::client::{MysqlClient, bytes, text};
use super::super::error::{Failure, Why};
use super::super::migration;
use super::super::queue::{ALONE, CROWD, Change, LOADED, Queue};
use super::super::record::{
    BROKEN, HANDED, HELD, Record, WAITER_LEASE, WAITING, code_of, micros, mode_of,
};
use super::super::schema::{self, CLAIM, Dialect, Tables, literal};
use super::{FLOOR_ROW, Listed, Listening, PROCESS_ROW, Requests, SEQUENCE_ROW, WRITER_ROW};
use crate::backend::Claim;
use crate::backend::support::options::config;
use crate::error::{Error, Result};
use async_trait::async_trait;
use mysql_async::Row;
use mysql_async::prelude::FromValue;
use std::fmt;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The database's clock; the same for the length of a statement, and not that of a time zone.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
/// How long the lock may take under which tables are made.
const MAKING: u32 = 4;

/// Requests on two tables of a MariaDB or MySQL.
pub(in super::super) struct MysqlRequests {
    client: MysqlClient,
    tables: Tables,
    floor: String,
    /// Whether an `INSERT` can say what became of its row, as on MariaDB; MySQL is asked by a
    /// second statement in the same request.
    returns: AtomicBool,
}

impl MysqlRequests {
    pub(in super::super) fn new(client: MysqlClient, tables: Tables) -> Self {
        let floor = format!(
            "COALESCE((SELECT token + 1 FROM {} WHERE name = {} AND state = 0 AND ticket = 0), 0)",
            tables.claims,
            bytes(FLOOR_ROW.as_bytes())
        );
        Self { client, tables, floor, returns: AtomicBool::new(false) }
    }

    /// The first column of the first row of the last answer.
    async fn ask<T: FromValue>(&self, request: &str, again: bool) -> Result<Option<T>, Failure> {
        let answers = self.client.run(request, again).await?;
        Ok(answers.last().and_then(|rows| rows.first()).map(|row| value(row, 0)))
    }

    async fn rows(&self, request: &str) -> Result<Vec<Row>, Failure> {
        Ok(self.client.run(request, true).await?.pop().unwrap_or_default())
    }

    /// Makes the tables if they are not there, one process at a time: statements that make tables
    /// commit by themselves, so another process could see half of it. The lock is on a connection
    /// of its own, which gives it back whatever happens.
    async fn make(&self) -> Result<Result<Option<i64>, Failure>> {
        let (at, Tables { names, claims }) = (self.shown(), &self.tables);
        let explain = |failure: Failure| -> Error { failure.explain(at) };
        let (connector, limit) = (&self.client.connector, self.client.connector.timeout());
        let mut connection = connector.connect().await.map_err(explain)?;
        let lock = text(&format!("{names}.make"));
        let locked = connection.run(&format!("DO GET_LOCK({lock}, {MAKING})"), limit).await;
        locked.map_err(explain)?;
        let version = self.version().await;
        if migration::may_be_earlier(&version) {
            migration::migrate_mysql(&mut connection, connector, &self.tables).await?;
            return Ok(self.version().await);
        }
        if version.as_ref().err().and_then(Failure::why) != Some(Why::NoTable) {
            return Ok(version);
        }
        for table in [names, claims] {
            // The one without the other was not made by us.
            let there = format!("SELECT 1 FROM {table} LIMIT 1");
            if self.ask::<i64>(&there, true).await.is_ok() {
                return Err(schema::not_ours(at, table));
            }
        }
        let statements = self.tables.create(Dialect::Mysql).join("; ");
        connection.run(&statements, limit).await.map_err(explain)?;
        Ok(self.version().await)
    }

    /// Whether this server can be used at all.
    async fn check_server(&self) -> Result<()> {
        let at = self.shown();
        let about = "SELECT CONCAT(VERSION(), '|', @@global.read_only)";
        let about: Option<String> =
            self.ask(about, true).await.map_err(|failure| failure.explain(at))?;
        let about = about.unwrap_or_default();
        let (version, read_only) = about.split_once('|').unwrap_or_default();
        let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let number: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let maria = version.to_lowercase().contains("mariadb");
        self.returns.store(maria, Ordering::Relaxed);
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
        Ok(())
    }

    /// The version of the tables, if there are any, after a check of all columns and rights.
    async fn version(&self) -> Result<Option<i64>, Failure> {
        let mark = self.tables.ask_mark(Dialect::Mysql);
        let request = format!("{mark}; {}", self.tables.probes().join("; "));
        let answers = self.client.run(&request, true).await?;
        Ok(answers.first().and_then(|rows| rows.first()).map(|row| value(row, 0)))
    }
}

/// A column; nothing of a wrong type is in tables whose columns were checked.
fn value<T: FromValue>(row: &Row, column: usize) -> T {
    row.get(column).unwrap_or_else(|| T::from_value(mysql_async::Value::Bytes(b"0".to_vec())))
}

fn process_row(process: &str) -> String {
    bytes(format!("{PROCESS_ROW}{process}").as_bytes())
}

/// The values of a claim in the order of [`CLAIM`].
fn values(record: &Record) -> String {
    let Record { mode, token, ttl, since, expires, .. } = record;
    format!(
        "{}, {}, {}, {}, {token}, {ttl}, {since}, {expires}, {}, {}",
        text(&record.id),
        text(&record.owner),
        text(&record.process),
        code_of(*mode),
        text(&record.identity),
        text(&record.note),
    )
}

/// A claim from ten columns in the order of [`CLAIM`].
fn record(row: &Row, from: usize, ticket: i64, state: i16) -> Record {
    Record {
        ticket,
        state,
        id: value(row, from),
        owner: value(row, from + 1),
        process: value(row, from + 2),
        mode: mode_of(value(row, from + 3)),
        token: value(row, from + 4),
        ttl: value(row, from + 5),
        since: value(row, from + 6),
        expires: value(row, from + 7),
        identity: value(row, from + 8),
        note: value(row, from + 9),
    }
}

/// The columns of a claim in a table of this name.
fn of_claim(table: &str) -> String {
    CLAIM.split(", ").map(|column| format!(", {table}.{column}")).collect()
}

#[async_trait]
impl Requests for MysqlRequests {
    fn shown(&self) -> &str {
        self.client.connector.shown()
    }

    /// Assignments run from left to right, and see what those before them did. So the id comes
    /// first, and all others go by whether it is ours. Likewise a value can be made of those before
    /// it, so the clock and the floor stand in the text once.
    async fn take(&self, claim: &Claim, process: &str) -> Result<Option<i64>, Failure> {
        let (names, floor) = (&self.tables.names, &self.floor);
        let (name, id) = (bytes(claim.name.as_str().as_bytes()), text(&claim.id.to_string()));
        let (owner, process) = (text(claim.owner.id()), text(process));
        let (mode, ttl) = (code_of(claim.mode), micros(claim.ttl));
        let (identity, note) = (text(&claim.identity), text(&claim.note));
        let mut request = format!(
            "INSERT INTO {names} (name, version, place, waiting, since, last, id, owner, process, \
             mode, token, ttl, expires, identity, note) VALUES ({name}, 1, 1, 0, {NOW}, \
             GREATEST(since, {floor}), {id}, {owner}, {process}, {mode}, last, {ttl}, since + ttl, \
             {identity}, {note}) ON DUPLICATE KEY UPDATE id = IF(place = 0 OR (place = 1 \
             AND (expires <= VALUES(since) OR id = VALUES(id))), VALUES(id), id)"
        );
        for (column, new) in [
            ("version", "version + 1"),
            ("last", "GREATEST(last + 1, VALUES(last))"),
            ("token", "last"),
            ("waiting", "0"),
            ("owner", "VALUES(owner)"),
            ("process", "VALUES(process)"),
            ("mode", "VALUES(mode)"),
            ("ttl", "VALUES(ttl)"),
            ("since", "VALUES(since)"),
            ("expires", "VALUES(expires)"),
            ("identity", "VALUES(identity)"),
            ("note", "VALUES(note)"),
            ("place", "1"),
        ] {
            let _ = write!(request, ", {column} = IF(id = VALUES(id), {new}, {column})");
        }
        if self.returns.load(Ordering::Relaxed) {
            let _ = write!(request, " RETURNING IF(id = {id}, token, NULL)");
        } else {
            let _ = write!(
                request,
                "; SELECT token FROM {names} WHERE name = {name} AND place = 1 AND id = {id}"
            );
        }
        Ok(self.ask::<Option<i64>>(&request, false).await?.flatten())
    }

    async fn free(&self, name: &str, id: &str) -> Result<bool, Failure> {
        let request = format!(
            "UPDATE {} SET version = version + 1, place = 0, id = '', expires = {NOW} \
             WHERE name = {} AND place = 1 AND id = {} AND process <> ''",
            self.tables.names,
            bytes(name.as_bytes()),
            text(id)
        );
        // Not sent again by the client: a second answer would say that it was not there.
        Ok(self.client.run_counted(&request, false).await?.1 > 0)
    }

    async fn extend(&self, name: &str, id: &str, ttl: i64) -> Result<bool, Failure> {
        let request = format!(
            "UPDATE {} SET version = version + 1, expires = {NOW} + {ttl} WHERE name = {} \
             AND place = 1 AND id = {} AND process <> '' AND expires > {NOW}",
            self.tables.names,
            bytes(name.as_bytes()),
            text(id)
        );
        Ok(self.client.run_counted(&request, true).await?.1 > 0)
    }

    async fn confirm(&self, name: &str, id: &str, ticket: i64) -> Result<bool, Failure> {
        let Tables { names, claims } = &self.tables;
        let (name, id) = (bytes(name.as_bytes()), text(id));
        let request = format!(
            "BEGIN; UPDATE {names} SET version = version + 1 WHERE name = {name} \
             AND place = {CROWD}; UPDATE {claims} SET state = {HELD}, expires = {NOW} + ttl \
             WHERE name = {name} AND state = {HANDED} AND ticket = {ticket} AND id = {id} \
             AND expires > {NOW}; SET @lockkeeper = ROW_COUNT(); COMMIT; SELECT @lockkeeper"
        );
        Ok(self.ask::<i64>(&request, true).await?.is_some_and(|changed| changed > 0))
    }

    async fn join(&self, claim: &Claim, process: &str) -> Result<Option<(i64, i64)>, Failure> {
        let Tables { names, claims } = &self.tables;
        let name = bytes(claim.name.as_str().as_bytes());
        let (id, owner, process) =
            (text(&claim.id.to_string()), text(claim.owner.id()), text(process));
        let (mode, ttl) = (code_of(claim.mode), micros(claim.ttl));
        let (identity, note) = (text(&claim.identity), text(&claim.note));
        // Whether the owner holds the name is looked at in the second statement: it begins when the
        // row of the name is locked, and sees all that was committed until then.
        let request = format!(
            "BEGIN; UPDATE {names} SET version = version + 1, last = GREATEST(last + 1, {NOW}) \
             WHERE name = {name} AND place = {CROWD} AND waiting > 0; SET @lockkeeper = ROW_COUNT(); \
             INSERT INTO {claims} (name, state, ticket, {CLAIM}) SELECT l.name, {WAITING}, l.last, {id}, \
             {owner}, {process}, {mode}, l.last, {ttl}, {NOW}, {NOW} + {ttl}, {identity}, {note} \
             FROM {names} l WHERE l.name = {name} AND @lockkeeper = 1 AND NOT EXISTS (SELECT 1 \
             FROM {claims} c WHERE c.name = {name} AND c.state < {WAITING} AND c.owner = {owner}); \
             SET @lockkeeper = ROW_COUNT(); \
             UPDATE {names} SET waiting = waiting + 1 WHERE name = {name} AND @lockkeeper = 1; \
             SELECT last, waiting FROM {names} WHERE name = {name} AND @lockkeeper = 1; COMMIT"
        );
        let answers = self.client.run(&request, false).await?;
        let row = answers.last().and_then(|rows| rows.first());
        Ok(row.map(|row| (value(row, 0), value(row, 1))))
    }

    async fn read(&self, process: &str, name: &str, id: &str) -> Result<Option<Queue>, Failure> {
        let Tables { names, claims } = &self.tables;
        let name = bytes(name.as_bytes());
        let by_id = match id {
            "" => String::new(),
            id => format!(
                " UNION ALL SELECT * FROM {claims} WHERE name = {name} AND state = {WAITING} \
                 AND id = {}",
                text(id)
            ),
        };
        let request = format!(
            "SELECT {NOW}, l.version, l.last, l.waiting, l.place{}, q.ticket, q.state{}, \
             COALESCE(p.expires > {NOW}, 0) FROM {names} l LEFT JOIN (\
             SELECT * FROM {claims} WHERE name = {name} AND state < {WAITING} UNION ALL \
             (SELECT * FROM {claims} WHERE name = {name} AND state = {WAITING} ORDER BY ticket \
             LIMIT {LOADED}){by_id}) q ON l.place = {CROWD} \
             LEFT JOIN {names} p ON p.name = CONCAT({}, q.process) WHERE l.name = {name}",
            of_claim("l"),
            of_claim("q"),
            bytes(PROCESS_ROW.as_bytes()),
        );
        let rows = self.rows(&request).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let place: i16 = value(first, 4);
        let head = (value(first, 0), value(first, 1), value(first, 2), value(first, 3), place);
        let claims = if place == ALONE {
            vec![(record(first, 5, value(first, 9), HELD), true)]
        } else {
            let filled = rows.iter().filter(|row| value::<Option<i64>>(row, 15).is_some());
            let read = filled.map(|row| {
                (record(row, 17, value(row, 15), value(row, 16)), value::<i64>(row, 27) != 0)
            });
            read.collect()
        };
        Ok(Some(Queue::read(process, head, claims)))
    }

    async fn apply(&self, name: &str, version: i64, change: &Change) -> Result<bool, Failure> {
        let Tables { names, claims } = &self.tables;
        let name = bytes(name.as_bytes());
        let Change { place, last, waiting, now, .. } = change;
        let mut request = format!(
            "BEGIN; UPDATE {names} SET version = version + 1, place = {place}, last = {last}, \
             waiting = {waiting}, "
        );
        match &change.alone {
            Some(record) => {
                for (column, new) in CLAIM.split(", ").zip(values(record).split(", ")) {
                    let _ = write!(request, "{column} = {new}, ");
                }
            }
            None => {
                let _ = write!(request, "id = '', process = '', expires = {now}, ");
            }
        }
        request.truncate(request.len() - 2);
        let _ = write!(
            request,
            " WHERE name = {name} AND version = {version}; SET @lockkeeper = ROW_COUNT()"
        );
        for (state, ticket) in &change.deletes {
            let _ = write!(
                request,
                "; DELETE FROM {claims} WHERE name = {name} AND state = {state} \
                 AND ticket = {ticket} AND @lockkeeper = 1"
            );
        }
        for (was, record) in &change.updates {
            let Record { state, ticket, since, expires, .. } = record;
            let _ = write!(
                request,
                "; UPDATE {claims} SET state = {state}, process = {}, since = {since}, \
                 expires = {expires}, note = {} WHERE name = {name} AND state = {was} \
                 AND ticket = {ticket} AND @lockkeeper = 1",
                text(&record.process),
                text(&record.note)
            );
        }
        for record in &change.inserts {
            let _ = write!(
                request,
                "; INSERT INTO {claims} (name, state, ticket, {CLAIM}) \
                 SELECT {name}, {}, {}, {} FROM DUAL WHERE @lockkeeper = 1",
                record.state,
                record.ticket,
                values(record)
            );
        }
        request += "; COMMIT; SELECT @lockkeeper";
        Ok(self.ask::<i64>(&request, false).await?.is_some_and(|changed| changed > 0))
    }

    async fn beat(&self, process: &str) -> Result<i64, Failure> {
        let (names, row) = (&self.tables.names, process_row(process));
        let lease = micros(WAITER_LEASE);
        let request = format!(
            "INSERT INTO {names} (name, version, place, last, waiting, {CLAIM}) VALUES ({row}, 0, \
             0, {NOW}, 0, '', '', '', 0, 0, 0, {NOW}, {NOW} + {lease}, '', '') \
             ON DUPLICATE KEY UPDATE last = IF(expires <= {NOW}, {NOW}, last), since = {NOW}, \
             expires = {NOW} + {lease}; SELECT last FROM {names} WHERE name = {row}"
        );
        Ok(self.ask(&request, true).await?.unwrap_or(0))
    }

    async fn end(&self, process: &str) -> Result<(), Failure> {
        let row = process_row(process);
        let request = format!("DELETE FROM {} WHERE name = {row}", self.tables.names);
        self.client.run(&request, true).await.map(|_| ())
    }

    async fn granted(&self, process: &str, names: &[String]) -> Result<Vec<String>, Failure> {
        let Tables { names: table, claims } = &self.tables;
        let wanted: Vec<String> = names.iter().map(|name| bytes(name.as_bytes())).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let (wanted, process) = (wanted.join(", "), text(process));
        let request = format!(
            "SELECT id FROM {claims} WHERE name IN ({wanted}) AND state < {WAITING} \
             AND process = {process} UNION ALL SELECT id FROM {table} WHERE name IN ({wanted}) \
             AND place = {ALONE} AND process = {process}"
        );
        Ok(self.rows(&request).await?.iter().map(|row| value(row, 0)).collect())
    }

    async fn broken(&self, process: &str) -> Result<Vec<(String, String, String)>, Failure> {
        let request = format!(
            "SELECT name, id, note FROM {} WHERE state = {BROKEN} AND process = {}",
            self.tables.claims,
            text(process)
        );
        let rows = self.rows(&request).await?;
        Ok(rows.iter().map(|row| (value(row, 0), value(row, 1), value(row, 2))).collect())
    }

    async fn list(&self, first: &str, exact: bool) -> Result<(i64, Vec<Listed>), Failure> {
        let Tables { names, claims } = &self.tables;
        // Names of locks begin behind the control characters.
        let from = bytes(first.max(" ").as_bytes());
        let matches = |table: &str| match (exact, first) {
            (true, _) => format!("{table}.name = {from}"),
            (false, "") => format!("{table}.name >= {from}"),
            (false, first) => {
                let length = first.len();
                format!("{table}.name >= {from} AND LEFT({table}.name, {length}) = {from}")
            }
        };
        let request = format!(
            "SELECT {NOW}, a.*, COALESCE(p.expires > {NOW}, 0) FROM (SELECT 1) one LEFT JOIN (\
             SELECT l.name, l.token AS ticket, {HELD} AS state{} FROM {names} l \
             WHERE l.place = {ALONE} AND {} UNION ALL SELECT c.name, c.ticket, c.state{} \
             FROM {claims} c WHERE {}) a ON 1 = 1 \
             LEFT JOIN {names} p ON p.name = CONCAT({}, a.process)",
            of_claim("l"),
            matches("l"),
            of_claim("c"),
            matches("c"),
            bytes(PROCESS_ROW.as_bytes()),
        );
        let rows = self.rows(&request).await?;
        let now = rows.first().map_or(0, |row| value(row, 0));
        let filled = rows.iter().filter(|row| value::<Option<i64>>(row, 2).is_some());
        let listed = filled.map(|row| {
            let record = record(row, 4, value(row, 2), value(row, 3));
            (value(row, 1), record, value::<i64>(row, 14) != 0)
        });
        Ok((now, listed.collect()))
    }

    async fn reserve(&self, name: &str, count: i64, floor: i64) -> Result<i64, Failure> {
        let (names, row) = (&self.tables.names, bytes(format!("{SEQUENCE_ROW}{name}").as_bytes()));
        let never = i64::MAX;
        let request = format!(
            "BEGIN; INSERT INTO {names} (name, version, place, last, waiting, {CLAIM}) VALUES \
             ({row}, 0, 0, {floor}, 0, '', '', '', 0, 0, 0, 0, {never}, '', '') \
             ON DUPLICATE KEY UPDATE last = GREATEST(last + {count}, {floor}); \
             SELECT last FROM {names} WHERE name = {row}; COMMIT"
        );
        Ok(self.ask(&request, true).await?.unwrap_or(0))
    }

    async fn raise_floor(&self, unused: i64) -> Result<(), Failure> {
        let Tables { names, claims } = &self.tables;
        let (row, never) = (bytes(FLOOR_ROW.as_bytes()), i64::MAX);
        let request = format!(
            "SET @lockkeeper = (SELECT COALESCE(MAX(last), 0) FROM {names} \
             WHERE place < {CROWD} AND expires < {NOW} - {unused} AND name >= ' '); \
             INSERT INTO {claims} (name, state, ticket, {CLAIM}) VALUES ({row}, 0, 0, '', '', '', \
             0, @lockkeeper, 0, 0, {never}, '', '') \
             ON DUPLICATE KEY UPDATE token = GREATEST(token, @lockkeeper)"
        );
        self.client.run(&request, true).await.map(|_| ())
    }

    /// A plain condition on one table, with the floor read before: a `DELETE` with a query in it
    /// meets others on its way and deadlocks.
    async fn sweep(&self, unused: i64) -> Result<Vec<String>, Failure> {
        let (names, floor) = (&self.tables.names, &self.floor);
        let request = format!(
            "SET @lockkeeper = {floor} - 1; \
             DELETE FROM {names} WHERE place < {CROWD} AND expires < {NOW} - {unused} \
             AND (name < ' ' OR last <= @lockkeeper) LIMIT 1000; \
             SELECT name FROM {names} WHERE place = {CROWD} AND expires < {NOW} - {unused} \
             LIMIT 100"
        );
        Ok(self.rows(&request).await?.iter().map(|row| value(row, 0)).collect())
    }

    /// These servers tell their uptime in whole seconds, which is not the same for two who ask.
    async fn incarnation(&self) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    /// Servers are told apart by their host, port and number.
    async fn enter(&self, always: bool) -> Result<Duration, Failure> {
        let (names, row) = (&self.tables.names, literal(Dialect::Mysql, WRITER_ROW));
        let me = "MD5(CONCAT(@@hostname, ':', @@port, '/', @@server_id))";
        let since = if always { "0" } else { NOW };
        let request = format!(
            "INSERT INTO {names} (name, version, place, last, waiting, {CLAIM}) VALUES \
               ({row}, 0, 0, 0, 0, {me}, '', '', 0, 0, 0, {since}, {}, '', '') \
             ON DUPLICATE KEY UPDATE since = IF(id = {me}, since, {NOW}), id = {me}; \
             SELECT {NOW} - since FROM {names} WHERE name = {row}",
            // Never cleaned away.
            i64::MAX
        );
        let lasted: Option<i64> = self.ask(&request, true).await?;
        Ok(Duration::from_micros(lasted.and_then(|it| u64::try_from(it).ok()).unwrap_or(0)))
    }

    async fn listen(&self, _: &str) -> Result<Option<Listening>, Failure> {
        Ok(None)
    }

    fn can_listen(&self) -> bool {
        false
    }

    async fn prepare(&self) -> Result<()> {
        self.check_server().await?;
        let (at, names) = (self.shown(), &self.tables.names);
        let explain = |failure: Failure| -> Error { failure.explain(at) };
        let version = match self.version().await {
            Ok(Some(version)) => Ok(Some(version)),
            _ => self.make().await?,
        };
        schema::check_version(version.map_err(explain)?, at, names)
    }

    fn disconnect(&self) {
        self.client.disconnect();
    }
}

impl fmt::Debug for MysqlRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MysqlRequests").field(&self.client).finish()
    }
}
