//! Every statement of `advisory`.

use super::super::client::Statement;
use super::super::session::postgres::statement;
use super::schema::Tables;
use tokio_postgres::types::Type;

/// Prepared on each session when it is first used there.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) retake: Statement,
    pub(super) try_take: Statement,
    pub(super) try_share: Statement,
    pub(super) set_lease: Statement,
    pub(super) wait: Statement,
    pub(super) wait_shared: Statement,
    pub(super) rerecord: Statement,
    pub(super) record: Statement,
    pub(super) record_shared: Statement,
    pub(super) free: Statement,
    pub(super) unlock: Statement,
    pub(super) free_shared: Statement,
    pub(super) free_all: Statement,
    pub(super) owed: Statement,
    pub(super) sweep: Statement,
    pub(super) keep: Statement,
    pub(super) forgive: Statement,
    pub(super) broken: Statement,
    pub(super) show: Statement,
    pub(super) break_hold: Statement,
    pub(super) end: Statement,
}

/// Microseconds since 1970, by the server's clock.
const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

impl Statements {
    #[expect(clippy::too_many_lines, reason = "one list of statements, each a few lines")]
    pub(super) fn new(tables: &Tables) -> Self {
        let locks = &tables.locks;
        // key, lease in ms, name, owner, identity, note, claim, debt in ms
        let claim = [
            Type::INT8,
            Type::INT8,
            Type::TEXT,
            Type::TEXT,
            Type::TEXT,
            Type::TEXT,
            Type::TEXT,
            Type::INT8,
        ];
        // Takes the lock by `call`, if it is not this session's already. Evaluated once, before what
        // reads it.
        let won = |call: &str| format!("WITH won AS MATERIALIZED (SELECT {call} AS won)");
        // Until when the holder may believe. Counted when the row is written, so after the moment
        // that the holder counts from.
        let believed = "clock_timestamp() + $8 * interval '1 ms'";
        let columns = "(key, seat, pid, name, token, owner, identity, note, since, lease_ms, \
             claim, believed)";
        let written = "pid = excluded.pid, name = excluded.name, owner = excluded.owner, \
             identity = excluded.identity, note = excluded.note, since = excluded.since, \
             lease_ms = excluded.lease_ms, claim = excluded.claim, believed = excluded.believed";
        // True of the row of a holder that gave back, or has stopped believing, or is this claim.
        let paid = "(l.believed <= clock_timestamp() OR l.claim = $7)";
        // Counts the grant, and writes the exclusive holder down in the same row, unless somebody
        // may still believe. Those who shared the lock have rows of their own, which are read as they
        // were when the statement began, before it took the lock. Each of them counted, so another
        // count now means that somebody came in between: then it is not written, and asked again.
        let count = |call: &str| {
            format!(
                "{}, seen AS MATERIALIZED (SELECT max(believed) FILTER (WHERE seat > 0) AS shared, \
                   max(token) FILTER (WHERE seat = 0) AS token FROM {locks} WHERE key = $1), \
                 counted AS (INSERT INTO {locks} AS l {columns} \
                 SELECT $1, 0, pg_backend_pid(), $3, {CLOCK}, $4, $5, $6, clock_timestamp(), $2, \
                   $7, {believed} FROM won, seen \
                 WHERE won.won AND (seen.shared IS NULL OR seen.shared <= clock_timestamp()) \
                 ON CONFLICT (key, seat) DO UPDATE SET \
                   token = greatest(l.token + 1, {CLOCK}), {written} WHERE {paid} \
                   AND l.token IS NOT DISTINCT FROM (SELECT token FROM seen) \
                 RETURNING token) \
                 SELECT won.won, counted.token, pg_backend_pid(), seen.shared IS NOT NULL \
                 FROM won CROSS JOIN seen LEFT JOIN counted ON true",
                won(call)
            )
        };
        // Not the session's number, which another session may get while a dead one's debt is open.
        let seat = "('x' || left($7, 7))::bit(28)::int + 1";
        // Counts the grant, and writes the one of several holders down in a row of its own, unless
        // an exclusive holder may still believe. The row of the name is nobody's from then on, see
        // `unshared`.
        let count_shared = |call: &str| {
            format!(
                "{}, next AS (INSERT INTO {locks} AS l {columns} \
                 SELECT $1, 0, 0, $3, {CLOCK}, '', '', '', clock_timestamp(), 0, '', '-infinity' \
                 FROM won WHERE won.won \
                 ON CONFLICT (key, seat) DO UPDATE SET token = greatest(l.token + 1, {CLOCK}), \
                   name = excluded.name, pid = 0 WHERE l.believed <= clock_timestamp() \
                 RETURNING token), \
                 counted AS (INSERT INTO {locks} AS l {columns} \
                 SELECT $1, {seat}, pg_backend_pid(), $3, token, $4, $5, $6, \
                   clock_timestamp(), $2, $7, {believed} FROM next \
                 ON CONFLICT (key, seat) DO UPDATE SET token = excluded.token, {written} \
                 RETURNING token) \
                 SELECT won.won, counted.token, pg_backend_pid(), false \
                 FROM won LEFT JOIN counted ON true",
                won(call)
            )
        };
        // Of a row whose last grant was exclusive: nobody who shared the lock before that may believe,
        // and nobody has shared it since. So the rows of those who share need not be read.
        let unshared = "l.pid <> 0 AND l.believed <= clock_timestamp()";
        let lock_of = "k.locktype = 'advisory' AND k.objsubid = 1 AND k.database = \
             (SELECT oid FROM pg_database WHERE datname = current_database())";
        let number = "((k.classid::bigint << 32) | k.objid::bigint)";
        // The time limit ends with the statement: later ones would fall under it.
        let wait = |call: &str| {
            format!(
                "SELECT CASE WHEN set_config('lock_timeout', $2, true) IS NOT NULL \
                   THEN {call}::text END"
            )
        };
        let ours = "key = $1 AND pid = pg_backend_pid()";
        Self {
            // Takes a lock whose row is there by an `UPDATE` which changes that row or nothing: for the
            // server half the work of `try_take`. The lock is asked for once, before the row is looked
            // for, also where the row is read again because another changed it meanwhile. Without a row
            // in the answer it is not known whether the session has the lock.
            retake: statement(
                "retake",
                format!(
                    "UPDATE {locks} AS l SET token = greatest(l.token + 1, {CLOCK}), \
                       pid = pg_backend_pid(), owner = $4, identity = $5, note = $6, \
                       since = clock_timestamp(), lease_ms = $2, claim = $7, believed = {believed} \
                     WHERE (SELECT pg_try_advisory_lock($1)) AND l.key = $1 AND l.seat = 0 \
                       AND l.name = $3 AND {unshared} RETURNING l.token, l.pid"
                ),
                &claim,
            ),
            try_take: statement("try_take", count("pg_try_advisory_lock($1)"), &claim),
            try_share: statement(
                "try_share",
                count_shared("pg_try_advisory_lock_shared($1)"),
                &claim,
            ),
            set_lease: statement(
                "set_lease",
                "SELECT set_config('idle_session_timeout', $1, false)".into(),
                &[Type::TEXT],
            ),
            wait: statement("wait", wait("pg_advisory_lock($1)"), &[Type::INT8, Type::TEXT]),
            wait_shared: statement(
                "wait_shared",
                wait("pg_advisory_lock_shared($1)"),
                &[Type::INT8, Type::TEXT],
            ),
            // Writes the holder of a lock down that this session has. Not in one request with the wait:
            // the server would write a waiter down whose connection broke, which it notices only when it
            // answers, and the next one would have to wait until that lease is over. Without a row in the
            // answer, somebody may believe in the lock.
            rerecord: statement(
                "rerecord",
                format!(
                    "INSERT INTO {locks} AS l {columns} \
                     SELECT $1, 0, pg_backend_pid(), $3, {CLOCK}, $4, $5, $6, clock_timestamp(), \
                       $2, $7, {believed} \
                     ON CONFLICT (key, seat) DO UPDATE SET token = greatest(l.token + 1, {CLOCK}), \
                       {written} WHERE {unshared} RETURNING token, pid"
                ),
                &claim,
            ),
            record: statement("record", count("true"), &claim),
            record_shared: statement("record_shared", count_shared("true"), &claim),
            // How long those may believe whom a new holder has to wait for. Waits for the row of one
            // that gives back at this moment. A debt is never longer than its lease: it would be
            // after a clock that went back.
            owed: statement(
                "owed",
                format!(
                    "UPDATE {locks} SET believed = least(believed, \
                       clock_timestamp() + lease_ms * interval '1 ms') \
                     WHERE key = $1 AND (seat = 0 OR NOT $2) AND believed > clock_timestamp() \
                     RETURNING (extract(epoch FROM believed - clock_timestamp()) * 1000)::bigint"
                ),
                &[Type::INT8, Type::BOOL],
            ),
            // Forgets those who shared the lock and never gave back, after they have stopped
            // believing.
            sweep: statement(
                "sweep",
                format!(
                    "DELETE FROM {locks} WHERE key = $1 AND seat > 0 \
                       AND believed <= clock_timestamp()"
                ),
                &[Type::INT8],
            ),
            keep: statement(
                "keep_claim",
                format!(
                    "WITH kept AS (UPDATE {locks} SET believed = \
                       clock_timestamp() + $3 * interval '1 ms' WHERE {ours} AND claim = $2 \
                       AND broken_token IS DISTINCT FROM token) SELECT pg_backend_pid()"
                ),
                &[Type::INT8, Type::TEXT, Type::INT8],
            ),
            forgive: statement(
                "forgive",
                format!("UPDATE {locks} SET believed = '-infinity' WHERE key = $1 AND claim = $2"),
                &[Type::INT8, Type::TEXT],
            ),
            // Erases the debt before the lock is free. Who takes the lock then waits for the row until
            // this is committed. Without a row in the answer there was no such debt, and the lock is
            // not freed.
            free: statement(
                "free",
                format!(
                    "UPDATE {locks} SET believed = '-infinity' WHERE {ours} AND seat = 0 \
                       AND claim = $2 RETURNING pg_advisory_unlock($1)"
                ),
                &[Type::INT8, Type::TEXT],
            ),
            unlock: statement("unlock", "SELECT pg_advisory_unlock($1)".into(), &[Type::INT8]),
            // The count makes the deletion come first.
            free_shared: statement(
                "free_shared",
                format!(
                    "WITH done AS (DELETE FROM {locks} WHERE {ours} AND claim = $2 RETURNING 1) \
                     SELECT pg_advisory_unlock_shared($1) FROM (SELECT count(*) FROM done) AS d"
                ),
                &[Type::INT8, Type::TEXT],
            ),
            free_all: statement("free_all", "SELECT pg_advisory_unlock_all()".into(), &[]),
            broken: statement(
                "broken",
                format!("SELECT broken FROM {locks} WHERE key = $1 AND broken_token = $2"),
                &[Type::INT8, Type::INT8],
            ),
            // Whom the server's list of locks names, and before them those who are in it no more and
            // may believe.
            show: statement(
                "show",
                format!(
                    "SELECT name, granted, alone, token, owner, identity, note, since, lease_ms, \
                       pid, gone FROM ( \
                     SELECT l.name, k.granted, k.mode = 'ExclusiveLock' AS alone, h.token, h.owner, \
                       h.identity, h.note, \
                       (extract(epoch FROM clock_timestamp() - coalesce(h.since, k.waitstart)) \
                         * 1000)::bigint AS since, h.lease_ms, k.pid, false AS gone \
                     FROM {locks} l \
                     JOIN pg_locks k ON {lock_of} AND {number} = l.key \
                     LEFT JOIN {locks} h ON k.granted AND h.key = l.key AND h.pid = k.pid AND \
                       (h.seat = 0) = (k.mode = 'ExclusiveLock') \
                       AND h.believed > '-infinity' \
                     WHERE l.seat = 0 \
                     UNION ALL \
                     SELECT h.name, true, h.seat = 0, h.token, h.owner, h.identity, h.note, \
                       (extract(epoch FROM clock_timestamp() - h.since) * 1000)::bigint, \
                       (extract(epoch FROM h.believed - clock_timestamp()) * 1000)::bigint, \
                       h.pid, true \
                     FROM {locks} h WHERE h.believed > clock_timestamp() AND NOT EXISTS ( \
                       SELECT FROM pg_locks k WHERE {lock_of} AND {number} = h.key \
                         AND k.granted AND k.pid = h.pid) \
                     ) AS v WHERE starts_with(name, $1) AND (NOT $2 OR name = $1) \
                     ORDER BY name, gone DESC, granted DESC, token, since DESC"
                ),
                &[Type::TEXT, Type::BOOL],
            ),
            // The reason is there before the session ends, and so is the end of the debt: who breaks
            // a hold wants the lock to be free. Between the look at the list of locks and the end of
            // the session, its holder may have given back and taken another lock in it; then that one
            // is lost, and its holder told so.
            break_hold: statement(
                "break_hold",
                format!(
                    "WITH locked AS MATERIALIZED (SELECT k.pid, k.mode FROM pg_locks k \
                       WHERE {lock_of} AND {number} = $1 AND k.granted), \
                     found AS (UPDATE {locks} l SET broken = $3, broken_token = l.token, \
                         believed = '-infinity' \
                       WHERE l.key = $1 AND l.token = $2 AND l.pid <> 0 \
                         AND (l.believed > clock_timestamp() OR EXISTS (SELECT FROM locked k \
                           WHERE k.pid = l.pid AND (l.seat = 0) = (k.mode = 'ExclusiveLock'))) \
                       RETURNING l.pid) \
                     SELECT found.pid, EXISTS (SELECT FROM locked k WHERE k.pid = found.pid) \
                     FROM found"
                ),
                &[Type::INT8, Type::INT8, Type::TEXT],
            ),
            end: statement("end", "SELECT pg_terminate_backend($1)".into(), &[Type::INT4]),
        }
    }
}
