//! A claim that has its key, from stepping into the queue to giving back the name.
//!
//! Three things must be true for a held claim to be believed, and each is found out separately:
//!
//! | what | how it is known | how long that is good for |
//! |---|---|---|
//! | the session lives | a heartbeat that a majority confirmed | its ttl, from when it was sent |
//! | the key is there | a live watch on the same connection, or a read | until the next renewal |
//! | it is at the head | it was once, and those before it only leave | while the key is there |

use super::cleanup::{Cleanup, Deletion};
use super::client::{Answered, Client};
use super::error::Failure;
use super::keys::{ClaimKey, KeyPool};
use super::protocol::{RangeResponse, TxnRequest, TxnResponse, path};
use super::session::{self, ServerLease, Session};
use super::waiters::{Begin, Subscriber, Watch, Watches};
use super::{loss, record, requests};
use crate::backend::{
    Alarm, Claim, FencingToken, Grant, Lease, LossReason, Moment, Release, Standing,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// What all claims of a keeper share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) client: Arc<Client>,
    pub(super) session: Session,
    pub(super) watches: Watches,
    /// Every key of this keeper that is to be deleted, now or when its claim is over.
    pub(super) cleanup: Arc<Cleanup>,
    pub(super) keys: KeyPool,
    pub(super) prefix: String,
}

/// A claim that has its key: somewhere in the queue, perhaps at its head.
#[derive(Debug)]
pub(super) struct Enqueued {
    pub(super) key: ClaimKey,
    pub(super) lease: Arc<ServerLease>,
    /// The revision at which the key was created: its place in the queue, and its token.
    pub(super) created: i64,
    /// A revision at which the key was there: a watch has to account for everything after it.
    pub(super) seen: i64,
    /// Whether the request for it was sent more than once, and may be carried out again.
    pub(super) sent_twice: bool,
}

impl Enqueued {
    /// What gives the key back, due at once.
    pub(super) fn deletion(&self) -> Deletion {
        Deletion::of(&self.key, self.created, self.sent_twice)
    }
}

impl Context {
    /// Sends a request on this session, with a heartbeat beside it if one is due. `None` when the
    /// session turned out to be over: then nothing was done. Otherwise also whether the request
    /// was sent more than once.
    pub(super) async fn send(
        &self,
        lease: &Arc<ServerLease>,
        request: &TxnRequest,
    ) -> Result<Option<(TxnResponse, bool)>> {
        let asking = self.client.try_call(path::TXN, request);
        let answered: Result<Answered<TxnResponse>, Failure> =
            if Moment::now().since(lease.sent()) > lease.beat() {
                // Side by side, so that it costs no time.
                let alive = self.keep_alive(lease, lease.beat());
                tokio::join!(asking, alive).0
            } else {
                asking.await
            };
        match answered {
            Ok(Answered { answer, sent_twice, .. }) => Ok(Some((answer, sent_twice))),
            Err(failure) if failure.is_lease_gone() => {
                self.lease_gone(lease);
                Ok(None)
            }
            Err(failure) => Err(failure.explain(self.client.shown())),
        }
    }

    /// Sends a heartbeat, unless one was confirmed recently; and then deletes what is due. A
    /// heartbeat that is not answered endangers every claim of the session.
    pub(super) async fn keep_alive(
        &self,
        lease: &Arc<ServerLease>,
        recently: Duration,
    ) -> Result<()> {
        let beaten = lease.keep_alive(&self.client, recently).await;
        let unanswered = |error: &Error| error.kind() == ErrorKind::Unavailable;
        if beaten.as_ref().is_err_and(unanswered) {
            self.watches.endanger();
        }
        if beaten? {
            self.watches.reached();
            if lease.is_gone() {
                self.lease_gone(lease);
            }
            self.cleanup.run_due().await;
        }
        Ok(())
    }

    /// etcd says that the server lease is no more: so are all claims on it.
    fn lease_gone(&self, lease: &ServerLease) {
        lease.declare_gone();
        self.watches.lease_gone(lease.id);
    }
}

/// One held claim.
#[derive(Debug)]
pub(super) struct EtcdLease {
    context: Arc<Context>,
    claim: Claim,
    enqueued: Enqueued,
    watch: Option<Watch>,
    /// Whether a release was tried that may have been carried out.
    tried: bool,
}

