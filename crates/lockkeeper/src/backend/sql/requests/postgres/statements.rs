//! The statements as PostgreSQL takes them, with the names of our tables in them.
//!
//! Each is its own transaction, at READ COMMITTED. Those that change rows of both tables first
//! update the row of the name: another change of the same name waits there, and then finds another
//! version.

use super::super::super::client::Statement;
use super::super::super::queue::{ALONE, CROWD, LOADED};
use super::super::super::record::{BROKEN, HANDED, HELD, WAITER_LEASE, WAITING, micros};
use super::super::super::schema::{CLAIM, Dialect, Tables, literal};
use super::super::{FLOOR_ROW, PROCESS_ROW};
use tokio_postgres::types::Type;

/// The database's clock.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The same when the server got the statement, before any wait for a row.
const BEGUN: &str = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint";

/// One of each, by the name of its request.
pub(super) struct Statements {
    pub(super) take: Statement,
    pub(super) retake: Statement,
    pub(super) free: Statement,
    pub(super) extend: Statement,
    pub(super) confirm: Statement,
    pub(super) join: Statement,
    pub(super) read: Statement,
    pub(super) apply: Statement,
    pub(super) hand_on: Statement,
    pub(super) beat: Statement,
    pub(super) end: Statement,
    pub(super) granted: Statement,
    pub(super) claims_of: Statement,
    pub(super) broken: Statement,
    pub(super) list: Statement,
    pub(super) names: Statement,
    pub(super) raise_floor: Statement,
    pub(super) sweep: Statement,
    pub(super) stale: Statement,
}

