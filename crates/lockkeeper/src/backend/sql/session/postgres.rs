//! Sessions of PostgreSQL in which a lock means something; what `advisory` and `for-update` share.
//!
//! | what if | then |
//! |---|---|
//! | a pooler is in between that gives a session to the next client | refused when the keeper is made |
//! | the server is a standby, or older than version 14 | refused when the keeper is made |
//! | the server was restarted, or is a promoted standby | it grants nothing until the leases of before are over: [`servers`](super::servers) |

use super::super::client::{PostgresConnection, PostgresConnector, Statement};
use super::super::error::{Failure, Why, of_postgres};
use super::super::options::PostgresOptions;
use super::servers::Life;
use super::{Session, UNUSED};
use crate::backend::support::sync::lock;
use crate::backend::{Background, Moment};
use crate::claim::ClaimIds;
use crate::error::{Error, ErrorKind, Result};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use tokio_util::sync::CancellationToken;

/// The oldest version with `idle_session_timeout`.
const OLDEST: i32 = 140_000;
/// The lock under which tables are made: any number that nobody else uses.
const MAKING: i64 = 7_812_047_126_012_101;

/// The tables of a recipe, as far as a new session must know them.
#[derive(Debug, Clone)]
pub(in crate::backend::sql) struct Layout {
    /// The table of the server's lives.
    pub(in crate::backend::sql) lives: String,
    /// All of them.
    pub(in crate::backend::sql) all: Vec<String>,
    /// What makes them.
    pub(in crate::backend::sql) definition: String,
    /// Writes the mark of the server's life into a table that a crash empties, unless there is one;
    /// answers with the mark that is there.
    pub(in crate::backend::sql) mark: String,
}

/// Makes sessions.
pub(in crate::backend::sql) struct PostgresSessions {
    pub(in crate::backend::sql) connector: PostgresConnector,
    recipe: &'static str,
    layout: Layout,
    look: Statement,
    enter_life: Statement,
    life_of: Statement,
    mark_life: Statement,
    ping: Statement,
    /// The longest lease.
    pub(in crate::backend::sql) longest: Duration,
    /// What our sessions are known by.
    mark: String,
    /// The life of the server that was met last, and from when on it grants.
    life: Mutex<Option<(String, Moment)>>,
}

/// A session of PostgreSQL.
pub(in crate::backend::sql) struct PostgresSession {
    pub(in crate::backend::sql) connection: PostgresConnection,
    pub(in crate::backend::sql) pid: i32,
    not_before: Moment,
    /// The session's lease, where it is not [`UNUSED`].
    pub(in crate::backend::sql) kept: Option<Duration>,
}

impl Session for PostgresSession {
    fn kept(&self) -> Option<Duration> {
        self.kept
    }

    fn number(&self) -> u64 {
        u64::from(self.pid.unsigned_abs())
    }

    fn end(&self) -> CancellationToken {
        self.connection.end()
    }

    fn farewell(&self) -> Arc<AtomicBool> {
        self.connection.farewell()
    }

    fn not_before(&self) -> Moment {
        self.not_before
    }
}

impl PostgresSession {
    /// An error unless the answer, which begins with the session's number, is of the session that we
    /// began.
    pub(in crate::backend::sql) fn is_ours(&self, rows: &[Row]) -> Result<(), Failure> {
        match rows.first().map(|row| row.get::<_, i32>(0)) {
            Some(pid) if pid == self.pid => Ok(()),
            pid => Err(Failure::Pooled(format!("session {} became {pid:?}", self.pid))),
        }
    }
}

