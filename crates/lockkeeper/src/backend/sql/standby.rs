//! Two databases: a primary, and a standby that a keeper moves to when the primary is gone.
//!
//! ```text
//!   keeper ──► primary ─ ─ replication ─ ─► standby            the standby is a replica: not moved to
//!   keeper  ✗  primary (stopped)            standby (promoted) moved to; grants after `takeover`
//! ```
//!
//! The keeper promotes nothing: it moves to the other server when its own does not answer, or can
//! only be read, and the other takes writes. Moving back is the same move, told by the same means.
//!
//! Replication is asynchronous, so the other server may not know the last grants and renewals. What
//! keeps two from believing at once is time. No ttl is longer than `takeover`, and nothing is
//! granted before the other server has been the one that takes writes for so long: whatever its
//! predecessor granted is over by then. Since when it is the one is in its tables, so that a keeper
//! that comes later need not wait again.
//!
//! Tokens go on by the other server's clock, which had `takeover` to get ahead of its predecessor's.
//! A token that is not above those that the keeper had before the move is refused.

use super::SqlTable;
use super::requests::Requests;
use crate::backend::support::alarms::{Alarms, OwnAlarm};
use crate::backend::support::options::config;
use crate::backend::support::sync::lock;
use crate::backend::{
    Alarm, Backend, Background, Capability, Claim, FencingToken, Finding, Grant, Inspector, Lease,
    LockView, LossReason, Moment, Name, Page, Patience, Release, Standing, Ticket,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How soon the other server is asked again whether it takes writes.
const AGAIN: Duration = Duration::from_millis(500);

/// One of the two servers; connects to nothing before it is asked something.
pub(super) type Server = (Arc<dyn Requests>, String);

/// Lock tables in whichever of two databases takes writes.
pub(super) struct Standby {
    shared: Arc<Shared>,
}

struct Shared {
    servers: [Server; 2],
    capability: Capability,
    /// The longest ttl, and how long a server has to be the one before it grants.
    takeover: Duration,
    background: Background,
    now: Mutex<Now>,
    moving: tokio::sync::Mutex<Option<Moment>>,
    /// Of all claims that are held, to be rung with a move.
    alarms: Alarms,
    /// The largest token so far.
    largest: AtomicU64,
}

/// Where the keeper is.
#[derive(Clone)]
struct Now {
    server: usize,
    /// Counts moves.
    moves: u64,
    backend: Arc<dyn Backend>,
    grants_from: Moment,
    /// Tokens are above this.
    floor: u64,
}

impl Standby {
    /// Opens the primary, or the standby where that is the one that takes writes.
    pub(super) async fn open(
        servers: [Server; 2],
        capability: Capability,
        takeover: Duration,
        background: &Background,
    ) -> Result<Arc<dyn Backend>> {
        // Numbers that were reserved and not replicated would be given again.
        let capability = Capability { sequences: false, ..capability };
        let (server, (backend, grants_from)) =
            match enter(&servers, 0, capability, takeover, background).await {
                Ok(entered) => (0, entered),
                Err(error) if may_be_gone(&error) => {
                    let other = enter(&servers, 1, capability, takeover, background).await;
                    // What is wrong with the primary is what its user has to know.
                    (1, other.map_err(|_| error)?)
                }
                Err(error) => return Err(error),
            };
        let now = Now { server, moves: 0, backend, grants_from, floor: 0 };
        let shared = Shared {
            servers,
            capability,
            takeover,
            background: background.clone(),
            now: Mutex::new(now),
            moving: tokio::sync::Mutex::default(),
            alarms: Alarms::default(),
            largest: AtomicU64::new(0),
        };
        Ok(Arc::new(Self { shared: Arc::new(shared) }))
    }
}

/// Opens one of the servers, if it takes writes; and from when on it grants.
async fn enter(
    servers: &[Server; 2],
    server: usize,
    capability: Capability,
    takeover: Duration,
    background: &Background,
) -> Result<(Arc<dyn Backend>, Moment)> {
    let (requests, table) = &servers[server];
    requests.check_bound().await?;
    let backend = SqlTable::open(requests.clone(), capability, table.clone(), background).await?;
    // Where nobody ever wrote down who is the one, the primary has always been.
    let entered = requests.enter(server == 0).await;
    let lasted = entered.map_err(|failure| failure.explain(requests.shown()))?;
    Ok((backend, Moment::now() + takeover.saturating_sub(lasted)))
}

/// Whether an error means that the server may not be the one that takes writes any more.
fn may_be_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Config)
}

