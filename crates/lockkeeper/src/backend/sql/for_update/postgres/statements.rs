//! Every statement of `for-update` on PostgreSQL.

use super::super::super::client::Statement;
use super::super::super::session::postgres::statement;
use tokio_postgres::types::Type;

/// Prepared on each connection when it is first used there.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) make: Statement,
    pub(super) begin: Statement,
    pub(super) try_lock: Statement,
    pub(super) lock: Statement,
    pub(super) count: Statement,
    pub(super) owed: Statement,
    pub(super) keep: Statement,
    pub(super) erase: Statement,
    pub(super) still: Statement,
    pub(super) show: Statement,
    pub(super) break_hold: Statement,
    pub(super) broken: Statement,
    pub(super) end: Statement,
}

/// Microseconds since 1970, by the server's clock.
const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

impl Statements {
    pub(super) fn new(rows: &str, holders: &str) -> Self {
        // A row that is locked names the transaction that did so, and that transaction's session
        // has it in the list of locks for as long as it is open.
        let held = format!(
            "{rows} r JOIN pg_locks k ON k.locktype = 'transactionid' AND k.granted \
               AND k.mode = 'ExclusiveLock' AND k.transactionid = r.xmax"
        );
        let text = [Type::TEXT];
        Self {
            make: statement(
                "make",
                format!("INSERT INTO {rows} (name) VALUES ($1) ON CONFLICT (name) DO NOTHING"),
                &text,
            ),
            // Settings that go with the transaction: how long it may say nothing, and how long it
            // waits for a row.
            begin: statement(
                "begin",
                "SELECT set_config('idle_in_transaction_session_timeout', $1, true), \
                   set_config('lock_timeout', $2, true)"
                    .into(),
                &[Type::TEXT, Type::TEXT],
            ),
            try_lock: statement(
                "try_lock",
                format!("SELECT 1 FROM {rows} WHERE name = $1 FOR UPDATE NOWAIT"),
                &text,
            ),
            lock: statement(
                "lock",
                format!("SELECT 1 FROM {rows} WHERE name = $1 FOR UPDATE"),
                &text,
            ),
            // Unless a holder that did not give back may still believe.
            count: statement(
                "count",
                format!(
                    "INSERT INTO {holders} AS h (name, pid, token, owner, identity, note, since, \
                       lease_ms, claim, believed) \
                     VALUES ($1, $2, {CLOCK}, $3, $4, $5, clock_timestamp(), $6, $7, \
                       clock_timestamp() + $8 * interval '1 ms') \
                     ON CONFLICT (name) DO UPDATE SET pid = excluded.pid, \
                       token = greatest(h.token + 1, {CLOCK}), owner = excluded.owner, \
                       identity = excluded.identity, note = excluded.note, \
                       since = excluded.since, lease_ms = excluded.lease_ms, \
                       claim = excluded.claim, believed = excluded.believed \
                     WHERE h.believed <= clock_timestamp() OR h.claim = $7 \
                     RETURNING token"
                ),
                &[
                    Type::TEXT,
                    Type::INT4,
                    Type::TEXT,
                    Type::TEXT,
                    Type::TEXT,
                    Type::INT8,
                    Type::TEXT,
                    Type::INT8,
                ],
            ),
            // A debt is never longer than its lease: it would be after a clock that went back.
            owed: statement(
                "owed",
                format!(
                    "UPDATE {holders} SET believed = least(believed, \
                       clock_timestamp() + lease_ms * interval '1 ms') \
                     WHERE name = $1 AND believed > clock_timestamp() \
                     RETURNING (extract(epoch FROM believed - clock_timestamp()) * 1000)::bigint"
                ),
                &text,
            ),
            keep: statement(
                "keep",
                format!(
                    "UPDATE {holders} SET believed = clock_timestamp() + $3 * interval '1 ms' \
                     WHERE name = $1 AND claim = $2 AND broken_token IS DISTINCT FROM token"
                ),
                &[Type::TEXT, Type::TEXT, Type::INT8],
            ),
            // With the wait for the row ends its time limit, which the statement that gives back
            // would fall under.
            still: statement(
                "still",
                "SELECT pg_backend_pid(), set_config('lock_timeout', '0', true)".into(),
                &[],
            ),
            // In the transaction itself: its end frees the row and erases the debt in one.
            erase: statement(
                "erase",
                format!(
                    "UPDATE {holders} SET believed = '-infinity' WHERE name = $1 AND claim = $2"
                ),
                &[Type::TEXT, Type::TEXT],
            ),
            // Whom the server's list of locks names, and before them those who are in it no more and
            // may believe.
            show: statement(
                "show",
                format!(
                    "SELECT name, pid, token, owner, identity, note, since, lease_ms FROM ( \
                     SELECT r.name, k.pid, h.token, h.owner, h.identity, h.note, \
                       (extract(epoch FROM clock_timestamp() - h.since) * 1000)::bigint AS since, \
                       h.lease_ms, false AS gone \
                     FROM {held} LEFT JOIN {holders} h ON h.name = r.name AND h.pid = k.pid \
                     UNION ALL \
                     SELECT h.name, h.pid, h.token, h.owner, h.identity, h.note, \
                       (extract(epoch FROM clock_timestamp() - h.since) * 1000)::bigint, \
                       (extract(epoch FROM h.believed - clock_timestamp()) * 1000)::bigint, true \
                     FROM {holders} h WHERE h.believed > clock_timestamp() AND NOT EXISTS ( \
                       SELECT FROM {held} WHERE r.name = h.name AND k.pid = h.pid) \
                     ) AS v WHERE starts_with(name, $1) AND (NOT $2 OR name = $1) \
                     ORDER BY name, gone DESC"
                ),
                &[Type::TEXT, Type::BOOL],
            ),
            // Who breaks a hold wants the lock to be free, so the debt ends with it.
            break_hold: statement(
                "break_hold",
                format!(
                    "WITH held AS MATERIALIZED \
                       (SELECT r.name, k.pid FROM {held} WHERE r.name = $1), \
                     found AS (UPDATE {holders} h SET broken = $3, broken_token = h.token, \
                         believed = '-infinity' \
                       WHERE h.name = $1 AND h.token = $2 AND (h.believed > clock_timestamp() \
                         OR EXISTS (SELECT FROM held WHERE held.pid = h.pid)) \
                       RETURNING h.pid) \
                     SELECT pid, EXISTS (SELECT FROM held WHERE held.pid = found.pid) FROM found"
                ),
                &[Type::TEXT, Type::INT8, Type::TEXT],
            ),
            broken: statement(
                "broken",
                format!("SELECT broken FROM {holders} WHERE name = $1 AND broken_token = $2"),
                &[Type::TEXT, Type::INT8],
            ),
            end: statement("end", "SELECT pg_terminate_backend($1)".into(), &[Type::INT4]),
        }
    }
}
