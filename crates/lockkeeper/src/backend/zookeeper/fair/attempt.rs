//! The steps of one attempt at a claim: enter the queue, look at it, leave it.
//!
//! Every step can find that a request was not answered. Then the node's name decides what happened: it
//! starts with the claim's id, so a listing through the leader shows whether the node was created. As
//! long as there is patience, and the outage is not too long, the steps wait for a connection instead
//! of failing.

use super::super::client::{Failure, NodeKind, Request, Stat, refusal};
use super::super::context::Context;
use super::super::error::Stop;
use super::super::keys::node_name;
use super::super::lease::{HeldNode, Ownership, ZooKeeperLease};
use super::super::lock_node::{self, CounterAge};
use super::super::session::Session;
use super::super::{layout, record};
use super::standing::{self, Queue, Standing};
use crate::backend::{Claim, Grant, Moment, Patience};
use crate::error::Result;
use std::sync::Arc;

/// How often a claim without patience asks for its node.
const TRIES: u32 = 3;

/// One attempt at a claim, in one session.
pub(super) struct Attempt<'a> {
    pub(super) context: &'a Context,
    pub(super) session: &'a Arc<Session>,
    pub(super) claim: &'a Claim,
    /// The lock's node.
    pub(super) parent: String,
    pub(super) patience: &'a Patience,
    pub(super) watched: Watched,
}

/// Which nodes a waiter watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Those whose end may let it in, and no others: usually the one before it.
    TheNearest,
    /// The first of the queue.
    TheFirst,
}

/// Our node, and the queue as a request found it.
pub(super) struct Enqueued {
    pub(super) path: String,
    stat: Stat,
    record: String,
    pub(super) queue: Queue,
    /// When that request was sent. Should the claim hold, its validity counts from here.
    pub(super) sent: Moment,
}

impl Enqueued {
    /// The name of our node.
    fn node(&self) -> &str {
        node_name(&self.path)
    }

    /// Whether the numbers of the queue are so near their end that we must not stay in it.
    pub(super) fn must_leave(&self, standing: &Standing) -> bool {
        let number = layout::number_of(self.node()).unwrap_or(-1);
        // Libraries that compare numbers as text take the negative ones for the first.
        let overflown = self.queue.entries.iter().any(|entry| entry.number < 0);
        match CounterAge::of(number) {
            CounterAge::Young | CounterAge::Late => overflown,
            CounterAge::Closing => overflown || matches!(standing, Standing::Waits { .. }),
            CounterAge::Ended => true,
        }
    }
}