impl Shared {
    fn now(&self) -> Now {
        lock(&self.now).clone()
    }

    fn has_moved_since(&self, moves: u64) -> bool {
        lock(&self.now).moves != moves
    }

    /// Why claims of before a move are lost.
    fn moved(&self) -> LossReason {
        let to = self.servers[self.now().server].0.shown();
        LossReason::Broken { reason: format!("the keeper moved to {to}") }
    }

    /// Moves to the other server if that takes writes; whether the keeper has moved since `from`.
    /// Every holder is told.
    async fn move_from(&self, from: &Now) -> bool {
        let mut tried = self.moving.lock().await;
        if self.has_moved_since(from.moves) {
            return true;
        }
        if tried.is_some_and(|tried| Moment::now().since(tried) < AGAIN) {
            return false;
        }
        let to = 1 - from.server;
        let entered =
            enter(&self.servers, to, self.capability, self.takeover, &self.background).await;
        *tried = Some(Moment::now());
        let (backend, grants_from) = match entered {
            Ok(entered) => entered,
            Err(error) => {
                // It may have answered and refused, on a connection that nobody needs.
                self.servers[to].0.disconnect();
                tracing::debug!(%error, "the other server cannot be moved to");
                return false;
            }
        };
        let (moves, floor) = (from.moves + 1, self.largest.load(Ordering::SeqCst));
        *lock(&self.now) = Now { server: to, moves, backend, grants_from, floor };
        let shown = self.servers[to].0.shown();
        tracing::warn!(to = shown, "moved to the other database; what was held is lost");
        for alarm in self.alarms.take() {
            alarm.ring(self.moved());
        }
        self.servers[from.server].0.disconnect();
        true
    }

    /// The lease of a claim at a server, as long as the keeper stays there.
    fn lease(self: &Arc<Self>, at: &Now, id: String, inner: Box<dyn Lease>) -> Box<dyn Lease> {
        let (shared, alarm) = (self.clone(), OwnAlarm::default());
        Box::new(StandbyLease { shared, inner, id, at: at.clone(), alarm })
    }
}

#[async_trait]
impl Backend for Standby {
    fn capability(&self) -> Capability {
        self.shared.capability
    }

