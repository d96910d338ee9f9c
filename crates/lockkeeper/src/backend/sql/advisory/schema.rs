//! The two tables of `advisory`.
//!
//! | table | one row for | kept |
//! |---|---|---|
//! | `…_advisory` | each name (`seat` 0: its counter, and who has it exclusively) and each claim that shares one (`seat` from its id) | not over a crash: unlogged, so that writing it waits for no disk |
//! | `…_advisory_life` | each life of the server, see [`servers`](super::super::session::servers) | over crashes, and on standbys |
//!
//! No row says that a lock is held: the server's own list of locks does. A row says who, counts, and
//! says until when its holder may believe in a lock that it did not give back. One row more, the mark
//! of the server's life, tells that the others were not lost in a crash.
//!
//! In a row of `seat` 0, a `pid` of 0 says that the last grant was a shared one, so that rows of those who
//! share may have to be read before the lock is anybody's alone.

use super::super::session::postgres::Layout;

/// The names of the tables.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub(super) locks: String,
    pub(super) lives: String,
}

impl Tables {
    pub(super) fn new(schema: Option<&str>, table: &str) -> Self {
        let schema = schema.map(|schema| format!("{schema}.")).unwrap_or_default();
        Self {
            locks: format!("{schema}{table}_advisory"),
            lives: format!("{schema}{table}_advisory_life"),
        }
    }

    /// What makes them.
    pub(super) fn definition(&self) -> String {
        let Self { locks, lives } = self;
        format!(
            "CREATE UNLOGGED TABLE IF NOT EXISTS {locks} (\
               key bigint NOT NULL, seat integer NOT NULL, pid integer NOT NULL, \
               name text COLLATE \"C\" NOT NULL, token bigint NOT NULL, owner text NOT NULL, \
               identity text NOT NULL, note text NOT NULL, since timestamptz NOT NULL, \
               lease_ms bigint NOT NULL, claim text NOT NULL, believed timestamptz NOT NULL, \
               broken text, broken_token bigint, \
               PRIMARY KEY (key, seat)) WITH (fillfactor = 50);\n\
             CREATE TABLE IF NOT EXISTS {lives} (\
               id text PRIMARY KEY, line text NOT NULL, began timestamptz NOT NULL, \
               lease_ms bigint NOT NULL);\n"
        )
    }

    /// What a new session must know of them.
    pub(super) fn layout(&self) -> Layout {
        let locks = &self.locks;
        Layout {
            lives: self.lives.clone(),
            mark: format!(
                "INSERT INTO {locks} (key, seat, pid, name, token, owner, identity, note, since, \
                   lease_ms, claim, believed) \
                 VALUES (0, -1, 0, '', 0, '', '', '', clock_timestamp(), 0, $1, '-infinity') \
                 ON CONFLICT (key, seat) DO UPDATE SET name = '' RETURNING claim"
            ),
            all: vec![self.locks.clone(), self.lives.clone()],
            definition: self.definition(),
        }
    }
}
