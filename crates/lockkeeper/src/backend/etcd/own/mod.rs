//! A claim on a server lease of its own: one that was handed out, or asked for by its id.
//!
//! It depends on no keeper's session, and anyone who knows its name and id can keep it and give it back.
//! What the claim lives on is written in its key, where etcd shows the lease of every key: whoever keeps
//! it reads that. The numbers of such leases are random and never used again. Were they made from the
//! id, two who ask for one id would share a lease, and one that ends its lease because it did not get
//! the lock would take it from the other.
//!
//! ```text
//!   on the keeper's session ──(hand_out, or a renewal by its ticket)──► own lease, asked for its ttl
//!   own lease that is shorter ──(renewal)──► own lease of this length; the old one is ended
//!   own lease ──(nobody keeps it)──► etcd ends lease and key
//! ```
//!
//! Moving a key to another lease keeps its create revision, and so its place and its token. It is done
//! in one step, on condition that the key is that of the claim and lives where it was seen to live.
//! etcd cannot change the length of a lease, so a claim that is to be kept for longer moves, too. It stays
//! there: whoever keeps it for less keeps it for as long as the others do.

mod find;

use super::keys::KeyRange;
use super::lease::{Context, Enqueued};
use super::protocol::{KeyValue, RangeResponse, TxnResponse, path};
use super::session::{self, seconds};
use super::waiters::{Begin, Subscriber, Watch};
use super::{record, requests};
use crate::backend::{
    Alarm, Claim, FencingToken, Grant, Lease, LossReason, Moment, Release, Standing, Ticket,
};
use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// How often a claim is looked for that others move at the same time.
const TRIES: usize = 5;

/// A claim that is kept by its name and id.
#[derive(Debug)]
pub(super) struct OwnLease {
    context: Arc<Context>,
    ticket: Ticket,
    /// Whether the lease that it was found on may be ended under it: one that waits for the claim may
    /// be about to leave.
    must_move: bool,
    /// The claim's key, once it was found.
    key: Option<Key>,
    /// The lease that it lives on, as far as we know.
    lives_on: Option<i64>,
    alarm: Option<Alarm>,
    watch: Option<Watch>,
    /// Whether a release was tried that may have been carried out.
    tried: bool,
}

/// Where a claim is.
#[derive(Debug, Clone)]
struct Key {
    bytes: Vec<u8>,
    /// The revision at which it was created, which tells it from a later claim there.
    created: i64,
    /// A revision at which it was there.
    seen: i64,
}

impl OwnLease {
    /// That of a claim that any keeper was granted.
    pub(super) fn of(context: &Arc<Context>, ticket: &Ticket) -> Self {
        Self {
            context: context.clone(),
            ticket: ticket.clone(),
            must_move: false,
            key: None,
            lives_on: None,
            alarm: None,
            watch: None,
            tried: false,
        }
    }

    /// That of a claim of this keeper's that lives, or lived, on its session.
    pub(super) fn moved(
        context: &Arc<Context>,
        claim: &Claim,
        enqueued: &Enqueued,
        alarm: Option<Alarm>,
    ) -> Self {
        Self { alarm, ..Self::at(context, claim, enqueued) }
    }

    /// That of a claim of this keeper's whose key is known.
    fn at(context: &Arc<Context>, claim: &Claim, enqueued: &Enqueued) -> Self {
        let Enqueued { key, created, seen, .. } = enqueued;
        let key = Key { bytes: key.bytes().to_vec(), created: *created, seen: *seen };
        Self { key: Some(key), ..Self::of(context, &Ticket::of(claim)) }
    }

    /// The grant of a claim that was asked for by its id, and found at the head of its queue on its own
    /// lease by a request sent at `sent`; `None` when that lease may be over meanwhile.
    pub(super) fn grant(
        context: &Arc<Context>,
        claim: &Claim,
        enqueued: &Enqueued,
        sent: Moment,
    ) -> Option<Grant> {
        let valid_for = claim.ttl.min(enqueued.lease.end().since(sent));
        let lives_on = Some(enqueued.lease.id);
        let lease = Self { lives_on, ..Self::at(context, claim, enqueued) };
        let token = FencingToken::from_revision(enqueued.created);
        (!valid_for.is_zero()).then(|| Grant::new(Box::new(lease), token, sent, valid_for))
    }