impl Statements {
    pub(super) fn new(Tables { names, claims }: &Tables) -> Self {
        use Type as T;
        let floor = literal(Dialect::Postgres, FLOOR_ROW);
        let process_row = literal(Dialect::Postgres, PROCESS_ROW);
        let statement =
            |name, types: &[Type], text| Statement { name, text, types: types.to_vec() };
        let excluded: Vec<String> = CLAIM
            .split(", ")
            .filter(|it| *it != "token")
            .map(|it| format!("{it} = excluded.{it}"))
            .collect();
        let excluded = excluded.join(", ");
        let of_claim = |table: &str| -> String {
            CLAIM.split(", ").map(|column| format!(", {table}.{column}")).collect()
        };
        // From the first name to the last. Names of locks begin behind the control characters.
        let within =
            |table: &str| format!("{table}.name BETWEEN GREATEST($1, ' ' COLLATE \"C\") AND $2");
        Self {
            take: statement(
                "take",
                &[T::TEXT, T::TEXT, T::TEXT, T::TEXT, T::INT8, T::INT8, T::TEXT, T::TEXT],
                format!(
                    "WITH clock AS MATERIALIZED (SELECT {NOW} AS now, COALESCE((SELECT token + 1 \
                     FROM {claims} WHERE name = {floor} AND state = 0 AND ticket = 0), 0) AS floor)
                     INSERT INTO {names} AS l (name, version, place, last, waiting, {CLAIM})
                     SELECT $1, 1, 1, GREATEST(now, floor), 0, $2, $3, $4, $5, \
                       GREATEST(now, floor), $6, now, now + $6, $7, $8 FROM clock
                     ON CONFLICT (name) DO UPDATE SET version = l.version + 1, place = 1, \
                       last = GREATEST(l.last + 1, excluded.last), waiting = 0, \
                       token = GREATEST(l.last + 1, excluded.last), {excluded}
                     WHERE l.place = 0 OR (l.place = 1 AND (l.expires <= excluded.since \
                       OR l.id = excluded.id))
                     RETURNING token"
                ),
            ),
            // The time at which the server got the statement: every part of it reads the same, and the
            // token must not be above the largest ticket. It is after the moment that the holder
            // counts from.
            retake: statement(
                "retake",
                &[T::TEXT, T::TEXT, T::TEXT, T::TEXT, T::INT8, T::INT8, T::TEXT, T::TEXT],
                format!(
                    "UPDATE {names} SET version = version + 1, place = {ALONE}, waiting = 0, \
                       last = GREATEST(last + 1, {BEGUN}), token = GREATEST(last + 1, {BEGUN}), \
                       id = $2, owner = $3, process = $4, mode = $5, ttl = $6, since = {BEGUN}, \
                       expires = {BEGUN} + $6, identity = $7, note = $8
                     WHERE name = $1 AND (place = 0 OR (place = {ALONE} \
                       AND (expires <= {BEGUN} OR id = $2)))
                     RETURNING token"
                ),
            ),
            free: statement(
                "free",
                &[T::TEXT, T::TEXT],
                format!(
                    "UPDATE {names} SET version = version + 1, place = 0, id = '', expires = {NOW}
                     WHERE name = $1 AND place = 1 AND id = $2 AND process <> '' RETURNING 1"
                ),
            ),
            extend: statement(
                "extend",
                &[T::TEXT, T::TEXT, T::INT8],
                format!(
                    "UPDATE {names} SET version = version + 1, ttl = GREATEST(ttl, $3), \
                       expires = GREATEST({NOW} + $3, LEAST(expires, {NOW} + ttl))
                     WHERE name = $1 AND place = 1 AND id = $2 AND process <> '' \
                       AND expires > {NOW} RETURNING 1"
                ),
            ),
            confirm: statement(
                "confirm",
                &[T::TEXT, T::TEXT, T::INT8],
                format!(
                    "WITH v AS (UPDATE {names} SET version = version + 1 \
                       WHERE name = $1 AND place = {CROWD} RETURNING 1)
                     UPDATE {claims} c SET state = {HELD}, expires = {NOW} + c.ttl FROM v
                     WHERE c.name = $1 AND c.state = {HANDED} AND c.ticket = $3 AND c.id = $2 \
                       AND c.expires > {NOW} RETURNING 1"
                ),
            ),
            join: statement(
                "join",
                &[T::TEXT, T::TEXT, T::TEXT, T::TEXT, T::INT8, T::INT8, T::TEXT, T::TEXT],
                join(names, claims),
            ),
            read: statement(
                "read",
                &[T::TEXT, T::TEXT],
                format!(
                    "WITH clock AS MATERIALIZED (SELECT {NOW} AS now)
                     SELECT clock.now, l.version, l.last, l.waiting, l.place{}, q.ticket, q.state\
                       {}, COALESCE(p.expires > clock.now, false)
                     FROM clock CROSS JOIN {names} l
                     LEFT JOIN LATERAL (
                       SELECT * FROM {claims} c WHERE c.name = $1 AND c.state < {WAITING}
                       UNION ALL
                       (SELECT * FROM {claims} c WHERE c.name = $1 AND c.state = {WAITING} \
                          ORDER BY c.ticket LIMIT {LOADED})
                       UNION ALL
                       SELECT * FROM {claims} c WHERE $2 <> '' AND c.name = $1 \
                          AND c.state = {WAITING} AND c.id = $2
                     ) q ON l.place = {CROWD}
                     LEFT JOIN {names} p ON p.name = {process_row} || q.process
                     WHERE l.name = $1",
                    of_claim("l"),
                    of_claim("q"),
                ),
            ),
            apply: statement("apply", &APPLY_TYPES, apply(names, claims)),
            hand_on: statement(
                "hand-on",
                &[T::TEXT, T::TEXT, T::TEXT],
                hand_on(names, claims, &process_row),
            ),
            beat: statement(
                "beat",
                &[T::TEXT],
                format!(
                    "INSERT INTO {names} AS l (name, version, place, last, waiting, {CLAIM})
                     SELECT {process_row} || $1, 0, 0, now, 0, '', '', '', 0, 0, 0, now, now + {}, '', ''
                     FROM (SELECT {NOW} AS now) clock
                     ON CONFLICT (name) DO UPDATE SET last = \
                       CASE WHEN l.expires <= excluded.since THEN excluded.last ELSE l.last END, \
                       since = excluded.since, expires = excluded.expires
                     RETURNING last",
                    micros(WAITER_LEASE)
                ),
            ),
            end: statement(
                "end",
                &[T::TEXT],
                format!("DELETE FROM {names} WHERE name = {process_row} || $1 RETURNING 1"),
            ),
            granted: statement(
                "granted",
                &[T::TEXT, T::TEXT_ARRAY],
                format!(
                    "SELECT id, state = {HANDED} FROM {claims} WHERE name = ANY ($2) \
                       AND state < {WAITING} AND process = $1
                     UNION ALL
                     SELECT id, false FROM {names} WHERE name = ANY ($2) AND place = {ALONE} \
                       AND process = $1"
                ),
            ),
            claims_of: statement(
                "claims-of",
                &[T::TEXT, T::TEXT],
                format!(
                    "SELECT id FROM {claims} WHERE name = $2 AND process = $1
                     UNION ALL
                     SELECT id FROM {names} WHERE name = $2 AND place = {ALONE} AND process = $1"
                ),
            ),
            broken: statement(
                "broken",
                &[T::TEXT],
                format!(
                    "SELECT name, id, note FROM {claims} WHERE state = {} AND process = $1",
                    BROKEN
                ),
            ),
            list: statement(
                "list",
                &[T::TEXT, T::TEXT],
                format!(
                    "WITH clock AS MATERIALIZED (SELECT {NOW} AS now)
                     SELECT clock.now, a.*, COALESCE(p.expires > clock.now, false) FROM clock \
                     LEFT JOIN (
                       SELECT l.name, l.token AS ticket, {HELD}::smallint AS state{} FROM {names} l
                       WHERE l.place = {ALONE} AND {}
                       UNION ALL
                       SELECT c.name, c.ticket, c.state{} FROM {claims} c
                       WHERE {}
                     ) a ON true
                     LEFT JOIN {names} p ON p.name = {process_row} || a.process",
                    of_claim("l"),
                    within("l"),
                    of_claim("c"),
                    within("c"),
                ),
            ),
            // Each table gives as many as are wanted, in the order of its index.
            names: statement(
                "names",
                &[T::TEXT, T::TEXT, T::TEXT, T::INT8],
                format!(
                    "(SELECT l.name FROM {names} l WHERE l.place = {ALONE} AND {} \
                       AND l.name > $3 ORDER BY l.name LIMIT $4)
                     UNION
                     (SELECT DISTINCT c.name FROM {claims} c WHERE {} AND c.name > $3 \
                       ORDER BY c.name LIMIT $4)
                     ORDER BY name LIMIT $4",
                    within("l"),
                    within("c"),
                ),
            ),
            raise_floor: statement(
                "raise-floor",
                &[T::INT8],
                format!(
                    "INSERT INTO {claims} AS l (name, state, ticket, {CLAIM})
                     SELECT {floor}, 0, 0, '', '', '', 0, max(last), 0, 0, {}, '', '' FROM {names}
                     WHERE place < {CROWD} AND expires < {NOW} - $1 AND name >= ' '
                     HAVING max(last) IS NOT NULL
                     ON CONFLICT (name, state, ticket) DO UPDATE \
                       SET token = GREATEST(l.token, excluded.token)
                     RETURNING 1",
                    i64::MAX
                ),
            ),
            sweep: statement(
                "sweep",
                &[T::INT8],
                format!(
                    "DELETE FROM {names} WHERE name IN (
                       SELECT name FROM {names} WHERE place < {CROWD} AND expires < {NOW} - $1 \
                         AND (name < ' ' OR last <= (SELECT token FROM {claims} \
                           WHERE name = {floor} AND state = 0 AND ticket = 0))
                       LIMIT 1000 FOR UPDATE SKIP LOCKED)
                     AND place < {CROWD} AND expires < {NOW} - $1 RETURNING 1"
                ),
            ),
            stale: statement(
                "stale",
                &[T::INT8],
                format!(
                    "SELECT name FROM {names} WHERE place = {CROWD} AND expires < {NOW} - $1 \
                     LIMIT 100"
                ),
            ),
        }
    }
}

