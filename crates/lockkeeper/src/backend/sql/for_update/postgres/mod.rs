//! Rows of PostgreSQL. The lease is `idle_in_transaction_session_timeout`.

mod statements;

use super::super::client::{PostgresClient, PostgresConnector, Statement};
use super::super::error::{Failure, of_postgres};
use super::super::options::PostgresOptions;
use super::super::schema::Made;
use super::super::session::postgres::{Layout, PostgresSession, PostgresSessions, millis};
use super::super::session::{Attempt, Native, SessionLocks, Taken};
use crate::backend::sql::checkup::Examined;
use crate::backend::{
    Background, Capability, Claim, FencingToken, HolderView, LockView, LossReason, Mode, Name,
    Owner, WaiterView,
};
use crate::error::{Error, Result};
use async_trait::async_trait;
use statements::Statements;
use std::fmt;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

/// How long a statement that does not wait for another's lock may wait for locks that the server has
/// for itself, such as that on the end of a table that grows.
const INNER: Duration = Duration::from_secs(1);

/// Row locks.
pub(in crate::backend::sql) struct ForUpdate {
    sessions: PostgresSessions,
    /// For what must be seen by others while a transaction is open.
    beside: PostgresClient,
    rows: String,
    statements: Statements,
    /// A lock whose session ended counts as given back.
    free_on_disconnect: bool,
}

/// Opens the recipe.
pub(in crate::backend::sql) async fn open(
    options: PostgresOptions,
    background: &Background,
) -> Result<SessionLocks<ForUpdate>> {
    let rows = super::rows_of(options.schema.as_deref(), &options.table);
    let (layout, holders) = (layout(&rows), super::holders_of(&rows));
    let (most, connections) = (options.sessions, options.connections);
    let free_on_disconnect = options.free_on_disconnect;
    let beside = PostgresConnector::new(&options, background)?;
    let beside = PostgresClient::new(beside, connections);
    let sessions = PostgresSessions::new(options, "for-update", layout, background)?;
    let statements = Statements::new(&rows, &holders);
    let locks = ForUpdate { sessions, beside, rows, statements, free_on_disconnect };
    let locks = SessionLocks::new(locks, most, background);
    locks.prepare().await?;
    Ok(locks)
}

/// Its tables, for those who make them by hand.
pub(in crate::backend::sql) fn made(schema: Option<&str>, table: &str) -> Made {
    let layout = layout(&super::rows_of(schema, table));
    Made { tables: layout.all, definition: layout.definition }
}

fn layout(rows: &str) -> Layout {
    let (holders, lives) = (super::holders_of(rows), format!("{rows}_life"));
    Layout {
        definition: definition(rows, &holders, &lives),
        // No lock has an empty name.
        mark: format!(
            "INSERT INTO {holders} (name, pid, token, owner, identity, note, since, lease_ms, \
               claim, believed) \
             VALUES ('', 0, 0, '', '', '', clock_timestamp(), 0, $1, '-infinity') \
             ON CONFLICT (name) DO UPDATE SET pid = 0 RETURNING claim"
        ),
        all: vec![rows.to_owned(), holders, lives.clone()],
        lives,
    }
}

/// What makes the three tables. The rows of holders are not kept over a crash, so that writing them
/// waits for no disk; a crash begins a new life of the server.
fn definition(rows: &str, holders: &str, lives: &str) -> String {
    let locked = super::postgres_definition(rows);
    format!(
        "{locked};\n\
         CREATE UNLOGGED TABLE IF NOT EXISTS {holders} (\
           name text COLLATE \"C\" PRIMARY KEY, pid integer NOT NULL, token bigint NOT NULL, \
           owner text NOT NULL, identity text NOT NULL, note text NOT NULL, \
           since timestamptz NOT NULL, lease_ms bigint NOT NULL, claim text NOT NULL, \
           believed timestamptz NOT NULL, broken text, \
           broken_token bigint) WITH (fillfactor = 50);\n\
         CREATE TABLE IF NOT EXISTS {lives} (\
           id text PRIMARY KEY, line text NOT NULL, began timestamptz NOT NULL, \
           lease_ms bigint NOT NULL);\n"
    )
}

impl ForUpdate {
    /// For how long a claim may be believed in after its session ended.
    fn debt(&self, lease: Duration) -> i64 {
        if self.free_on_disconnect { 0 } else { millis(lease) }
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
        let statement =
            if wait.is_some() { &self.statements.lock } else { &self.statements.try_lock };
        let wait = wait.unwrap_or(INNER);
        for _ in 0..2 {
            match self.begin_with(session, statement, claim, lease, wait).await? {
                None => return Ok(false),
                Some(rows) if rows > 0 => return Ok(true),
                Some(_) => self.end_with(session, "ROLLBACK").await?,
            }
            // In a transaction of its own, so that nobody waits for the end of ours. Somebody who
            // makes the row in a long one has the lock.
            match self.begin_with(session, &self.statements.make, claim, lease, wait).await? {
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
        let set = self.sessions.rows(session, &self.statements.begin, &settings);
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
    ) -> Result<Attempt, Failure> {
        let (name, owner) = (claim.name.as_str(), claim.owner.id());
        let (identity, note, id) = (&*claim.identity, &*claim.note, claim.id.to_string());
        let (debt, lease) = (self.debt(lease), millis(lease));
        let params: [&(dyn ToSql + Sync); 8] =
            [&name, &session.pid, &owner, &identity, &note, &lease, &id, &debt];
        // To count twice does no harm.
        let rows = self.beside.query(&self.statements.count, &params, true).await?;
        let Some(row) = rows.first() else {
            let debt = self.owed(claim).await?;
            // The lock is kept in the meantime, so its session must not run out.
            let there = self.sessions.rows(session, &self.statements.still, &[]).await?;
            session.is_ours(&there)?;
            return Ok(Attempt::Owed(debt));
        };
        let token = u64::try_from(row.get::<_, i64>(0)).ok().and_then(FencingToken::new);
        let token = token.ok_or_else(|| Failure::Broken("a token below one".into()))?;
        let there = self.sessions.rows(session, &self.statements.still, &[]).await?;
        session.is_ours(&there)?;
        Ok(Attempt::Taken(Taken { token }))
    }

    /// How long somebody may believe in a lock that this session has.
    async fn owed(&self, claim: &Claim) -> Result<Duration, Failure> {
        let name = claim.name.as_str();
        let rows = self.beside.query(&self.statements.owed, &[&name], true).await?;
        let debt = rows.first().and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok());
        // With the part of a millisecond that was cut off.
        Ok(debt.map_or(Duration::ZERO, |debt| Duration::from_millis(debt + 1)))
    }
}

#[async_trait]
impl Native for ForUpdate {
    type Session = PostgresSession;

