//! `recipe=optimistic`: a row with a version, for those who trust no clock but their own.
//!
//! ```text
//!   acquire   read the row; if it is free: UPDATE … SET version = version + 1 WHERE version = read
//!   renew     UPDATE … SET version = version + 1 WHERE claim = ours
//!   take over the version stood still for a whole lease of its holder, by our own clock
//!   release   UPDATE … SET claim = '' WHERE claim = ours
//! ```
//!
//! A holder that lives changes the version with every renewal. Who finds the same version a whole
//! lease after finding it first knows that the holder has stopped believing: the holder counts from
//! before the change, the waiter from after it has seen the change. So no two clocks are ever
//! compared, and a jump of the server's clock changes nothing about who holds what; the clock is
//! only in the tokens.
//!
//! The price is that nobody can take over what he has not watched for a lease: a claim that does not
//! wait gets a dead holder's lock only if its keeper looked before.
//!
//! | what if | then |
//! |---|---|
//! | the holder dies, or is cut off | its lock is taken over one lease after a waiter first saw its last version |
//! | two take over at once | one finds the version changed, and does not |
//! | a renewal arrives late | the version is another's, or the claim is: it changes nothing |
//! | an answer is lost | the claim's id tells, at the next try, or it is withdrawn by it |

#[cfg(feature = "mysql")]
pub(super) mod mysql;
#[cfg(feature = "postgres")]
pub(super) mod postgres;
mod watched;

use super::checkup::Examined;
use super::error::Failure;
use crate::backend::{
    Alarm, Backend, Background, Capability, Claim, FencingToken, Finding, Grant, HolderView,
    Inspector, Lease, LockView, LossReason, Mode, Moment, Name, Owner, Page, Patience, Release,
    Standing,
};
use crate::error::Result;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use watched::Watched;

/// What a row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) version: i64,
    /// The holder's claim; empty where there is none.
    pub(super) claim: String,
    pub(super) token: u64,
    pub(super) lease: Duration,
    pub(super) owner: String,
    pub(super) identity: String,
    pub(super) note: String,
    /// How long ago it was granted, by the server's clock: for people.
    pub(super) held_for: Duration,
}

/// The statements of a database. Each is one atomic step.
#[async_trait]
pub(super) trait Rows: fmt::Debug + Send + Sync + 'static {
    /// The URL without its secrets.
    fn shown(&self) -> &str;

    /// The server, to be asked how it is.
    fn server(&self) -> &dyn Examined;

    fn capability(&self) -> Capability;

    /// The row of a name.
    async fn read(&self, name: &Name) -> Result<Option<Row>, Failure>;

    /// Makes the row of a name, free, unless there is one.
    async fn make(&self, name: &Name) -> Result<(), Failure>;

    /// Gives the name to the claim if its version is still this one; the token, if so.
    async fn take(&self, claim: &Claim, version: i64) -> Result<Option<FencingToken>, Failure>;

    /// Changes the version of a name that this claim has; whether it has it.
    async fn renew(&self, name: &Name, claim: &str) -> Result<bool, Failure>;

    /// Frees a name that this claim has; whether it had it.
    async fn free(&self, name: &Name, claim: &str) -> Result<bool, Failure>;

    /// Frees a name that was granted with this token, and writes down why; whether it was.
    async fn break_hold(&self, name: &Name, token: u64, why: &str) -> Result<bool, Failure>;

    /// Why the hold with this token was broken, if it was and nobody has been broken since.
    async fn broken(&self, name: &Name, token: u64) -> Result<Option<String>, Failure>;

    /// The first `limit` names after `after` that are held and begin so, in order.
    async fn list(&self, beginning: &str, after: &str, limit: i64) -> Result<Vec<Row>, Failure>;

    /// Ends the connections on which nothing is under way.
    fn disconnect(&self);
}

/// Rows with versions.
#[derive(Debug)]
pub(super) struct Optimistic {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rows: Box<dyn Rows>,
    /// The versions of others that we have seen, and since when.
    watched: Watched,
    background: Background,
}

impl Optimistic {
    pub(super) fn new(rows: Box<dyn Rows>, background: &Background) -> Self {
        let (watched, background) = (Watched::default(), background.clone());
        Self { shared: Arc::new(Shared { rows, watched, background }) }
    }

    fn explain(&self, failure: Failure) -> crate::Error {
        failure.explain(self.shared.rows.shown())
    }

    fn grant(&self, claim: &Claim, token: FencingToken, sent: Moment) -> Grant {
        let lease = OptimisticLease {
            shared: self.shared.clone(),
            name: claim.name.clone(),
            id: claim.id.to_string(),
            over: sent + claim.ttl,
            ttl: claim.ttl,
            token,
            returned: false,
            settled: false,
        };
        Grant::new(Box::new(lease), Some(token), sent, claim.ttl)
    }
}

#[async_trait]
impl Backend for Optimistic {
    fn capability(&self) -> Capability {
        self.shared.rows.capability()
    }