/// The types of the parameters of [`apply`].
const APPLY_TYPES: [Type; 39] = {
    use Type as T;
    [
        // The name, its version, and its row.
        T::TEXT,
        T::INT8,
        T::INT2,
        T::INT8,
        T::INT8,
        T::TEXT,
        T::TEXT,
        T::TEXT,
        T::INT8,
        T::INT8,
        T::INT8,
        T::INT8,
        T::INT8,
        T::TEXT,
        T::TEXT,
        // Deletes.
        T::INT2_ARRAY,
        T::INT8_ARRAY,
        // Updates.
        T::INT2_ARRAY,
        T::INT8_ARRAY,
        T::INT2_ARRAY,
        T::TEXT_ARRAY,
        T::INT8_ARRAY,
        T::INT8_ARRAY,
        T::TEXT_ARRAY,
        // Inserts.
        T::INT2_ARRAY,
        T::INT8_ARRAY,
        T::TEXT_ARRAY,
        T::TEXT_ARRAY,
        T::TEXT_ARRAY,
        T::INT8_ARRAY,
        T::INT8_ARRAY,
        T::INT8_ARRAY,
        T::INT8_ARRAY,
        T::INT8_ARRAY,
        T::TEXT_ARRAY,
        T::TEXT_ARRAY,
        // Messages.
        T::TEXT_ARRAY,
        T::TEXT_ARRAY,
        // The largest ticket when it was read.
        T::INT8,
    ]
};

