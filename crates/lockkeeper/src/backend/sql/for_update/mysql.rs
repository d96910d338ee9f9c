//! Rows of MariaDB and MySQL. The lease is `wait_timeout`, in whole seconds.

use super::super::client::{MysqlConnector, bytes};
use super::super::error::Failure;
use super::super::options::MysqlOptions;
use super::super::schema::Made;
use super::super::session::holders::Holders;
use super::super::session::mysql::{MysqlSession, MysqlSessions, value};
use super::super::session::{Attempt, Native, SessionLocks};
use crate::backend::sql::checkup::Examined;
use crate::backend::{
    Background, Capability, Claim, FencingToken, LockView, LossReason, Moment, Name,
};
use crate::error::{Error, Result};
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;

/// Whether the row was locked, after that was asked.
const WON: &str = "@lockkeeper_won = 1";
/// Whether the session that a row of the holders names is there, and has not given back.
const HELD: &str = "session <> 0 AND session IN (SELECT id FROM information_schema.processlist)";
/// Whether it is not.
const FREE: &str =
    "(session = 0 OR session NOT IN (SELECT id FROM information_schema.processlist))";
/// The shortest that the server can wait for a row; less is done by asking again.
const SECOND: Duration = Duration::from_secs(1);
/// How often it is asked again then.
const AGAIN: Duration = Duration::from_millis(10);

/// Row locks.
pub(in crate::backend::sql) struct ForUpdate {
    sessions: MysqlSessions,
    rows: String,
}

/// Opens the recipe.
pub(in crate::backend::sql) async fn open(
    options: &MysqlOptions,
    connector: MysqlConnector,
    background: &Background,
) -> Result<SessionLocks<ForUpdate>> {
    let rows = super::rows_of(None, &options.table);
    let holders = holders_of(&rows);
    let definition = definition(&rows, &holders);
    let sessions = MysqlSessions::new(connector, "for-update", holders, definition, FREE, options)?;
    let locks = SessionLocks::new(ForUpdate { sessions, rows }, options.sessions, background);
    locks.prepare().await?;
    Ok(locks)
}

/// Its tables, for those who make them by hand.
pub(in crate::backend::sql) fn made(table: &str) -> Made {
    let rows = super::rows_of(None, table);
    let holders = holders_of(&rows);
    let definition = definition(&rows, &holders);
    Made { tables: vec![rows, holders.locks, holders.lives], definition }
}

fn holders_of(rows: &str) -> Holders {
    Holders { locks: super::holders_of(rows), lives: format!("{rows}_life") }
}

/// What makes the three tables.
fn definition(rows: &str, holders: &Holders) -> String {
    format!("{};\n{}", super::mysql_definition(rows), holders.definition())
}

impl ForUpdate {
    /// Locks the row in a transaction. `@lockkeeper_won` is then 0 if there is no such row; one that
    /// another has locked is an error, after which the transaction is undone.
    fn lock_row(&self, claim: &Claim, how: &str) -> String {
        let (rows, name) = (&self.rows, bytes(claim.name.as_str().as_bytes()));
        format!(
            "BEGIN; SET @lockkeeper_won = 0; \
             SELECT 1 INTO @lockkeeper_won FROM {rows} WHERE name = {name} FOR UPDATE{how}"
        )
    }