    const LOOK: Option<Duration> = None;

    fn capability(&self) -> Capability {
        crate::recipes::POSTGRES_FOR_UPDATE.freed_on_disconnect(self.free_on_disconnect)
    }

    fn recipe(&self) -> &'static str {
        "for-update"
    }

    fn longest(&self) -> Duration {
        self.sessions.longest
    }

    async fn open(&self) -> Result<PostgresSession> {
        let Statements { begin, try_lock, lock, make, erase, still, .. } = &self.statements;
        let statements = [begin, try_lock, lock, make, erase, still];
        let session = self.sessions.connect(&statements).await?;
        self.beside
            .warm(&[&self.statements.count, &self.statements.keep])
            .await
            .map_err(|failure| self.explain(failure))?;
        Ok(session)
    }

    async fn try_take(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure> {
        if !self.lock_row(session, claim, lease, None).await? {
            return Ok(Attempt::Busy);
        }
        self.write_down(session, claim, lease).await
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
    ) -> Result<Attempt, Failure> {
        self.write_down(session, claim, lease).await
    }

    /// The row of the holder is written beside the transaction, where others see it.
    async fn keep(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<(), Failure> {
        let (name, id, debt) = (claim.name.as_str(), claim.id.to_string(), self.debt(lease));
        let params: [&(dyn ToSql + Sync); 3] = [&name, &id, &debt];
        let (kept, there) = futures_util::join!(
            self.beside.query(&self.statements.keep, &params, true),
            self.sessions.ping(session),
        );
        there?;
        kept.map(|_| ())
    }

    /// The session is there, and with it the transaction, unless this fails.
    async fn free(&self, session: &mut PostgresSession, claim: &Claim) -> Result<bool, Failure> {
        let (name, id) = (claim.name.as_str(), claim.id.to_string());
        let params: [&(dyn ToSql + Sync); 2] = [&name, &id];
        // One behind the other without waiting for an answer in between.
        let erased = self.sessions.rows(session, &self.statements.erase, &params);
        let ended = self.end_with(session, "COMMIT");
        let (erased, ended) = futures_util::join!(erased, ended);
        erased?;
        ended?;
        Ok(true)
    }

    async fn leave(&self, session: &mut PostgresSession, _: &Claim) -> Result<(), Failure> {
        self.end_with(session, "ROLLBACK").await
    }

    async fn forgive(&self, _: &mut PostgresSession, claim: &Claim) -> Result<(), Failure> {
        let (name, id) = (claim.name.as_str(), claim.id.to_string());
        self.beside.query(&self.statements.erase, &[&name, &id], true).await.map(|_| ())
    }

    async fn why_gone(
        &self,
        session: &mut PostgresSession,
        name: &Name,
        token: FencingToken,
    ) -> LossReason {
        let (name, token) = (name.as_str(), i64::try_from(token.get()).unwrap_or(i64::MAX));
        let rows = self.sessions.rows(session, &self.statements.broken, &[&name, &token]).await;
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
        let rows = self.sessions.rows(session, &self.statements.show, &[&text, &whole]).await?;
        let mut views: Vec<LockView> = Vec::new();
        for view in rows.iter().filter_map(view_of) {
            match views.last_mut().filter(|last| last.name == view.name) {
                // One that has the row, and waits until the holder before it, whose session is gone,
                // has stopped believing.
                Some(last) => last.waiters.extend(view.holders.into_iter().map(as_waiter)),
                None => views.push(view),
            }
        }
        Ok(views)
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
        let found = self.sessions.rows(session, &self.statements.break_hold, &params).await?;
        for row in found.iter().filter(|row| row.get::<_, bool>(1)) {
            self.sessions.rows(session, &self.statements.end, &[&row.get::<_, i32>(0)]).await?;
        }
        Ok(!found.is_empty())
    }

    fn disconnect(&self) {
        self.beside.disconnect();
    }

    fn server(&self) -> &dyn Examined {
        &self.sessions.connector
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        let quoted = name.as_str().replace('\'', "''");
        vec![format!("SELECT * FROM {} WHERE name = '{quoted}' FOR UPDATE", self.rows)]
    }

    fn explain(&self, failure: Failure) -> Error {
        self.sessions.explain(failure)
    }
}

fn as_waiter(holder: HolderView) -> WaiterView {
    let mut waiter = WaiterView::new(holder.owner, holder.mode);
    waiter.identity = holder.identity;
    waiter
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
