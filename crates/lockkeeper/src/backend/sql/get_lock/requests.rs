//! Every request of `get-lock`: several statements each, in one round trip.

use super::super::client::{bytes, text};
use super::super::session::UNUSED;
use super::schema::{PREFIX, Tables};
use crate::backend::Claim;
use std::time::Duration;

/// Microseconds since 1970, by the server's clock.
const CLOCK: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS UNSIGNED)";

/// The name of a lock, as a text in a request.
fn lock_name(id: &[u8; 16]) -> String {
    format!("CONCAT('{PREFIX}', LOWER(HEX({})))", bytes(id))
}

/// What the server is: whether it fits.
pub(super) fn look() -> String {
    "SELECT CONNECTION_ID(), VERSION(), DATABASE(), @@global.read_only; \
     SHOW GLOBAL STATUS WHERE Variable_name = 'wsrep_cluster_size'; \
     SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_single_primary_mode', 'innodb_read_only')"
        .to_owned()
}

/// The mark of the server's life, which is this one if it has none yet. It is in a table in memory,
/// so a new life has none.
pub(super) fn life(tables: &Tables, mark: &str) -> String {
    let (locks, none) = (&tables.locks, bytes(&[0; 16]));
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

/// For each of these locks whether this session has it: 1 or 0.
pub(super) fn there(held: &[([u8; 16], u64)]) -> String {
    let there = held.iter().map(|(id, at)| format!("IS_USED_LOCK({}) <=> {at}", lock_name(id)));
    format!("SELECT {}", there.collect::<Vec<_>>().join(", "))
}

/// Writes down that leases of this length are given in the server's life, and reads how long ago it
/// was met first and the longest lease of other lives.
pub(super) fn enter_life(tables: &Tables, life: &str, lease: Duration) -> String {
    let (lives, life, lease) = (&tables.lives, text(life), lease.as_millis());
    let now = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)";
    format!(
        "INSERT INTO {lives} (id, began, lease_ms) VALUES ({life}, {now}, {lease}) \
           ON DUPLICATE KEY UPDATE lease_ms = GREATEST(lease_ms, {lease}); \
         SELECT {now} - began, (SELECT MAX(lease_ms) FROM {lives} WHERE id <> {life}) \
           FROM {lives} WHERE id = {life}"
    )
}

/// Takes the lock if it is free, and writes down who has it.
pub(super) fn take(tables: &Tables, id: &[u8; 16], claim: &Claim, lease: Duration) -> String {
    format!(
        "SELECT GET_LOCK({}, 0) INTO @lockkeeper_won; {}",
        lock_name(id),
        record_if(tables, id, claim, lease, "@lockkeeper_won")
    )
}

/// Waits for the lock; the answer is 1, 0, or null for an error. MySQL rounds the time to seconds.
pub(super) fn wait(id: &[u8; 16], slice: Duration) -> String {
    format!("SELECT GET_LOCK({}, {:.3})", lock_name(id), slice.as_secs_f64())
}

/// Writes down who has the lock.
pub(super) fn record(tables: &Tables, id: &[u8; 16], claim: &Claim, lease: Duration) -> String {
    let own =
        format!("SET @lockkeeper_won = (IS_USED_LOCK({}) <=> CONNECTION_ID());", lock_name(id));
    format!("{own} {}", record_if(tables, id, claim, lease, "@lockkeeper_won"))
}

/// Counts the grant and writes its holder down, if `won` is 1; answers with `won`, the session and
/// the token. The row is nobody else's while the lock is ours.
fn record_if(tables: &Tables, id: &[u8; 16], claim: &Claim, lease: Duration, won: &str) -> String {
    let locks = &tables.locks;
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

/// One round trip.
pub(super) fn keep() -> String {
    "SELECT CONNECTION_ID()".to_owned()
}

/// Gives the lock back; the answer is 1 if the session had it.
pub(super) fn free(id: &[u8; 16]) -> String {
    let unused = UNUSED.as_secs();
    format!("SELECT RELEASE_LOCK({}); SET SESSION wait_timeout = {unused}", lock_name(id))
}

/// The reason for which the hold with this token was broken, if it was.
pub(super) fn broken(tables: &Tables, id: &[u8; 16], token: u64) -> String {
    let (locks, id) = (&tables.locks, bytes(id));
    format!("SELECT broken FROM {locks} WHERE id = {id} AND broken_token = {token}")
}

/// Every lock that is held, with this name or with names that begin so.
pub(super) fn show(tables: &Tables, beginning: &str, whole: bool) -> String {
    let (locks, text) = (&tables.locks, bytes(beginning.as_bytes()));
    let length = beginning.len();
    let fits =
        if whole { format!("name = {text}") } else { format!("LEFT(name, {length}) = {text}") };
    format!(
        "SELECT name, token, owner, identity, note, ({CLOCK} - since) DIV 1000, lease_ms \
         FROM {locks} WHERE {fits} \
           AND IS_USED_LOCK(CONCAT('{PREFIX}', LOWER(HEX(id)))) = session ORDER BY name"
    )
}

/// Writes down why the hold with this token is broken; answers with its session, if it is held.
pub(super) fn mark_broken(tables: &Tables, id: &[u8; 16], token: u64, reason: &str) -> String {
    let (locks, lock, id) = (&tables.locks, lock_name(id), bytes(id));
    let reason = bytes(cut(reason, 250).as_bytes());
    format!(
        "UPDATE {locks} SET broken = {reason}, broken_token = token \
           WHERE id = {id} AND token = {token} AND IS_USED_LOCK({lock}) = session; \
         SELECT session FROM {locks} \
           WHERE id = {id} AND token = {token} AND IS_USED_LOCK({lock}) = session"
    )
}

/// Ends a session.
pub(super) fn end(session: u64) -> String {
    format!("KILL CONNECTION {session}")
}

/// Forgets names that nobody has had for an hour. Their counters go with them, and the clock is what
/// keeps their tokens growing.
pub(super) fn clean(tables: &Tables) -> String {
    format!(
        "DELETE FROM {} WHERE since < {CLOCK} - 3600000000 \
           AND IS_FREE_LOCK(CONCAT('{PREFIX}', LOWER(HEX(id))))",
        tables.locks
    )
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
