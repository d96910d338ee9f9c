//! MariaDB and MySQL: connections, and the few that all statements of a keeper share.
//!
//! A connection carries one request at a time. A request is a text of several statements, which
//! the server runs one after the other and answers together; so a whole transaction takes one
//! round trip, and never stays open while a client thinks, is paused or is gone.
//!
//! Values stand in the text itself, as numbers or as hexadecimal digits ([`text`], [`bytes`]):
//! prepared statements hold one statement each. Nothing in such a value can end it. What is asked
//! again and again, and is one statement, is prepared: in a session by
//! [`MysqlConnection::prepare`], and on shared connections after its first use there
//! ([`MysqlClient::execute`]).

use super::super::error::{Failure, of_mysql};
use super::super::options::MysqlOptions;
use super::{BREAKS, CONFLICTS, pause, within};
use crate::backend::support::life::Life;
use crate::backend::support::sync::lock;
use crate::backend::support::tls::no_certificates;
use crate::backend::{Background, Moment, TlsOptions};
use crate::error::Result;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, Opts, OptsBuilder, Pool, Row, SslOpts, Statement, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What every session of ours is like. Row locks are held for the length of a statement, so a
/// second is long; and only what was committed counts, with no lock on the gaps between rows. Texts
/// that are values of a prepared statement are in the connection's character set.
const SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
    SET NAMES utf8mb4; SET SESSION autocommit = 1, innodb_lock_wait_timeout = 2";
/// After how long in which a connection was not used we ask whether it is still there, before a
/// statement goes out on it that may only be sent once.
const STALE: Duration = Duration::from_secs(1);

/// The answers to the statements of one request that return rows, in order.
pub(in crate::backend::sql) type Answers = Vec<Vec<Row>>;

/// All that a request came to.
pub(in crate::backend::sql) struct Answered {
    pub(in crate::backend::sql) rows: Answers,
    /// How many rows the last statement changed.
    pub(in crate::backend::sql) changed: u64,
    /// What the last statement called `LAST_INSERT_ID` with; 0 if it did not.
    pub(in crate::backend::sql) counted: u64,
}

/// What is sent.
#[derive(Clone, Copy)]
enum Request<'a> {
    Text(&'a str),
    /// One statement without rows, and its values.
    Prepared(&'a str, &'a [Value]),
}

/// A text as it stands in a request.
pub(in crate::backend::sql) fn text(text: &str) -> String {
    format!("_utf8mb4 x'{}'", hex(text.as_bytes()))
}

/// Bytes as they stand in a request.
pub(in crate::backend::sql) fn bytes(bytes: &[u8]) -> String {
    format!("x'{}'", hex(bytes))
}

/// Bytes as hexadecimal digits.
pub(in crate::backend::sql) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Makes connections, or takes them from the caller's pool.
pub(in crate::backend::sql) struct MysqlConnector {
    opts: Opts,
    pool: Option<Pool>,
    timeout: Duration,
    background: Background,
    /// The URL without its secrets.
    shown: String,
}

/// A connection of one user at a time. Dropping it ends the session, or gives it back to the
/// caller's pool, which rolls back and forgets what was set and locked in it.
pub(in crate::backend::sql) struct MysqlConnection {
    pub(in crate::backend::sql) conn: Conn,
    life: Life,
    /// When it last answered.
    used: Moment,
    /// What was prepared on it, and what it would not prepare.
    prepared: HashMap<String, bool>,
    /// It is not to be used again.
    spent: bool,
}

impl MysqlConnector {
    /// Makes no connection yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for options that make no sense.
    pub(in crate::backend::sql) fn new(
        options: &MysqlOptions,
        background: &Background,
    ) -> Result<Self> {
        options.check()?;
        // The driver asks for a Unix socket by itself otherwise, and for settings of the server.
        let driver = options.driver.clone().max_allowed_packet(Some(16 << 20));
        let driver = match &options.tls {
            Some(tls) => driver.ssl_opts(ssl_opts(tls)?),
            None => driver,
        };
        Ok(Self {
            opts: OptsBuilder::from_opts(driver).into(),
            pool: options.pool.clone(),
            timeout: options.timeout,
            background: background.clone(),
            shown: options.shown.clone(),
        })
    }

