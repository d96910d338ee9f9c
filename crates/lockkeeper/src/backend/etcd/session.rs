//! The lease that all claims of a keeper live on.

use super::link::{Answered, Link};
use super::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest, RangeResponse, ResponseHeader, path,
};
use super::{lock, requests};
use crate::backend::Moment;
use crate::error::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest pause between two heartbeats of who waits. A member that is stuck, and would not tell
/// of a lock that is free, is found out by them.
const LONGEST_BEAT: Duration = Duration::from_secs(2);
/// How often a heartbeat is sent again that the leader changed under.
const TRIES: usize = 3;

/// Makes leases, one after another: when one ends, all claims on it do.
#[derive(Debug)]
pub(super) struct Session {
    link: Arc<Link>,
    length: Duration,
    /// A key that we may read, and that is never there.
    probe: Vec<u8>,
    term: Mutex<Option<Arc<Term>>>,
    opening: tokio::sync::Mutex<()>,
}

/// One lease, from its grant to its end.
#[derive(Debug)]
pub(super) struct Term {
    pub(super) lease: i64,
    /// How long etcd keeps it without a sign of life.
    pub(super) ttl: Duration,
    /// What the lease's life rests on.
    voucher: Mutex<Voucher>,
    /// So that one sign of life serves all who want one.
    turn: tokio::sync::Mutex<()>,
    probe: RangeRequest,
    /// Cancelled when etcd says that the lease is no more.
    over: CancellationToken,
    /// What is in the key of doubt; see [`withdraw`](super::requests::withdraw).
    pub(super) doubt: Mutex<Vec<u8>>,
}

/// A sign of life that a majority stands behind.
#[derive(Debug, Clone, Copy)]
struct Voucher {
    /// When it left.
    sent: Moment,
    /// The connection on which a read was answered after it, unless none was yet: at the other end
    /// is a member that keeps up with the leader.
    connection: Option<u64>,
}

impl Session {
    pub(super) fn new(link: Arc<Link>, length: Duration, probe: Vec<u8>) -> Self {
        let (term, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { link, length, probe, term, opening }
    }

    /// The lease in use; a new one if there is none or it may be over.
    pub(super) async fn term(&self) -> Result<Arc<Term>> {
        if let Some(term) = self.current() {
            return Ok(term);
        }
        let _one = self.opening.lock().await;
        if let Some(term) = self.current() {
            return Ok(term);
        }
        let term = Arc::new(Term::begin(&self.link, self.length, &self.probe).await?);
        *lock(&self.term) = Some(term.clone());
        Ok(term)
    }

    /// Ends the lease in use, if nobody has a claim on it that `owed` knows of, or is making one.
    pub(super) async fn close(&self, owed: impl Fn(i64) -> bool) -> Result<()> {
        let idle = {
            let mut term = lock(&self.term);
            // Whoever has or makes a claim shares the term; a claim that was detached is owed.
            term.take_if(|term| Arc::strong_count(term) == 1 && !owed(term.lease))
        };
        let Some(term) = idle.filter(|term| !term.is_over()) else { return Ok(()) };
        let request = LeaseRevokeRequest { id: term.lease };
        match self.link.try_call::<_, LeaseRevokeResponse>(path::LEASE_REVOKE, &request).await {
            Ok(_) => Ok(()),
            Err(trouble) if trouble.is_lease_gone() => Ok(()),
            Err(trouble) => Err(trouble.explain(self.link.shown())),
        }
    }

    fn current(&self) -> Option<Arc<Term>> {
        lock(&self.term).clone().filter(|term| !term.is_over())
    }
}

impl Term {
    async fn begin(link: &Link, length: Duration, probe: &[u8]) -> Result<Self> {
        let sent = Moment::now();
        let (lease, ttl) = grant(link, length).await?;
        Ok(Self {
            lease,
            ttl,
            // Granted by a majority, since it was written down.
            voucher: Mutex::new(Voucher { sent, connection: None }),
            turn: tokio::sync::Mutex::default(),
            probe: requests::one(probe.to_vec()),
            over: CancellationToken::new(),
            doubt: Mutex::default(),
        })
    }

    pub(super) fn sent(&self) -> Moment {
        lock(&self.voucher).sent
    }