impl EtcdLease {
    /// The grant of a claim that was found at the head of its queue by a request sent at `sent`;
    /// `None` when its session may be over meanwhile.
    ///
    /// The deletion is scheduled here, for the end of the validity: from this moment on the key
    /// goes in time, also if the claim is detached and never heard of again.
    pub(super) fn grant(
        context: &Arc<Context>,
        claim: &Claim,
        enqueued: Enqueued,
        sent: Moment,
    ) -> Option<Grant> {
        let valid_for = claim.ttl.min(enqueued.lease.end().since(sent));
        if valid_for.is_zero() {
            context.cleanup.schedule(claim.id, enqueued.deletion());
            return None;
        }
        let token = FencingToken::from_revision(enqueued.created);
        context.cleanup.schedule(claim.id, enqueued.deletion().at(sent + valid_for));
        let (context, claim) = (context.clone(), claim.clone());
        let lease = Self { context, claim, enqueued, watch: None, tried: false };
        Some(Grant { lease: Box::new(lease), token, sent, valid_for })
    }

    /// Why it is lost, if the key says so when asked: a read through a majority. An error says
    /// nothing about the claim.
    async fn look(&self) -> Result<Option<LossReason>> {
        let (client, key) = (&self.context.client, self.enqueued.key.bytes());
        let request = requests::one(key.to_vec());
        let found: RangeResponse = client.call(path::RANGE, &request).await?;
        Ok(loss::found(client, key, self.enqueued.created, &found).await)
    }

    /// Leaves the key to a server lease of its own, which ends it in time, with or without us.
    /// `false` when it surely was not there any more.
    async fn stay_for(&self, stay: Duration) -> Result<bool> {
        let (client, key) = (&self.context.client, &self.enqueued.key);
        let (lease, _) = session::grant(client, stay).await?;
        let (created, value) = (self.enqueued.created, record::write(&self.claim));
        let request = requests::rewrite(key.bytes(), created, value, lease);
        // From here on the key may be there after us.
        key.own.leave_behind();
        let rewritten = client.try_call::<_, TxnResponse>(path::TXN, &request).await;
        let rewritten = rewritten.map_err(|failure| failure.explain(client.shown()))?;
        // A new server lease does not change the create revision: sent twice, it succeeds twice.
        Ok(rewritten.answer.succeeded)
    }
}

#[async_trait]
impl Lease for EtcdLease {
    /// Both must be confirmed again, the session and the key; that the claim is at the head
    /// follows. The validity is that of the session, and counts from before anything was asked.
    async fn renew(&mut self) -> Result<Standing> {
        let begun = Moment::now();
        let lease = self.enqueued.lease.clone();
        // Counts from before the heartbeat, whichever claim sent it: the answer may be older than
        // we are. All holds of a keeper share a session, so one heartbeat must do for many
        // renewals.
        self.context.keep_alive(&lease, lease.ttl / 6).await?;
        if lease.is_gone() {
            return Ok(Standing::Lost(LossReason::Gone));
        }
        // A session that lives says nothing of the key: an operator may have deleted it. The watch
        // tells of that, where it is at the member by which the session was confirmed.
        let confirmed = lease.confirmed_on();
        if !self.watch.as_ref().is_some_and(|watch| watch.is_live_on(confirmed)) {
            self.context.watches.revive();
            if let Some(reason) = self.look().await? {
                return Ok(Standing::Lost(reason));
            }
        }
        let valid_for = lease.end().since(begun);
        self.context.cleanup.postpone(self.claim.id, begun + valid_for.min(self.claim.ttl));
        Ok(Standing::HeldFor(valid_for))
    }

    /// A repeated release whose first copy may have been carried out finds no key, and is no loss:
    /// see `tried`.
    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let stay = how.stay();
        self.watch = None;
        let (id, cleanup) = (self.claim.id, &self.context.cleanup);
        let deletion = self.enqueued.deletion();
        let tried = std::mem::replace(&mut self.tried, true);
        let was_there = if stay.is_zero() {
            cleanup.delete(id, &deletion).await?
        } else {
            cleanup.schedule(id, deletion.at(Moment::now() + stay));
            let was_there = self.stay_for(stay).await?;
            cleanup.forget(id);
            was_there
        };
        if was_there || tried { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }

    /// Watches the key from a revision on at which it was there, so a deletion between the grant
    /// and the watch is told too. The watch begins a moment later: most holds are over before, and
    /// cost etcd none.
    fn watch(&mut self, alarm: Alarm) {
        let Enqueued { key, lease, created, seen, .. } = &self.enqueued;
        if lease.is_gone() {
            return alarm.ring(LossReason::Gone);
        }
        let subscriber = Subscriber::Holder { alarm, created: *created, lease: lease.id };
        let watch = self.context.watches.watch(Begin::Later, key.bytes(), *seen, subscriber);
        self.watch = Some(watch);
    }
}

impl Drop for EtcdLease {
    fn drop(&mut self) {
        // Still scheduled, so it was detached: its key goes when the claim is over.
        if let Some(due) = self.context.cleanup.due_at(self.claim.id) {
            self.context.watches.delete_later(self.claim.id, due);
        }
    }
}