    /// The grant of a claim that was asked for by its id and found held; `None` when it is not any
    /// more.
    pub(super) async fn found(
        context: &Arc<Context>,
        claim: &Claim,
        kv: &KeyValue,
        seen: i64,
    ) -> Result<Option<Grant>> {
        let created = kv.create_revision;
        let key = Some(Key { bytes: kv.key.clone(), created, seen });
        let own = Self::of(context, &Ticket::of(claim));
        let mut lease = Self { key, must_move: true, ..own };
        let sent = Moment::now();
        let valid_for = match lease.keep().await? {
            Standing::HeldFor(span) => span,
            Standing::Held => claim.ttl,
            Standing::Lost(_) => return Ok(None),
        };
        let token = FencingToken::from_revision(created);
        Ok(Some(Grant::new(Box::new(lease), token, sent, valid_for)))
    }

    /// Keeps the claim for its whole ttl from now, on a lease that nothing else depends on.
    ///
    /// A heartbeat of the lease that the key was last seen on, and then a read of the key through a
    /// majority: if it is still on that lease, both are alive. Counts from before anything was asked.
    async fn keep(&mut self) -> Result<Standing> {
        let begun = Moment::now();
        let wanted = seconds(self.ticket.ttl);
        let context = self.context.clone();
        let client = &context.client;
        for _ in 0..TRIES {
            let (alive, found) = match (&self.key, self.lives_on) {
                (Some(key), Some(lease)) => {
                    let probe = requests::one(key.bytes.clone());
                    let (alive, found) = session::beat(client, lease, &probe).await?;
                    (alive.map(|alive| (lease, alive)), found)
                }
                _ => (None, self.read().await?),
            };
            let kv = match self.judge(&found).await {
                Ok(kv) => kv,
                Err(reason) => return Ok(Standing::Lost(reason)),
            };
            let length = record::read(&kv.value).and_then(|record| record.length);
            // A longer one will do: nothing is taken from others that keep the claim for longer.
            let longest = length.unwrap_or_default().max(wanted);
            if self.must_move || length != Some(longest) {
                if let Some(end) = self.relocate(&kv, longest, length.is_some()).await? {
                    return Ok(self.held_until(begun, end));
                }
                continue;
            }
            if self.lives_on.replace(kv.lease) != Some(kv.lease) {
                self.watch_again();
            }
            if let Some((lease, alive)) = alive
                && lease == kv.lease
            {
                return Ok(self.held_until(begun, alive.end()));
            }
        }
        Err(session::restless(client))
    }

    /// No longer than the ttl, also where etcd's shortest lease is longer.
    fn held_until(&self, begun: Moment, end: Moment) -> Standing {
        Standing::HeldFor(end.since(begun).min(self.ticket.ttl))
    }

    /// Moves the key to a new lease; until when that surely lives. `None` when the key was not as it
    /// was seen to be.
    async fn relocate(
        &mut self,
        kv: &KeyValue,
        wanted: u64,
        from_own: bool,
    ) -> Result<Option<Moment>> {
        let client = &self.context.client;
        let Some(value) = record::relocated(&kv.value, wanted) else { return Ok(None) };
        let sent = Moment::now();
        let (lease, ttl) = session::grant(client, Duration::from_secs(wanted)).await?;
        let (created, from) = (kv.create_revision, kv.lease);
        let request = requests::relocate(&kv.key, created, from, value, lease);
        // Where this is not answered, what it may do later is void once the new lease has ended; until
        // then the key is looked at before it is believed in.
        self.lives_on = None;
        let moved = client.try_call::<_, TxnResponse>(path::TXN, &request).await;
        let moved = match moved {
            Ok(moved) => moved,
            Err(failure) if failure.is_lease_gone() => return Ok(None),
            Err(failure) => return Err(failure.explain(client.shown())),
        };
        if !moved.answer.succeeded {
            // Sent twice, it may have been carried out the first time.
            if !moved.sent_twice {
                self.end_lease(lease).await;
            }
            return Ok(None);
        }
        if from_own {
            self.end_lease(from).await;
        }
        (self.lives_on, self.must_move) = (Some(lease), false);
        self.watch_again();
        let confirmed = session::Heartbeat { sent, ttl, connection: None };
        Ok(Some(confirmed.end()))
    }