    fn recipe(&self) -> &'static str {
        "optimistic"
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let Shared { rows, watched, .. } = &*self.shared;
        let fail = |failure| self.explain(failure);
        let row = match rows.read(&claim.name).await.map_err(fail)? {
            Some(row) => row,
            None => {
                rows.make(&claim.name).await.map_err(fail)?;
                match rows.read(&claim.name).await.map_err(fail)? {
                    Some(row) => row,
                    None => return Ok(None),
                }
            }
        };
        let free = row.claim.is_empty();
        if !free && !watched.stood_still(&claim.name, row.version, row.lease) {
            return Ok(None);
        }
        let sent = Moment::now();
        let token = rows.take(claim, row.version).await.map_err(fail)?;
        if token.is_some() {
            watched.forget(&claim.name);
        }
        Ok(token.map(|token| self.grant(claim, token, sent)))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let freed = self.shared.rows.free(&claim.name, &claim.id.to_string()).await;
        freed.map(|_| ()).map_err(|failure| self.explain(failure))
    }

    async fn close(&self) -> Result<()> {
        self.shared.rows.disconnect();
        Ok(())
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        self.shared.rows.server().checkup().await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        self.shared.rows.server().round_trips(count).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        vec![name.as_str().to_owned()]
    }
}

#[async_trait]
impl Inspector for Optimistic {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let rows = self.shared.rows.list(prefix, "", i64::MAX).await;
        let rows = rows.map_err(|failure| self.explain(failure))?;
        Ok(rows.iter().filter_map(view_of).collect())
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.shared.rows.list(prefix, after.unwrap_or_default(), most).await;
        let rows = rows.map_err(|failure| self.explain(failure))?;
        let last = rows.last().filter(|_| rows.len() >= limit);
        let next = last.map(|row| row.name.clone());
        Ok(Page::new(rows.iter().filter_map(view_of).collect(), next))
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        let row = self.shared.rows.read(name).await.map_err(|failure| self.explain(failure))?;
        let view = row.as_ref().and_then(view_of);
        Ok(view.unwrap_or_else(|| LockView::new(name.clone())))
    }

    /// Its holder finds out by its next renewal.
    async fn break_hold(&self, name: &Name, token: FencingToken, why: &str) -> Result<bool> {
        let broken = self.shared.rows.break_hold(name, token.get(), why).await;
        broken.map_err(|failure| self.explain(failure))
    }
}

/// `None` for a name that is free.
fn view_of(row: &Row) -> Option<LockView> {
    let mut view = LockView::new(Name::new(&row.name).ok()?);
    if row.claim.is_empty() {
        return None;
    }
    let mut holder = HolderView::new(Owner::from_id(row.owner.clone()), Mode::Exclusive);
    holder.identity.clone_from(&row.identity);
    holder.note.clone_from(&row.note);
    holder.token = FencingToken::new(row.token);
    // How long since its last renewal, nobody wrote down.
    (holder.held_for, holder.expires_in) = (row.held_for, row.lease);
    view.holders.push(holder);
    Some(view)
}

impl fmt::Display for Optimistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (optimistic)", self.shared.rows.shown())
    }
}

/// A claim that is held.
#[derive(Debug)]
struct OptimisticLease {
    shared: Arc<Shared>,
    name: Name,
    id: String,
    ttl: Duration,
    token: FencingToken,
    /// Until when the claim is held unless it is renewed.
    over: Moment,
    /// A request to give it back may have been carried out.
    returned: bool,
    /// It was given back, or is gone.
    settled: bool,
}

#[async_trait]
impl Lease for OptimisticLease {
    async fn renew(&mut self) -> Result<Standing> {
        let sent = Moment::now();
        let shared = &self.shared;
        let renewed = shared.rows.renew(&self.name, &self.id).await;
        match renewed.map_err(|failure| failure.explain(shared.rows.shown()))? {
            true => {
                self.over = sent + self.ttl;
                Ok(Standing::Held)
            }
            false => {
                self.settled = true;
                let broken = shared.rows.broken(&self.name, self.token.get()).await;
                let broken = broken.ok().flatten().map(|reason| LossReason::Broken { reason });
                Ok(Standing::Lost(broken.unwrap_or(LossReason::Gone)))
            }
        }
    }

    async fn release(&mut self, _: &Release<'_>) -> Result<()> {
        let again = std::mem::replace(&mut self.returned, true);
        let freed = self.shared.rows.free(&self.name, &self.id).await;
        let freed = freed.map_err(|failure| failure.explain(self.shared.rows.shown()))?;
        self.settled = true;
        if freed || again { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }

    /// Nobody tells of a loss here.
    fn watch(&mut self, _: Alarm) {}
}

impl Drop for OptimisticLease {
    /// A claim that was left to run out is given back when it has: only who watches it could take it
    /// over. A process that ends before leaves that to those who watch.
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let (shared, name, id, over) =
            (Arc::downgrade(&self.shared), self.name.clone(), self.id.clone(), self.over);
        self.shared.background.drive(async move {
            over.reached().await;
            if let Some(shared) = shared.upgrade() {
                // A waiter that watches takes it over otherwise.
                let _ = shared.rows.free(&name, &id).await;
            }
        });
    }
}
