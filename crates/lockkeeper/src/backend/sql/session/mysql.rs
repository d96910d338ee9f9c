//! Sessions of MariaDB and MySQL in which a lock means something; what `get-lock` and `for-update`
//! share.
//!
//! | what if | then |
//! |---|---|
//! | the server only reads, or is one of several that take writes (Galera, group replication) | refused when the keeper is made: such a lock is one server's |
//! | a proxy is in between that changes the session under us | noticed by the session's number, with every answer |
//! | the server was restarted | it grants nothing until the leases of before are over: [`servers`](super::servers) |
//! | the table of holders is full | names unused for an hour are forgotten |

use super::super::client::{MysqlConnection, MysqlConnector};
use super::super::error::{Failure, Why};
use super::super::keys;
use super::super::options::MysqlOptions;
use super::holders::{self, Holders, Terms, whole_seconds};
use super::servers::Life;
use super::{Attempt, Session, Taken};
use crate::backend::support::sync::lock;
use crate::backend::{
    Claim, FencingToken, HolderView, LockView, LossReason, Mode, Moment, Name, Owner,
};
use crate::claim::ClaimIds;
use crate::error::{Error, ErrorKind, Result};
use mysql_async::prelude::FromValue;
use mysql_async::{Row, Statement, Value};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Makes sessions.
pub(in crate::backend::sql) struct MysqlSessions {
    pub(in crate::backend::sql) connector: MysqlConnector,
    pub(in crate::backend::sql) holders: Holders,
    recipe: &'static str,
    /// What makes the tables.
    definition: String,
    /// True, in a request, of a row of the holders whose lock is free.
    free: &'static str,
    /// The database, which every session is in.
    database: OnceLock<String>,
    /// The longest lease.
    pub(in crate::backend::sql) longest: Duration,
    /// A lock whose session ended counts as given back.
    pub(in crate::backend::sql) free_on_disconnect: bool,
    /// What we would call a life of the server that has no mark yet.
    mark: String,
    /// The life of the server that was met last, and from when on it grants.
    life: Mutex<Option<(String, Moment)>>,
}

/// A session of MariaDB or MySQL.
pub(in crate::backend::sql) struct MysqlSession {
    connection: MysqlConnection,
    number: u64,
    end: CancellationToken,
    not_before: Moment,
    /// The session's lease in the server, once it has one.
    kept: Option<Duration>,
    /// Whether the server is a MariaDB.
    pub(in crate::backend::sql) maria: bool,
    /// What was prepared in it, in the order of the texts; nothing where the server did not let us.
    prepared: Vec<Statement>,
}

impl Session for MysqlSession {
    fn number(&self) -> u64 {
        self.number
    }

    fn end(&self) -> CancellationToken {
        self.end.clone()
    }

    /// A session that a look found missing may have been ended by somebody.
    fn farewell(&self) -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(true))
    }

    fn not_before(&self) -> Moment {
        self.not_before
    }

    fn kept(&self) -> Option<Duration> {
        self.kept
    }
}

impl MysqlSessions {
    /// Makes no session yet.
    pub(in crate::backend::sql) fn new(
        connector: MysqlConnector,
        recipe: &'static str,
        holders: Holders,
        definition: String,
        free: &'static str,
        options: &MysqlOptions,
    ) -> Result<Self> {
        let (longest, free_on_disconnect) = (options.session, options.free_on_disconnect);
        let mark = ClaimIds::new()?.next().to_string();
        let (database, life) = (OnceLock::new(), Mutex::default());
        Ok(Self {
            connector,
            holders,
            recipe,
            definition,
            free,
            database,
            longest,
            free_on_disconnect,
            mark,
            life,
        })
    }

    /// What stands for the lock of a name.
    pub(in crate::backend::sql) fn id(&self, name: &Name) -> [u8; 16] {
        let database = self.database.get().map_or("", String::as_str);
        keys::sixteen(&format!("{database}.{}", self.holders.locks), name)
    }

