//! A claim that has its key, from stepping into the queue to giving back the name.
//!
//! Three things must be true for a held claim to be believed, and each is found out separately:
//!
//! | what | how it is known | how long that is good for |
//! |---|---|---|
//! | the session lives | a heartbeat that a majority confirmed | its ttl, from when it was sent |
//! | the key is there | a live watch on the same connection, or a read | until the next renewal |
//! | it is at the head | it was once, and those before it only leave | while the key is there |
//!
//! A claim that is handed out, or renewed by its ticket, moves from the session to a lease of its own.
//! From there on it is an [`OwnLease`]. A holder that did not move it hears of that by its watch, or when
//! it looks at the key, and follows.

use super::cleanup::{Cleanup, Deletion};
use super::client::{Answered, Client};
use super::error::Failure;
use super::keys::{ClaimKey, KeyPool};
use super::own::OwnLease;
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

/// For how much longer than a claim can be in it a key is not used by another: etcd ends leases by the
/// second, and not at once.
const LEFT_BEHIND: Duration = Duration::from_secs(5);

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
    /// The lease that the key lived on, and what was in it, where another keeper waits for the same
    /// claim by its id.
    pub(super) before: Option<Box<(i64, Vec<u8>)>>,
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
        let was_sent = beaten?;
        // Also where one was confirmed a moment ago: holders that are told then, and renew by that, would
        // not be told of the next time.
        self.watches.reached();
        if was_sent {
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
    alarm: Option<Alarm>,
    watch: Option<Watch>,
    /// Where the claim is since it left the session.
    own: Option<OwnLease>,
    /// Whether a release was tried that may have been carried out.
    tried: bool,
}

/// What a look at the key found.
enum Found {
    OnSession,
    Moved,
    Lost(LossReason),
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
        if claim.by_id {
            return OwnLease::grant(context, claim, &enqueued, sent);
        }
        let valid_for = claim.ttl.min(enqueued.lease.end().since(sent));
        if valid_for.is_zero() {
            context.cleanup.schedule(claim.id, enqueued.deletion());
            return None;
        }
        let token = FencingToken::from_revision(enqueued.created);
        let deletion = enqueued.deletion().unless_moved();
        context.cleanup.schedule(claim.id, deletion.at(sent + valid_for));
        let (context, claim) = (context.clone(), claim.clone());
        let (alarm, watch, own) = (None, None, None);
        let lease = Self { context, claim, enqueued, alarm, watch, own, tried: false };
        Some(Grant { lease: Box::new(lease), token, sent, valid_for })
    }

    /// What the key says when asked: a read through a majority. An error says nothing about the claim.
    async fn look(&self) -> Result<Found> {
        let (client, key) = (&self.context.client, self.enqueued.key.bytes());
        let request = requests::one(key.to_vec());
        let found: RangeResponse = client.call(path::RANGE, &request).await?;
        if let Some(reason) = loss::found(client, key, self.enqueued.created, &found).await {
            return Ok(Found::Lost(reason));
        }
        let lease = found.kvs.first().map(|kv| kv.lease);
        Ok(if lease == Some(self.enqueued.lease.id) { Found::OnSession } else { Found::Moved })
    }

    /// From here on the claim is kept on a lease of its own, wherever it is now.
    fn leave_session(&mut self) -> &mut OwnLease {
        self.watch = None;
        let Self { context, claim, enqueued, alarm, own, .. } = self;
        own.get_or_insert_with(|| {
            // While the key may be there after us, no other claim of this keeper is to have it.
            enqueued.key.own.leave_behind(Moment::now() + claim.ttl + LEFT_BEHIND);
            OwnLease::moved(context, claim, enqueued, alarm.clone())
        })
    }

    /// Leaves the key to a server lease of its own, which ends it in time, with or without us.
    /// `false` when it surely was not there any more.
    async fn stay_for(&self, stay: Duration) -> Result<bool> {
        let (client, key) = (&self.context.client, &self.enqueued.key);
        let (lease, _) = session::grant(client, stay).await?;
        let (created, value) = (self.enqueued.created, record::write(&self.claim, None));
        let Some(value) = record::staying(&value) else { return Ok(false) };
        let request = requests::rewrite(key.bytes(), created, value, lease);
        // From here on the key may be there after us.
        key.own.leave_behind(Moment::now() + stay + LEFT_BEHIND);
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
        if let Some(own) = &mut self.own {
            return own.renew().await;
        }
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
            match self.look().await? {
                Found::OnSession => {}
                Found::Moved => return self.leave_session().renew().await,
                Found::Lost(reason) => return Ok(Standing::Lost(reason)),
            }
        }
        let valid_for = lease.end().since(begun);
        self.context.cleanup.postpone(self.claim.id, begun + valid_for.min(self.claim.ttl));
        Ok(Standing::HeldFor(valid_for))
    }

    /// Moves the claim to a lease of its own, and leaves nothing to be done here.
    async fn hand_out(&mut self) -> Result<Standing> {
        let standing = self.leave_session().renew().await?;
        let (id, cleanup) = (self.claim.id, &self.context.cleanup);
        if self.enqueued.sent_twice {
            cleanup.void(id, &self.enqueued.key).await?;
            self.enqueued.sent_twice = false;
        }
        cleanup.forget(id);
        Ok(standing)
    }

    /// A repeated release whose first copy may have been carried out finds no key, and is no loss:
    /// see `tried`.
    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let stay = how.stay();
        (self.watch, self.alarm) = (None, None);
        let (id, cleanup) = (self.claim.id, &self.context.cleanup);
        if let Some(own) = &mut self.own {
            let released = own.release(how).await;
            if self.enqueued.sent_twice && stay.is_zero() {
                cleanup.delete(id, &Deletion::in_doubt(&self.enqueued.key)).await?;
            } else if released.is_ok() {
                cleanup.forget(id);
            }
            return released;
        }
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
        self.alarm = Some(alarm.clone());
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
