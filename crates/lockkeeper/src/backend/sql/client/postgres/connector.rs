//! How a connection is made: TLS or none, the settings of its session, and what a refusal means.

use super::super::super::error::{Failure, Refusal, Why, of_postgres};
use super::super::super::options::{KEEPALIVE_INTERVAL, KEEPALIVE_TRIES, PostgresOptions};
use super::super::tls::Tls;
use super::connection::{Notices, PostgresConnection};
use crate::backend::Background;
use crate::error::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls, Socket};

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
    /// would keep those for the client that gets the server's connection next.
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
            // Each statement of ours is planned once, for any values: all of them go by an index.
            // Planned for each value, it took the server longer to plan than to run. Without the
            // second, a plan made while a table is small would read all of it when it is large.
            "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off".to_owned(),
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
    let (client, connection) = config.connect(tls).await.map_err(|error| refused(&error))?;
    Ok(PostgresConnection::begin(client, connection))
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
