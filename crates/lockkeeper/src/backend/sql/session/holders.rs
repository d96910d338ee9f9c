//! Who holds what in MariaDB and MySQL: requests on the two tables that `get-lock` and `for-update`
//! each have.
//!
//! | table | one row for | kept |
//! |---|---|---|
//! | holders | each name: its counter, and who has it; and one for the life of the server | in memory, so that writing it waits for no disk, and is not undone with a transaction |
//! | lives | each life of the server, see [`servers`](super::servers) | over restarts |
//!
//! No row says that a lock is held: the server does. A row says who, counts, and says until when its
//! holder may believe in a lock that it did not give back (`believed`, 0 once it gave back).

use super::super::client::{bytes, hex, text};
use super::UNUSED;
use crate::backend::Claim;
use mysql_async::Value;
use std::time::Duration;

/// Microseconds since 1970, by the server's clock, when the statement began: every part of a statement
/// reads the same time. UTC, whatever the time zone of the session is.
pub(in crate::backend::sql) const CLOCK: &str =
    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// What is written down of a grant.
pub(in crate::backend::sql) struct Terms<'a> {
    pub(in crate::backend::sql) claim: &'a Claim,
    pub(in crate::backend::sql) lease: Duration,
    /// For how long the holder may believe after its session ended.
    pub(in crate::backend::sql) debt: Duration,
}

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
               claim BINARY(32) NOT NULL, believed BIGINT NOT NULL, \
               broken VARBINARY(250), broken_token BIGINT UNSIGNED) ENGINE = MEMORY;\n\
             CREATE TABLE IF NOT EXISTS {lives} (\
               id VARBINARY(40) PRIMARY KEY, began BIGINT NOT NULL, \
               lease_ms BIGINT NOT NULL) ENGINE = InnoDB"
        )
    }

    /// Reads the life of the server, if it has a mark: that is a row in the table in memory, so a server
    /// that starts anew has none. Replicas get it with the others, so the server is a part of it.
    pub(super) fn life(&self) -> String {
        let (locks, none) = (&self.locks, bytes(&[0; 16]));
        format!(
            "SELECT MD5(CONCAT(owner, @@hostname, ':', @@port, '/', @@server_id)) \
             FROM {locks} WHERE id = {none}"
        )
    }

    /// Marks the life of the server, unless it is marked.
    pub(super) fn mark_life(&self, mark: &str) -> String {
        let (locks, none) = (&self.locks, bytes(&[0; 16]));
        format!(
            "INSERT IGNORE INTO {locks} \
               (id, name, token, session, owner, identity, note, since, lease_ms, claim, believed) \
             VALUES ({none}, 'the life of the server', 0, 0, {}, '', '', {}, 0, '', 0)",
            text(mark),
            // Never cleaned away.
            i64::MAX / 2,
        )
    }

    /// Writes down that leases of this length are given in the server's life, and reads how long
    /// ago it was met first and the longest lease of other lives.
    pub(super) fn enter_life(&self, life: &str, lease: Duration) -> String {
        let (lives, life, lease) = (&self.lives, text(life), lease.as_millis());
        let now = format!("{CLOCK} DIV 1000");
        format!(
            "INSERT INTO {lives} (id, began, lease_ms) VALUES ({life}, {now}, {lease}) \
               ON DUPLICATE KEY UPDATE lease_ms = GREATEST(lease_ms, {lease}); \
             SELECT {now} - began, (SELECT MAX(lease_ms) FROM {lives} WHERE id <> {life}) \
               FROM {lives} WHERE id = {life}"
        )
    }

    /// Counts the grant and writes its holder down, if `won` is true and no earlier holder may
    /// believe. Answers with 1, the session, the token, whether it was written, and for how many
    /// milliseconds the earlier holder may believe; with no row, or 0, where `won` is not true. The
    /// row is nobody else's while the lock is ours.
    ///
    /// MariaDB says all that with the statement itself, MySQL by one behind it, which asks `won`
    /// again: there it must be a variable.
    pub(in crate::backend::sql) fn record_if(
        &self,
        won: &str,
        id: &[u8; 16],
        terms: &Terms<'_>,
        maria: bool,
    ) -> String {
        let locks = &self.locks;
        let Terms { claim, lease, debt } = terms;
        let id = bytes(id);
        let name = bytes(claim.name.as_str().as_bytes());
        let [owner, identity] =
            [claim.owner.id(), &claim.identity].map(|text| bytes(cut(text, 250).as_bytes()));
        let note = bytes(cut(&claim.note, 1000).as_bytes());
        let (millis, debt) = (lease.as_millis(), debt.as_micros());
        let ours = claim_of(claim);
        // Of a row whose holder did not give back and may believe. To write the same claim down
        // twice does no harm.
        let owed = format!("believed > {CLOCK} AND claim <> {ours}");
        let unless =
            |column: &str, value: &str| format!("{column} = IF({owed}, {column}, {value})");
        // The server assigns from left to right, and later assignments see what earlier ones wrote.
        let set = [
            unless("token", &format!("GREATEST(token + 1, {CLOCK})")),
            unless("name", &name),
            unless("session", "CONNECTION_ID()"),
            unless("owner", &owner),
            unless("identity", &identity),
            unless("note", &note),
            unless("since", CLOCK),
            unless("lease_ms", &millis.to_string()),
            // All of the above depend on it. It is never longer than its lease: it would be after a
            // clock that went back.
            format!(
                "believed = IF({owed}, LEAST(believed, {CLOCK} + lease_ms * 1000), \
                 {CLOCK} + {debt})"
            ),
            format!("claim = IF(session = CONNECTION_ID(), {ours}, claim)"),
        ];
        let insert = format!(
            "INSERT INTO {locks} \
               (id, name, token, session, owner, identity, note, since, lease_ms, claim, believed) \
             SELECT {id}, {name}, {CLOCK}, CONNECTION_ID(), {owner}, {identity}, {note}, {CLOCK}, \
               {millis}, {ours}, {CLOCK} + {debt} FROM DUAL WHERE {won} \
             ON DUPLICATE KEY UPDATE {}",
            set.join(", ")
        );
        let written = format!(
            "CONNECTION_ID(), token, claim = {ours}, \
             LEAST((believed - {CLOCK}) DIV 1000 + 1, lease_ms)"
        );
        if maria {
            return format!("{insert} RETURNING 1, {written}");
        }
        format!(
            "{insert}; SELECT {won}, {written} FROM (SELECT 1) AS one LEFT JOIN {locks} ON id = {id}"
        )
    }

    /// Writes a holder down in the row of a name, if there is one, `won` is true and nobody may believe;
    /// the server tells the token beside its answer. Prepared in each session, with
    /// [`values`](Self::values) and then those of `won`: the server need not read it anew each time.
    /// Where it changes nothing, [`record_if`](Self::record_if) finds out why.
    pub(in crate::backend::sql) fn retake(&self, won: &str) -> String {
        format!(
            "UPDATE {} SET token = LAST_INSERT_ID(GREATEST(token + 1, {CLOCK})), session = ?, \
               owner = ?, identity = ?, note = ?, since = {CLOCK}, lease_ms = ?, claim = ?, \
               believed = {CLOCK} + ? \
             WHERE id = UNHEX(?) AND believed = 0 AND CONNECTION_ID() = ? AND {won}",
            self.locks,
        )
    }

    /// What [`retake`](Self::retake) writes down.
    pub(in crate::backend::sql) fn values(
        id: &[u8; 16],
        terms: &Terms<'_>,
        session: u64,
    ) -> Vec<Value> {
        let Terms { claim, lease, debt } = terms;
        let whole = |number: u128| Value::from(u64::try_from(number).unwrap_or(u64::MAX / 2));
        vec![
            session.into(),
            cut(claim.owner.id(), 250).into(),
            cut(&claim.identity, 250).into(),
            cut(&claim.note, 1000).into(),
            whole(lease.as_millis()),
            claim.id.to_string().into(),
            whole(debt.as_micros()),
            hex(id).into(),
            session.into(),
        ]
    }

    /// [`erase`](Self::erase) where `also` is true too, prepared likewise: with the claim, the id of the
    /// name, and the values of `also`.
    pub(in crate::backend::sql) fn erase_if(&self, also: &str) -> String {
        format!(
            "UPDATE {} SET session = 0, believed = 0 WHERE claim = ? AND id = UNHEX(?) AND {also}",
            self.locks
        )
    }

    /// Writes down that a holder believes for this much longer; answers with the session.
    pub(in crate::backend::sql) fn keep(
        &self,
        id: &[u8; 16],
        claim: &Claim,
        debt: Duration,
    ) -> String {
        let (locks, id, ours) = (&self.locks, bytes(id), claim_of(claim));
        let debt = debt.as_micros();
        format!(
            "UPDATE {locks} SET believed = {CLOCK} + {debt} WHERE id = {id} AND claim = {ours} \
               AND session = CONNECTION_ID() AND (broken_token IS NULL OR broken_token <> token); \
             SELECT CONNECTION_ID()"
        )
    }

    /// Writes down that nobody believes in this claim any more.
    pub(in crate::backend::sql) fn erase(&self, id: &[u8; 16], claim: &Claim) -> String {
        let (locks, id, ours) = (&self.locks, bytes(id), claim_of(claim));
        format!("UPDATE {locks} SET session = 0, believed = 0 WHERE id = {id} AND claim = {ours}")
    }

    /// The reason for which the hold with this token was broken, if it was.
    pub(in crate::backend::sql) fn broken(&self, id: &[u8; 16], token: u64) -> String {
        let (locks, id) = (&self.locks, bytes(id));
        format!("SELECT broken FROM {locks} WHERE id = {id} AND broken_token = {token}")
    }

    /// Every lock with this name or with names that begin so, of which `held` is true or whose holder
    /// may believe.
    pub(in crate::backend::sql) fn show(&self, held: &str, start: &str, whole: bool) -> String {
        let (locks, text) = (&self.locks, bytes(start.as_bytes()));
        let length = start.len();
        let fits =
            if whole { format!("name = {text}") } else { format!("LEFT(name, {length}) = {text}") };
        format!(
            "SELECT name, token, owner, identity, note, ({CLOCK} - since) DIV 1000, \
               IF({held}, lease_ms, (believed - {CLOCK}) DIV 1000) \
             FROM {locks} WHERE {fits} AND (({held}) OR believed > {CLOCK}) ORDER BY name"
        )
    }

    /// Writes down why the hold with this token is broken, and that it is not to be waited for;
    /// answers with whether there was one, and its session, or 0 where that is gone.
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
            "UPDATE {locks} SET broken = {reason}, broken_token = token, believed = 0 \
               WHERE id = {id} AND token = {token} AND (({held}) OR believed > {CLOCK}); \
             SELECT IF({held}, session, 0) FROM {locks} \
               WHERE ROW_COUNT() > 0 AND id = {id} AND token = {token}"
        )
    }

    /// Forgets names that nobody has had for an hour, of which `free` is true. Their counters go
    /// with them, and the clock is what keeps their tokens growing.
    pub(in crate::backend::sql) fn clean(&self, free: &str) -> String {
        let locks = &self.locks;
        format!(
            "DELETE FROM {locks} WHERE since < {CLOCK} - 3600000000 AND believed < {CLOCK} \
               AND {free}"
        )
    }
}

/// What the server is: whether it fits.
pub(super) fn look() -> String {
    let unused = UNUSED.as_secs();
    format!(
        "SET SESSION wait_timeout = {unused}; \
         SELECT CONNECTION_ID(), VERSION(), DATABASE(), @@global.read_only; \
         SHOW GLOBAL STATUS WHERE Variable_name = 'wsrep_cluster_size'; \
         SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', \
         'group_replication_single_primary_mode', 'innodb_read_only')"
    )
}

/// Ends a session.
pub(in crate::backend::sql) fn end(session: u64) -> String {
    format!("KILL CONNECTION {session}")
}

/// The id of a claim, in a request.
fn claim_of(claim: &Claim) -> String {
    format!("'{}'", claim.id)
}

/// As much of a text as fits, in whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    &text[..(0..=bytes.min(text.len())).rev().find(fits).unwrap_or(0)]
}

/// The server counts in whole seconds, so it ends a session a little later than it must.
pub(super) fn whole_seconds(lease: Duration) -> u64 {
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
