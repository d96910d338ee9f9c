//! `recipe=get-lock`: the named locks of MariaDB and MySQL, one session for each claim.
//!
//! ```text
//!   acquire   GET_LOCK(name, 0), and the holder's row, in one round trip
//!   wait      GET_LOCK(name, seconds): the server queues, and wakes the next
//!   renew     any answer in the session
//!   release   RELEASE_LOCK(name)
//! ```
//!
//! How a session lives and dies, and why its holder is always the first to know, is in
//! [`session`](super::session). The session's lease is `wait_timeout`, in whole seconds.
//!
//! A lock's name there is `lockkeeper:` and 32 hexadecimal digits, of a hash of database, table and
//! name: such names are the server's, not a database's, and on MySQL may not be longer than 64
//! letters, large or small being the same.
//!
//! | what if | then |
//! |---|---|
//! | the server only reads, or is one of several that take writes (Galera, group replication) | refused when the keeper is made: such a lock is one server's |
//! | a proxy is in between that changes the session under us | noticed by the session's number, with every answer |
//! | the table of holders is full | names unused for an hour are forgotten |

mod inspect;
mod requests;
mod schema;

use super::client::{MysqlConnection, MysqlConnector};
use super::error::{Failure, Why};
use super::keys;
use super::options::MysqlOptions;
use super::session::servers::Life;
use super::session::{Native, Session, SessionLocks, Taken};
use crate::backend::support::sync::lock;
use crate::backend::{
    Background, Capability, Claim, FencingToken, LockView, LossReason, Moment, Name,
};
use crate::claim::ClaimIds;
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use mysql_async::Row;
use mysql_async::prelude::FromValue;
use schema::{PREFIX, Tables};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Named locks.
pub(super) struct GetLock {
    core: Core,
}

/// What locks and their inspection share.
pub(super) struct Core {
    connector: MysqlConnector,
    tables: Tables,
    /// The database, which every session is in.
    database: OnceLock<String>,
    longest: Duration,
    /// What we would call a life of the server that has no mark yet.
    mark: String,
    /// The life of the server that was met last, and from when on it grants.
    life: Mutex<Option<(String, Moment)>>,
}

/// A session of MariaDB or MySQL.
pub(super) struct MysqlSession {
    connection: MysqlConnection,
    number: u64,
    end: CancellationToken,
    not_before: Moment,
}

impl Session for MysqlSession {
    fn number(&self) -> u64 {
        self.number
    }

    fn end(&self) -> CancellationToken {
        self.end.clone()
    }

    fn not_before(&self) -> Moment {
        self.not_before
    }
}

/// Opens the recipe.
pub(super) async fn open(
    options: &MysqlOptions,
    connector: MysqlConnector,
    background: &Background,
) -> Result<SessionLocks<GetLock>> {
    let (tables, longest) = (Tables::new(&options.table), options.session);
    let (database, life) = (OnceLock::new(), Mutex::default());
    let mark = ClaimIds::new()?.next().to_string();
    let core = Core { connector, tables, database, longest, mark, life };
    let locks = SessionLocks::new(GetLock { core }, options.sessions, background);
    locks.prepare().await?;
    Ok(locks)
}

impl Core {
    fn id(&self, name: &Name) -> [u8; 16] {
        let database = self.database.get().map_or("", String::as_str);
        keys::sixteen(&format!("{database}.{}", self.tables.locks), name)
    }

    /// Runs a request, and notes when the session turns out to have ended. After no answer in time
    /// it is of no use either: the answer might come to the next request.
    async fn run(
        &self,
        session: &mut MysqlSession,
        request: &str,
        limit: Duration,
    ) -> Result<Vec<Vec<Row>>, Failure> {
        let answered = session.connection.run(request, limit).await;
        if answered.as_ref().is_err_and(Failure::ends_connection) {
            session.end.cancel();
        }
        answered
    }

    /// A session in which locks mean something.
    pub(super) async fn connect(&self) -> Result<MysqlSession> {
        let shown = self.connector.shown();
        let fail = |failure: Failure| failure.explain(shown);
        let limit = self.connector.timeout();
        let connection = self.connector.connect().await.map_err(fail)?;
        let (end, not_before) = (CancellationToken::new(), Moment::now());
        let mut session = MysqlSession { connection, number: 0, end, not_before };
        let looked = self.run(&mut session, &requests::look(), limit).await.map_err(fail)?;
        let seen = Seen::of(&looked).ok_or_else(|| fail(garbled()))?;
        if let Some(why) = seen.unfit() {
            return Err(refused(shown, why));
        }
        session.number = seen.session;
        self.database.get_or_init(|| seen.database.clone());
        let life = self.life(&mut session).await.map_err(fail)?;
        let known = lock(&self.life).clone().filter(|(known, _)| *known == life);
        session.not_before = match known {
            Some((_, from)) => from,
            None => {
                let from = self.enter_life(&mut session, &life).await.map_err(fail)?;
                *lock(&self.life) = Some((life, from));
                from
            }
        };
        Ok(session)
    }

