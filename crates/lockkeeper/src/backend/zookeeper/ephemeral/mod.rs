//! `recipe=ephemeral`: one node; the claim that creates it first holds the lock, and the others
//! watch it.
//!
//! ZooKeeper deletes a node by its name, in any session. So that a late release cannot delete
//! the next holder's node, every step that creates or deletes the node also depends on the version
//! of the lock's own node, and the creation raises that version: it is different for each hold.
//!
//! ```text
//!   lock's node, version 7, no child      free
//!   create `lock` + write lock's node     version 8: held by the claim that made it 8
//!   check version 8 + delete `lock`       free again
//! ```
//!
//! Compared with `fair` there is one node less to read, and no order: when the holder goes, every
//! waiter is woken and the fastest gets the lock.

pub(super) mod node;

use super::client::{Failure, NodeKind, Request, Watch, refusal};
use super::context::Context;
use super::error::Stop;
use super::layout::SINGLE_NODE;
use super::lease::{HeldNode, Ownership, ZooKeeperLease};
use super::lock_node::{self, CounterAge};
use super::record;
use super::session::Session;
use crate::backend::{Claim, Grant, Moment, Patience};
use std::sync::Arc;

/// One attempt at a claim, in one session.
struct Attempt<'a> {
    context: &'a Context,
    session: &'a Arc<Session>,
    claim: &'a Claim,
    /// The lock's node.
    parent: String,
    /// The node to be created.
    path: String,
}

/// What was found at the lock.
enum Found {
    /// Nobody holds it: the data and the version of the lock's own node.
    Free(Vec<u8>, i32),
    Held,
    /// It changed while it was looked at.
    Changing,
    /// The lock's own node does not exist.
    Nothing,
}

/// One attempt at a claim, in one session: as [`fair::acquire`](super::fair::acquire).
pub(super) async fn acquire(
    context: &Context,
    session: &Arc<Session>,
    claim: &Claim,
    patience: &Patience,
) -> Result<Option<Grant>, Stop> {
    let parent = context.path_of(&claim.name);
    let path = format!("{parent}/{SINGLE_NODE}");
    let attempt = Attempt { context, session, claim, parent, path };
    session.connected_for(patience).await?;
    session.enter(claim.id, &attempt.parent, None);
    let mut silent = None;
    loop {
        let may_wait = !patience.is_over();
        // Registered before the look that sets the watch, so that no event is missed.
        let watched = if may_wait { vec![attempt.path.clone()] } else { vec![] };
        let mut watch = Watch::new(session, watched);
        let found = match attempt.look(may_wait).await {
            Err(Stop::Failure(failure @ Failure::Unanswered(_))) => {
                let since = *silent.get_or_insert_with(Moment::now);
                if Moment::now().since(since) > patience.outage() || !may_wait {
                    return Err(failure.into());
                }
                session.connected_for(patience).await?;
                continue;
            }
            found => found?,
        };
        // The store answered: a later outage is counted from its own beginning.
        silent = None;
        match found {
            Found::Nothing => {
                lock_node::create(session, &attempt.parent, context.access).await?;
            }
            // Versions are 32-bit counters too, and -1 would mean any version.
            Found::Free(_, version) if CounterAge::of(version) != CounterAge::Young => {
                lock_node::restart_counter(session, &attempt.parent, None).await?;
            }
            Found::Free(data, version) => {
                if let Some(grant) = attempt.take(&data, version, patience).await? {
                    return Ok(Some(grant));
                }
            }
            Found::Changing => {}
            Found::Held if may_wait => {
                patience.queued(0);
                tokio::select! {
                    biased;
                    _ = watch.changed() => {}
                    () = patience.over() => {}
                }
            }
            Found::Held => {
                session.forget(claim.id);
                return Ok(None);
            }
        }
    }
}

/// Deletes the node that the claim may have left.
pub(super) async fn withdraw(
    context: &Context,
    session: &Session,
    claim: &Claim,
) -> Result<(), Failure> {
    node::remove(session, &context.path_of(&claim.name), claim.id).await?;
    session.forget(claim.id);
    Ok(())
}