    /// The connection on which the last sign of life was confirmed.
    pub(super) fn vouched_on(&self) -> Option<u64> {
        lock(&self.voucher).connection
    }

    /// Until when the lease surely lives, by our clock and with a distance from etcd's own.
    pub(super) fn end(&self) -> Moment {
        self.sent() + self.ttl.saturating_sub(self.ttl / 100 + Duration::from_millis(2))
    }

    /// Whether etcd said that the lease is no more.
    pub(super) fn is_gone(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Whether the lease is no more, or may be.
    pub(super) fn is_over(&self) -> bool {
        self.is_gone() || self.end().remaining().is_zero()
    }

    pub(super) fn declare_gone(&self) {
        self.over.cancel();
    }

    /// Shows that we live, unless someone did so less than `recently` ago, and says whether that
    /// was needed. One request at a time does for all who call this meanwhile.
    ///
    /// A sign of life is answered from the memory of whoever takes itself for the leader; one that
    /// was deposed, and whose disk hangs or that was stopped, does not know better, and renews a
    /// lease that the others let end. So it counts only with a read through a majority that was
    /// answered after it, in the same term: then its leader led when it renewed the lease, and
    /// every leader after it gives the lease its whole length again. Nothing else that we believe
    /// is one member's word: reads and transactions go through a majority, and a watch only makes
    /// us look.
    pub(super) async fn keep_alive(&self, link: &Link, recently: Duration) -> Result<bool> {
        let begun = Moment::now();
        let is_recent = || begun.since(self.sent()) <= recently;
        if self.is_gone() || is_recent() {
            return Ok(false);
        }
        let _turn = self.turn.lock().await;
        if self.is_gone() || is_recent() {
            return Ok(false);
        }
        let mut unknown = false;
        for _ in 0..TRIES {
            let sent = Moment::now();
            let request = LeaseKeepAliveRequest { id: self.lease };
            let alive: LeaseKeepAliveResponse =
                link.first_answer(path::LEASE_KEEP_ALIVE, &request).await?;
            let (term, connection) = confirm(link, &self.probe).await?;
            // Not an error to etcd: a lease that is no more has no time left. A leader that has
            // just begun may not know it yet; after the read it does.
            if alive.ttl <= 0 {
                if std::mem::replace(&mut unknown, true) {
                    self.declare_gone();
                    return Ok(true);
                }
            } else if term_of(alive.header) == term {
                *lock(&self.voucher) = Voucher { sent, connection: Some(connection) };
                return Ok(true);
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("{} changed its leader again and again: try again", link.shown()),
        ))
    }

    /// How often a sign of life is due from who waits.
    pub(super) fn beat(&self) -> Duration {
        (self.ttl / 3).min(LONGEST_BEAT)
    }
}

/// Reads through a majority: the term in which it was answered, and on which connection.
async fn confirm(link: &Link, probe: &RangeRequest) -> Result<(Option<u64>, u64)> {
    let read = link.try_call::<_, RangeResponse>(path::RANGE, probe).await;
    let read = read.map_err(|trouble| trouble.explain(link.shown()))?;
    Ok((term_of(read.answer.header), read.connection))
}

fn term_of(header: Option<ResponseHeader>) -> Option<u64> {
    header.map(|header| header.raft_term)
}

/// Grants a lease of at least `length`; its number and its true length. The number is ours, so
/// that asking twice grants one.
pub(super) async fn grant(link: &Link, length: Duration) -> Result<(i64, Duration)> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the system gave no random numbers")
            .caused_by(error.to_string())
    })?;
    let id = (i64::from_ne_bytes(bytes) & i64::MAX).max(1);
    let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
    let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
    let granted = link.try_call(path::LEASE_GRANT, &LeaseGrantRequest { ttl, id }).await;
    match granted {
        Ok(Answered { answer: LeaseGrantResponse { ttl, .. }, .. }) => {
            Ok((id, Duration::from_secs(u64::try_from(ttl).unwrap_or(seconds))))
        }
        // Granted by a request whose answer was lost; etcd makes leases longer, never shorter.
        Err(trouble) if trouble.is_lease_there() => Ok((id, Duration::from_secs(seconds))),
        Err(trouble) => Err(trouble.explain(link.shown())),
    }
}