fn apply(names: &str, claims: &str) -> String {
    let columns: Vec<&str> = CLAIM.split(", ").collect();
    let set: Vec<String> =
        columns.iter().enumerate().map(|(at, it)| format!("{it} = ${}", at + 6)).collect();
    let set = set.join(", ");
    format!(
        "WITH v AS (UPDATE {names} SET version = version + 1, place = $3, last = $4, \
           waiting = $5, {set} WHERE name = $1 AND version = $2 AND last = $39 RETURNING 1),
         d AS (DELETE FROM {claims} c USING v, unnest($16, $17) AS g(state, ticket)
           WHERE c.name = $1 AND c.state = g.state AND c.ticket = g.ticket),
         u AS (UPDATE {claims} c SET state = g.state, process = g.process, since = g.since, \
             expires = g.expires, note = g.note
           FROM v, unnest($18, $19, $20, $21, $22, $23, $24) \
             AS g(was, ticket, state, process, since, expires, note)
           WHERE c.name = $1 AND c.state = g.was AND c.ticket = g.ticket),
         i AS (INSERT INTO {claims} (name, state, ticket, {CLAIM}) SELECT $1, g.* FROM v, \
           unnest($25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36) AS g)
         SELECT (SELECT count(pg_notify(n.channel, n.payload)) \
           FROM unnest($37, $38) AS n(channel, payload)) FROM v"
    )
}

