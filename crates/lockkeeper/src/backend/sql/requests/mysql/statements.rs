//! The texts of the requests to MariaDB and MySQL.
//!
//! A request is one text: a statement that is its own transaction, or a transaction from `BEGIN` to
//! `COMMIT`, with a question behind it for what came of it. Each first changes the row of the name,
//! found by the primary key, and then rows of that name only; so there is no order in which two of
//! them could wait for each other.
//!
//! How many rows a statement changed is asked only where a change is certain to change something,
//! since drivers and servers count differently what was found and left as it was. Every request has
//! as few statements as it can: the server answers each by itself, and each answer wakes the client.

use super::super::super::client::{bytes, text};
use super::super::super::queue::{ALONE, CROWD, Change, FREE, LOADED, Version};
use super::super::super::record::{HANDED, HELD, Record, WAITER_LEASE, WAITING, code_of, micros};
use super::super::super::schema::{CLAIM, Tables};
use super::super::{FLOOR_ROW, PROCESS_ROW};
use crate::backend::Claim;
use mysql_async::Value;
use std::fmt::Write;

/// The database's clock; the same for the length of a statement, and not that of a time zone.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The texts, with the names of the tables in them.
pub(super) struct Statements {
    pub(super) tables: Tables,
    /// What the tokens of a name without a row must be above.
    pub(super) floor: String,
    pub(super) retake: String,
    pub(super) free: String,
}

/// The values of [`Statements::retake`].
pub(super) fn retake_values(claim: &Claim, process: &str) -> [Value; 10] {
    let (id, ttl) = (claim.id.to_string(), micros(claim.ttl));
    [
        id.as_str().into(),
        claim.owner.id().into(),
        process.into(),
        code_of(claim.mode).into(),
        ttl.into(),
        ttl.into(),
        (&*claim.identity).into(),
        (&*claim.note).into(),
        claim.name.as_str().into(),
        id.into(),
    ]
}

/// A claim as it stands in a text.
struct Written {
    name: String,
    id: String,
    owner: String,
    process: String,
    mode: i64,
    ttl: i64,
    identity: String,
    note: String,
}