impl Attempt<'_> {
    /// Whether a claim made now would have to wait. Changes nothing: a claim without patience must
    /// not take a place in the queue, even for a moment.
    pub(super) async fn is_busy(&self) -> Result<bool, Stop> {
        match self.session.call(Request::children(&self.parent)).await {
            Ok(answer) => {
                let entries = self.context.layout.entries(answer.children()?)?;
                let modes = entries.iter().map(|entry| entry.mode);
                Ok(!standing::holds_behind(modes, self.claim.mode))
            }
            Err(failure) if failure.is(refusal::NO_NODE) => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Creates our node and lists the queue: both in one round trip, where the lock's node exists.
    ///
    /// The node is registered before the request is sent: should this attempt fail or be dropped
    /// anywhere below, the driver knows what to delete.
    pub(super) async fn enter(&self) -> Result<Enqueued, Stop> {
        let (layout, access) = (self.context.layout, self.context.access);
        let prefix = layout.unique_prefix(self.claim);
        self.session.enter(self.claim.id, &self.parent, Some(&prefix));
        let path = format!("{}/{}", self.parent, layout.name_without_number(self.claim));
        let record = record::write(self.claim, self.context.valid_for(self.session, self.claim));
        // The name is the same for every retry. By it a node is found whose creation was not answered.
        let kind = NodeKind::EphemeralSequential;
        let mut tries = 0;
        loop {
            tries += 1;
            let sent = Moment::now();
            let create = Request::create(&path, record.as_bytes(), kind, access);
            let [created, listed] = self.session.send([create, Request::children(&self.parent)]);
            // Answers come in order. When the last one is here, so is the first: waiting for it
            // first wakes this task once instead of twice.
            let listed = self.session.answer(listed).await;
            match self.session.answer(created).await.and_then(|answer| answer.created()) {
                Ok((path, stat)) => {
                    // From here on the driver knows the node by its whole name.
                    self.session.created(self.claim.id, &path, stat.czxid);
                    let queue = Queue::default();
                    let mut enqueued = Enqueued { path, stat, record, queue, sent };
                    match listed {
                        Ok(answer) => {
                            enqueued.queue = self.queue(answer.listing()?, enqueued.node())?;
                        }
                        Err(Failure::Unanswered(_)) => self.list_again(&mut enqueued).await?,
                        Err(failure) => return Err(failure.into()),
                    }
                    return Ok(enqueued);
                }
                Err(failure) if failure.is(refusal::NO_NODE) => {
                    match lock_node::create(self.session, &self.parent, access).await {
                        // Waits for the store as patiently as everything else does.
                        Err(failure @ Failure::Unanswered(_)) => {
                            drop(self.list().await?);
                            self.may_try_again(tries, failure)?;
                        }
                        created => created?,
                    }
                }
                // Our node may exist: this is still our session.
                Err(failure @ Failure::Unanswered(_)) => {
                    if let Some(enqueued) = self.find(&prefix, &record).await? {
                        return Ok(enqueued);
                    }
                    self.may_try_again(tries, failure)?;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// A claim without patience gives up after a few tries: a server that answers some requests and
    /// drops others would otherwise keep it here for ever.
    fn may_try_again(&self, tries: u32, failure: Failure) -> Result<(), Failure> {
        if tries >= TRIES && self.patience.is_over() { Err(failure) } else { Ok(()) }
    }

    /// Our node, if it was created by a request whose answer was lost.
    async fn find(&self, prefix: &str, record: &str) -> Result<Option<Enqueued>, Stop> {
        loop {
            let (sent, listing) = self.list().await?;
            let Some((children, parent)) = listing else { return Ok(None) };
            let Some(node) = children.iter().find(|child| child.starts_with(prefix)).cloned()
            else {
                return Ok(None);
            };
            let path = format!("{}/{node}", self.parent);
            // The name proves that it is ours. Its metadata are read next: the transaction that
            // created it is the token, and the session in it says whether it will last.
            self.session.found(self.claim.id, &path);
            match self.session.call(Request::exists(&path, false)).await {
                Ok(answer) => {
                    let (stat, queue) = (answer.stat()?, self.queue((children, parent), &node)?);
                    let record = record.to_owned();
                    return Ok(Some(Enqueued { path, stat, record, queue, sent }));
                }
                Err(failure) if failure.is(refusal::NO_NODE) => return Ok(None),
                Err(Failure::Unanswered(_)) if !self.patience.is_over() => {}
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// The queue in a listing of the lock's node, in which ours is called `own`.
    ///
    /// # Errors
    /// When the lock has claims of another layout or recipe.
    fn queue(&self, (children, parent): (Vec<String>, Stat), own: &str) -> Result<Queue> {
        let mut entries = self.context.layout.entries(children)?;
        standing::give_way(&mut entries, own);
        Ok(Queue { made: parent.czxid, entries })
    }

    /// Lists the lock's node as the leader sees it, through broken connections if need be, and
    /// when the request was sent. `None` where the lock's node does not exist.
    pub(super) async fn list(&self) -> Result<(Moment, Option<(Vec<String>, Stat)>), Failure> {
        let begin = Moment::now();
        loop {
            // Anew for each try: validity counts from the request that is answered.
            let sent = Moment::now();
            let request = Request::children(&self.parent);
            match self.session.call_synced(&self.parent, request).await {
                Ok(answer) => return Ok((sent, Some(answer.listing()?))),
                Err(failure) if failure.is(refusal::NO_NODE) => return Ok((sent, None)),
                Err(failure @ Failure::Unanswered(_)) => {
                    let silent = Moment::now().since(begin);
                    if silent > self.patience.outage() || self.patience.is_over() {
                        return Err(failure);
                    }
                    self.session.connected_for(self.patience).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Lists the queue again.
    pub(super) async fn list_again(&self, enqueued: &mut Enqueued) -> Result<(), Stop> {
        let (sent, listing) = self.list().await?;
        enqueued.queue = match listing {
            Some(listing) => self.queue(listing, enqueued.node())?,
            None => Queue::default(),
        };
        // Also for this keeper's other waiters, should we be the first now.
        let Queue { made, entries } = &enqueued.queue;
        if let Some(first) = entries.first() {
            self.session.saw_first(&self.parent, *made, first.number);
        }
        enqueued.sent = sent;
        Ok(())
    }

    /// Where our node stands in the queue.
    pub(super) fn standing(&self, enqueued: &Enqueued) -> Standing {
        // A node of that name that another session created is not ours.
        if enqueued.stat.owner != self.session.id() {
            return Standing::Absent;
        }
        let entries = &enqueued.queue.entries;
        match (standing::standing(entries, enqueued.node()), self.watched) {
            (Standing::Waits { place, settled, .. }, Watched::TheFirst) => {
                let behind = entries.first().map(|entry| entry.node.clone()).into_iter().collect();
                Standing::Waits { place, behind, settled }
            }
            (standing, _) => standing,
        }
    }

    /// Whether our node still exists, as the leader sees it.
    pub(super) async fn exists(&self, enqueued: &Enqueued) -> Result<bool, Failure> {
        let request = Request::exists(&enqueued.path, false);
        let found = self.session.call_synced(&enqueued.path, request).await;
        match found.and_then(|found| found.stat()) {
            Ok(stat) => Ok(stat.czxid == enqueued.stat.czxid && stat.owner == self.session.id()),
            Err(Failure::SessionEnded) => Err(Failure::SessionEnded),
            // The queue is listed again, as patiently as that takes.
            Err(_) => Ok(false),
        }
    }

    /// Gives up our place.
    /// A node that is gone already is as good.
    pub(super) async fn leave(&self, enqueued: &Enqueued) -> Result<Option<Grant>, Stop> {
        match self.session.call(Request::delete(&enqueued.path)).await {
            Ok(_) | Err(Failure::SessionEnded) => {}
            Err(failure) if failure.is(refusal::NO_NODE) => {}
            Err(failure) => return Err(failure.into()),
        }
        self.session.forget(self.claim.id);
        Ok(None)
    }

    /// The claim holds, by the request that listed the queue.
    pub(super) fn grant(&self, enqueued: Enqueued) -> Grant {
        let sent = enqueued.sent;
        let lease = self.lease(enqueued);
        self.session.hold(self.claim.id, sent + lease.valid_for());
        lease.into_grant(sent)
    }

    /// The lease of our node.
    pub(super) fn lease(&self, enqueued: Enqueued) -> ZooKeeperLease {
        let node = HeldNode {
            parent: self.parent.clone(),
            path: enqueued.path,
            czxid: enqueued.stat.czxid,
            record: enqueued.record,
            ownership: Ownership::UniqueName(self.context.layout),
        };
        ZooKeeperLease::new(self.context, self.session, self.claim, node)
    }
}
