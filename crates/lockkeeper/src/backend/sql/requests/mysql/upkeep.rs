//! The texts of the requests beside those of a lock: heartbeats, what was granted or broken, lists,
//! and the cleaner.

use super::super::super::client::{bytes, text};
use super::super::super::queue::{ALONE, CROWD};
use super::super::super::record::{BROKEN, HANDED, HELD, WAITER_LEASE, WAITING, micros};
use super::super::super::schema::{CLAIM, Dialect, Tables, literal};
use super::super::{FLOOR_ROW, PROCESS_ROW, WRITER_ROW};
use super::statements::{NOW, Statements, of_claim};

impl Statements {
    pub(super) fn beat(&self, process: &str) -> String {
        let (names, row) = (&self.tables.names, process_row(process));
        let lease = micros(WAITER_LEASE);
        format!(
            "INSERT INTO {names} (name, version, place, last, waiting, {CLAIM}) VALUES ({row}, 0, \
             0, {NOW}, 0, '', '', '', 0, 0, 0, {NOW}, {NOW} + {lease}, '', '') \
             ON DUPLICATE KEY UPDATE last = IF(expires <= {NOW}, {NOW}, last), since = {NOW}, \
             expires = {NOW} + {lease}; SELECT last FROM {names} WHERE name = {row}"
        )
    }

    pub(super) fn end(&self, process: &str) -> String {
        format!("DELETE FROM {} WHERE name = {}", self.tables.names, process_row(process))
    }

    /// Writes down that this server takes the writes, and reads for how long it has. Servers are told
    /// apart by their host, port and number.
    pub(super) fn enter(&self, always: bool) -> String {
        let (names, row) = (&self.tables.names, literal(Dialect::Mysql, WRITER_ROW));
        let me = "MD5(CONCAT(@@hostname, ':', @@port, '/', @@server_id))";
        let since = if always { "0" } else { NOW };
        format!(
            "INSERT INTO {names} (name, version, place, last, waiting, {CLAIM}) VALUES \
               ({row}, 0, 0, 0, 0, {me}, '', '', 0, 0, 0, {since}, {}, '', '') \
             ON DUPLICATE KEY UPDATE since = IF(id = {me}, since, {NOW}), id = {me}; \
             SELECT {NOW} - since FROM {names} WHERE name = {row}",
            // Never cleaned away.
            i64::MAX
        )
    }

    /// For at least one name.
    pub(super) fn granted(&self, process: &str, names: &[String]) -> String {
        let Tables { names: table, claims } = &self.tables;
        let wanted: Vec<String> = names.iter().map(|name| bytes(name.as_bytes())).collect();
        let (wanted, process) = (wanted.join(", "), text(process));
        format!(
            "SELECT id, state = {HANDED} FROM {claims} WHERE name IN ({wanted}) \
             AND state < {WAITING} AND process = {process} UNION ALL \
             SELECT id, 0 FROM {table} WHERE name IN ({wanted}) AND place = {ALONE} \
             AND process = {process}"
        )
    }

    pub(super) fn claims_of(&self, process: &str, name: &str) -> String {
        let Tables { names, claims } = &self.tables;
        let (name, process) = (bytes(name.as_bytes()), text(process));
        format!(
            "SELECT id FROM {claims} WHERE name = {name} AND process = {process} UNION ALL \
             SELECT id FROM {names} WHERE name = {name} AND place = {ALONE} AND process = {process}"
        )
    }

    pub(super) fn broken(&self, process: &str) -> String {
        format!(
            "SELECT name, id, note FROM {} WHERE state = {BROKEN} AND process = {}",
            self.tables.claims,
            text(process)
        )
    }

    /// The clock; name, ticket, state and ten columns of a claim, and whether its process lives.
    pub(super) fn list(&self, first: &str, last: &str) -> String {
        let Tables { names, claims } = &self.tables;
        let matches = |table: &str| within(table, first, last);
        format!(
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
        )
    }

    /// Each table gives as many as are wanted, in the order of its index.
    pub(super) fn names(&self, [first, last]: [&str; 2], after: &str, limit: i64) -> String {
        let Tables { names, claims } = &self.tables;
        let later = |table: &str| {
            let (within, after) = (within(table, first, last), bytes(after.as_bytes()));
            format!("{within} AND {table}.name > {after} ORDER BY {table}.name LIMIT {limit}")
        };
        format!(
            "(SELECT l.name FROM {names} l WHERE l.place = {ALONE} AND {}) UNION \
             (SELECT DISTINCT c.name FROM {claims} c WHERE {}) ORDER BY name LIMIT {limit}",
            later("l"),
            later("c"),
        )
    }

    pub(super) fn raise_floor(&self, unused: i64) -> String {
        let Tables { names, claims } = &self.tables;
        let (row, never) = (bytes(FLOOR_ROW.as_bytes()), i64::MAX);
        format!(
            "SET @lockkeeper = (SELECT COALESCE(MAX(last), 0) FROM {names} \
             WHERE place < {CROWD} AND expires < {NOW} - {unused} AND name >= ' '); \
             INSERT INTO {claims} (name, state, ticket, {CLAIM}) VALUES ({row}, 0, 0, '', '', '', \
             0, @lockkeeper, 0, 0, {never}, '', '') \
             ON DUPLICATE KEY UPDATE token = GREATEST(token, @lockkeeper)"
        )
    }

    /// A plain condition on one table, with the floor read before: a `DELETE` with a query in it
    /// meets others on its way and deadlocks.
    pub(super) fn sweep(&self, unused: i64) -> String {
        let (names, floor) = (&self.tables.names, &self.floor);
        format!(
            "SET @lockkeeper = {floor} - 1; \
             DELETE FROM {names} WHERE place < {CROWD} AND expires < {NOW} - {unused} \
             AND (name < ' ' OR last <= @lockkeeper) LIMIT 1000; \
             SELECT name FROM {names} WHERE place = {CROWD} AND expires < {NOW} - {unused} \
             LIMIT 100"
        )
    }
}

fn process_row(process: &str) -> String {
    bytes(format!("{PROCESS_ROW}{process}").as_bytes())
}

/// From the first name to the last. Names of locks begin behind the control characters.
fn within(table: &str, first: &str, last: &str) -> String {
    let (first, last) = (bytes(first.max(" ").as_bytes()), bytes(last.as_bytes()));
    format!("{table}.name BETWEEN {first} AND {last}")
}
