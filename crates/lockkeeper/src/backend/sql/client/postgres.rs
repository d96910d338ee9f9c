//! PostgreSQL: connections, and the few that all statements of a keeper share.
//!
//! A connection carries the statements of many tasks one behind the other without waiting for
//! answers in between, so one would do; a few let the server write several commits to its disk at
//! once. A sequential program uses one of them: the others are made when all are busy.

use super::super::error::{Failure, Refusal, Why, of_postgres};
use super::super::options::{KEEPALIVE_INTERVAL, KEEPALIVE_TRIES, PostgresOptions};
use super::tls::Tls;
use super::{BREAKS, CONFLICTS, pause, within};
use crate::backend::Background;
use crate::backend::support::life::Life;
use crate::backend::support::reconnect::Reconnecting;
use crate::backend::support::sync::lock;
use crate::error::Result;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, SimpleQueryMessage, Socket};
use tokio_util::sync::CancellationToken;

/// The parameters of a statement.
pub(in crate::backend::sql) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// A statement of ours, with table names in it.
#[derive(Debug)]
pub(in crate::backend::sql) struct Statement {
    /// What it is called among ours.
    pub(in crate::backend::sql) name: &'static str,
    pub(in crate::backend::sql) text: String,
    pub(in crate::backend::sql) types: Vec<Type>,
}

/// Makes connections.
pub(in crate::backend::sql) struct PostgresConnector {
    config: Config,
    tls: Option<Tls>,
    timeout: Duration,
    background: Background,
    /// Whether a pooler was noticed, or announced: nothing may be left in a session then.
    pooler: AtomicBool,
    /// The URL without its secrets.
    shown: String,
}

/// A connection. Dropping it ends the session once what was sent has been answered.
pub(in crate::backend::sql) struct PostgresConnection {
    pub(in crate::backend::sql) client: Client,
    life: Life,
    ended: CancellationToken,
    /// Whether the server said that it ends the connection, before it did.
    farewell: Arc<AtomicBool>,
    /// What was prepared on it, by [`Statement::name`].
    prepared: Mutex<HashMap<&'static str, tokio_postgres::Statement>>,
}

/// The texts that `NOTIFY` brings; ends with the connection.
pub(in crate::backend::sql) type Notices = mpsc::UnboundedReceiver<String>;

impl PostgresConnector {
    /// Makes no connection yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for options that make no sense.
    pub(in crate::backend::sql) fn new(
        options: &PostgresOptions,
        background: &Background,
    ) -> Result<Self> {
        options.check()?;
        let mut config = options.config.clone();
        if options.tls.is_some() {
            config.ssl_mode(tokio_postgres::config::SslMode::Require);
        } else {
            config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        }
        Ok(Self {
            config,
            tls: options.tls.as_ref().map(Tls::new).transpose()?,
            timeout: options.timeout,
            background: background.clone(),
            pooler: AtomicBool::new(options.pooler),
            shown: options.shown.clone(),
        })
    }

    /// The URL without its secrets.
    pub(in crate::backend::sql) fn shown(&self) -> &str {
        &self.shown
    }

    /// How long one statement may take.
    pub(in crate::backend::sql) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether a pooler is in between.
    pub(in crate::backend::sql) fn has_pooler(&self) -> bool {
        self.pooler.load(Ordering::Relaxed)
    }

    /// From now on nothing is prepared.
    pub(in crate::backend::sql) fn note_pooler(&self) {
        if !self.pooler.swap(true, Ordering::Relaxed) {
            tracing::info!(store = %self.shown, "a pooler is in between: statements are not prepared");
        }
    }

