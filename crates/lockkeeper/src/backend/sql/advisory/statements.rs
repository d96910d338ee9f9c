//! Every statement of `advisory`.

use super::super::client::Statement;
use super::super::session::UNUSED;
use super::super::session::postgres::statement;
use super::schema::Tables;
use tokio_postgres::types::Type;

/// Prepared on each session when it is first used there.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) try_take: Statement,
    pub(super) try_share: Statement,
    pub(super) limit_wait: Statement,
    pub(super) wait: Statement,
    pub(super) wait_shared: Statement,
    pub(super) record: Statement,
    pub(super) record_shared: Statement,
    pub(super) free: Statement,
    pub(super) free_shared: Statement,
    pub(super) free_all: Statement,
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
        let unused = UNUSED.as_millis();
        // key, lease in ms, name, owner, identity, note
        let claim = [Type::INT8, Type::INT8, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT];
        let lease = "set_config('idle_session_timeout', $2::text, false)";
        // Counts the grant, and writes the exclusive holder down in the same row.
        let count = |from: &str| {
            format!(
                "INSERT INTO {locks} AS l \
                   (key, seat, pid, name, token, owner, identity, note, since, lease_ms) \
                 SELECT $1, 0, pg_backend_pid(), $3, {CLOCK}, $4, $5, $6, clock_timestamp(), $2 {from} \
                 ON CONFLICT (key, seat) DO UPDATE SET pid = excluded.pid, name = excluded.name, \
                   token = greatest(l.token + 1, {CLOCK}), owner = excluded.owner, \
                   identity = excluded.identity, note = excluded.note, since = excluded.since, \
                   lease_ms = excluded.lease_ms \
                 RETURNING token, pid"
            )
        };
        // Counts the grant, and writes the one of several holders down in a row of its own.
        let count_shared = |from: &str| {
            format!(
                "counted AS (INSERT INTO {locks} AS l \
                   (key, seat, pid, name, token, owner, identity, note, since, lease_ms) \
                 SELECT $1, 0, 0, $3, {CLOCK}, '', '', '', clock_timestamp(), 0 {from} \
                 ON CONFLICT (key, seat) DO UPDATE SET token = greatest(l.token + 1, {CLOCK}), \
                   name = excluded.name \
                 RETURNING token) \
                 INSERT INTO {locks} AS l \
                   (key, seat, pid, name, token, owner, identity, note, since, lease_ms) \
                 SELECT $1, pg_backend_pid(), pg_backend_pid(), $3, token, $4, $5, $6, \
                   clock_timestamp(), $2 FROM counted \
                 ON CONFLICT (key, seat) DO UPDATE SET name = excluded.name, \
                   token = excluded.token, owner = excluded.owner, identity = excluded.identity, \
                   note = excluded.note, since = excluded.since, lease_ms = excluded.lease_ms \
                 RETURNING token, pid"
            )
        };
        // Evaluated once, before what reads it.
        let won = |call: &str| {
            format!("won AS MATERIALIZED (SELECT {call}($1) AS won, {lease} AS lease)")
        };
        let lock_of = "k.locktype = 'advisory' AND k.objsubid = 1 AND k.database = \
             (SELECT oid FROM pg_database WHERE datname = current_database())";
        let number = "((k.classid::bigint << 32) | k.objid::bigint)";
        Self {
            try_take: statement(
                "try_take",
                format!("WITH {} {}", won("pg_try_advisory_lock"), count("FROM won WHERE won.won")),
                &claim,
            ),
            try_share: statement(
                "try_share",
                format!(
                    "WITH {}, {}",
                    won("pg_try_advisory_lock_shared"),
                    count_shared("FROM won WHERE won.won")
                ),
                &claim,
            ),
            limit_wait: statement(
                "limit_wait",
                "SELECT set_config('lock_timeout', $1, false)".into(),
                &[Type::TEXT],
            ),
            wait: statement("wait", "SELECT pg_advisory_lock($1)".into(), &[Type::INT8]),
            wait_shared: statement(
                "wait_shared",
                "SELECT pg_advisory_lock_shared($1)".into(),
                &[Type::INT8],
            ),
            record: statement(
                "record",
                format!("WITH won AS MATERIALIZED (SELECT {lease} AS lease) {}", count("FROM won")),
                &claim,
            ),
            record_shared: statement(
                "record_shared",
                format!(
                    "WITH won AS MATERIALIZED (SELECT {lease} AS lease), {}",
                    count_shared("FROM won")
                ),
                &claim,
            ),
            free: statement(
                "free",
                format!(
                    "SELECT pg_advisory_unlock($1), \
                       set_config('idle_session_timeout', '{unused}', false)"
                ),
                &[Type::INT8],
            ),
            free_shared: statement(
                "free_shared",
                format!(
                    "SELECT pg_advisory_unlock_shared($1), \
                       set_config('idle_session_timeout', '{unused}', false)"
                ),
                &[Type::INT8],
            ),
            free_all: statement("free_all", "SELECT pg_advisory_unlock_all()".into(), &[]),
            broken: statement(
                "broken",
                format!("SELECT broken FROM {locks} WHERE key = $1 AND broken_token = $2"),
                &[Type::INT8, Type::INT8],
            ),
            show: statement(
                "show",
                format!(
                    "SELECT l.name, k.granted, k.mode = 'ExclusiveLock', h.token, h.owner, \
                       h.identity, h.note, \
                       (extract(epoch FROM clock_timestamp() - coalesce(h.since, k.waitstart)) \
                         * 1000)::bigint, h.lease_ms, k.pid \
                     FROM {locks} l \
                     JOIN pg_locks k ON {lock_of} AND {number} = l.key \
                     LEFT JOIN {locks} h ON k.granted AND h.key = l.key AND h.pid = k.pid AND \
                       (h.seat = 0) = (k.mode = 'ExclusiveLock') \
                     WHERE l.seat = 0 AND starts_with(l.name, $1) AND (NOT $2 OR l.name = $1) \
                     ORDER BY l.name, k.granted DESC, h.token, k.waitstart"
                ),
                &[Type::TEXT, Type::BOOL],
            ),
            // The reason is there before the session ends. Between the look at the list of locks
            // and the end of the session, its holder may have given back and taken another lock in
            // it; then that one is lost, and its holder told so.
            break_hold: statement(
                "break_hold",
                format!(
                    "WITH found AS (UPDATE {locks} l SET broken = $3, broken_token = l.token \
                       FROM pg_locks k WHERE l.key = $1 AND l.token = $2 AND l.pid <> 0 \
                         AND {lock_of} AND {number} = l.key AND k.granted AND k.pid = l.pid \
                         AND (l.seat = 0) = (k.mode = 'ExclusiveLock') \
                       RETURNING l.pid) \
                     SELECT pid FROM found"
                ),
                &[Type::INT8, Type::INT8, Type::TEXT],
            ),
            end: statement("end", "SELECT pg_terminate_backend($1)".into(), &[Type::INT4]),
        }
    }
}