    /// The URL without its secrets.
    pub(in crate::backend::sql) fn shown(&self) -> &str {
        self.connector.shown()
    }

    /// How long one request may take.
    pub(in crate::backend::sql) fn timeout(&self) -> Duration {
        self.connector.timeout()
    }

    /// Runs a request, and notes when the session turns out to have ended. After no answer in time
    /// it is of no use either: the answer might come to the next request.
    pub(in crate::backend::sql) async fn run(
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
    pub(in crate::backend::sql) async fn connect(&self) -> Result<MysqlSession> {
        let shown = self.connector.shown();
        let fail = |failure: Failure| failure.explain(shown);
        let limit = self.connector.timeout();
        let connection = self.connector.connect().await.map_err(fail)?;
        let (end, not_before) = (CancellationToken::new(), Moment::now());
        let mut session = MysqlSession {
            connection,
            number: 0,
            end,
            not_before,
            kept: None,
            maria: false,
            prepared: Vec::new(),
        };
        let looked = self.run(&mut session, &holders::look(), limit).await.map_err(fail)?;
        let seen = Seen::of(&looked).ok_or_else(|| fail(garbled()))?;
        if let Some(why) = seen.unfit() {
            return Err(self.refused(why));
        }
        (session.number, session.maria) = (seen.session, seen.maria);
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

    /// The server's life. Makes the tables unless they are there, and forgets old names where the mark
    /// of a new life finds no place.
    async fn life(&self, session: &mut MysqlSession) -> Result<String, Failure> {
        let limit = self.connector.timeout();
        let (look, mark) = (self.holders.life(), self.holders.mark_life(&self.mark));
        let answer = match self.run(session, &look, limit).await {
            Err(failure) if failure.why() == Some(Why::NoTable) => {
                self.run(session, &self.definition, limit).await?;
                Vec::new()
            }
            answer => answer?,
        };
        if let Some(life) = value(&answer, 0, 0) {
            return Ok(life);
        }
        match self.run(session, &mark, limit).await {
            Err(failure) if failure.why() == Some(Why::Full) => {
                self.run(session, &self.holders.clean(self.free), limit).await?;
                self.run(session, &mark, limit).await?;
            }
            marked => drop(marked?),
        }
        let answer = self.run(session, &look, limit).await?;
        value(&answer, 0, 0).ok_or_else(garbled)
    }

    /// Writes down that leases as long as ours are given in this life of the server, and reads what
    /// the lives before it are owed.
    async fn enter_life(&self, session: &mut MysqlSession, life: &str) -> Result<Moment, Failure> {
        let enter = self.holders.enter_life(life, self.longest);
        let limit = self.connector.timeout();
        let life = self.run(session, &enter, limit).await?;
        let lasted: i64 = value(&life, 0, 0).ok_or_else(garbled)?;
        let owed: Option<Option<i64>> = value(&life, 0, 1);
        Ok(Life::of_millis(lasted, owed.flatten()).grants_from())
    }

    /// What is written down of a grant to this claim.
    pub(in crate::backend::sql) fn terms<'a>(
        &self,
        claim: &'a Claim,
        lease: Duration,
    ) -> Terms<'a> {
        Terms { claim, lease, debt: self.debt(lease) }
    }

    /// For how long a claim may be believed in after its session ended.
    fn debt(&self, lease: Duration) -> Duration {
        if self.free_on_disconnect { Duration::ZERO } else { lease }
    }