impl Written {
    fn of(claim: &Claim, process: &str) -> Self {
        Self {
            name: bytes(claim.name.as_str().as_bytes()),
            id: text(&claim.id.to_string()),
            owner: text(claim.owner.id()),
            process: text(process),
            mode: code_of(claim.mode),
            ttl: micros(claim.ttl),
            identity: text(&claim.identity),
            note: text(&claim.note),
        }
    }
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        let floor = format!(
            "COALESCE((SELECT token + 1 FROM {} WHERE name = {} AND state = 0 AND ticket = 0), 0)",
            tables.claims,
            bytes(FLOOR_ROW.as_bytes())
        );
        let (retake, free) = (Self::retake(&tables.names), Self::free(&tables.names));
        Self { tables: tables.clone(), floor, retake, free }
    }

    /// Takes a name that may have no row yet.
    ///
    /// Assignments run from left to right, and see what those before them did. So the id comes
    /// first, and all others go by whether it is ours. Likewise a value can be made of those before
    /// it, so the clock and the floor stand in the text once.
    ///
    /// `returns`: whether an `INSERT` can say what became of its row, as on MariaDB; MySQL is asked
    /// by a second statement in the same request.
    pub(super) fn take(&self, claim: &Claim, process: &str, returns: bool) -> String {
        let (names, floor) = (&self.tables.names, &self.floor);
        let Written { name, id, owner, process, mode, ttl, identity, note } =
            Written::of(claim, process);
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
        if returns {
            let _ = write!(request, " RETURNING IF(id = {id}, token, NULL)");
        } else {
            let _ = write!(
                request,
                "; SELECT token FROM {names} WHERE name = {name} AND place = 1 AND id = {id}"
            );
        }
        request
    }

    /// Takes a name that has a row, by an `UPDATE` which changes that row or nothing; its token is
    /// what the server says to have counted up to. Prepared, with [`retake_values`].
    ///
    /// For the server this is half the work of an `INSERT` that finds the row there: it looks for no
    /// floor, and answers in one packet. Every assignment goes by what was there before, whether
    /// or not it comes behind others, so that no mode of the server matters.
    fn retake(names: &str) -> String {
        format!(
            "UPDATE {names} SET version = version + 1, place = {ALONE}, waiting = 0, \
             token = LAST_INSERT_ID(GREATEST(last + 1, {NOW})), last = GREATEST(last + 1, {NOW}), \
             id = ?, owner = ?, process = ?, mode = ?, ttl = ?, since = {NOW}, \
             expires = {NOW} + ?, identity = ?, note = ? \
             WHERE name = ? AND (place = {FREE} OR (place = {ALONE} \
             AND (expires <= {NOW} OR id = ?)))"
        )
    }

    /// Prepared, with the name and the id.
    fn free(names: &str) -> String {
        format!(
            "UPDATE {names} SET version = version + 1, place = 0, id = '', expires = {NOW} \
             WHERE name = ? AND place = 1 AND id = ? AND process <> ''"
        )
    }

    pub(super) fn extend(&self, name: &str, id: &str, ttl: i64) -> String {
        format!(
            // The expiry first: each assignment sees those before it.
            "UPDATE {} SET version = version + 1, \
             expires = GREATEST({NOW} + {ttl}, LEAST(expires, {NOW} + ttl)), \
             ttl = GREATEST(ttl, {ttl}) WHERE name = {} AND place = 1 AND id = {} AND process <> '' AND expires > {NOW}",
            self.tables.names,
            bytes(name.as_bytes()),
            text(id)
        )
    }

    pub(super) fn confirm(&self, name: &str, id: &str, ticket: i64) -> String {
        let Tables { names, claims } = &self.tables;
        let (name, id) = (bytes(name.as_bytes()), text(id));
        format!(
            "BEGIN; UPDATE {names} SET version = version + 1 WHERE name = {name} \
             AND place = {CROWD}; UPDATE {claims} SET state = {HELD}, expires = {NOW} + ttl \
             WHERE name = {name} AND state = {HANDED} AND ticket = {ticket} AND id = {id} \
             AND expires > {NOW}; SET @lockkeeper = ROW_COUNT(); COMMIT; SELECT @lockkeeper"
        )
    }

    pub(super) fn join(&self, claim: &Claim, process: &str) -> String {
        let Tables { names, claims } = &self.tables;
        let Written { name, id, owner, process, mode, ttl, identity, note } =
            Written::of(claim, process);
        if claim.owner.id() == claim.id.to_string() {
            // Nobody else has that owner.
            return format!(
                "BEGIN; UPDATE {names} SET last = GREATEST(last + 1, {NOW}), waiting = waiting + 1 \
                 WHERE name = {name} AND place = {CROWD} AND waiting > 0; \
                 INSERT INTO {claims} (name, state, ticket, {CLAIM}) SELECT name, {WAITING}, last, \
                 {id}, {owner}, {process}, {mode}, last, {ttl}, {NOW}, {NOW} + {ttl}, {identity}, \
                 {note} FROM {names} WHERE name = {name} AND ROW_COUNT() = 1; \
                 SELECT last, waiting, NULL FROM {names} WHERE name = {name} AND ROW_COUNT() = 1; \
                 COMMIT"
            );
        }
        // Whether the owner holds the name is looked at in the second statement: it begins when the
        // row of the name is locked, and sees all that was committed until then.
        format!(
            "BEGIN; UPDATE {names} SET last = GREATEST(last + 1, {NOW}) \
             WHERE name = {name} AND place = {CROWD} AND waiting > 0; SET @lockkeeper = ROW_COUNT(); \
             INSERT INTO {claims} (name, state, ticket, {CLAIM}) SELECT l.name, {WAITING}, l.last, {id}, \
             {owner}, {process}, {mode}, l.last, {ttl}, {NOW}, {NOW} + {ttl}, {identity}, {note} \
             FROM {names} l WHERE l.name = {name} AND @lockkeeper = 1 AND NOT EXISTS (SELECT 1 \
             FROM {claims} c WHERE c.name = {name} AND c.state < {WAITING} AND c.owner = {owner}); \
             SET @lockkeeper = ROW_COUNT(); \
             UPDATE {names} SET waiting = waiting + 1 WHERE name = {name} AND @lockkeeper = 1; \
             SELECT last, waiting, NULL FROM {names} WHERE name = {name} AND @lockkeeper = 1; COMMIT"
        )
    }

    /// As [`join`](Self::join), behind a claim that is alone on the name and keeps this one out: that one
    /// becomes a row of the second table. Its columns in the row of the name stay as they were, and mean
    /// nothing from then on.
    pub(super) fn join_alone(&self, claim: &Claim, process: &str) -> String {
        let Tables { names, claims } = &self.tables;
        let Written { name, id, owner, process, mode, ttl, identity, note } =
            Written::of(claim, process);
        format!(
            "BEGIN; UPDATE {names} SET version = version + 1, place = {CROWD}, waiting = 1, \
             last = GREATEST(last + 1, {NOW}) WHERE name = {name} AND place = {ALONE} \
             AND expires > {NOW} AND owner <> {owner} AND (mode = 0 OR {mode} = 0); \
             SET @lockkeeper = ROW_COUNT(); \
             INSERT INTO {claims} (name, state, ticket, {CLAIM}) SELECT name, {HELD}, token, {CLAIM} \
             FROM {names} WHERE name = {name} AND @lockkeeper = 1 UNION ALL \
             SELECT name, {WAITING}, last, {id}, {owner}, {process}, {mode}, last, {ttl}, {NOW}, \
             {NOW} + {ttl}, {identity}, {note} FROM {names} WHERE name = {name} AND @lockkeeper = 1; \
             SELECT last, waiting, expires - {NOW} FROM {names} WHERE name = {name} \
             AND @lockkeeper = 1; COMMIT"
        )
    }

    /// Ten columns behind the head of the name for a claim in its own row; ticket and state of a
    /// claim beside it, ten columns of that, and whether its process lives.
    pub(super) fn read(&self, name: &str, id: &str) -> String {
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
        format!(
            "SELECT {NOW}, l.version, l.last, l.waiting, l.place{}, q.ticket, q.state{}, \
             COALESCE(p.expires > {NOW}, 0) FROM {names} l LEFT JOIN (\
             SELECT * FROM {claims} WHERE name = {name} AND state < {WAITING} UNION ALL \
             (SELECT * FROM {claims} WHERE name = {name} AND state = {WAITING} ORDER BY ticket \
             LIMIT {LOADED}){by_id}) q ON l.place = {CROWD} \
             LEFT JOIN {names} p ON p.name = CONCAT({}, q.process) WHERE l.name = {name}",
            of_claim("l"),
            of_claim("q"),
            bytes(PROCESS_ROW.as_bytes()),
        )
    }

    /// The row of the name is locked by the first statement. Those behind it see all that was committed
    /// until then, and nobody else changes a claim on the name until this is through.
    pub(super) fn hand_on(&self, name: &str, id: &str, process: &str) -> String {
        let Tables { names, claims } = &self.tables;
        let (name, id, process) = (bytes(name.as_bytes()), text(id), text(process));
        let (process_row, waiter_lease) = (bytes(PROCESS_ROW.as_bytes()), micros(WAITER_LEASE));
        format!(
            "BEGIN; SELECT COALESCE(MAX(waiting), 0) INTO @lockkeeper FROM {names} \
             WHERE name = {name} AND place = {CROWD} FOR UPDATE; \
             SELECT (SELECT IF(COUNT(*) = 1, MAX(IF(state = {HELD} AND id = {id} \
             AND process <> '' AND expires > {NOW}, ticket, NULL)), NULL) FROM {claims} \
             WHERE name = {name} AND state < {WAITING}), \
             (SELECT IF(c.mode = 0 AND COALESCE(p.expires > {NOW}, 0), c.ticket, NULL) \
             FROM {claims} c LEFT JOIN {names} p ON p.name = CONCAT({process_row}, c.process) \
             WHERE c.name = {name} AND c.state = {WAITING} ORDER BY c.ticket LIMIT 1) \
             INTO @lockkeeper_ours, @lockkeeper_next; \
             UPDATE {claims} SET state = IF(process = {process}, {HELD}, {HANDED}), since = {NOW}, \
             expires = {NOW} + IF(process = {process}, ttl, {waiter_lease}) WHERE name = {name} \
             AND state = {WAITING} AND ticket = @lockkeeper_next AND @lockkeeper > 0 \
             AND @lockkeeper_ours IS NOT NULL; \
             DELETE FROM {claims} WHERE name = {name} AND state = {HELD} \
             AND ticket = @lockkeeper_ours AND ROW_COUNT() = 1; \
             UPDATE {names} SET version = version + 1, waiting = waiting - 1 WHERE name = {name} \
             AND ROW_COUNT() = 1; \
             SELECT id, ticket, state, expires FROM {claims} WHERE name = {name} \
             AND state IN ({HELD}, {HANDED}) AND ticket = @lockkeeper_next AND ROW_COUNT() = 1; \
             COMMIT"
        )
    }

    pub(super) fn apply(&self, name: &str, version: Version, change: &Change) -> String {
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
        let Version { number, last } = version;
        let _ = write!(
            request,
            " WHERE name = {name} AND version = {number} AND last = {last}; \
             SET @lockkeeper = ROW_COUNT()"
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
        request
    }
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

/// The columns of a claim in a table of this name.
pub(super) fn of_claim(table: &str) -> String {
    CLAIM.split(", ").map(|column| format!(", {table}.{column}")).collect()
}