impl Attempt<'_> {
    /// Looks at the lock, and watches the holder's node if there is one.
    async fn look(&self, watch: bool) -> Result<Found, Stop> {
        let requests = [Request::data(&self.parent, false), Request::data(&self.path, watch)];
        let [lock, node] = self.session.send(requests);
        let (data, stat) = match self.session.answer(lock).await {
            Ok(answer) => answer.data()?,
            Err(failure) if failure.is(refusal::NO_NODE) => return Ok(Found::Nothing),
            Err(failure) => return Err(failure.into()),
        };
        match self.session.answer(node).await {
            Ok(_) => Ok(Found::Held),
            Err(failure) if failure.is(refusal::NO_NODE) && stat.children > 0 => {
                self.look_at_children().await
            }
            Err(failure) if failure.is(refusal::NO_NODE) => Ok(Found::Free(data, stat.version)),
            Err(failure) => Err(failure.into()),
        }
    }

    /// There is a child other than our node, or our node came or went just now.
    async fn look_at_children(&self) -> Result<Found, Stop> {
        match self.session.call(Request::children(&self.parent)).await {
            Ok(answer) => match node::conflict(&self.parent, &answer.children()?) {
                Some(error) => Err(error.into()),
                None => Ok(Found::Changing),
            },
            Err(failure) if failure.is(refusal::NO_NODE) => Ok(Found::Changing),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Creates the node, provided that the lock's own node still has this version; `None` when
    /// another claim was faster.
    ///
    /// The creation is followed by a read of the node in the same round trip. The read tells whose
    /// the node is when the answer to the creation is lost, and by which transaction it was
    /// created, which the answer to several operations does not say.
    async fn take(
        &self,
        data: &[u8],
        version: i32,
        patience: &Patience,
    ) -> Result<Option<Grant>, Stop> {
        let (session, claim, path) = (self.session, self.claim, &self.path);
        // The record carries the claim's id, by which the node is recognised after a lost answer.
        let record = record::write(claim, self.context.valid_for(session, claim));
        let kind = NodeKind::Ephemeral;
        let create = Request::create(path, record.as_bytes(), kind, self.context.access);
        let create = Request::create_and_write(create, &self.parent, data, version);
        let sent = Moment::now();
        let [created, found] = session.send([create, Request::data(path, false)]);
        match session.answer(created).await.and_then(|answer| answer.all_done()) {
            Ok(()) | Err(Failure::Unanswered(_)) => {}
            Err(Failure::Refused(
                refusal::NODE_EXISTS | refusal::BAD_VERSION | refusal::NO_NODE,
            )) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        }
        let (found, sent) = match session.answer(found).await {
            Err(Failure::Unanswered(_)) => {
                // Not from the first request: validity counts from one that was answered.
                let sent = Moment::now();
                session.connected_for(patience).await?;
                (session.call_synced(path, Request::data(path, false)).await, sent)
            }
            found => (found, sent),
        };
        let (found, stat) = match found.and_then(|found| found.data()) {
            Err(failure) if failure.is(refusal::NO_NODE) => return Ok(None),
            other => other?,
        };
        // By id and session: after a lost answer the node may be another claim's, or that of an
        // older attempt in a session that is about to end.
        let is_ours = record::is_of(&found, &claim.id.to_string());
        if !is_ours || stat.owner != session.id() {
            return Ok(None);
        }
        // The write in the same step has raised the version by one.
        let version = version.wrapping_add(1);
        session.created_at_version(claim.id, path, version);
        let (parent, path, czxid) = (self.parent.clone(), path.clone(), stat.czxid);
        let ownership = Ownership::ParentVersion(version);
        let node = HeldNode { parent, path, czxid, record, ownership };
        let lease = ZooKeeperLease::new(self.context, session, claim, node);
        session.hold(claim.id, sent + lease.valid_for());
        Ok(Some(lease.into_grant(sent)))
    }
}