    /// Runs a request that takes a lock and ends with [`Holders::record_if`]. The session's lease is set
    /// before where it is another one.
    pub(in crate::backend::sql) async fn take(
        &self,
        session: &mut MysqlSession,
        request: &str,
        lease: Duration,
    ) -> Result<Attempt, Failure> {
        let seconds = whole_seconds(lease);
        let kept = Duration::from_secs(seconds);
        let with_lease;
        let request = if session.kept == Some(kept) {
            request
        } else {
            with_lease = format!("SET SESSION wait_timeout = {seconds}; {request}");
            with_lease.as_str()
        };
        session.kept = Some(kept);
        let limit = self.connector.timeout();
        let answer = match self.run(session, request, limit).await {
            Err(Failure::Refused(refusal)) if refusal.why == Why::Full => {
                let clean = self.holders.clean(self.free);
                self.run(session, &clean, limit).await?;
                self.run(session, request, limit).await?
            }
            answer => answer?,
        };
        if answer.last().is_some_and(Vec::is_empty) {
            return Ok(Attempt::Busy);
        }
        session.is_ours(value(&answer, 0, 1))?;
        match value::<Option<i64>>(&answer, 0, 0).flatten() {
            Some(1) if value::<i64>(&answer, 0, 3) == Some(1) => {
                let token = value::<u64>(&answer, 0, 2).and_then(FencingToken::new);
                Ok(Attempt::Taken(Taken { token: token.ok_or_else(garbled)? }))
            }
            Some(1) => {
                let debt = value::<i64>(&answer, 0, 4).ok_or_else(garbled)?;
                Ok(Attempt::Owed(Duration::from_millis(u64::try_from(debt).unwrap_or(0))))
            }
            Some(0) => Ok(Attempt::Busy),
            _ => Err(Failure::Broken("the server could not tell whether the lock is free".into())),
        }
    }

    /// Prepares statements in a session, which are known by their places from then on. A server that has
    /// no room for more of them is asked by texts.
    pub(in crate::backend::sql) async fn prepare(
        &self,
        session: &mut MysqlSession,
        texts: &[String],
    ) -> Result<()> {
        for text in texts {
            match session.connection.prepare(text, self.timeout()).await {
                Ok(prepared) => session.prepared.push(prepared),
                Err(Failure::Refused(_)) => {
                    session.prepared.clear();
                    break;
                }
                Err(failure) => return Err(self.explain(failure)),
            }
        }
        Ok(())
    }

    /// Runs a prepared statement; how many rows it changed. `None` where it is not prepared.
    pub(in crate::backend::sql) async fn execute(
        &self,
        session: &mut MysqlSession,
        place: usize,
        values: Vec<Value>,
    ) -> Result<Option<u64>, Failure> {
        let Some(statement) = session.prepared.get(place) else { return Ok(None) };
        let done = session.connection.execute(statement, values, self.timeout()).await;
        if done.as_ref().is_err_and(Failure::ends_connection) {
            session.end.cancel();
        }
        done.map(|()| Some(session.connection.changed()))
    }

    /// Runs [`Holders::retake`], which is prepared at this place; `None` where it changed nothing, and
    /// why is not known. `more` are the values behind those of the claim.
    pub(in crate::backend::sql) async fn retake(
        &self,
        session: &mut MysqlSession,
        place: usize,
        claim: &Claim,
        lease: Duration,
        more: impl IntoIterator<Item = Value>,
    ) -> Result<Option<Taken>, Failure> {
        // The session's lease is set by the longer statement.
        if session.kept != Some(Duration::from_secs(whole_seconds(lease))) {
            return Ok(None);
        }
        let (id, terms) = (self.id(&claim.name), self.terms(claim, lease));
        let mut values = Holders::values(&id, &terms, session.number);
        values.extend(more);
        if self.execute(session, place, values).await?.unwrap_or(0) == 0 {
            return Ok(None);
        }
        let token = FencingToken::new(session.connection.counted());
        Ok(Some(Taken { token: token.ok_or_else(garbled)? }))
    }

    /// Writes down that the holder believes for another lease; this is still the session that we
    /// began.
    pub(in crate::backend::sql) async fn keep(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
        lease: Duration,
    ) -> Result<(), Failure> {
        let request = self.holders.keep(&self.id(&claim.name), claim, self.debt(lease));
        let answer = self.run(session, &request, self.timeout()).await?;
        session.is_ours(value(&answer, 0, 0))
    }

