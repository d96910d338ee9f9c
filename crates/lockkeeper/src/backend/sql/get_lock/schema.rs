//! The two tables of `get-lock`.
//!
//! | table | one row for | kept |
//! |---|---|---|
//! | `…_get_lock` | each name: its counter, and who has it; and one for the life of the server | in memory, so that writing it waits for no disk |
//! | `…_get_lock_life` | each life of the server, see [`servers`](super::super::session::servers) | over restarts |
//!
//! No row says that a lock is held: the server does, by `IS_USED_LOCK`. A row says who, for those
//! who ask, and counts.

/// The names of the tables.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub(super) locks: String,
    pub(super) lives: String,
}

/// What stands before the hexadecimal digits of an id in the name of a lock.
pub(super) const PREFIX: &str = "lockkeeper:";

impl Tables {
    pub(super) fn new(table: &str) -> Self {
        Self { locks: format!("{table}_get_lock"), lives: format!("{table}_get_lock_life") }
    }

    /// What makes them. Rows in memory have a fixed size, so their texts are short: about seven
    /// thousand names fit into the 16 MiB that a server allows such a table by default.
    pub(super) fn definition(&self) -> String {
        let Self { locks, lives } = self;
        format!(
            "CREATE TABLE IF NOT EXISTS {locks} (\
               id BINARY(16) PRIMARY KEY, name VARBINARY(200) NOT NULL, \
               token BIGINT UNSIGNED NOT NULL, session BIGINT UNSIGNED NOT NULL, \
               owner VARBINARY(250) NOT NULL, identity VARBINARY(250) NOT NULL, \
               note VARBINARY(1000) NOT NULL, since BIGINT NOT NULL, lease_ms BIGINT NOT NULL, \
               broken VARBINARY(250), broken_token BIGINT UNSIGNED) ENGINE = MEMORY; \
             CREATE TABLE IF NOT EXISTS {lives} (\
               id VARBINARY(40) PRIMARY KEY, began BIGINT NOT NULL, \
               lease_ms BIGINT NOT NULL) ENGINE = InnoDB"
        )
    }
}
