//! The session: the one lease of etcd's that all claims of a keeper live on.
//!
//! A keeper has a lease only while it needs one. When etcd ends a lease all claims on it are gone,
//! and the next claim begins another. A lease for each claim would free claims one by one, but cost
//! a grant, a heartbeat and a revocation for each; one for all costs the same for a thousand.
//!
//! To avoid a clash of words: a *server lease* is etcd's, a `Lease` is the library's word for one
//! held claim.
//!
//! A claim that must outlive its keeper has a server lease of its own: one that is handed out, or was
//! asked for by its id. See [`own`](super::own).

use super::client::{Answered, Client};
use super::protocol::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest, RangeResponse, ResponseHeader, path,
};
use super::requests;
use crate::backend::Moment;
use crate::backend::support::reconnect::Reconnecting;
use crate::backend::support::sync::lock;
use crate::error::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest pause between two heartbeats of a claim that waits. A member that is stuck, and
/// would not tell of a lock that is free, is found out by them.
const LONGEST_BEAT: Duration = Duration::from_secs(2);
/// How often a heartbeat is sent again during which the leader changed.
const TRIES: usize = 3;

/// Makes server leases, one after another, and hands out the one in use.
#[derive(Debug)]
pub(super) struct Session {
    client: Arc<Client>,
    length: Duration,
    /// A key that we may read, and that is never there.
    probe: Vec<u8>,
    current: Reconnecting<Arc<ServerLease>>,
}

/// One lease of etcd's, from its grant to its end.
///
/// It lives, as far as we believe, for `ttl` from the moment its last confirmed heartbeat was sent,
/// less a margin for clocks that run at different speeds. Between the end of that belief and etcd's
/// word that the lease is gone it is *over* but not *gone*: nothing new is put on it, and what is
/// on it is still deleted.
#[derive(Debug)]
pub(super) struct ServerLease {
    pub(super) id: i64,
    /// How long etcd keeps it without a heartbeat.
    pub(super) ttl: Duration,
    /// The heartbeat that the lease's life rests on.
    confirmed: Mutex<Heartbeat>,
    /// Held during a heartbeat, so that one serves all callers that want one.
    beating: tokio::sync::Mutex<()>,
    probe: RangeRequest,
    /// Cancelled when etcd says that the lease is no more.
    gone: CancellationToken,
    /// The session's generation, as far as we know; see [`requests`].
    generation: Mutex<Vec<u8>>,
}

/// A heartbeat that a majority stands behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heartbeat {
    /// When it was sent.
    pub(super) sent: Moment,
    /// How long etcd keeps the lease from then on.
    pub(super) ttl: Duration,
    /// The connection on which a read was answered after it, unless none was yet: at the other end
    /// is a member that keeps up with the leader.
    pub(super) connection: Option<u64>,
}

impl Session {
    pub(super) fn new(client: Arc<Client>, length: Duration, probe: Vec<u8>) -> Self {
        Self { client, length, probe, current: Reconnecting::default() }
    }

    /// The lease in use; a new one if there is none or it may be over.
    pub(super) async fn current(&self) -> Result<Arc<ServerLease>> {
        let begin =
            async || ServerLease::begin(&self.client, self.length, &self.probe).await.map(Arc::new);
        Ok(self.current.get(|lease| !lease.is_over(), begin).await?.1)
    }

    /// A lease for one claim that waits, which is not to stand in others' way for longer than a session
    /// when its keeper dies; and for how many seconds it was asked for.
    pub(super) async fn own(&self, ttl: Duration) -> Result<(Arc<ServerLease>, u64)> {
        let length = ttl.min(self.length);
        let lease = ServerLease::begin(&self.client, length, &self.probe).await?;
        Ok((Arc::new(lease), seconds(length)))
    }

    /// Ends the lease in use, unless a claim lives on it, is being made on it, or `pending` says
    /// that something on it is still to be deleted. Whether no lease is in use afterwards.
    pub(super) async fn close(&self, pending: impl Fn(i64) -> bool) -> Result<bool> {
        // Whatever has or makes a claim shares the lease; a detached claim is pending.
        let idle =
            self.current.take_if(|lease| Arc::strong_count(lease) == 1 && !pending(lease.id));
        let Some(lease) = idle else { return Ok(self.current.current(|_| true).is_none()) };
        if lease.is_over() {
            return Ok(true);
        }
        revoke(&self.client, lease.id).await.map(|()| true)
    }
}

impl ServerLease {
    /// Has etcd grant a lease. Its life counts from before the request was sent.
    async fn begin(client: &Client, length: Duration, probe: &[u8]) -> Result<Self> {
        let sent = Moment::now();
        let (id, ttl) = grant(client, length).await?;
        Ok(Self {
            id,
            ttl,
            // Granted by a majority, since it was written down.
            confirmed: Mutex::new(Heartbeat { sent, ttl, connection: None }),
            beating: tokio::sync::Mutex::default(),
            probe: requests::one(probe.to_vec()),
            gone: CancellationToken::new(),
            generation: Mutex::default(),
        })
    }

    /// When the last confirmed heartbeat was sent.
    pub(super) fn sent(&self) -> Moment {
        lock(&self.confirmed).sent
    }

    /// The connection on which the last heartbeat was confirmed.
    pub(super) fn confirmed_on(&self) -> Option<u64> {
        lock(&self.confirmed).connection
    }

    /// Until when the lease surely lives, by our clock and with a margin for the drift of etcd's.
    pub(super) fn end(&self) -> Moment {
        lock(&self.confirmed).end()
    }

    /// Whether etcd said that the lease is no more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }

    /// Whether the lease is no more, or may be.
    pub(super) fn is_over(&self) -> bool {
        self.is_gone() || self.end().remaining().is_zero()
    }

    /// Notes that etcd said so. A lease that may be over is not declared gone: its keys may still
    /// be there, and have to be deleted.
    pub(super) fn declare_gone(&self) {
        self.gone.cancel();
    }

    /// The generation that requests for new keys are to carry.
    pub(super) fn generation(&self) -> Vec<u8> {
        lock(&self.generation).clone()
    }

    /// Notes the generation that etcd has; whether it was known.
    pub(super) fn learn_generation(&self, generation: Vec<u8>) -> bool {
        let mut known = lock(&self.generation);
        let was_known = *known == generation;
        *known = generation;
        was_known
    }

    /// Sends a heartbeat, unless one was confirmed less than `recently` ago, and says whether it
    /// did. One request at a time serves all who call this meanwhile.
    pub(super) async fn keep_alive(&self, client: &Client, recently: Duration) -> Result<bool> {
        let begun = Moment::now();
        let is_recent = || begun.since(self.sent()) <= recently;
        if self.is_gone() || is_recent() {
            return Ok(false);
        }
        let _one = self.beating.lock().await;
        if self.is_gone() || is_recent() {
            return Ok(false);
        }
        match beat(client, self.id, &self.probe).await?.0 {
            Some(confirmed) => *lock(&self.confirmed) = confirmed,
            None => self.declare_gone(),
        }
        Ok(true)
    }

    /// How often a claim that waits sends a heartbeat.
    pub(super) fn beat(&self) -> Duration {
        (self.ttl / 3).min(LONGEST_BEAT)
    }
}

impl Heartbeat {
    /// Until when the lease surely lives, by our clock and with a margin for the drift of etcd's.
    pub(super) fn end(&self) -> Moment {
        self.sent + self.ttl.saturating_sub(self.ttl / 100 + Duration::from_millis(2))
    }
}

/// Sends a heartbeat to a lease; `None` when etcd does not have it any more. Also what a read found
/// that was answered after it.
///
/// etcd answers a heartbeat from the memory of the member that takes itself for the leader. One
/// that was deposed, and whose disk hangs or that was stopped, does not know better, and renews
/// a lease that the others let end. So a heartbeat counts only with a read through a majority
/// that was answered after it, in the same raft term: then its leader led when it renewed the
/// lease, and every leader after it gives the lease its whole length again. Nothing else that
/// we believe is one member's word: reads and transactions go through a majority, and a watch
/// only makes us look.
pub(super) async fn beat(
    client: &Client,
    id: i64,
    probe: &RangeRequest,
) -> Result<(Option<Heartbeat>, RangeResponse)> {
    let mut unknown = false;
    for _ in 0..TRIES {
        let sent = Moment::now();
        let request = LeaseKeepAliveRequest { id };
        let alive: LeaseKeepAliveResponse =
            client.first_answer(path::LEASE_KEEP_ALIVE, &request).await?;
        let read = client.try_call::<_, RangeResponse>(path::RANGE, probe).await;
        let read = read.map_err(|failure| failure.explain(client.shown()))?;
        let (found, connection) = (read.answer, Some(read.connection));
        // Not an error to etcd: a lease that is no more has no time left. A leader that has
        // just begun may not know it yet; after the read it does.
        let Ok(ttl @ 1..) = u64::try_from(alive.ttl) else {
            if std::mem::replace(&mut unknown, true) {
                return Ok((None, found));
            }
            continue;
        };
        if raft_term(alive.header) == raft_term(found.header) {
            let ttl = Duration::from_secs(ttl);
            return Ok((Some(Heartbeat { sent, ttl, connection }), found));
        }
    }
    Err(restless(client))
}

/// The error for what was tried again and again.
pub(super) fn restless(client: &Client) -> Error {
    let message = format!("{} changed again and again: try again", client.shown());
    Error::new(ErrorKind::Unavailable, message)
}

/// Ends a lease, and with it deletes what lives on it; harmless if it is no more.
pub(super) async fn revoke(client: &Client, id: i64) -> Result<()> {
    let request = LeaseRevokeRequest { id };
    match client.try_call::<_, LeaseRevokeResponse>(path::LEASE_REVOKE, &request).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_lease_gone() => Ok(()),
        Err(failure) => Err(failure.explain(client.shown())),
    }
}

/// As etcd counts: whole seconds, and no less than asked for.
pub(super) fn seconds(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() > 0)
}

/// The raft term of an answer: two answers of the same term have the same leader behind them.
fn raft_term(header: Option<ResponseHeader>) -> Option<u64> {
    header.map(|header| header.raft_term)
}

/// Grants a server lease of at least `length`; its id and its true length. The id is ours, so that
/// the request is idempotent.
pub(super) async fn grant(client: &Client, length: Duration) -> Result<(i64, Duration)> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the system gave no random numbers")
            .caused_by(error.to_string())
    })?;
    let id = (i64::from_ne_bytes(bytes) & i64::MAX).max(1);
    let seconds = seconds(length);
    let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
    let granted = client.try_call(path::LEASE_GRANT, &LeaseGrantRequest { ttl, id }).await;
    match granted {
        Ok(Answered { answer: LeaseGrantResponse { ttl, .. }, .. }) => {
            Ok((id, Duration::from_secs(u64::try_from(ttl).unwrap_or(seconds))))
        }
        // Granted by a request whose answer was lost; etcd makes leases longer, never shorter.
        Err(failure) if failure.is_lease_there() => Ok((id, Duration::from_secs(seconds))),
        Err(failure) => Err(failure.explain(client.shown())),
    }
}