impl PostgresSessions {
    /// Makes no session yet.
    pub(in crate::backend::sql) fn new(
        mut options: PostgresOptions,
        recipe: &'static str,
        layout: Layout,
        background: &Background,
    ) -> Result<Self> {
        // In the first message of every connection: a session that does not know it was begun by
        // another's first message.
        let mark = ClaimIds::new()?.next().to_string();
        let own = options.config.get_options().unwrap_or_default();
        let own = format!("{own} -c lockkeeper.session={mark}");
        options.config.options(own);
        let connector = PostgresConnector::new(&options, background)?;
        let lives = &layout.lives;
        Ok(Self {
            connector,
            recipe,
            look: statement(
                "look",
                "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), \
                   pg_backend_pid(), pg_postmaster_start_time()::text, \
                   CASE WHEN pg_is_in_recovery() THEN '' \
                     ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END, \
                   set_config('statement_timeout', '0', false), \
                   set_config('idle_session_timeout', $1, false), \
                   current_setting('lockkeeper.session', true)"
                    .into(),
                &[Type::TEXT],
            ),
            enter_life: statement(
                "enter_life",
                format!(
                    "INSERT INTO {lives} AS s (id, line, began, lease_ms) SELECT $1, $2, \
                       CASE WHEN EXISTS (SELECT FROM {lives} WHERE line = $2) \
                         AND NOT EXISTS (SELECT FROM {lives} WHERE starts_with(id, $4)) \
                         THEN pg_postmaster_start_time() ELSE clock_timestamp() END, $3 \
                     ON CONFLICT (id) DO UPDATE SET lease_ms = excluded.lease_ms \
                       WHERE s.lease_ms < excluded.lease_ms"
                ),
                &[Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT],
            ),
            life_of: statement(
                "life",
                format!(
                    "SELECT (extract(epoch FROM clock_timestamp() - began) * 1000)::bigint, \
                       (SELECT max(lease_ms) FROM {lives} WHERE id <> $1) \
                     FROM {lives} WHERE id = $1"
                ),
                &[Type::TEXT],
            ),
            mark_life: statement("mark_life", layout.mark.clone(), &[Type::TEXT]),
            ping: statement("ping", "SELECT pg_backend_pid()".into(), &[]),
            layout,
            longest: options.session,
            mark,
            life: Mutex::default(),
        })
    }

    /// The URL without its secrets.
    pub(in crate::backend::sql) fn shown(&self) -> &str {
        self.connector.shown()
    }

    /// Runs a statement in a session.
    pub(in crate::backend::sql) async fn rows(
        &self,
        session: &PostgresSession,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let limit = self.connector.timeout();
        let rows = session.connection.ask(statement, params, limit).await?;
        rows.map_err(|error| of_postgres(&error))
    }