    /// A connection of the caller's own, with what `NOTIFY` brings on it. The server undoes a
    /// statement that takes longer than `limit`, where there is one.
    ///
    /// Settings go with the first message of the connection, not with a `SET` behind it: a pooler
    /// would keep those for whoever gets the server's connection next.
    pub(in crate::backend::sql) async fn connect(
        &self,
        limit: Option<Duration>,
    ) -> Result<(PostgresConnection, Notices), Failure> {
        if !self.has_pooler() {
            match self.open(self.with_settings(limit)).await {
                Err(Failure::Refused(refusal)) if refusal.said.contains("startup parameter") => {
                    self.note_pooler();
                }
                opened => return opened,
            }
        }
        self.open(self.config.clone()).await
    }

    /// The configuration with what the session is to be like.
    fn with_settings(&self, limit: Option<Duration>) -> Config {
        let mut config = self.config.clone();
        let mut settings = vec![
            r"-c default_transaction_isolation=read\ committed".to_owned(),
            format!("-c tcp_keepalives_idle={}", config.get_keepalives_idle().as_secs().max(1)),
            format!("-c tcp_keepalives_interval={}", KEEPALIVE_INTERVAL.as_secs()),
            format!("-c tcp_keepalives_count={KEEPALIVE_TRIES}"),
        ];
        if let Some(limit) = limit {
            settings.push(format!("-c statement_timeout={}", limit.as_millis()));
        }
        // The caller's own come last, and so count.
        settings.extend(config.get_options().map(str::to_owned));
        config.options(settings.join(" "));
        config
    }

    async fn open(&self, config: Config) -> Result<(PostgresConnection, Notices), Failure> {
        let tls = self.tls.clone();
        let connecting = self.background.settle(|| {
            let (config, tls) = (config.clone(), tls.clone());
            async move {
                match tls {
                    Some(tls) => open_with(config, tls).await,
                    None => open_with(config, NoTls).await,
                }
            }
        });
        match tokio::time::timeout(self.timeout, connecting).await {
            Err(_) => Err(Failure::TimedOut),
            Ok(Err(_)) => Err(Failure::RuntimeEnded),
            Ok(Ok(opened)) => opened,
        }
    }
}

/// Connects on the runtime it is called on, and leaves the connection's own task there.
async fn open_with<T>(config: Config, tls: T) -> Result<(PostgresConnection, Notices), Failure>
where
    T: MakeTlsConnect<Socket> + Send + 'static,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, mut connection) = config.connect(tls).await.map_err(|error| refused(&error))?;
    let (notify, notices) = mpsc::unbounded_channel();
    let ended = CancellationToken::new();
    let ends = ended.clone().drop_guard();
    let farewell = Arc::new(AtomicBool::new(false));
    let said = farewell.clone();
    tokio::spawn(async move {
        let _ends = ends;
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    // Nobody listens on most connections.
                    let _ = notify.send(notification.payload().to_owned());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => break said.store(error.code().is_some(), Ordering::Relaxed),
                None => break,
            }
        }
    });
    let prepared = Mutex::default();
    Ok((PostgresConnection { client, life: Life::begin(), ended, farewell, prepared }, notices))
}

/// Why there is no connection.
fn refused(error: &tokio_postgres::Error) -> Failure {
    match of_postgres(error) {
        // The driver says so itself, before the server could.
        Failure::Broken(why) if why.contains("password missing") => {
            Failure::Refused(Refusal { why: Why::Login, said: why })
        }
        // Until the login is through, the server has run nothing.
        Failure::Broken(why) => Failure::Unreachable(why),
        // What a pooler says of a server that it cannot reach.
        Failure::Refused(refusal) if error.code() == Some(&SqlState::CONNECTION_EXCEPTION) => {
            Failure::Unreachable(refusal.said)
        }
        other => other,
    }
}

