#![doc = include_str!("../../../docs/sqlite.md")]

mod checkup;
mod cleanup;
mod client;
mod driver;
mod error;
mod inspect;
mod lease;
mod options;
mod queue;
mod record;
mod requests;
mod schema;
mod sequence;
#[cfg(unix)]
mod sockets;
#[cfg(not(unix))]
#[path = "sockets_none.rs"]
mod sockets;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod waiters;

use crate::backend::{
    Backend, Background, Capability, Claim, FencingToken, Finding, Grant, Inspector, Lease,
    LockView, Name, Page, Patience, Reserve, Reserved, Sequencer, Ticket, check_record,
};
use crate::error::Result;
use async_trait::async_trait;
use lease::{Context, SqliteLease};
pub use options::SqliteOptions;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The lock table in a file.
///
/// ```text
///   Sqlite ──► table ──► lease ──► driver ──► client ──► requests ──► queue ──► record
///                                               └──► waiters, sockets, schema
/// ```
///
/// An arrow is a call. The type itself decides nothing: every answer comes out of a transaction in
/// [`requests`], and [`Transaction`](client::transaction::Transaction) is what
/// those functions are written on.
#[derive(Debug)]
struct Sqlite {
    context: Arc<Context>,
}

impl Sqlite {
    /// Opens the file, and makes it if it is not there. Blocks while another process is just making
    /// it, so it runs on a thread that may block.
    ///
    /// A file that cannot be used is an error here and not at the first lock: a wrong path is a
    /// mistake in the configuration, and is best reported when the program starts.
    fn open(options: SqliteOptions, background: &Background) -> Result<Self> {
        let context = Context::open(options.absolute_path()?, background)?;
        Ok(Self { context: Arc::new(context) })
    }

    /// The client in use, for tests that look at its counters. Panics after `close`, which takes
    /// the client out of use.
    #[cfg(all(test, unix))]
    fn client(&self) -> Arc<client::Client> {
        self.context.current.current(|_| true).expect("it is open").1
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn capability(&self) -> Capability {
        crate::recipes::SQLITE
    }

    fn recipe(&self) -> &'static str {
        "table"
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        table::acquire(&self.context, claim, patience).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        table::withdraw(&self.context, claim).await
    }

    /// Lets go of the connection and its driver, which end with the last claim made on them.
    ///
    /// Claims that are held stay valid: each has its own reference to the client, and is renewed
    /// and released through it. A request that comes after `close` opens another client.
    async fn close(&self) -> Result<()> {
        self.context.close();
        Ok(())
    }

    /// Needs no look at the file: whether the claim is still held is decided by the first renewal
    /// or release, in the same transaction that acts on it. A check made here could be out of date
    /// by then.
    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        Some(Box::new(SqliteLease::of_ticket(&self.context, ticket)))
    }

    /// The query that shows the rows, to be pasted into the `sqlite3` shell. Quotes in the name are
    /// doubled for that; the backend's own queries pass names as parameters.
    fn keys(&self, name: &Name) -> Vec<String> {
        let quoted = name.as_str().replace('\'', "''");
        vec![format!("SELECT * FROM claim WHERE name = '{quoted}'")]
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        let client = self.context.client().await?;
        checkup::checkup(&client).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        let client = self.context.client().await?;
        checkup::round_trips(&client, count).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }
}

impl fmt::Display for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.context.path.display())
    }
}

#[async_trait]
impl Inspector for Sqlite {
    /// Reads without writing while the connection is free, so an operator sees the locks also while
    /// a stopped process keeps the file from being written.
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let prefix = prefix.to_owned();
        self.context.client().await?.look(move |tx| inspect::list(tx, &prefix)).await
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let client = self.context.client().await?;
        client.look(move |tx| inspect::list_page(tx, &prefix, after.as_deref(), limit)).await
    }

    /// As `list`, for one name.
    async fn show(&self, name: &Name) -> Result<LockView> {
        let name = name.clone();
        self.context.client().await?.look(move |tx| inspect::show(tx, &name)).await
    }

    /// Breaks by token and not by name alone: an operator who looked, and typed the command a
    /// minute later, must not hit the successor of the holder that was seen.
    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let (name, reason) = (name.clone(), reason.to_owned());
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let client = self.context.client().await?;
        let broken = client.call(move |tx| tx.break_hold(name.as_str(), token, &reason)).await?;
        // The driver learns of commits from the file's version number, which does not change for
        // commits of its own connection. Without this call a holder in this very process might not
        // be told before its next renewal.
        client.look_for_notices();
        Ok(broken)
    }
}

/// What is written survives a power failure, unlike a lock: numbers are used beyond this boot.
#[async_trait]
impl Sequencer for Sqlite {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        let (name, wish) = (name.clone(), *wish);
        let client = self.context.client().await?;
        client.call_lasting(move |tx| tx.reserve(name.as_str(), &wish)).await
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        let name = name.clone();
        self.context.client().await?.look(move |tx| tx.read_record(name.as_str())).await
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        check_record(value)?;
        let (name, value, expected) = (name.clone(), value.to_owned(), expected.map(str::to_owned));
        let client = self.context.client().await?;
        client
            .call_lasting(move |tx| tx.write_record(name.as_str(), &value, expected.as_deref()))
            .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        let prefix = prefix.to_owned();
        self.context.client().await?.look(move |tx| tx.list_records(&prefix)).await
    }

    /// The machine's clock, which all who share the file have in common.
    async fn time(&self) -> Result<Option<SystemTime>> {
        Ok(Some(SystemTime::now()))
    }

    async fn auto_increment(&self, count: u32) -> Result<Option<Vec<u64>>> {
        let client = self.context.client().await?;
        client
            .call_lasting(move |tx| tx.auto_increment(count))
            .await
            .and_then(sequence::numbers)
            .map(Some)
    }
}