    /// A session in which locks mean something, with these statements prepared, so that the first
    /// claim in it is as fast as the others.
    pub(in crate::backend::sql) async fn connect(
        &self,
        statements: &[&Statement],
    ) -> Result<PostgresSession> {
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
            return Err(self.refused(why));
        }
        let (connection, _) = connected.map_err(fail)?;
        let mut session =
            PostgresSession { connection, pid: 0, not_before: Moment::now(), kept: None };
        let unused = UNUSED.as_millis().to_string();
        let looked = match self.rows(&session, &self.look, &[&unused]).await {
            // It does not know the setting.
            Err(Failure::Refused(refusal)) if refusal.said.contains("idle_session_timeout") => {
                return Err(self.too_old());
            }
            looked => looked.map_err(fail)?,
        };
        let Some(row) = looked.first() else { return Err(fail(Failure::TimedOut)) };
        if row.get::<_, i32>(0) < OLDEST {
            return Err(self.too_old());
        }
        if row.get::<_, bool>(1) {
            return Err(self.refused("it is a standby, whose locks its primary knows nothing of"));
        }
        if row.get::<_, Option<String>>(7).as_deref() != Some(self.mark.as_str()) {
            return Err(
                self.refused("a pooler is in between, which began this session for another")
            );
        }
        session.pid = row.get(2);
        let (start, line): (String, String) = (row.get(3), row.get(4));
        let begun = format!("{line}/{start}/");
        let life = format!("{begun}{}", self.mark_of_life(&session).await.map_err(fail)?);
        let known = lock(&self.life).clone().filter(|(known, _)| *known == life);
        session.not_before = match known {
            Some((_, from)) => from,
            None => {
                let from = self.enter_life(&session, &life, &line, &begun).await.map_err(fail)?;
                *lock(&self.life) = Some((life, from));
                from
            }
        };
        let limit = self.connector.timeout();
        let mut preparing = vec![session.connection.prepare(&self.ping, limit)];
        for statement in statements {
            preparing.push(session.connection.prepare(statement, limit));
        }
        futures_util::future::try_join_all(preparing).await.map_err(fail)?;
        Ok(session)
    }

    /// Makes the tables unless they are there: a user that may not create tables needs them made
    /// before.
    async fn make_tables(&self, connection: &PostgresConnection) -> Result<(), Failure> {
        let Layout { all, definition, .. } = &self.layout;
        let missing = all.iter().map(|table| format!("to_regclass('{table}') IS NULL"));
        let missing = missing.collect::<Vec<_>>().join(" OR ");
        // One after the other: two that create the same table at once get an error.
        let make = format!(
            "DO $$ BEGIN IF {missing} THEN PERFORM pg_advisory_xact_lock({MAKING}); {definition} \
             END IF; END $$"
        );
        connection.batch(&make, self.connector.timeout()).await
    }

    /// The mark of the server's life, which is ours if it has none yet. A server that recovers from a
    /// crash without a new start has lost it, together with its locks and the rows of their holders.
    /// Makes the tables unless they are there.
    async fn mark_of_life(&self, session: &PostgresSession) -> Result<String, Failure> {
        let marked = match self.rows(session, &self.mark_life, &[&self.mark]).await {
            Err(failure) if failure.why() == Some(Why::NoTable) => {
                self.make_tables(&session.connection).await?;
                self.rows(session, &self.mark_life, &[&self.mark]).await
            }
            marked => marked,
        };
        let rows = marked?;
        rows.first()
            .map(|row| row.get(0))
            .ok_or_else(|| Failure::Broken("the mark of the server's life went as it came".into()))
    }

    /// Writes down that leases as long as ours are given in this life of the server, and reads what
    /// the lives before it are owed. Lives whose names start with `begun` are of the same process.
    async fn enter_life(
        &self,
        session: &PostgresSession,
        id: &str,
        line: &str,
        begun: &str,
    ) -> Result<Moment, Failure> {
        let lease = millis(self.longest);
        self.rows(session, &self.enter_life, &[&id, &line, &lease, &begun]).await?;
        let rows = self.rows(session, &self.life_of, &[&id]).await?;
        let Some(row) = rows.first() else {
            return Err(Failure::Broken("the table of the server's lives was emptied".into()));
        };
        Ok(Life::of_millis(row.get(0), row.get(1)).grants_from())
    }

    /// One round trip: this is still the session that we began.
    pub(in crate::backend::sql) async fn ping(
        &self,
        session: &PostgresSession,
    ) -> Result<(), Failure> {
        let rows = self.rows(session, &self.ping, &[]).await?;
        session.is_ours(&rows)
    }

    /// The error for a failure in a session.
    pub(in crate::backend::sql) fn explain(&self, failure: Failure) -> Error {
        match failure {
            Failure::Pooled(_) => self.refused("a pooler is in between"),
            failure => failure.explain(self.shown()),
        }
    }

    /// The refusal of a server on which the recipe would be no lock.
    fn refused(&self, why: &str) -> Error {
        let (shown, recipe) = (self.shown(), self.recipe);
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{shown} cannot do recipe={recipe}: {why}. Connect to the primary itself, or use \
                 recipe=table"
            ),
        )
    }

    fn too_old(&self) -> Error {
        let (shown, recipe) = (self.shown(), self.recipe);
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{shown} is too old for recipe={recipe}, which needs PostgreSQL 14: use \
                 recipe=table"
            ),
        )
    }
}

/// A statement of ours.
pub(in crate::backend::sql) fn statement(
    name: &'static str,
    text: String,
    types: &[Type],
) -> Statement {
    Statement { name, text, types: types.to_vec() }
}

/// As PostgreSQL counts time.
pub(in crate::backend::sql) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