    /// The mark of the server's life. Makes the tables unless they are there.
    async fn life(&self, session: &mut MysqlSession) -> Result<String, Failure> {
        let limit = self.connector.timeout();
        let request = requests::life(&self.tables, &self.mark);
        let answer = match self.run(session, &request, limit).await {
            Err(Failure::Refused(refusal)) if refusal.why == Why::NoTable => {
                self.run(session, &self.tables.definition(), limit).await?;
                self.run(session, &request, limit).await?
            }
            answer => answer?,
        };
        let life: Vec<u8> = value(&answer, 0, 0).ok_or_else(garbled)?;
        Ok(String::from_utf8_lossy(&life).into_owned())
    }

    /// Writes down that leases as long as ours are given in this life of the server, and reads what
    /// the lives before it are owed.
    async fn enter_life(&self, session: &mut MysqlSession, life: &str) -> Result<Moment, Failure> {
        let enter = requests::enter_life(&self.tables, life, self.longest);
        let limit = self.connector.timeout();
        let life = self.run(session, &enter, limit).await?;
        let lasted: i64 = value(&life, 0, 0).ok_or_else(garbled)?;
        let owed: Option<Option<i64>> = value(&life, 0, 1);
        Ok(Life::of_millis(lasted, owed.flatten()).grants_from())
    }

    /// Runs a request that takes a lock and answers with whether, by whom, and its token.
    async fn take(
        &self,
        session: &mut MysqlSession,
        request: &str,
    ) -> Result<Option<Taken>, Failure> {
        let limit = self.connector.timeout();
        let answer = match self.run(session, request, limit).await {
            Err(Failure::Refused(refusal)) if refusal.why == Why::Full => {
                let clean = requests::clean(&self.tables);
                self.run(session, &clean, limit).await?;
                self.run(session, request, limit).await?
            }
            answer => answer?,
        };
        let won: Option<Option<i64>> = value(&answer, 0, 0);
        session.is_ours(value(&answer, 0, 1))?;
        match won.flatten() {
            Some(1) => {
                let token = value::<u64>(&answer, 0, 2).and_then(FencingToken::new);
                Ok(Some(Taken { token: token.ok_or_else(garbled)? }))
            }
            Some(0) => Ok(None),
            _ => Err(Failure::Broken("the server could not tell whether the lock is free".into())),
        }
    }
}

impl MysqlSession {
    /// An error unless this is still the session that we began.
    fn is_ours(&self, number: Option<u64>) -> Result<(), Failure> {
        if number == Some(self.number) {
            return Ok(());
        }
        self.end.cancel();
        Err(Failure::Pooled(format!("session {} became {number:?}", self.number)))
    }
}

/// The value in a column of the first row of an answer.
fn value<T: FromValue>(answers: &[Vec<Row>], answer: usize, column: usize) -> Option<T> {
    answers.get(answer)?.first()?.get_opt(column)?.ok()
}

fn garbled() -> Failure {
    Failure::Broken("an answer that makes no sense".into())
}

/// What a server says of itself.
struct Seen {
    session: u64,
    database: String,
    read_only: bool,
    several_primaries: bool,
}

impl Seen {
    fn of(answers: &[Vec<Row>]) -> Option<Self> {
        let words: HashMap<String, String> = answers
            .iter()
            .skip(1)
            .flatten()
            .filter_map(|row| Some((row.get(0)?, row.get(1)?)))
            .collect();
        let word = |name: &str| words.get(name).map_or("", String::as_str);
        let members: u32 = word("wsrep_cluster_size").parse().unwrap_or(0);
        Some(Self {
            session: value(answers, 0, 0)?,
            database: value(answers, 0, 2)?,
            read_only: value::<String>(answers, 0, 3)? != "0" || word("innodb_read_only") == "ON",
            several_primaries: (word("wsrep_on") == "ON" && members > 0)
                || word("group_replication_single_primary_mode") == "OFF",
        })
    }

