//! `recipe=advisory`: PostgreSQL's own advisory locks, one session for each claim.
//!
//! ```text
//!   acquire   pg_try_advisory_lock(key), and the holder's row, in one statement
//!   wait      pg_advisory_lock(key): the server queues, and wakes the next
//!   renew     any answer in the session
//!   release   pg_advisory_unlock(key)
//! ```
//!
//! How a session lives and dies, and why its holder is always the first to know, is in
//! [`session`](super::session). The session's lease is `idle_session_timeout`, which PostgreSQL has
//! since version 14.
//!
//! | what if | then |
//! |---|---|
//! | a pooler is in between that gives a session to whoever comes next | refused when the keeper is made |
//! | the server is a standby | refused when the keeper is made |
//! | the holder's row is gone | nothing: rows are for those who look, and the clock keeps tokens growing |
//! | two names have the same key | they keep each other out |

mod inspect;
mod schema;
mod statements;

use super::client::{PostgresConnection, PostgresConnector, Statement};
use super::error::{Failure, of_postgres};
use super::keys;
use super::options::PostgresOptions;
use super::session::servers::Life;
use super::session::{Native, Session, SessionLocks, Taken, UNUSED};
use crate::backend::support::sync::lock;
use crate::backend::{
    Background, Capability, Claim, FencingToken, LockView, LossReason, Mode, Moment, Name,
};
use crate::claim::ClaimIds;
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use schema::Tables;
use statements::Statements;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_util::sync::CancellationToken;

/// The oldest version with `idle_session_timeout`.
const OLDEST: i32 = 140_000;

/// Advisory locks.
pub(super) struct Advisory {
    core: Core,
}

/// What locks and their inspection share.
pub(super) struct Core {
    connector: PostgresConnector,
    statements: Statements,
    tables: Tables,
    /// What keeps the keys of two tables apart.
    space: String,
    longest: Duration,
    /// What our sessions are known by.
    mark: String,
    /// The life of the server that was met last, and from when on it grants.
    life: Mutex<Option<(String, Moment)>>,
}

/// A session of PostgreSQL.
pub(super) struct PostgresSession {
    connection: PostgresConnection,
    pid: i32,
    not_before: Moment,
}

impl Session for PostgresSession {
    fn number(&self) -> u64 {
        u64::from(self.pid.unsigned_abs())
    }

    fn end(&self) -> CancellationToken {
        self.connection.end()
    }

    fn not_before(&self) -> Moment {
        self.not_before
    }
}

/// Opens the recipe.
pub(super) async fn open(
    mut options: PostgresOptions,
    background: &Background,
) -> Result<SessionLocks<Advisory>> {
    // In the first message of every connection: a session that does not know it was begun by
    // another's first message.
    let mark = ClaimIds::new()?.next().to_string();
    let own = options.config.get_options().unwrap_or_default();
    let own = format!("{own} -c lockkeeper.session={mark}");
    options.config.options(own);
    let connector = PostgresConnector::new(&options, background)?;
    let tables = Tables::new(options.schema.as_deref(), &options.table);
    let core = Core {
        connector,
        statements: Statements::new(&tables),
        space: tables.locks.clone(),
        tables,
        longest: options.session,
        mark,
        life: Mutex::default(),
    };
    let locks = SessionLocks::new(Advisory { core }, options.sessions, background);
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
        let limit = self.connector.timeout();
        let rows = session.connection.ask(statement, params, limit).await?;
        rows.map_err(|error| of_postgres(&error))
    }

    /// A session in which locks mean something.
    pub(super) async fn connect(&self) -> Result<PostgresSession> {
        let shown = self.connector.shown();
        let fail = |failure: Failure| failure.explain(shown);
        let connected = self.connector.connect(None).await;
        let pooled = match &connected {
            Ok(_) => self.connector.has_pooler(),
            Err(Failure::Refused(refusal)) => refusal.said.contains("startup parameter"),
            Err(_) => false,
        };
        if pooled {
            let why = "a pooler is in between, which gives the session of one client to the next";
            return Err(refused(shown, why));
        }
        let (connection, _) = connected.map_err(fail)?;
        let mut session = PostgresSession { connection, pid: 0, not_before: Moment::now() };
        let unused = UNUSED.as_millis().to_string();
        let looked = self.rows(&session, &self.statements.look, &[&unused]).await;
        let looked = match looked {
            // It does not know the setting.
            Err(Failure::Refused(refusal)) if refusal.said.contains("idle_session_timeout") => {
                return Err(too_old(shown));
            }
            looked => looked.map_err(fail)?,
        };
        let Some(row) = looked.first() else { return Err(fail(Failure::TimedOut)) };
        if row.get::<_, i32>(0) < OLDEST {
            return Err(too_old(shown));
        }
        if row.get::<_, bool>(1) {
            return Err(refused(
                shown,
                "it is a standby, whose locks its primary knows nothing of",
            ));
        }
        if row.get::<_, Option<String>>(7).as_deref() != Some(self.mark.as_str()) {
            return Err(refused(
                shown,
                "a pooler is in between, which began this session for another",
            ));
        }
        session.pid = row.get(2);
        let (start, line): (String, String) = (row.get(3), row.get(4));
        let life = format!("{line}/{start}");
        let known = lock(&self.life).clone().filter(|(known, _)| *known == life);
        session.not_before = match known {
            Some((_, from)) => from,
            None => {
                let limit = self.connector.timeout();
                self.tables.ensure(&session.connection, limit).await.map_err(fail)?;
                let from = self.enter_life(&session, &life, &line).await.map_err(fail)?;
                *lock(&self.life) = Some((life, from));
                from
            }
        };
        self.warm(&session).await.map_err(fail)?;
        Ok(session)
    }

    /// Writes down that leases as long as ours are given in this life of the server, and reads what
    /// the lives before it are owed.
    async fn enter_life(
        &self,
        session: &PostgresSession,
        id: &str,
        line: &str,
    ) -> Result<Moment, Failure> {
        let lease = millis(self.longest);
        self.rows(session, &self.statements.enter_life, &[&id, &line, &lease]).await?;
        let rows = self.rows(session, &self.statements.life, &[&id]).await?;
        let Some(row) = rows.first() else {
            return Err(Failure::Broken("the table of the server's lives was emptied".into()));
        };
        Ok(Life::of_millis(row.get(0), row.get(1)).grants_from())
    }

    /// Prepares what a claim needs, all at once, so that the first one in the session is as fast as
    /// the others. A wait that is limited to nothing waits for nothing.
    async fn warm(&self, session: &PostgresSession) -> Result<(), Failure> {
        let limit = self.connector.timeout();
        let Statements { try_take, wait, record, free, limit_wait, keep, .. } = &self.statements;
        let prepare = |statement| session.connection.prepare(statement, limit);
        let all = [try_take, wait, record, free, limit_wait, keep].map(prepare);
        futures_util::future::try_join_all(all).await.map(|_| ())
    }

    /// Runs a statement that takes a lock and returns its token.
    async fn take(
        &self,
        session: &PostgresSession,
        statement: &Statement,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Option<Taken>, Failure> {
        let (key, lease) = (self.key(&claim.name), millis(lease));
        let (name, owner) = (claim.name.as_str(), claim.owner.id());
        let (identity, note) = (&*claim.identity, &*claim.note);
        let params: [&(dyn ToSql + Sync); 6] = [&key, &lease, &name, &owner, &identity, &note];
        let rows = self.rows(session, statement, &params).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (token, pid): (i64, i32) = (row.get(0), row.get(1));
        if pid != session.pid {
            return Err(Failure::Pooled(format!("session {} became {pid}", session.pid)));
        }
        let token = u64::try_from(token).ok().and_then(FencingToken::new);
        let token = token.ok_or_else(|| Failure::Broken("a token below one".into()))?;
        Ok(Some(Taken { token }))
    }
}

