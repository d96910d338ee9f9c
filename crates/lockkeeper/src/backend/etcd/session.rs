//! The lease that all claims of a keeper live on.

use super::link::Link;
use super::lock;
use super::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, path,
};
use crate::backend::Moment;
use crate::error::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Makes leases, one after another: when one ends, all claims on it do.
#[derive(Debug)]
pub(super) struct Session {
    link: Arc<Link>,
    length: Duration,
    term: Mutex<Option<Arc<Term>>>,
    opening: tokio::sync::Mutex<()>,
}

/// One lease, from its grant to its end.
#[derive(Debug)]
pub(super) struct Term {
    pub(super) lease: i64,
    /// How long etcd keeps it without a sign of life.
    pub(super) ttl: Duration,
    /// When the last sign of life that was answered left.
    sent: Mutex<Moment>,
    /// So that one sign of life serves all who want one.
    turn: tokio::sync::Mutex<()>,
    /// Cancelled when etcd says that the lease is no more.
    over: CancellationToken,
    /// What is in the key of doubt; see [`withdraw`](super::requests::withdraw).
    pub(super) doubt: Mutex<Vec<u8>>,
}

impl Session {
    pub(super) fn new(link: Arc<Link>, length: Duration) -> Self {
        Self { link, length, term: Mutex::default(), opening: tokio::sync::Mutex::default() }
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
        let term = Arc::new(Term::begin(&self.link, self.length).await?);
        *lock(&self.term) = Some(term.clone());
        Ok(term)
    }

    fn current(&self) -> Option<Arc<Term>> {
        lock(&self.term).clone().filter(|term| !term.is_over())
    }
}

impl Term {
    async fn begin(link: &Link, length: Duration) -> Result<Self> {
        let sent = Moment::now();
        let (lease, ttl) = grant(link, length).await?;
        Ok(Self {
            lease,
            ttl,
            sent: Mutex::new(sent),
            turn: tokio::sync::Mutex::default(),
            over: CancellationToken::new(),
            doubt: Mutex::default(),
        })
    }

    pub(super) fn sent(&self) -> Moment {
        *lock(&self.sent)
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
        let sent = Moment::now();
        let request = LeaseKeepAliveRequest { id: self.lease };
        let answer: LeaseKeepAliveResponse =
            link.first_answer(path::LEASE_KEEP_ALIVE, &request).await?;
        // Not an error to etcd: a lease that is no more has no time left.
        if answer.ttl <= 0 {
            self.declare_gone();
        } else {
            *lock(&self.sent) = sent;
        }
        Ok(true)
    }

    /// How often a sign of life is due.
    pub(super) fn beat(&self) -> Duration {
        self.ttl / 3
    }
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
        Ok((LeaseGrantResponse { ttl, .. }, _)) => {
            Ok((id, Duration::from_secs(u64::try_from(ttl).unwrap_or(seconds))))
        }
        // Granted by a request whose answer was lost; etcd makes leases longer, never shorter.
        Err(trouble) if trouble.is_lease_there() => Ok((id, Duration::from_secs(seconds))),
        Err(trouble) => Err(trouble.explain(link.shown())),
    }
}
