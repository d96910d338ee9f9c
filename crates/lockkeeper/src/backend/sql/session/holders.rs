//! Who holds what in MariaDB and MySQL: requests on the two tables that `get-lock` and `for-update`
//! each have.
//!
//! | table | one row for | kept |
//! |---|---|---|
//! | holders | each name: its counter, and who has it; and one for the life of the server | in memory, so that writing it waits for no disk, and is not undone with a transaction |
//! | lives | each life of the server, see [`servers`](super::servers) | over restarts |
//!
//! No row says that a lock is held: the server does. A row says who, for those who ask, and counts.

use super::super::client::{bytes, text};
use super::UNUSED;
use crate::backend::Claim;
use std::time::Duration;

/// Microseconds since 1970, by the server's clock.
pub(in crate::backend::sql) const CLOCK: &str =
    "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS UNSIGNED)";

/// The names of the two tables.
#[derive(Debug, Clone)]
pub(in crate::backend::sql) struct Holders {
    pub(in crate::backend::sql) locks: String,
    pub(in crate::backend::sql) lives: String,
}

impl Holders {
    /// What makes them. Rows in memory have a fixed size, so their texts are short: about seven
    /// thousand names fit into the 16 MiB that a server allows such a table by default.
    pub(in crate::backend::sql) fn definition(&self) -> String {
        let Self { locks, lives } = self;
        format!(
            "CREATE TABLE IF NOT EXISTS {locks} (\
               id BINARY(16) PRIMARY KEY, name VARBINARY(200) NOT NULL, \
               token BIGINT UNSIGNED NOT NULL, session BIGINT UNSIGNED NOT NULL, \
               owner VARBINARY(250) NOT NULL, identity VARBINARY(250) NOT NULL, \
               note VARBINARY(1000) NOT NULL, since BIGINT NOT NULL, lease_ms BIGINT NOT NULL, \
               broken VARBINARY(250), broken_token BIGINT UNSIGNED) ENGINE = MEMORY;\n\
             CREATE TABLE IF NOT EXISTS {lives} (\
               id VARBINARY(40) PRIMARY KEY, began BIGINT NOT NULL, \
               lease_ms BIGINT NOT NULL) ENGINE = InnoDB"
        )
    }

    /// The mark of the server's life, which is this one if it has none yet. It is in the table in
    /// memory, so a new life has none.
    pub(super) fn life(&self, mark: &str) -> String {
        let (locks, none) = (&self.locks, bytes(&[0; 16]));
        format!(
            "INSERT IGNORE INTO {locks} \
               (id, name, token, session, owner, identity, note, since, lease_ms) \
             VALUES ({none}, 'the life of the server', 0, 0, {}, '', '', {}, 0); \
             SELECT owner FROM {locks} WHERE id = {none}",
            text(mark),
            // Never cleaned away.
            i64::MAX / 2,
        )
    }