#[async_trait]
impl Native for Advisory {
    type Session = PostgresSession;

    const LOOK: Option<Duration> = None;

    fn capability(&self) -> Capability {
        crate::recipes::POSTGRES_ADVISORY
    }

    fn longest(&self) -> Duration {
        self.core.longest
    }

    async fn open(&self) -> Result<PostgresSession> {
        self.core.connect().await
    }

    async fn try_take(
        &self,
        session: &mut PostgresSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Option<Taken>, Failure> {
        let statements = &self.core.statements;
        let statement = if shares(claim) { &statements.try_share } else { &statements.try_take };
        self.core.take(session, statement, claim, lease).await
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
        let (key, limit) = (core.key(&claim.name), slice + core.connector.timeout());
        let slice = slice.as_millis().to_string();
        // One behind the other without waiting for an answer in between.
        let (slice, key): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 1]) = ([&slice], [&key]);
        let limited = core.rows(session, &statements.limit_wait, &slice);
        let waited = session.connection.ask(statement, &key, limit);
        let (limited, waited) = futures_util::join!(limited, waited);
        limited?;
        match waited? {
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
    ) -> Result<Taken, Failure> {
        let statements = &self.core.statements;
        let statement = if shares(claim) { &statements.record_shared } else { &statements.record };
        let taken = self.core.take(session, statement, claim, lease).await?;
        taken.ok_or_else(|| Failure::Broken("no row was written".into()))
    }

    async fn keep(&self, session: &mut PostgresSession) -> Result<(), Failure> {
        let rows = self.core.rows(session, &self.core.statements.keep, &[]).await?;
        match rows.first().map(|row| row.get::<_, i32>(0)) {
            Some(pid) if pid == session.pid => Ok(()),
            pid => Err(Failure::Pooled(format!("session {} became {pid:?}", session.pid))),
        }
    }

    async fn free(&self, session: &mut PostgresSession, claim: &Claim) -> Result<bool, Failure> {
        let statements = &self.core.statements;
        let statement = if shares(claim) { &statements.free_shared } else { &statements.free };
        let rows = self.core.rows(session, statement, &[&self.core.key(&claim.name)]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
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

    fn keys(&self, name: &Name) -> Vec<String> {
        vec![self.core.key(name).to_string()]
    }

    fn explain(&self, failure: Failure) -> Error {
        match failure {
            Failure::Pooled(_) => refused(self.core.connector.shown(), "a pooler is in between"),
            failure => failure.explain(self.core.connector.shown()),
        }
    }
}

fn shares(claim: &Claim) -> bool {
    claim.mode == Mode::Shared
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The refusal of a server on which the recipe would be no lock.
fn refused(shown: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{shown} cannot do recipe=advisory: {why}. Connect to the primary itself, or use recipe=table"
        ),
    )
}

fn too_old(shown: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{shown} is too old for recipe=advisory, which needs PostgreSQL 14: use recipe=table"
        ),
    )
}

impl fmt::Display for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (advisory)", self.core.connector.shown())
    }
}

impl fmt::Debug for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advisory")
            .field("store", &self.core.connector.shown())
            .finish_non_exhaustive()
    }
}