/// Behind those who wait, or behind a claim that is alone and keeps this one out. What decides is in the
/// row of the name, which is read again once it is locked. So nobody is kept from the queue by a holder
/// that takes and frees the name in quick succession, and changes its version each time.
///
/// A claim that is alone becomes a row of the second table here, and the row of the name counts one
/// waiter then; behind others, it counts two or more. Its columns of a claim stay as they were, and
/// mean nothing from then on.
///
/// A named owner may hold the name, and would wait for itself. Of a claim that is alone the row says
/// so; the view of the other claims is from before the row was locked, and could not tell.
///
/// Its commit waits for no disk, or the holder's release would have to wait for both: each has the row
/// of the name to itself until it is committed. A place in the queue is all that a crash of the server
/// may undo of it. Whatever is committed on top of it, a grant of this claim first of all, brings it to
/// the disk as well, since the server writes its log in order.
fn join(names: &str, claims: &str) -> String {
    let columns: String = CLAIM.split(", ").map(|column| format!(", v.{column}")).collect();
    format!(
        "WITH v AS (UPDATE {names} SET \
           version = version + CASE place WHEN {ALONE} THEN 1 ELSE 0 END, \
           last = GREATEST(last + 1, {NOW}), place = {CROWD}, \
           waiting = CASE place WHEN {ALONE} THEN 1 ELSE waiting + 1 END \
           WHERE name = $1 AND ((place = {CROWD} AND waiting > 0 AND $2 = $3) \
             OR (place = {ALONE} AND expires > {NOW} AND owner <> $3 AND (mode = 0 OR $5 = 0))) \
           RETURNING last AS ticket, waiting, {NOW} AS now, {CLAIM}), \
         i AS (INSERT INTO {claims} (name, state, ticket, {CLAIM}) \
           SELECT $1, {HELD}::smallint, v.token{columns} FROM v WHERE v.waiting = 1 \
           UNION ALL \
           SELECT $1, {WAITING}::smallint, v.ticket, $2, $3, $4, $5, v.ticket, $6, v.now, \
             v.now + $6, $7, $8 FROM v) \
         SELECT ticket, waiting, CASE waiting WHEN 1 THEN expires - now END, \
           set_config('synchronous_commit', 'off', true) FROM v"
    )
}

/// One statement has one view of the tables, from before it had the row of the name. It is carried out
/// only if that row still has the number that the view shows; so what it sees of the claims is true,
/// but for those who stepped in at the end of the queue since.
fn hand_on(names: &str, claims: &str, process_row: &str) -> String {
    let waiter_lease = micros(WAITER_LEASE);
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now), \
         mine AS MATERIALIZED (SELECT c.ticket FROM {claims} c, clock WHERE c.name = $1 \
           AND c.state = {HELD} AND c.id = $2 AND c.process <> '' AND c.expires > clock.now \
           AND NOT EXISTS (SELECT FROM {claims} o WHERE o.name = $1 AND o.state < {WAITING} \
             AND o.ticket <> c.ticket)), \
         next AS MATERIALIZED (SELECT c.id, c.ticket, c.process, c.mode, c.ttl, c.process = $3 \
           AS ours FROM {claims} c WHERE c.name = $1 AND c.state = {WAITING} \
           ORDER BY c.ticket LIMIT 1), \
         v AS (UPDATE {names} l SET version = l.version + 1, waiting = l.waiting - 1 \
           FROM mine, next, clock WHERE l.name = $1 AND l.place = {CROWD} AND l.waiting > 0 \
           AND l.version = (SELECT version FROM {names} WHERE name = $1) AND next.mode = 0 \
           AND EXISTS (SELECT FROM {names} p WHERE p.name = {process_row} || next.process \
             AND p.expires > clock.now) RETURNING clock.now AS now), \
         d AS (DELETE FROM {claims} c USING v, mine WHERE c.name = $1 AND c.state = {HELD} \
           AND c.ticket = mine.ticket), \
         u AS (UPDATE {claims} c SET state = CASE WHEN next.ours THEN {HELD} ELSE {HANDED} END, \
             since = v.now, \
             expires = v.now + CASE WHEN next.ours THEN c.ttl ELSE {waiter_lease} END \
           FROM v, next WHERE c.name = $1 AND c.state = {WAITING} AND c.ticket = next.ticket) \
         SELECT next.id, next.ticket, next.ours, \
           v.now + CASE WHEN next.ours THEN next.ttl ELSE {waiter_lease} END, \
           CASE WHEN NOT next.ours THEN pg_notify('lockkeeper_' || next.process, \
             'handed ' || next.id) END \
         FROM v, next"
    )
}