    /// Writes down that leases of this length are given in the server's life, and reads how long
    /// ago it was met first and the longest lease of other lives.
    pub(super) fn enter_life(&self, life: &str, lease: Duration) -> String {
        let (lives, life, lease) = (&self.lives, text(life), lease.as_millis());
        let now = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)";
        format!(
            "INSERT INTO {lives} (id, began, lease_ms) VALUES ({life}, {now}, {lease}) \
               ON DUPLICATE KEY UPDATE lease_ms = GREATEST(lease_ms, {lease}); \
             SELECT {now} - began, (SELECT MAX(lease_ms) FROM {lives} WHERE id <> {life}) \
               FROM {lives} WHERE id = {life}"
        )
    }

    /// Counts the grant and writes its holder down, if `won` is 1; answers with `won`, the session
    /// and the token. The row is nobody else's while the lock is ours.
    pub(in crate::backend::sql) fn record_if(
        &self,
        won: &str,
        id: &[u8; 16],
        claim: &Claim,
        lease: Duration,
    ) -> String {
        let locks = &self.locks;
        let id = bytes(id);
        let name = bytes(claim.name.as_str().as_bytes());
        let [owner, identity] =
            [claim.owner.id(), &claim.identity].map(|text| bytes(cut(text, 250).as_bytes()));
        let note = bytes(cut(&claim.note, 1000).as_bytes());
        let (millis, seconds) = (lease.as_millis(), whole_seconds(lease));
        let unused = UNUSED.as_secs();
        format!(
            "SET SESSION wait_timeout = IF({won} = 1, {seconds}, {unused}); \
             INSERT INTO {locks} \
               (id, name, token, session, owner, identity, note, since, lease_ms) \
             SELECT {id}, {name}, {CLOCK}, CONNECTION_ID(), {owner}, {identity}, {note}, {CLOCK}, \
               {millis} FROM DUAL WHERE {won} = 1 \
             ON DUPLICATE KEY UPDATE token = GREATEST(token + 1, {CLOCK}), name = {name}, \
               session = CONNECTION_ID(), owner = {owner}, identity = {identity}, note = {note}, \
               since = {CLOCK}, lease_ms = {millis}; \
             SELECT {won}, CONNECTION_ID(), (SELECT token FROM {locks} WHERE id = {id})"
        )
    }

    /// The reason for which the hold with this token was broken, if it was.
    pub(in crate::backend::sql) fn broken(&self, id: &[u8; 16], token: u64) -> String {
        let (locks, id) = (&self.locks, bytes(id));
        format!("SELECT broken FROM {locks} WHERE id = {id} AND broken_token = {token}")
    }

    /// Every lock with this name or with names that begin so, of which `held` is true.
    pub(in crate::backend::sql) fn show(&self, held: &str, start: &str, whole: bool) -> String {
        let (locks, text) = (&self.locks, bytes(start.as_bytes()));
        let length = start.len();
        let fits =
            if whole { format!("name = {text}") } else { format!("LEFT(name, {length}) = {text}") };
        format!(
            "SELECT name, token, owner, identity, note, ({CLOCK} - since) DIV 1000, lease_ms \
             FROM {locks} WHERE {fits} AND {held} ORDER BY name"
        )
    }

    /// Writes down why the hold with this token is broken; answers with its session, if `held` is
    /// true of it.
    pub(in crate::backend::sql) fn mark_broken(
        &self,
        held: &str,
        id: &[u8; 16],
        token: u64,
        reason: &str,
    ) -> String {
        let (locks, id) = (&self.locks, bytes(id));
        let reason = bytes(cut(reason, 250).as_bytes());
        format!(
            "UPDATE {locks} SET broken = {reason}, broken_token = token \
               WHERE id = {id} AND token = {token} AND {held}; \
             SELECT session FROM {locks} WHERE id = {id} AND token = {token} AND {held}"
        )
    }

    /// Forgets names that nobody has had for an hour, of which `free` is true. Their counters go
    /// with them, and the clock is what keeps their tokens growing.
    pub(in crate::backend::sql) fn clean(&self, free: &str) -> String {
        let locks = &self.locks;
        format!("DELETE FROM {locks} WHERE since < {CLOCK} - 3600000000 AND {free}")
    }
}

/// What the server is: whether it fits.
pub(super) fn look() -> String {
    "SELECT CONNECTION_ID(), VERSION(), DATABASE(), @@global.read_only; \
     SHOW GLOBAL STATUS WHERE Variable_name = 'wsrep_cluster_size'; \
     SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_single_primary_mode', 'innodb_read_only')"
        .to_owned()
}

/// One round trip.
pub(super) fn keep() -> String {
    "SELECT CONNECTION_ID()".to_owned()
}

/// Ends a session.
pub(in crate::backend::sql) fn end(session: u64) -> String {
    format!("KILL CONNECTION {session}")
}

/// As much of a text as fits, in whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    &text[..(0..=bytes.min(text.len())).rev().find(fits).unwrap_or(0)]
}

/// The server counts in whole seconds, so it ends a session a little later than it must.
fn whole_seconds(lease: Duration) -> u64 {
    lease.as_nanos().div_ceil(1_000_000_000).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_never_ends_before_its_lease() {
        for (lease, seconds) in [(20, 1), (1000, 1), (1001, 2), (10_000, 10)] {
            assert_eq!(whole_seconds(Duration::from_millis(lease)), seconds);
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }
}
