//! `recipe=get-lock`: the named locks of MariaDB and MySQL, one session for each claim.
//!
//! ```text
//!   acquire   GET_LOCK(name, 0), and the holder's row, in one round trip
//!   wait      GET_LOCK(name, seconds): the server queues, and wakes the next
//!   renew     the holder's row says that it believes for another lease
//!   release   the row says that it does not, and RELEASE_LOCK(name), in one statement
//! ```
//!
//! How a session lives and dies, and why its holder is always the first to know, is in
//! [`session`](super::session); which servers are refused, in
//! [`session::mysql`](super::session::mysql). The session's lease is `wait_timeout`, in whole
//! seconds.
//!
//! A lock's name there is `lockkeeper:` and 32 hexadecimal digits, of a hash of database, table and
//! name: such names are the server's, not a database's, and on MySQL may not be longer than 64
//! letters, large or small being the same.

use super::client::{MysqlConnector, hex};
use super::error::Failure;
use super::options::MysqlOptions;
use super::schema::Made;
use super::session::holders::Holders;
use super::session::mysql::{MysqlSession, MysqlSessions, value};
use super::session::{Attempt, Native, SessionLocks};
use crate::backend::sql::checkup::Examined;
use crate::backend::{Background, Capability, Claim, FencingToken, LockView, LossReason, Name};
use crate::error::{Error, Result};
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;

/// What stands before the hexadecimal digits of an id in the name of a lock.
const PREFIX: &str = "lockkeeper:";
/// Whether the lock was taken, after that was asked.
const WON: &str = "@lockkeeper_won = 1";
/// Whether the lock of a row is held by the session that the row names.
const HELD: &str = "IS_USED_LOCK(CONCAT('lockkeeper:', LOWER(HEX(id)))) = session";
/// Whether nobody has the lock of a row.
const FREE: &str = "IS_FREE_LOCK(CONCAT('lockkeeper:', LOWER(HEX(id))))";

/// Takes a lock, or has it already: the server counts how often a session took it. Twice its name.
const TRY: &str = "IF(IS_USED_LOCK(?) <=> CONNECTION_ID(), 1, GET_LOCK(?, 0)) = 1";
/// Whether this session has a lock, by its name.
const OURS: &str = "IS_USED_LOCK(?) <=> CONNECTION_ID()";
/// Gives a lock back, by its name.
const RELEASE: &str = "RELEASE_LOCK(?) = 1";

/// The places of what is prepared in each session.
const RETAKE: usize = 0;
const RECORD: usize = 1;
const FREE_BY: usize = 2;

/// Named locks.
pub(super) struct GetLock {
    sessions: MysqlSessions,
    /// What is prepared in each session.
    texts: [String; 3],
}

/// Opens the recipe.
pub(super) async fn open(
    options: &MysqlOptions,
    connector: MysqlConnector,
    background: &Background,
) -> Result<SessionLocks<GetLock>> {
    let holders = holders_of(&options.table);
    let definition = holders.definition();
    let texts = [holders.retake(TRY), holders.retake(OURS), holders.erase_if(RELEASE)];
    let sessions = MysqlSessions::new(connector, "get-lock", holders, definition, FREE, options)?;
    let locks = SessionLocks::new(GetLock { sessions, texts }, options.sessions, background);
    locks.prepare().await?;
    Ok(locks)
}

/// Its tables, for those who make them by hand.
pub(super) fn made(table: &str) -> Made {
    let holders = holders_of(table);
    let definition = holders.definition();
    Made { tables: vec![holders.locks, holders.lives], definition }
}

fn holders_of(table: &str) -> Holders {
    Holders { locks: format!("{table}_get_lock"), lives: format!("{table}_get_lock_life") }
}

/// The name of a lock, as a text in a request.
fn lock_name(id: &[u8; 16]) -> String {
    format!("'{}'", name_of(id))
}

/// The name of a lock.
fn name_of(id: &[u8; 16]) -> String {
    format!("{PREFIX}{}", hex(id))
}

#[async_trait]
impl Native for GetLock {
    type Session = MysqlSession;

    /// The driver does not say that a connection ended before it is used.
    const LOOK: Option<Duration> = Some(Duration::from_millis(500));

    fn capability(&self) -> Capability {
        crate::recipes::MARIADB_GET_LOCK.freed_on_disconnect(self.sessions.free_on_disconnect)
    }