    /// The URL without its secrets.
    pub(in crate::backend::sql) fn shown(&self) -> &str {
        &self.shown
    }

    /// How long one request may take.
    pub(in crate::backend::sql) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A connection of the caller's own, with our settings.
    pub(in crate::backend::sql) async fn connect(&self) -> Result<MysqlConnection, Failure> {
        let connecting = async {
            let made = match &self.pool {
                Some(pool) => pool.get_conn().await.map(|conn| (conn, Life::begin())),
                None => {
                    let opts = &self.opts;
                    let made = self.background.settle(|| {
                        let opts = opts.clone();
                        async move { Conn::new(opts).await.map(|conn| (conn, Life::begin())) }
                    });
                    made.await.map_err(|_| Failure::RuntimeEnded)?
                }
            };
            let (conn, life) = made.map_err(|error| refused(&error))?;
            Ok(MysqlConnection {
                conn,
                life,
                used: Moment::now(),
                prepared: HashMap::new(),
                spent: false,
            })
        };
        let connected = tokio::time::timeout(self.timeout, connecting).await;
        let mut connection = connected.unwrap_or(Err(Failure::TimedOut))?;
        connection.run(SETTINGS, self.timeout).await?;
        Ok(connection)
    }
}

/// The certificates as the driver takes them.
fn ssl_opts(tls: &TlsOptions) -> Result<SslOpts> {
    let roots = match &tls.ca {
        Some(ca) => vec![ca.clone().into()],
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            if found.is_empty() {
                return Err(no_certificates());
            }
            found.iter().map(|certificate| certificate.to_vec().into()).collect()
        }
    };
    let opts = SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true);
    Ok(match &tls.identity {
        Some((certificate, key)) => {
            let shown = ClientIdentity::new(certificate.clone().into(), key.clone().into());
            opts.with_client_identity(Some(shown))
        }
        None => opts,
    })
}

/// Why there is no connection: until the login is through, the server has run nothing.
fn refused(error: &mysql_async::Error) -> Failure {
    match of_mysql(error) {
        Failure::Broken(why) => Failure::Unreachable(why),
        other => other,
    }
}

impl MysqlConnection {
    /// Runs a request: several statements with `;` between them, one after the other up to the
    /// first that fails. After a failure no transaction is left open.
    pub(in crate::backend::sql) async fn run(
        &mut self,
        request: &str,
        limit: Duration,
    ) -> Result<Answers, Failure> {
        let conn = &mut self.conn;
        let asked = async {
            match collect(conn, request).await {
                Ok(answers) => Ok(answers),
                Err(error) => {
                    let failure = of_mysql(&error);
                    if !failure.ends_connection() && request.contains("BEGIN") {
                        collect(conn, "ROLLBACK").await.map_err(|error| of_mysql(&error))?;
                    }
                    Err(failure)
                }
            }
        };
        let answered = within(&self.life, limit, asked).await;
        if answered.is_ok() {
            self.used = Moment::now();
        }
        answered
    }