    fn recipe(&self) -> &'static str {
        "table"
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let shared = &self.shared;
        if claim.ttl > shared.takeover {
            return Err(config(format!(
                "with a standby no ttl is longer than ?takeover={:?}, for which a move has to \
                 wait: ask for a shorter one, or raise takeover in every program",
                shared.takeover
            )));
        }
        loop {
            let at = shared.now();
            if !at.grants_from.remaining().is_zero() {
                tokio::select! { () = at.grants_from.reached() => {}, () = patience.over() => {} }
                if !at.grants_from.remaining().is_zero() {
                    return Ok(None);
                }
            }
            match at.backend.acquire(claim, patience).await {
                // What an old server grants to a keeper that has left is worth nothing.
                Ok(Some(_)) if shared.has_moved_since(at.moves) => {}
                Ok(Some(grant)) => {
                    let token = grant.token.map_or(0, FencingToken::get);
                    if token <= at.floor {
                        return Err(behind(shared.servers[at.server].0.shown()));
                    }
                    shared.largest.fetch_max(token, Ordering::SeqCst);
                    let lease = shared.lease(&at, claim.id.to_string(), grant.lease);
                    return Ok(Some(Grant::new(lease, grant.token, grant.sent, grant.valid_for)));
                }
                Ok(None) => return Ok(None),
                Err(error) if may_be_gone(&error) => {
                    if !shared.move_from(&at).await {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.shared.now().backend.withdraw(claim).await
    }

    async fn close(&self) -> Result<()> {
        let closed = self.shared.now().backend.close().await;
        // The other server too: a connection that was in use at the move, or refused when the keeper
        // was opened, is still there.
        for (requests, _) in &self.shared.servers {
            requests.disconnect();
        }
        closed
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        let at = self.shared.now();
        let mut ticket = ticket.clone();
        ticket.ttl = ticket.ttl.min(self.shared.takeover);
        let inner = at.backend.lease_of(&ticket)?;
        Some(self.shared.lease(&at, ticket.id.to_string(), inner))
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        self.shared.now().backend.keys(name)
    }

    fn no_sequencer(&self) -> Option<&'static str> {
        Some("numbers that the standby has not got yet would be given twice")
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    async fn incarnation(&self) -> Result<Option<String>> {
        self.shared.now().backend.incarnation().await
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        self.shared.now().backend.checkup().await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        self.shared.now().backend.round_trips(count).await
    }
}

/// The refusal of a token that is not above those of before the move.
fn behind(at: &str) -> Error {
    Error::new(
        ErrorKind::Store,
        format!(
            "the clock of {at} is behind that of the server before it, and its tokens would go \
             back: set the clock"
        ),
    )
}

/// Looks where the keeper is.
#[async_trait]
impl Inspector for Standby {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let at = self.shared.now();
        match at.backend.inspector() {
            Some(inspector) => inspector.list(prefix).await,
            None => Ok(Vec::new()),
        }
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let at = self.shared.now();
        match at.backend.inspector() {
            Some(inspector) => inspector.list_page(prefix, after, limit).await,
            None => Ok(Page::default()),
        }
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        let at = self.shared.now();
        match at.backend.inspector() {
            Some(inspector) => inspector.show(name).await,
            None => Ok(LockView::new(name.clone())),
        }
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let at = self.shared.now();
        match at.backend.inspector() {
            Some(inspector) => inspector.break_hold(name, token, reason).await,
            None => Ok(false),
        }
    }
}

impl fmt::Display for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(primary, _), (standby, _)] = &self.shared.servers;
        write!(f, "{} with the standby {}", primary.shown(), standby.shown())
    }
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").field("shown", &self.to_string()).finish_non_exhaustive()
    }
}

/// A claim that is lost with a move.
struct StandbyLease {
    shared: Arc<Shared>,
    inner: Box<dyn Lease>,
    id: String,
    at: Now,
    alarm: OwnAlarm,
}

impl StandbyLease {
    /// Asks the database that the claim was made in to keep it, unless the keeper has moved since.
    async fn ask(&mut self, takes_over: bool) -> Result<Standing> {
        if self.shared.has_moved_since(self.at.moves) {
            return Ok(Standing::Lost(self.shared.moved()));
        }
        let asked = match takes_over {
            true => self.inner.take_over().await,
            false => self.inner.renew().await,
        };
        match asked {
            Err(error) if may_be_gone(&error) && self.shared.move_from(&self.at).await => {
                Ok(Standing::Lost(self.shared.moved()))
            }
            renewed => renewed,
        }
    }
}

#[async_trait]
impl Lease for StandbyLease {
    async fn renew(&mut self) -> Result<Standing> {
        self.ask(false).await
    }

    async fn take_over(&mut self) -> Result<Standing> {
        self.ask(true).await
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        self.alarm.unwatch(&self.shared.alarms, &self.id);
        if self.shared.has_moved_since(self.at.moves) {
            return Err(self.shared.moved().to_error());
        }
        self.inner.release(how).await
    }

    fn watch(&mut self, alarm: Alarm) {
        self.alarm.watch(&self.shared.alarms, &self.id, alarm.clone());
        if self.shared.has_moved_since(self.at.moves) {
            return alarm.ring(self.shared.moved());
        }
        self.inner.watch(alarm);
    }
}

impl Drop for StandbyLease {
    fn drop(&mut self) {
        self.alarm.unwatch(&self.shared.alarms, &self.id);
    }
}

impl fmt::Debug for StandbyLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StandbyLease").field(&self.inner).finish()
    }
}
