//! Rows of PostgreSQL. The lease is `idle_in_transaction_session_timeout`.

use super::super::client::{PostgresClient, PostgresConnector, Statement};
use super::super::error::{Failure, of_postgres};
use super::super::options::PostgresOptions;
use super::super::schema::Made;
use super::super::session::postgres::{
    Layout, PostgresSession, PostgresSessions, millis, statement,
};
use super::super::session::{Native, SessionLocks, Taken};
use crate::backend::{
    Background, Capability, Claim, FencingToken, HolderView, LockView, LossReason, Mode, Name,
    Owner,
};
use crate::error::{Error, Result};
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

/// Microseconds since 1970, by the server's clock.
const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Row locks.
pub(in crate::backend::sql) struct ForUpdate {
    sessions: PostgresSessions,
    /// For what must be seen by others while a transaction is open.
    beside: PostgresClient,
    rows: String,
    make: Statement,
    begin: Statement,
    try_lock: Statement,
    lock: Statement,
    count: Statement,
    show: Statement,
    break_hold: Statement,
    broken: Statement,
    end: Statement,
}

/// Opens the recipe.
pub(in crate::backend::sql) async fn open(
    options: PostgresOptions,
    background: &Background,
) -> Result<SessionLocks<ForUpdate>> {
    let rows = super::rows_of(options.schema.as_deref(), &options.table);
    let (layout, holders) = (layout(&rows), holders_of(&rows));
    let (most, connections) = (options.sessions, options.connections);
    let beside = PostgresConnector::new(&options, background)?;
    let beside = PostgresClient::new(beside, connections);
    let sessions = PostgresSessions::new(options, "for-update", layout, background)?;
    let locks = ForUpdate::new(sessions, beside, rows, &holders);
    let locks = SessionLocks::new(locks, most, background);
    locks.prepare().await?;
    Ok(locks)
}

/// Its tables, for those who make them by hand.
pub(in crate::backend::sql) fn made(schema: Option<&str>, table: &str) -> Made {
    let layout = layout(&super::rows_of(schema, table));
    Made { tables: layout.all, definition: layout.definition }
}

fn holders_of(rows: &str) -> String {
    format!("{rows}_holder")
}

fn layout(rows: &str) -> Layout {
    let (holders, lives) = (holders_of(rows), format!("{rows}_life"));
    Layout {
        definition: definition(rows, &holders, &lives),
        all: vec![rows.to_owned(), holders, lives.clone()],
        lives,
    }
}

/// What makes the three tables. The rows of holders are not kept over a crash, after which nobody
/// holds anything, so that writing them waits for no disk.
fn definition(rows: &str, holders: &str, lives: &str) -> String {
    let locked = super::postgres_definition(rows);
    format!(
        "{locked};\n\
         CREATE UNLOGGED TABLE IF NOT EXISTS {holders} (\
           name text COLLATE \"C\" PRIMARY KEY, pid integer NOT NULL, token bigint NOT NULL, \
           owner text NOT NULL, identity text NOT NULL, note text NOT NULL, \
           since timestamptz NOT NULL, lease_ms bigint NOT NULL, broken text, \
           broken_token bigint) WITH (fillfactor = 50);\n\
         CREATE TABLE IF NOT EXISTS {lives} (\
           id text PRIMARY KEY, line text NOT NULL, began timestamptz NOT NULL, \
           lease_ms bigint NOT NULL);\n"
    )
}