    /// Writes down that nobody believes in a claim whose session is gone.
    pub(in crate::backend::sql) async fn forgive(
        &self,
        session: &mut MysqlSession,
        claim: &Claim,
    ) -> Result<(), Failure> {
        let request = self.holders.erase(&self.id(&claim.name), claim);
        self.run(session, &request, self.timeout()).await.map(|_| ())
    }

    /// Why the hold with this token is gone, as far as its row says.
    pub(in crate::backend::sql) async fn why_gone(
        &self,
        session: &mut MysqlSession,
        name: &Name,
        token: FencingToken,
    ) -> LossReason {
        let request = self.holders.broken(&self.id(name), token.get());
        let answer = self.run(session, &request, self.timeout()).await;
        let reason = answer.ok().and_then(|answer| value::<Option<Vec<u8>>>(&answer, 0, 0)?);
        match reason {
            Some(reason) => {
                LossReason::Broken { reason: String::from_utf8_lossy(&reason).into_owned() }
            }
            None => LossReason::Gone,
        }
    }

    /// Every lock whose name is `text`, or begins with it, and of whose row `held` is true.
    pub(in crate::backend::sql) async fn look(
        &self,
        session: &mut MysqlSession,
        held: &str,
        text: &str,
        whole: bool,
    ) -> Result<Vec<LockView>, Failure> {
        let request = self.holders.show(held, text, whole);
        let answer = self.run(session, &request, self.timeout()).await?;
        Ok(answer.first().into_iter().flatten().filter_map(view_of).collect())
    }

    /// Ends the session of the holder with this token, if `held` is true of its row; that frees its
    /// lock at once.
    pub(in crate::backend::sql) async fn break_hold(
        &self,
        session: &mut MysqlSession,
        held: &str,
        name: &Name,
        token: FencingToken,
        reason: &str,
    ) -> Result<bool, Failure> {
        let request = self.holders.mark_broken(held, &self.id(name), token.get(), reason);
        let answer = self.run(session, &request, self.timeout()).await?;
        let Some(holder) = value::<u64>(&answer, 0, 0) else { return Ok(false) };
        if holder != 0 {
            self.run(session, &holders::end(holder), self.timeout()).await?;
        }
        Ok(true)
    }

    /// The error for a failure in a session.
    pub(in crate::backend::sql) fn explain(&self, failure: Failure) -> Error {
        match failure {
            Failure::Pooled(_) => self.refused("a proxy changes the session under us"),
            failure => failure.explain(self.shown()),
        }
    }

    /// The refusal of a server on which the recipe would be no lock.
    fn refused(&self, why: &str) -> Error {
        let (shown, recipe) = (self.shown(), self.recipe);
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{shown} cannot do recipe={recipe}: {why}. Connect to the one primary itself, or \
                 use recipe=table"
            ),
        )
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
pub(in crate::backend::sql) fn value<T: FromValue>(
    answers: &[Vec<Row>],
    answer: usize,
    column: usize,
) -> Option<T> {
    answers.get(answer)?.first()?.get_opt(column)?.ok()
}

fn garbled() -> Failure {
    Failure::Broken("an answer that makes no sense".into())
}

/// `None` for what was not written by us.
fn view_of(row: &Row) -> Option<LockView> {
    let words = |column: usize| {
        let bytes: Vec<u8> = row.get(column).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    // Below zero after a clock that went back.
    let span = |column: usize| {
        let millis: i64 = row.get(column).unwrap_or_default();
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    };
    let mut holder = HolderView::new(Owner::from_id(words(2)), Mode::Exclusive);
    holder.token = row.get::<u64, _>(1).and_then(FencingToken::new);
    (holder.identity, holder.note) = (words(3), words(4));
    // Of one with a session: it is kept for as long as it is renewed.
    (holder.held_for, holder.expires_in) = (span(5), span(6));
    let mut view = LockView::new(Name::new(&words(0)).ok()?);
    view.holders.push(holder);
    Some(view)
}

/// What a server says of itself.
struct Seen {
    session: u64,
    maria: bool,
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
            maria: value::<String>(answers, 0, 1)?.to_lowercase().contains("mariadb"),
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