impl PostgresConnection {
    /// Whether it is known to have ended.
    pub(in crate::backend::sql) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.ended.is_cancelled()
    }

    /// Resolves when the connection ended, whichever side ended it.
    #[allow(dead_code, reason = "for recipes whose locks live in a session")]
    pub(in crate::backend::sql) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Cancelled when the connection ended, whichever side ended it.
    pub(in crate::backend::sql) fn end(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// True, once the connection ended, if the server said so itself: it was told to end the
    /// session, or counted out its time. Else the connection broke, or its server.
    pub(in crate::backend::sql) fn farewell(&self) -> Arc<AtomicBool> {
        self.farewell.clone()
    }

    /// Prepares a statement ahead of its first use.
    pub(in crate::backend::sql) async fn prepare(
        &self,
        statement: &Statement,
        limit: Duration,
    ) -> Result<(), Failure> {
        within(&self.life, limit, self.prepared(statement)).await.map(|_| ())
    }

    /// Runs a statement, prepared, for a recipe that reads the server's own code in a refusal.
    pub(in crate::backend::sql) async fn ask(
        &self,
        statement: &Statement,
        params: &Params<'_>,
        limit: Duration,
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>, Failure> {
        let asked = async {
            let prepared = self.prepared(statement).await?;
            Ok(self.client.query(&prepared, params).await)
        };
        within(&self.life, limit, asked).await
    }

    /// Runs a statement; prepared, unless a pooler is in between.
    pub(in crate::backend::sql) async fn query(
        &self,
        statement: &Statement,
        params: &Params<'_>,
        pooler: bool,
        limit: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let asked = async {
            let rows = if pooler {
                let typed: Vec<_> =
                    params.iter().copied().zip(statement.types.iter().cloned()).collect();
                self.client.query_typed(&statement.text, &typed).await
            } else {
                let prepared = self.prepared(statement).await?;
                self.client.query(&prepared, params).await
            };
            rows.map_err(|error| of_postgres(&error))
        };
        within(&self.life, limit, asked).await
    }

    /// Runs several statements without parameters and without answers, one after the other.
    pub(in crate::backend::sql) async fn batch(
        &self,
        text: &str,
        limit: Duration,
    ) -> Result<(), Failure> {
        let asked =
            async { self.client.batch_execute(text).await.map_err(|error| of_postgres(&error)) };
        within(&self.life, limit, asked).await
    }

    /// Runs a statement by the simple protocol, which takes and gives texts only.
    pub(in crate::backend::sql) async fn simple(
        &self,
        text: &str,
        limit: Duration,
    ) -> Result<Vec<SimpleQueryMessage>, Failure> {
        let asked =
            async { self.client.simple_query(text).await.map_err(|error| of_postgres(&error)) };
        within(&self.life, limit, asked).await
    }

    async fn prepared(&self, statement: &Statement) -> Result<tokio_postgres::Statement, Failure> {
        if let Some(prepared) = lock(&self.prepared).get(statement.name) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare_typed(&statement.text, &statement.types).await;
        let prepared = prepared.map_err(|error| of_postgres(&error))?;
        lock(&self.prepared).insert(statement.name, prepared.clone());
        Ok(prepared)
    }
}

/// The first column of each row.
pub(in crate::backend::sql) fn first_columns(
    messages: Vec<SimpleQueryMessage>,
) -> Vec<Option<String>> {
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
        _ => None,
    });
    rows.collect()
}

/// A few connections that all statements of a keeper share.
pub(in crate::backend::sql) struct PostgresClient {
    pub(in crate::backend::sql) connector: PostgresConnector,
    slots: Vec<Slot>,
}

/// A place for one connection.
#[derive(Default)]
struct Slot {
    current: Reconnecting<Arc<PostgresConnection>>,
    /// How many statements are under way on it.
    busy: AtomicUsize,
}

/// One statement under way.
struct Busy<'a>(&'a Slot);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PostgresClient {
    /// Connects with the first statement.
    pub(in crate::backend::sql) fn new(connector: PostgresConnector, connections: usize) -> Self {
        let slots = (0..connections.max(1)).map(|_| Slot::default()).collect();
        Self { connector, slots }
    }

