//! A held claim, and the connection that claims of a keeper are made on.

use super::client::Client;
use super::client::transaction::Granted;
use super::driver;
use crate::backend::support::alarms::OwnAlarm;
use crate::backend::support::reconnect::Reconnecting;
use crate::backend::{Alarm, Background, Claim, Grant, Lease, Name, Release, Standing, Ticket};
use crate::claim::ClaimIds;
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What all claims of a keeper share: the file, and the client in use.
///
/// A client is let go of when the keeper is closed, and ends with the last claim that was made on
/// it; the next request opens another. Two clients of one keeper are then like two processes to the
/// file, which excludes them from each other as any others.
#[derive(Debug)]
pub(super) struct Context {
    /// Absolute, so that opening again finds the same file.
    pub(super) path: PathBuf,
    pub(super) current: Reconnecting<Arc<Client>>,
    background: Background,
}

impl Context {
    /// Opens the file, so that a keeper that was made has a usable file. Blocks while another
    /// process is just making it.
    pub(super) fn open(path: PathBuf, background: &Background) -> Result<Self> {
        let current = Reconnecting::with(open(&path)?);
        Ok(Self { path, current, background: background.clone() })
    }

    /// The client in use; a new one if the keeper was closed. Of several callers that find none,
    /// one opens it and the others wait for that.
    pub(super) async fn client(&self) -> Result<Arc<Client>> {
        let reopen = async || {
            let (path, runtime) = (self.path.clone(), self.background.handle()?);
            let opened = runtime.spawn_blocking(move || open(&path)).await;
            opened.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Unavailable, "the background thread ended"))
            })
        };
        Ok(self.current.get(|_| true, reopen).await?.1)
    }

    /// Lets go of the client in use. It is dropped here if nothing else refers to it, and its
    /// thread ends.
    pub(super) fn close(&self) {
        drop(self.current.take_if(|_| true));
    }
}

/// A client with its driver. The name is random, so no other client of the file has it, in this
/// process or in another. Without a driver there is no client: jobs that find the file busy would
/// stay undone.
fn open(path: &Path) -> Result<Arc<Client>> {
    let process = ClaimIds::new()?.next().to_string();
    let client = Arc::new(Client::open(path.to_owned(), process)?);
    driver::start(&client).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "cannot start a background thread").caused_by(error)
    })?;
    Ok(client)
}

/// One held claim: that of a grant, or of a ticket from anywhere. Every request names the claim's
/// id, so a lease whose claim is over can do nothing to its successor.
#[derive(Debug)]
pub(super) struct SqliteLease {
    context: Arc<Context>,
    /// The client that it was granted on, which is told should it be broken. `None` for a ticket
    /// until the file is needed. Keeps the client and its driver alive after the keeper was closed.
    client: Option<Arc<Client>>,
    name: Name,
    id: Arc<str>,
    /// The number of its row; looked up by the id where it is not known.
    row: Option<i64>,
    ttl: Duration,
    alarm: OwnAlarm,
}

impl SqliteLease {
    /// The grant of a claim that a transaction on `client` granted. Its validity counts from before
    /// that transaction began, so it ends for the holder before the row expires.
    pub(super) fn grant(
        context: &Arc<Context>,
        client: &Arc<Client>,
        claim: &Claim,
        granted: Granted,
    ) -> Grant {
        let (token, sent) = (Some(granted.token), granted.sent);
        let lease = Self {
            context: context.clone(),
            client: Some(client.clone()),
            name: claim.name.clone(),
            id: granted.id.into(),
            row: Some(granted.ticket),
            ttl: claim.ttl,
            alarm: OwnAlarm::default(),
        };
        Grant { lease: Box::new(lease), token, sent, valid_for: claim.ttl }
    }

    /// The lease of a claim that any process may have made. Whether it is held is not known here;
    /// the first request tells.
    pub(super) fn of_ticket(context: &Arc<Context>, ticket: &Ticket) -> Self {
        Self {
            context: context.clone(),
            client: None,
            name: ticket.name.clone(),
            id: ticket.id.to_string().into(),
            row: None,
            ttl: ticket.ttl,
            alarm: OwnAlarm::default(),
        }
    }

    /// The client of this lease: always the same one after the first call, since alarms are kept by
    /// client.
    async fn client(&mut self) -> Result<Arc<Client>> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = self.context.client().await?;
        Ok(self.client.insert(client).clone())
    }

    /// Takes the alarm of this lease away, if there is one.
    fn unwatch(&mut self) {
        if let Some(client) = &self.client {
            client.waiters.unwatch_own(&mut self.alarm, &self.id);
        }
    }
}

#[async_trait]
impl Lease for SqliteLease {
    /// Extends the row by the whole ttl, counted from the transaction, if the claim is still held.
    /// A claim that has expired stays lost, even if nobody else has come.
    async fn renew(&mut self) -> Result<Standing> {
        let (name, id, row, ttl) = (self.name.clone(), self.id.clone(), self.row, self.ttl);
        let client = self.client().await?;
        client.call(move |tx| tx.renew(name.as_str(), row, &id, ttl)).await
    }

    async fn take_over(&mut self) -> Result<Standing> {
        let (name, id, ttl) = (self.name.clone(), self.id.clone(), self.ttl);
        let client = self.client().await?;
        client.call(move |tx| tx.take_over(name.as_str(), &id, ttl)).await
    }

    /// Gives the claim back, and in the same transaction lets the next ones in. The alarm goes
    /// first: a break that is found from here on is reported by the answer of the release, and not
    /// twice.
    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let stay = how.stay();
        let (name, id, row) = (self.name.clone(), self.id.clone(), self.row);
        let client = self.client().await?;
        self.unwatch();
        match client.call(move |tx| tx.release(name.as_str(), row, &id, stay)).await? {
            None => Ok(()),
            Some(lost) => Err(lost.to_error()),
        }
    }

    /// Only the process that a claim was granted to, or that took it over, is told that it was broken;
    /// one that only keeps it finds out by the next renewal.
    fn watch(&mut self, alarm: Alarm) {
        if let Some(client) = &self.client {
            client.watch(&mut self.alarm, &self.id, alarm);
        }
    }
}

impl Drop for SqliteLease {
    fn drop(&mut self) {
        // A detached claim has nobody left to alarm. The row stays, for the ticket's new owner or
        // until it expires; `Drop` does no I/O.
        self.unwatch();
    }
}