    fn recipe(&self) -> &'static str {
        "get-lock"
    }

    fn longest(&self) -> Duration {
        self.sessions.longest
    }

    async fn open(&self) -> Result<MysqlSession> {
        let mut session = self.sessions.connect().await?;
        self.sessions.prepare(&mut session, &self.texts).await?;
        Ok(session)
    }

    async fn try_take(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure> {
        let id = self.sessions.id(&claim.name);
        let (terms, maria) = (self.sessions.terms(claim, lease), session.maria);
        let (holders, lock) = (&self.sessions.holders, lock_name(&id));
        // The server counts how often a session took a lock. When this is sent again because the
        // holder could not be written down, the session has it already.
        let won = format!("IF(IS_USED_LOCK({lock}) <=> CONNECTION_ID(), 1, GET_LOCK({lock}, 0))");
        let named = [name_of(&id).into(), name_of(&id).into()];
        if let Some(taken) = self.sessions.retake(session, RETAKE, claim, lease, named).await? {
            return Ok(Attempt::Taken(taken));
        }
        let request = if maria {
            holders.record_if(&format!("{won} = 1"), &id, &terms, true)
        } else {
            let record = holders.record_if(WON, &id, &terms, false);
            format!("SELECT {won} INTO @lockkeeper_won; {record}")
        };
        self.sessions.take(session, &request, lease).await
    }

    /// The answer is 1, 0, or null for an error. MySQL rounds the time to seconds.
    ///
    /// The holder is written down by a request of its own. In this one, the server would write down a
    /// claim that was cancelled while it waited here, after its debt was forgiven.
    async fn wait(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        slice: Duration,
    ) -> Result<bool, Failure> {
        let lock = lock_name(&self.sessions.id(&claim.name));
        let request = format!("SELECT GET_LOCK({lock}, {:.3})", slice.as_secs_f64());
        let limit = slice + self.sessions.timeout();
        let answer = self.sessions.run(session, &request, limit).await?;
        match value::<Option<i64>>(&answer, 0, 0).flatten() {
            Some(won) => Ok(won == 1),
            None => {
                Err(Failure::Broken("the server could not tell whether the lock is free".into()))
            }
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
        let ours = format!("IS_USED_LOCK({}) <=> CONNECTION_ID()", lock_name(&id));
        let named = [name_of(&id).into()];
        if let Some(taken) = self.sessions.retake(session, RECORD, claim, lease, named).await? {
            return Ok(Attempt::Taken(taken));
        }
        let request = format!("SET @lockkeeper_won = ({ours}); {record}");
        match self.sessions.take(session, &request, lease).await? {
            Attempt::Busy => Err(Failure::Broken("the lock went as it came".into())),
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

    /// In one statement, which has the table to itself: who takes the lock then waits until the debt
    /// is erased. A row that is gone needs none, and the lock is given back without it.
    async fn free(&self, session: &mut MysqlSession, claim: &Claim) -> Result<bool, Failure> {
        let id = self.sessions.id(&claim.name);
        let values = vec![claim.id.to_string().into(), hex(&id).into(), name_of(&id).into()];
        if self.sessions.execute(session, FREE_BY, values).await?.is_some_and(|freed| freed > 0) {
            return Ok(true);
        }
        let (erase, lock) = (self.sessions.holders.erase(&id, claim), lock_name(&id));
        let request = format!("{erase}; SELECT RELEASE_LOCK({lock})");
        let answer = self.sessions.run(session, &request, self.sessions.timeout()).await?;
        Ok(value::<Option<i64>>(&answer, 0, 0).flatten() == Some(1))
    }

    async fn leave(&self, session: &mut MysqlSession, claim: &Claim) -> Result<(), Failure> {
        let request = format!("SELECT RELEASE_LOCK({})", lock_name(&self.sessions.id(&claim.name)));
        self.sessions.run(session, &request, self.sessions.timeout()).await.map(|_| ())
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
        let there = held.iter().map(|(name, at)| {
            format!("IS_USED_LOCK({}) <=> {at}", lock_name(&self.sessions.id(name)))
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
        vec![name_of(&self.sessions.id(name))]
    }

    fn explain(&self, failure: Failure) -> Error {
        self.sessions.explain(failure)
    }
}

impl fmt::Display for GetLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (get-lock)", self.sessions.shown())
    }
}

impl fmt::Debug for GetLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.sessions.shown();
        f.debug_struct("GetLock").field("store", &store).finish_non_exhaustive()
    }
}