    async fn send(&mut self, request: Request<'_>, limit: Duration) -> Result<Answered, Failure> {
        let (statement, values) = match request {
            Request::Text(text) => {
                let rows = self.run(text, limit).await?;
                return Ok(self.answered(rows));
            }
            Request::Prepared(statement, values) => (statement, values),
        };
        match self.prepared.get(statement) {
            Some(true) => {
                let conn = &mut self.conn;
                // The driver finds it by its text.
                let asked = async {
                    let done = conn.exec_drop(statement, values.to_vec()).await;
                    done.map_err(|error| of_mysql(&error))
                };
                within(&self.life, limit, asked).await?;
                self.used = Moment::now();
                Ok(self.answered(Vec::new()))
            }
            // The server may prepare no more, or a proxy none at all.
            Some(false) => {
                let rows = self.run(&written_out(statement, values), limit).await?;
                Ok(self.answered(rows))
            }
            // Prepared after its first use and not before: where answers are lost, a release would
            // not be sent at all if its preparation has to be answered first.
            None => {
                let rows = self.run(&written_out(statement, values), limit).await?;
                let answered = self.answered(rows);
                let ready = self.prepare(statement, limit).await;
                self.spent = ready.as_ref().is_err_and(Failure::ends_connection);
                self.prepared.insert(statement.to_owned(), ready.is_ok());
                Ok(answered)
            }
        }
    }

    /// These rows, with what the server said beside them.
    fn answered(&self, rows: Answers) -> Answered {
        let counted = self.conn.last_insert_id().unwrap_or(0);
        Answered { rows, changed: self.conn.affected_rows(), counted }
    }

    /// Prepares a statement, for this connection alone.
    pub(in crate::backend::sql) async fn prepare(
        &mut self,
        statement: &str,
        limit: Duration,
    ) -> Result<Statement, Failure> {
        let conn = &mut self.conn;
        let asked = async { conn.prep(statement).await.map_err(|error| of_mysql(&error)) };
        within(&self.life, limit, asked).await
    }

    /// Runs a statement that was prepared on this connection, and answers without rows.
    pub(in crate::backend::sql) async fn execute(
        &mut self,
        statement: &Statement,
        values: Vec<Value>,
        limit: Duration,
    ) -> Result<(), Failure> {
        let conn = &mut self.conn;
        let asked =
            async { conn.exec_drop(statement, values).await.map_err(|error| of_mysql(&error)) };
        let answered = within(&self.life, limit, asked).await;
        if answered.is_ok() {
            self.used = Moment::now();
        }
        answered
    }

    /// What the last statement set `LAST_INSERT_ID` to.
    pub(in crate::backend::sql) fn counted(&self) -> u64 {
        self.conn.last_insert_id().unwrap_or(0)
    }

    /// How many rows the last statement changed.
    pub(in crate::backend::sql) fn changed(&self) -> u64 {
        self.conn.affected_rows()
    }
}

/// A statement with its values in it. None of ours has a question mark that is not one of a value.
fn written_out(statement: &str, values: &[Value]) -> String {
    let mut parts = statement.split('?');
    let mut written = parts.next().unwrap_or_default().to_owned();
    for (part, value) in parts.zip(values) {
        match value {
            Value::Bytes(bytes) => written += &format!("_utf8mb4 x'{}'", hex(bytes)),
            number => written += &number.as_sql(false),
        }
        written += part;
    }
    written
}

/// Sends a request and reads all its answers.
async fn collect(conn: &mut Conn, request: &str) -> mysql_async::Result<Answers> {
    let mut answer = conn.query_iter(request).await?;
    let mut answers = Vec::new();
    while !answer.is_empty() {
        // Statements without rows have no columns, and no answer here.
        let has_rows = !answer.columns_ref().is_empty();
        let rows: Vec<Row> = answer.collect().await?;
        if has_rows {
            answers.push(rows);
        }
    }
    // The error of any statement but the first is kept by the driver until it is asked for, and the
    // answers look as if they ended before it.
    answer.drop_result().await?;
    Ok(answers)
}

/// A few connections that all requests of a keeper share.
pub(in crate::backend::sql) struct MysqlClient {
    pub(in crate::backend::sql) connector: MysqlConnector,
    /// As many as may be in use at once.
    places: Semaphore,
    /// Those not in use; the one used last is used next, so that a sequential program has one.
    idle: Mutex<Vec<MysqlConnection>>,
    /// How many deadlocks and lock timeouts were met and hidden by sending again.
    pub(in crate::backend::sql) conflicts: AtomicU64,
}