    /// Ends a lease that nothing lives on any more. If it is not answered, it ends by itself.
    async fn end_lease(&self, lease: i64) {
        if let Err(error) = session::revoke(&self.context.client, lease).await {
            tracing::debug!(%error, "a lease was left to end by itself");
        }
    }

    /// Watches the key as one that lives where it lives now.
    fn watch_again(&mut self) {
        if let Some(alarm) = self.alarm.clone() {
            self.watch(alarm);
        }
    }

    /// Leaves the key to a lease of its own for as long as it is to stay, and as nobody's.
    async fn stay_for(&self, key: &Key, stay: Duration) -> Result<bool> {
        let client = &self.context.client;
        let request = requests::one(key.bytes.clone());
        let found: RangeResponse = client.call(path::RANGE, &request).await?;
        let there = found.kvs.first().filter(|kv| kv.create_revision == key.created);
        let Some((kv, value)) = there.and_then(|kv| Some((kv, record::staying(&kv.value)?))) else {
            return Ok(false);
        };
        let own = record::read(&kv.value).is_some_and(|record| record.length.is_some());
        let (lease, _) = session::grant(client, stay).await?;
        let request = requests::rewrite(&key.bytes, key.created, value, lease);
        let rewritten: TxnResponse = client.call(path::TXN, &request).await?;
        if rewritten.succeeded && own {
            self.end_lease(kv.lease).await;
        }
        Ok(rewritten.succeeded)
    }

    /// Deletes the key, and ends the lease that it lived on, if that was its own. Whether it may have
    /// been there.
    async fn delete(&self, key: &Key) -> Result<bool> {
        let client = &self.context.client;
        let request = requests::take(&key.bytes, key.created);
        let taken = client.try_call::<_, TxnResponse>(path::TXN, &request).await;
        let taken = taken.map_err(|failure| failure.explain(client.shown()))?;
        let was = requests::first_of(requests::reads(taken.answer.responses).next());
        let own = |kv: &KeyValue| record::read(&kv.value).and_then(|it| it.length).is_some();
        if let Some(kv) = was.filter(own) {
            self.end_lease(kv.lease).await;
        }
        Ok(taken.answer.succeeded || taken.sent_twice)
    }
}

#[async_trait]
impl Lease for OwnLease {
    async fn renew(&mut self) -> Result<Standing> {
        self.keep().await
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        (self.watch, self.alarm) = (None, None);
        let tried = std::mem::replace(&mut self.tried, true);
        if self.key.is_none() {
            let found = self.read().await?;
            if let Err(reason) = self.judge(&found).await {
                return if tried { Ok(()) } else { Err(reason.to_error()) };
            }
        }
        let Some(key) = &self.key else { return Err(LossReason::Gone.to_error()) };
        let stay = how.stay();
        let was_there =
            if stay.is_zero() { self.delete(key).await? } else { self.stay_for(key, stay).await? };
        if was_there || tried { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }

    fn watch(&mut self, alarm: Alarm) {
        self.alarm = Some(alarm.clone());
        let (Some(key), Some(lease)) = (&self.key, self.lives_on) else { return };
        let subscriber = Subscriber::Holder { alarm, created: key.created, lease };
        let watches = &self.context.watches;
        self.watch = Some(watches.watch(Begin::Later, &key.bytes, key.seen, subscriber));
    }
}
