//! `recipe=advisory`: PostgreSQL's own advisory locks, one session for each claim.
//!
//! ```text
//!   acquire   pg_try_advisory_lock(key), and the holder's row, in one statement
//!   wait      pg_advisory_lock(key): the server queues, and wakes the next
//!   renew     the holder's row says that it believes for another lease
//!   release   the row says that it does not, and pg_advisory_unlock(key), in one statement
//! ```
//!
//! How a session lives and dies, and why its holder is always the first to know, is in
//! [`session`](super::session). The session's lease is `idle_session_timeout`, which PostgreSQL has
//! since version 14.
//!
//! | what if | then |
//! |---|---|
//! | the holders' rows are lost in a crash | the mark of the server's life is lost with them, so it is a new life: [`servers`](super::session::servers). The clock keeps tokens growing |
//! | two names have the same key | they keep each other out |

mod inspect;
mod schema;
mod statements;

use super::client::Statement;
use super::error::{Failure, of_postgres};
use super::keys;
use super::options::PostgresOptions;
use super::requests::KnownNames;
use super::schema::Made;
use super::session::postgres::{PostgresSession, PostgresSessions, millis};
use super::session::seats::KEPT;
use super::session::{Attempt, Native, SessionLocks, Taken, UNUSED};
use crate::backend::sql::checkup::Examined;
use crate::backend::{
    Background, Capability, Claim, FencingToken, LockView, LossReason, Mode, Name,
};
use crate::error::{Error, Result};
use async_trait::async_trait;
use schema::Tables;
use statements::Statements;
use std::fmt;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

/// A lease of a session that need not be made longer when nothing is held: it outlasts the time for
/// which a session is kept for the next claim.
const LONG: Duration = KEPT.saturating_mul(2);

/// Advisory locks.
pub(super) struct Advisory {
    core: Core,
}

/// What locks and their inspection share.
pub(super) struct Core {
    sessions: PostgresSessions,
    statements: Statements,
    /// Names that this keeper had exclusively, which are taken by a shorter statement.
    known: KnownNames,
    /// What keeps the keys of two tables apart.
    space: String,
    /// A lock whose session ended counts as given back.
    free_on_disconnect: bool,
}

/// Its tables, for those who make them by hand.
pub(super) fn made(schema: Option<&str>, table: &str) -> Made {
    let layout = Tables::new(schema, table).layout();
    Made { tables: layout.all, definition: layout.definition }
}

/// Opens the recipe.
pub(super) async fn open(
    options: PostgresOptions,
    background: &Background,
) -> Result<SessionLocks<Advisory>> {
    let tables = Tables::new(options.schema.as_deref(), &options.table);
    let (most, free_on_disconnect) = (options.sessions, options.free_on_disconnect);
    let core = Core {
        free_on_disconnect,
        statements: Statements::new(&tables),
        known: KnownNames::default(),
        space: tables.locks.clone(),
        sessions: PostgresSessions::new(options, "advisory", tables.layout(), background)?,
    };
    let locks = SessionLocks::new(Advisory { core }, most, background);
    locks.prepare().await?;
    Ok(locks)
}

impl Core {
    fn key(&self, name: &Name) -> i64 {
        keys::number(&self.space, name)
    }

    async fn rows(
        &self,
        session: &PostgresSession,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        self.sessions.rows(session, statement, params).await
    }

    /// For how long a claim may be believed in after its session ended.
    fn debt(&self, lease: Duration) -> i64 {
        if self.free_on_disconnect { 0 } else { millis(lease) }
    }

    /// Runs a statement that writes a holder down, in a session that the server keeps for the lease.
    async fn write(
        &self,
        session: &mut PostgresSession,
        statement: &Statement,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let set = (session.kept != Some(lease)).then(|| lease.as_millis().to_string());
        session.kept = Some(lease);
        let (key, debt, lease) = (self.key(&claim.name), self.debt(lease), millis(lease));
        let (name, owner) = (claim.name.as_str(), claim.owner.id());
        let (identity, note, id) = (&*claim.identity, &*claim.note, claim.id.to_string());
        let params: [&(dyn ToSql + Sync); 8] =
            [&key, &lease, &name, &owner, &identity, &note, &id, &debt];
        let written = self.rows(session, statement, &params);
        match set {
            None => written.await,
            // One behind the other without waiting for an answer in between.
            Some(lease) => {
                let (set, written) = futures_util::join!(self.set_lease(session, &lease), written);
                set?;
                written
            }
        }
    }