impl ForUpdate {
    fn new(
        sessions: PostgresSessions,
        beside: PostgresClient,
        rows: String,
        holders: &str,
    ) -> Self {
        // A row that is locked names the transaction that did so, and that transaction's session
        // has it in the list of locks for as long as it is open.
        let held = format!(
            "{rows} r JOIN pg_locks k ON k.locktype = 'transactionid' AND k.granted \
               AND k.mode = 'ExclusiveLock' AND k.transactionid = r.xmax"
        );
        let text = [Type::TEXT];
        Self {
            sessions,
            beside,
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
            count: statement(
                "count",
                format!(
                    "INSERT INTO {holders} AS h \
                       (name, pid, token, owner, identity, note, since, lease_ms) \
                     VALUES ($1, $2, {CLOCK}, $3, $4, $5, clock_timestamp(), $6) \
                     ON CONFLICT (name) DO UPDATE SET pid = excluded.pid, \
                       token = greatest(h.token + 1, {CLOCK}), owner = excluded.owner, \
                       identity = excluded.identity, note = excluded.note, \
                       since = excluded.since, lease_ms = excluded.lease_ms \
                     RETURNING token"
                ),
                &[Type::TEXT, Type::INT4, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
            ),
            show: statement(
                "show",
                format!(
                    "SELECT r.name, k.pid, h.token, h.owner, h.identity, h.note, \
                       (extract(epoch FROM clock_timestamp() - h.since) * 1000)::bigint, \
                       h.lease_ms \
                     FROM {held} LEFT JOIN {holders} h ON h.name = r.name AND h.pid = k.pid \
                     WHERE starts_with(r.name, $1) AND (NOT $2 OR r.name = $1) ORDER BY r.name"
                ),
                &[Type::TEXT, Type::BOOL],
            ),
            break_hold: statement(
                "break_hold",
                format!(
                    "WITH held AS (SELECT r.name, k.pid FROM {held} WHERE r.name = $1) \
                     UPDATE {holders} h SET broken = $3, broken_token = h.token FROM held \
                     WHERE h.name = held.name AND h.pid = held.pid AND h.token = $2 \
                     RETURNING h.pid"
                ),
                &[Type::TEXT, Type::INT8, Type::TEXT],
            ),
            broken: statement(
                "broken",
                format!("SELECT broken FROM {holders} WHERE name = $1 AND broken_token = $2"),
                &[Type::TEXT, Type::INT8],
            ),
            end: statement("end", "SELECT pg_terminate_backend($1)".into(), &[Type::INT4]),
            rows,
        }
    }

    /// Locks the row in a transaction that stays open; `false` if that takes longer than `wait`, and
    /// then nothing is open any more.
    async fn lock_row(
        &self,
        session: &PostgresSession,
        claim: &Claim,
        lease: Duration,
        wait: Option<Duration>,
    ) -> Result<bool, Failure> {
        let statement = if wait.is_some() { &self.lock } else { &self.try_lock };
        // Nothing would mean that there is no limit.
        let wait = wait.unwrap_or(Duration::from_millis(1));
        for _ in 0..2 {
            match self.begin_with(session, statement, claim, lease, wait).await? {
                None => return Ok(false),
                Some(rows) if rows > 0 => return Ok(true),
                Some(_) => self.end_with(session, "ROLLBACK").await?,
            }
            // In a transaction of its own, so that nobody waits for the end of ours. Somebody who
            // makes the row in a long one has the lock.
            match self.begin_with(session, &self.make, claim, lease, wait).await? {
                None => return Ok(false),
                Some(_) => self.end_with(session, "COMMIT").await?,
            }
        }
        Err(Failure::Broken(format!("a row of {} went as it came", self.rows)))
    }

    /// Begins a transaction and runs a statement on the row of a name in it, in one round trip; how
    /// many rows it returned. `None` if another kept it from that for longer than `wait`, and then
    /// nothing is open any more.
    async fn begin_with(
        &self,
        session: &PostgresSession,
        statement: &Statement,
        claim: &Claim,
        lease: Duration,
        wait: Duration,
    ) -> Result<Option<usize>, Failure> {
        let own = self.sessions.connector.timeout();
        let name = claim.name.as_str();
        let (lease, most) = (lease.as_millis().to_string(), wait.as_millis().to_string());
        let settings: [&(dyn ToSql + Sync); 2] = [&lease, &most];
        let named: [&(dyn ToSql + Sync); 1] = [&name];
        // One behind the other without waiting for an answer in between.
        let begun = session.connection.batch("BEGIN", own);
        let set = self.sessions.rows(session, &self.begin, &settings);
        let ran = session.connection.ask(statement, &named, own + wait);
        let (begun, set, ran) = futures_util::join!(begun, set, ran);
        begun?;
        set?;
        match ran? {
            Ok(rows) => Ok(Some(rows.len())),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                self.end_with(session, "ROLLBACK").await?;
                Ok(None)
            }
            Err(error) => Err(of_postgres(&error)),
        }
    }

    async fn end_with(&self, session: &PostgresSession, how: &str) -> Result<(), Failure> {
        session.connection.batch(how, self.sessions.connector.timeout()).await
    }

    /// Counts the grant and writes its holder down, beside the transaction. After that the session
    /// is asked once more: if it is still there, the lock was ours while we counted, and no token of
    /// a later holder is smaller.
    async fn write_down(
        &self,
        session: &PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Taken, Failure> {
        let (name, owner, lease) = (claim.name.as_str(), claim.owner.id(), millis(lease));
        let (identity, note) = (&*claim.identity, &*claim.note);
        let params: [&(dyn ToSql + Sync); 6] =
            [&name, &session.pid, &owner, &identity, &note, &lease];
        // To count twice does no harm.
        let rows = self.beside.query(&self.count, &params, true).await?;
        let token = rows.first().and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok());
        let token = token.and_then(FencingToken::new);
        let token = token.ok_or_else(|| Failure::Broken("a token below one".into()))?;
        self.sessions.keep(session).await?;
        Ok(Taken { token })
    }
}

#[async_trait]
impl Native for ForUpdate {
    type Session = PostgresSession;