    /// Why a lock here would be none.
    fn unfit(&self) -> Option<&'static str> {
        if self.read_only {
            return Some(
                "it can only be read, as a replica, whose locks its primary knows nothing of",
            );
        }
        self.several_primaries.then_some(
            "it is one of several servers that take writes, and each knows its own locks only",
        )
    }
}

#[async_trait]
impl Native for GetLock {
    type Session = MysqlSession;

    /// The driver does not say that a connection ended before it is used.
    const LOOK: Option<Duration> = Some(Duration::from_millis(500));

    fn capability(&self) -> Capability {
        crate::recipes::MARIADB_GET_LOCK
    }

    fn longest(&self) -> Duration {
        self.core.longest
    }

    async fn open(&self) -> Result<MysqlSession> {
        self.core.connect().await
    }

    async fn try_take(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Option<Taken>, Failure> {
        let core = &self.core;
        let request = requests::take(&core.tables, &core.id(&claim.name), claim, lease);
        core.take(session, &request).await
    }

    async fn wait(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        slice: Duration,
    ) -> Result<bool, Failure> {
        let core = &self.core;
        let request = requests::wait(&core.id(&claim.name), slice);
        let limit = slice + core.connector.timeout();
        let answer = core.run(session, &request, limit).await?;
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
    ) -> Result<Taken, Failure> {
        let core = &self.core;
        let request = requests::record(&core.tables, &core.id(&claim.name), claim, lease);
        let taken = core.take(session, &request).await?;
        taken.ok_or_else(|| Failure::Broken("the lock went as it came".into()))
    }

    async fn keep(&self, session: &mut MysqlSession) -> Result<(), Failure> {
        let limit = self.core.connector.timeout();
        let answer = self.core.run(session, &requests::keep(), limit).await?;
        session.is_ours(value(&answer, 0, 0))
    }

    async fn free(&self, session: &mut MysqlSession, claim: &Claim) -> Result<bool, Failure> {
        let (limit, id) = (self.core.connector.timeout(), self.core.id(&claim.name));
        let answer = self.core.run(session, &requests::free(&id), limit).await?;
        Ok(value::<Option<i64>>(&answer, 0, 0).flatten() == Some(1))
    }

    async fn why_gone(
        &self,
        session: &mut MysqlSession,
        name: &Name,
        token: FencingToken,
    ) -> LossReason {
        let core = &self.core;
        let request = requests::broken(&core.tables, &core.id(name), token.get());
        let answer = core.run(session, &request, core.connector.timeout()).await;
        let reason = answer.ok().and_then(|answer| value::<Option<Vec<u8>>>(&answer, 0, 0)?);
        match reason {
            Some(reason) => {
                LossReason::Broken { reason: String::from_utf8_lossy(&reason).into_owned() }
            }
            None => LossReason::Gone,
        }
    }

    async fn missing(
        &self,
        session: &mut MysqlSession,
        held: &[(&Name, u64)],
    ) -> Result<Vec<usize>, Failure> {
        let held: Vec<_> = held.iter().map(|(name, at)| (self.core.id(name), *at)).collect();
        let limit = self.core.connector.timeout();
        let answer = self.core.run(session, &requests::there(&held), limit).await?;
        let there = |index: &usize| value::<i64>(&answer, 0, *index);
        Ok((0..held.len()).filter(|index| there(index) == Some(0)).collect())
    }

    async fn look(
        &self,
        session: &mut MysqlSession,
        text: &str,
        whole: bool,
    ) -> Result<Vec<LockView>, Failure> {
        inspect::look(&self.core, session, text, whole).await
    }

    async fn break_hold(
        &self,
        session: &mut MysqlSession,
        name: &Name,
        token: FencingToken,
        reason: &str,
    ) -> Result<bool, Failure> {
        inspect::break_hold(&self.core, session, name, token, reason).await
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        let digits =
            self.core.id(name).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        vec![format!("{PREFIX}{digits}")]
    }

    fn explain(&self, failure: Failure) -> Error {
        let shown = self.core.connector.shown();
        match failure {
            Failure::Pooled(_) => refused(shown, "a proxy changes the session under us"),
            failure => failure.explain(shown),
        }
    }
}

/// The refusal of a server on which the recipe would be no lock.
fn refused(shown: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{shown} cannot do recipe=get-lock: {why}. Connect to the one primary itself, or use \
             recipe=table"
        ),
    )
}

impl fmt::Display for GetLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (get-lock)", self.core.connector.shown())
    }
}

impl fmt::Debug for GetLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.core.connector.shown();
        f.debug_struct("GetLock").field("store", &store).finish_non_exhaustive()
    }
}