    /// Makes the row of a name unless there is one, after the transaction that did not find it is
    /// ended; `false` if another makes it in a transaction that is open, and so has the lock.
    async fn make(&self, session: &mut MysqlSession, claim: &Claim) -> Result<bool, Failure> {
        let (rows, name) = (&self.rows, bytes(claim.name.as_str().as_bytes()));
        let request = format!(
            "ROLLBACK; SET SESSION innodb_lock_wait_timeout = 1; \
             INSERT IGNORE INTO {rows} (name) VALUES ({name})"
        );
        match self.sessions.run(session, &request, SECOND + self.sessions.timeout()).await {
            Ok(_) => Ok(true),
            Err(Failure::Conflict(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Runs a request that locks the row; whether the row is ours. Makes the row if there is none.
    async fn locked(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        request: &str,
    ) -> Result<bool, Failure> {
        let limit = SECOND + self.sessions.timeout();
        for _ in 0..2 {
            match self.sessions.run(session, request, limit).await {
                Ok(answer) if value::<i64>(&answer, 0, 0) == Some(1) => return Ok(true),
                Ok(_) => {
                    if !self.make(session, claim).await? {
                        return Ok(false);
                    }
                }
                // Another has it, or a deadlock was found: either way it is not ours.
                Err(Failure::Conflict(_)) => return Ok(false),
                Err(failure) => return Err(failure),
            }
        }
        Err(went(&self.rows))
    }

    /// Waits for the row for a second, in the server.
    async fn wait_there(&self, session: &mut MysqlSession, claim: &Claim) -> Result<bool, Failure> {
        let lock = self.lock_row(claim, "");
        let request =
            format!("SET SESSION innodb_lock_wait_timeout = 1; {lock}; SELECT @lockkeeper_won");
        self.locked(session, claim, &request).await
    }

    /// Locks the row if nobody has it.
    async fn lock_now(&self, session: &mut MysqlSession, claim: &Claim) -> Result<bool, Failure> {
        let request = format!("{}; SELECT @lockkeeper_won", self.lock_row(claim, " NOWAIT"));
        self.locked(session, claim, &request).await
    }
}

fn went(rows: &str) -> Failure {
    Failure::Broken(format!("a row of {rows} went as it came"))
}

#[async_trait]
impl Native for ForUpdate {
    type Session = MysqlSession;

    /// The driver does not say that a connection ended before it is used.
    const LOOK: Option<Duration> = Some(Duration::from_millis(500));

    fn capability(&self) -> Capability {
        crate::recipes::MARIADB_FOR_UPDATE.freed_on_disconnect(self.sessions.free_on_disconnect)
    }

    fn recipe(&self) -> &'static str {
        "for-update"
    }

    fn longest(&self) -> Duration {
        self.sessions.longest
    }

    async fn open(&self) -> Result<MysqlSession> {
        self.sessions.connect().await
    }

    async fn try_take(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure> {
        let id = self.sessions.id(&claim.name);
        let terms = self.sessions.terms(claim, lease);
        let record = self.sessions.holders.record_if(WON, &id, &terms, session.maria);
        let request = format!("{}; {record}", self.lock_row(claim, " NOWAIT"));
        for _ in 0..2 {
            match self.sessions.take(session, &request, lease).await {
                // There is no such row.
                Ok(Attempt::Busy) => {
                    if !self.make(session, claim).await? {
                        return Ok(Attempt::Busy);
                    }
                }
                // Another has it, or a deadlock was found: either way it is not ours.
                Err(Failure::Conflict(_)) => return Ok(Attempt::Busy),
                attempt => return attempt,
            }
        }
        Err(went(&self.rows))
    }

    async fn wait(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        slice: Duration,
    ) -> Result<bool, Failure> {
        if slice >= SECOND {
            return self.wait_there(session, claim).await;
        }
        let over = Moment::now() + slice;
        loop {
            if self.lock_now(session, claim).await? {
                return Ok(true);
            }
            if over.remaining().is_zero() {
                return Ok(false);
            }
            tokio::time::sleep(AGAIN.min(over.remaining())).await;
        }
    }

    async fn record(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure> {
        let id = self.sessions.id(&claim.name);
        let terms = self.sessions.terms(claim, lease);
        let record = self.sessions.holders.record_if(WON, &id, &terms, session.maria);
        match self.sessions.take(session, &record, lease).await? {
            Attempt::Busy => Err(went(&self.rows)),
            attempt => Ok(attempt),
        }
    }

    async fn keep(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<(), Failure> {
        self.sessions.keep(session, claim, lease).await
    }

    /// The session is there, and with it the transaction, unless this fails. The row of the holder
    /// says first that it is no longer held: it is not undone with the transaction.
    async fn free(&self, session: &mut MysqlSession, claim: &Claim) -> Result<bool, Failure> {
        let erase = self.sessions.holders.erase(&self.sessions.id(&claim.name), claim);
        let request = format!("{erase}; COMMIT");
        self.sessions.run(session, &request, self.sessions.timeout()).await?;
        Ok(true)
    }

    async fn leave(&self, session: &mut MysqlSession, _: &Claim) -> Result<(), Failure> {
        self.sessions.run(session, "ROLLBACK", self.sessions.timeout()).await.map(|_| ())
    }

    async fn forgive(&self, session: &mut MysqlSession, claim: &Claim) -> Result<(), Failure> {
        self.sessions.forgive(session, claim).await
    }

    async fn why_gone(
        &self,
        session: &mut MysqlSession,
        name: &Name,
        token: FencingToken,
    ) -> LossReason {
        self.sessions.why_gone(session, name, token).await
    }

    async fn missing(
        &self,
        session: &mut MysqlSession,
        held: &[(&Name, u64)],
    ) -> Result<Vec<usize>, Failure> {
        let there = held.iter().map(|(_, at)| {
            format!("EXISTS (SELECT 1 FROM information_schema.processlist WHERE id = {at})")
        });
        let request = format!("SELECT {}", there.collect::<Vec<_>>().join(", "));
        let answer = self.sessions.run(session, &request, self.sessions.timeout()).await?;
        let there = |index: &usize| value::<i64>(&answer, 0, *index);
        Ok((0..held.len()).filter(|index| there(index) == Some(0)).collect())
    }

    /// Those who wait leave no trace.
    async fn look(
        &self,
        session: &mut MysqlSession,
        text: &str,
        whole: bool,
    ) -> Result<Vec<LockView>, Failure> {
        self.sessions.look(session, HELD, text, whole).await
    }

    async fn break_hold(
        &self,
        session: &mut MysqlSession,
        name: &Name,
        token: FencingToken,
        reason: &str,
    ) -> Result<bool, Failure> {
        self.sessions.break_hold(session, HELD, name, token, reason).await
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