    const LOOK: Option<Duration> = None;

    fn capability(&self) -> Capability {
        crate::recipes::POSTGRES_FOR_UPDATE
    }

    fn longest(&self) -> Duration {
        self.sessions.longest
    }

    async fn open(&self) -> Result<PostgresSession> {
        let statements = [&self.begin, &self.try_lock, &self.lock, &self.make];
        let session = self.sessions.connect(&statements).await?;
        self.beside.warm(&[&self.count]).await.map_err(|failure| self.explain(failure))?;
        Ok(session)
    }

    async fn try_take(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Option<Taken>, Failure> {
        if !self.lock_row(session, claim, lease, None).await? {
            return Ok(None);
        }
        self.write_down(session, claim, lease).await.map(Some)
    }

    async fn wait(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        slice: Duration,
    ) -> Result<bool, Failure> {
        let lease = claim.ttl.min(self.sessions.longest);
        self.lock_row(session, claim, lease, Some(slice)).await
    }

    async fn record(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Taken, Failure> {
        self.write_down(session, claim, lease).await
    }

    async fn keep(&self, session: &mut PostgresSession) -> Result<(), Failure> {
        self.sessions.keep(session).await
    }

    /// The session is there, and with it the transaction, unless this fails.
    async fn free(&self, session: &mut PostgresSession, _: &Claim) -> Result<bool, Failure> {
        self.end_with(session, "COMMIT").await?;
        Ok(true)
    }

    async fn why_gone(
        &self,
        session: &mut PostgresSession,
        name: &Name,
        token: FencingToken,
    ) -> LossReason {
        let (name, token) = (name.as_str(), i64::try_from(token.get()).unwrap_or(i64::MAX));
        let rows = self.sessions.rows(session, &self.broken, &[&name, &token]).await;
        match rows.ok().and_then(|rows| rows.first()?.get::<_, Option<String>>(0)) {
            Some(reason) => LossReason::Broken { reason },
            None => LossReason::Gone,
        }
    }

    /// From the server's own list of locks. Those who wait write nothing down.
    async fn look(
        &self,
        session: &mut PostgresSession,
        text: &str,
        whole: bool,
    ) -> Result<Vec<LockView>, Failure> {
        let rows = self.sessions.rows(session, &self.show, &[&text, &whole]).await?;
        Ok(rows.iter().filter_map(view_of).collect())
    }

    async fn break_hold(
        &self,
        session: &mut PostgresSession,
        name: &Name,
        token: FencingToken,
        reason: &str,
    ) -> Result<bool, Failure> {
        let Ok(token) = i64::try_from(token.get()) else { return Ok(false) };
        let params: [&(dyn ToSql + Sync); 3] = [&name.as_str(), &token, &reason];
        let found = self.sessions.rows(session, &self.break_hold, &params).await?;
        for row in &found {
            self.sessions.rows(session, &self.end, &[&row.get::<_, i32>(0)]).await?;
        }
        Ok(!found.is_empty())
    }

    fn disconnect(&self) {
        self.beside.disconnect();
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        let quoted = name.as_str().replace('\'', "''");
        vec![format!("SELECT * FROM {} WHERE name = '{quoted}' FOR UPDATE", self.rows)]
    }

    fn explain(&self, failure: Failure) -> Error {
        self.sessions.explain(failure)
    }
}

/// `None` for a row that is not ours.
fn view_of(row: &tokio_postgres::Row) -> Option<LockView> {
    let mut view = LockView::new(Name::new(row.get(0)).ok()?);
    let pid: i32 = row.get(1);
    let whole = |column: usize| {
        row.get::<_, Option<i64>>(column).and_then(|it| u64::try_from(it).ok()).unwrap_or(0)
    };
    let holder = match row.get::<_, Option<String>>(3) {
        Some(owner) => {
            let mut holder = HolderView::new(Owner::from_id(owner), Mode::Exclusive);
            (holder.identity, holder.note) = (row.get(4), row.get(5));
            holder.token = FencingToken::new(whole(2));
            holder.held_for = Duration::from_millis(whole(6));
            // From its last renewal on, of which the server keeps no time.
            holder.expires_in = Duration::from_millis(whole(7));
            holder
        }
        // Locked a moment ago, or in a transaction of another program.
        None => {
            let owner = Owner::from_id(format!("pid {pid}"));
            let mut holder = HolderView::new(owner, Mode::Exclusive);
            holder.identity = format!("PostgreSQL session {pid}");
            holder
        }
    };
    view.holders.push(holder);
    Some(view)
}

impl fmt::Display for ForUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (for-update)", self.sessions.shown())
    }
}

impl fmt::Debug for ForUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.sessions.shown();
        f.debug_struct("ForUpdate").field("store", &store).finish_non_exhaustive()
    }
}