    /// Runs a statement that takes a lock and answers with whether it did, and its token.
    async fn take(
        &self,
        session: &mut PostgresSession,
        statement: &Statement,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure> {
        let rows = self.write(session, statement, claim, lease).await?;
        let row = rows.first().ok_or_else(|| Failure::Broken("an empty answer".into()))?;
        is_of(session, row.get(2))?;
        match (row.get::<_, bool>(0), row.get::<_, Option<i64>>(1)) {
            (false, _) => Ok(Attempt::Busy),
            (true, Some(token)) => {
                // Those who shared it are gone: nobody shares a lock that is ours alone.
                if !shares(claim) && row.get(3) {
                    let key = self.key(&claim.name);
                    self.rows(session, &self.statements.sweep, &[&key]).await?;
                }
                if !shares(claim) {
                    self.known.add(claim.name.as_str());
                }
                taken(token)
            }
            (true, None) => self.owed(session, claim).await.map(Attempt::Owed),
        }
    }

    /// Runs one of the shorter statements, for a claim that is alone: `None` where it wrote nothing.
    async fn write_alone(
        &self,
        session: &mut PostgresSession,
        statement: &Statement,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Option<Attempt>, Failure> {
        let rows = self.write(session, statement, claim, lease).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        is_of(session, row.get(1))?;
        self.known.add(claim.name.as_str());
        taken(row.get(0)).map(Some)
    }

    /// Takes a lock that is free as its last holder left it. `None` where that is not so, and then the
    /// session does not have it.
    async fn retake(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Option<Attempt>, Failure> {
        let retake = &self.statements.retake;
        let retaken = self.write_alone(session, retake, claim, lease).await?;
        if retaken.is_none() {
            self.known.forget(claim.name.as_str());
            self.rows(session, &self.statements.free_all, &[]).await?;
        }
        Ok(retaken)
    }

    /// Has the server end the session after so many milliseconds of silence.
    async fn set_lease(&self, session: &PostgresSession, lease: &str) -> Result<(), Failure> {
        self.rows(session, &self.statements.set_lease, &[&lease]).await.map(|_| ())
    }

    /// How long somebody may believe in a lock that this session has. Zero where the statement that
    /// took it saw rows from before it did.
    async fn owed(&self, session: &PostgresSession, claim: &Claim) -> Result<Duration, Failure> {
        let (key, shared) = (self.key(&claim.name), shares(claim));
        let rows = self.rows(session, &self.statements.owed, &[&key, &shared]).await?;
        let debts = rows.iter().filter_map(|row| u64::try_from(row.get::<_, i64>(0)).ok());
        if let Some(longest) = debts.max() {
            // The part of a millisecond that was cut off.
            return Ok(Duration::from_millis(longest + 1));
        }
        Ok(Duration::ZERO)
    }
}

#[async_trait]
impl Native for Advisory {
    type Session = PostgresSession;

    const LOOK: Option<Duration> = None;

    fn capability(&self) -> Capability {
        crate::recipes::POSTGRES_ADVISORY.freed_on_disconnect(self.core.free_on_disconnect)
    }

    fn recipe(&self) -> &'static str {
        "advisory"
    }

    fn longest(&self) -> Duration {
        self.core.sessions.longest
    }

    async fn open(&self) -> Result<PostgresSession> {
        let Statements { set_lease, retake, try_take, wait, rerecord, free, keep, .. } =
            &self.core.statements;
        let used = [set_lease, retake, try_take, wait, rerecord, free, keep];
        self.core.sessions.connect(&used).await
    }

    async fn try_take(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure> {
        let core = &self.core;
        if !shares(claim)
            && core.known.contains(claim.name.as_str())
            && let Some(taken) = core.retake(session, claim, lease).await?
        {
            return Ok(taken);
        }
        let Statements { try_share, try_take, .. } = &core.statements;
        core.take(session, if shares(claim) { try_share } else { try_take }, claim, lease).await
    }

    async fn wait(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        slice: Duration,
    ) -> Result<bool, Failure> {
        let core = &self.core;
        let statements = &core.statements;
        let statement = if shares(claim) { &statements.wait_shared } else { &statements.wait };
        let (key, limit) = (core.key(&claim.name), slice + core.sessions.connector.timeout());
        let slice = slice.as_millis().to_string();
        match session.connection.ask(statement, &[&key, &slice], limit).await? {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                // The lock may have been granted in the very moment in which the wait was over, and
                // would then stay with the session.
                core.rows(session, &statements.free_all, &[]).await?;
                Ok(false)
            }
            Err(error) => Err(of_postgres(&error)),
        }
    }

    async fn record(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure> {
        let core = &self.core;
        let Statements { record, record_shared, rerecord, .. } = &core.statements;
        if shares(claim) {
            return core.take(session, record_shared, claim, lease).await;
        }
        match core.write_alone(session, rerecord, claim, lease).await? {
            Some(taken) => Ok(taken),
            None => core.take(session, record, claim, lease).await,
        }
    }

    async fn keep(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<(), Failure> {
        let core = &self.core;
        let (key, id, debt) = (core.key(&claim.name), claim.id.to_string(), core.debt(lease));
        let rows = core.rows(session, &core.statements.keep, &[&key, &id, &debt]).await?;
        session.is_ours(&rows)
    }

    async fn free(&self, session: &mut PostgresSession, claim: &Claim) -> Result<bool, Failure> {
        let statements = &self.core.statements;
        let statement = if shares(claim) { &statements.free_shared } else { &statements.free };
        let (key, id) = (self.core.key(&claim.name), claim.id.to_string());
        let params: [&(dyn ToSql + Sync); 2] = [&key, &id];
        let freeing = self.core.rows(session, statement, &params);
        // The session of a short lease would soon be ended, and the next claim had to make another.
        let rows = if session.kept.is_some_and(|lease| lease < LONG) {
            let unused = UNUSED.as_millis().to_string();
            let (freed, set) = futures_util::join!(freeing, self.core.set_lease(session, &unused));
            set?;
            session.kept = None;
            freed?
        } else {
            freeing.await?
        };
        match rows.first() {
            Some(row) => Ok(row.get(0)),
            None => {
                let rows = self.core.rows(session, &statements.unlock, &[&key]).await?;
                Ok(rows.first().is_some_and(|row| row.get(0)))
            }
        }
    }

    async fn leave(&self, session: &mut PostgresSession, _: &Claim) -> Result<(), Failure> {
        self.core.rows(session, &self.core.statements.free_all, &[]).await.map(|_| ())
    }

    async fn forgive(&self, session: &mut PostgresSession, claim: &Claim) -> Result<(), Failure> {
        let (key, id) = (self.core.key(&claim.name), claim.id.to_string());
        let forgive = &self.core.statements.forgive;
        self.core.rows(session, forgive, &[&key, &id]).await.map(|_| ())
    }

    async fn why_gone(
        &self,
        session: &mut PostgresSession,
        name: &Name,
        token: FencingToken,
    ) -> LossReason {
        let key = self.core.key(name);
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let rows = self.core.rows(session, &self.core.statements.broken, &[&key, &token]).await;
        match rows.ok().and_then(|rows| rows.first()?.get::<_, Option<String>>(0)) {
            Some(reason) => LossReason::Broken { reason },
            None => LossReason::Gone,
        }
    }

    async fn look(
        &self,
        session: &mut PostgresSession,
        text: &str,
        whole: bool,
    ) -> Result<Vec<LockView>, Failure> {
        inspect::look(&self.core, session, text, whole).await
    }

    async fn break_hold(
        &self,
        session: &mut PostgresSession,
        name: &Name,
        token: FencingToken,
        reason: &str,
    ) -> Result<bool, Failure> {
        inspect::break_hold(&self.core, session, name, token, reason).await
    }

    fn server(&self) -> &dyn Examined {
        &self.core.sessions.connector
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        vec![self.core.key(name).to_string()]
    }

    fn explain(&self, failure: Failure) -> Error {
        self.core.sessions.explain(failure)
    }
}

/// An error unless the answer is of the session that we began.
fn is_of(session: &PostgresSession, pid: i32) -> Result<(), Failure> {
    match pid == session.pid {
        true => Ok(()),
        false => Err(Failure::Pooled(format!("session {} became {pid}", session.pid))),
    }
}

/// A lock that was taken, with its token.
fn taken(token: i64) -> Result<Attempt, Failure> {
    let token = u64::try_from(token).ok().and_then(FencingToken::new);
    let token = token.ok_or_else(|| Failure::Broken("a token below one".into()))?;
    Ok(Attempt::Taken(Taken { token }))
}

fn shares(claim: &Claim) -> bool {
    claim.mode == Mode::Shared
}

impl fmt::Display for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (advisory)", self.core.sessions.shown())
    }
}

impl fmt::Debug for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advisory")
            .field("store", &self.core.sessions.shown())
            .finish_non_exhaustive()
    }
}