impl MysqlClient {
    /// Connects with the first request.
    pub(in crate::backend::sql) fn new(connector: MysqlConnector, connections: usize) -> Self {
        Self {
            connector,
            places: Semaphore::new(connections.max(1)),
            idle: Mutex::default(),
            conflicts: AtomicU64::new(0),
        }
    }

    /// Runs a request. One that is idempotent is sent again when its connection broke; every one
    /// that the server undid because of others is.
    pub(in crate::backend::sql) async fn run(
        &self,
        request: &str,
        idempotent: bool,
    ) -> Result<Answers, Failure> {
        self.run_counted(request, idempotent).await.map(|answered| answered.rows)
    }

    /// As [`run`](Self::run), with what the server says beside the rows.
    pub(in crate::backend::sql) async fn run_counted(
        &self,
        request: &str,
        idempotent: bool,
    ) -> Result<Answered, Failure> {
        self.send(Request::Text(request), idempotent).await
    }

    /// Runs one statement without rows, prepared after its first use on each connection: the server
    /// need not read it anew each time.
    pub(in crate::backend::sql) async fn execute(
        &self,
        statement: &str,
        values: &[Value],
        idempotent: bool,
    ) -> Result<Answered, Failure> {
        self.send(Request::Prepared(statement, values), idempotent).await
    }

    async fn send(&self, request: Request<'_>, idempotent: bool) -> Result<Answered, Failure> {
        let limit = self.connector.timeout();
        let (mut conflicts, mut tries) = (0, BREAKS);
        loop {
            let place = tokio::time::timeout(limit, self.places.acquire()).await;
            // Never closed.
            let Ok(Ok(_place)) = place else { return Err(Failure::TimedOut) };
            let mut connection = self.connection(idempotent).await?;
            tries -= 1;
            let failure = match connection.send(request, limit).await {
                Ok(answered) => {
                    if !connection.spent {
                        lock(&self.idle).push(connection);
                    }
                    return Ok(answered);
                }
                Err(failure) => failure,
            };
            if !failure.ends_connection() {
                lock(&self.idle).push(connection);
            } else if failure.allows_second_try() {
                // The others that are idle are as old, and most likely as dead.
                self.disconnect();
            }
            match failure {
                Failure::Conflict(_) if conflicts < CONFLICTS => {
                    self.conflicts.fetch_add(1, Ordering::Relaxed);
                    (conflicts, tries) = (conflicts + 1, BREAKS);
                    pause(conflicts).await;
                }
                failure if idempotent && tries > 0 && failure.allows_second_try() => {}
                failure => return Err(failure),
            }
        }
    }

    /// Lets go of every connection that is not in use.
    pub(in crate::backend::sql) fn disconnect(&self) {
        drop(std::mem::take(&mut *lock(&self.idle)));
    }

    /// An idle connection, or a new one. Before a request that may be sent only once, one that was
    /// idle for long is asked whether it is still there.
    async fn connection(&self, idempotent: bool) -> Result<MysqlConnection, Failure> {
        loop {
            let Some(mut connection) = lock(&self.idle).pop() else {
                return self.connector.connect().await;
            };
            if idempotent || Moment::now().since(connection.used) < STALE {
                return Ok(connection);
            }
            match connection.run("DO 1", self.connector.timeout()).await {
                Ok(_) => return Ok(connection),
                Err(Failure::TimedOut) => return Err(Failure::TimedOut),
                Err(_) => self.disconnect(),
            }
        }
    }
}

impl fmt::Debug for MysqlClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlClient").field("store", &self.connector.shown).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_end_themselves() {
        assert_eq!(text("a'b"), "_utf8mb4 x'612762'");
        assert_eq!(bytes(b"\xff\x00"), "x'ff00'");
    }
}