    /// Runs a statement on whichever connection is least busy. One that is idempotent is sent again
    /// when its connection broke; every one that the server undid because of others is.
    pub(in crate::backend::sql) async fn query(
        &self,
        statement: &Statement,
        params: &Params<'_>,
        idempotent: bool,
    ) -> Result<Vec<Row>, Failure> {
        let limit = self.connector.timeout();
        let (mut conflicts, mut tries) = (0, BREAKS);
        loop {
            let slot = self.least_busy();
            slot.busy.fetch_add(1, Ordering::Relaxed);
            let _busy = Busy(slot);
            let (number, connection) = self.connection(slot).await?;
            let pooler = self.connector.has_pooler();
            let failure = match connection.query(statement, params, pooler, limit).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            if failure.ends_connection() {
                slot.current.give_up(number);
            }
            tries -= 1;
            match failure {
                Failure::Conflict(_) if conflicts < CONFLICTS => {
                    (conflicts, tries) = (conflicts + 1, BREAKS);
                    pause(conflicts).await;
                }
                Failure::Pooled(_) if !pooler => self.connector.note_pooler(),
                failure if idempotent && tries > 0 && failure.allows_second_try() => {}
                failure => return Err(failure),
            }
        }
    }

    /// Prepares statements on a connection ahead of their first use, all at once, so that the first
    /// claim of a keeper takes as long as any other. Nothing is prepared behind a pooler.
    pub(in crate::backend::sql) async fn warm(
        &self,
        statements: &[&Statement],
    ) -> Result<(), Failure> {
        if self.connector.has_pooler() {
            return Ok(());
        }
        let slot = self.least_busy();
        let (_, connection) = self.connection(slot).await?;
        let limit = self.connector.timeout();
        let mut preparing = Vec::new();
        for statement in statements {
            preparing.push(connection.prepare(statement, limit));
        }
        match futures_util::future::try_join_all(preparing).await {
            Ok(_) => Ok(()),
            // Found out here instead of by the first claim.
            Err(Failure::Pooled(_)) => {
                self.connector.note_pooler();
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Runs statements by the simple protocol, all in one transaction, on one of the connections;
    /// the first column of each row.
    pub(in crate::backend::sql) async fn simple(
        &self,
        text: &str,
    ) -> Result<Vec<Option<String>>, Failure> {
        let slot = self.least_busy();
        slot.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(slot);
        let (number, connection) = self.connection(slot).await?;
        let answered = connection.simple(text, self.connector.timeout()).await;
        if answered.as_ref().is_err_and(Failure::ends_connection) {
            slot.current.give_up(number);
        }
        Ok(first_columns(answered?))
    }

    /// Lets go of every connection on which nothing is under way; the next statement makes a new
    /// one.
    pub(in crate::backend::sql) fn disconnect(&self) {
        for slot in &self.slots {
            drop(slot.current.take_if(|_| slot.busy.load(Ordering::Relaxed) == 0));
        }
    }

    /// An idle connection if there is one; else a place for a new one; else the least busy.
    fn least_busy(&self) -> &Slot {
        let busy = |slot: &&Slot| {
            let connected = slot.current.current(|it| !it.is_closed()).is_some();
            let busy = slot.busy.load(Ordering::Relaxed);
            // The first place that is free and not connected comes behind every idle connection
            // and before every busy one.
            if busy == 0 && !connected { 1 } else { busy * 2 }
        };
        self.slots.iter().min_by_key(busy).unwrap_or(&self.slots[0])
    }

    async fn connection(&self, slot: &Slot) -> Result<(u64, Arc<PostgresConnection>), Failure> {
        let connect = async || {
            let (connection, _) = self.connector.connect(Some(self.connector.timeout())).await?;
            Ok(Arc::new(connection))
        };
        slot.current.get(|connection| !connection.is_closed(), connect).await
    }
}

impl fmt::Debug for PostgresClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresClient")
            .field("store", &self.connector.shown)
            .finish_non_exhaustive()
    }
}
