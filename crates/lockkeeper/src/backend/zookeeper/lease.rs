//! A held claim: one node.
//!
//! The lease sends its own requests and waits for them. Beside it the session's driver looks after the
//! node ([`cleanup`](super::cleanup)): it deletes the node when the claim expires, tells of its loss,
//! and finishes a release whose answer does not come. The session keeps the two apart: a node that is
//! being released is left alone by the driver until the release has failed.

use super::client::{Failure, Request, refusal};
use super::context::Context;
use super::ephemeral::node;
use super::layout::{self, Layout};
use super::lock_node::{self, CounterAge};
use super::session::Session;
use super::{break_note, record};
use crate::backend::{
    Alarm, Claim, ClaimId, FencingToken, Grant, Lease, LossReason, Moment, Release, Standing,
};
use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// A node, and the session that it lives in.
#[derive(Debug)]
pub(super) struct ZooKeeperLease {
    session: Arc<Session>,
    id: ClaimId,
    node: HeldNode,
    valid_for: Duration,
    /// The URL without secrets, for errors.
    shown: Arc<str>,
    /// A sibling that must not be there, as the last renewal found it.
    intruder: Option<String>,
    /// A release was sent before: if the node is gone now, that may have been its doing.
    release_sent: bool,
}

/// The node of a held claim.
#[derive(Debug)]
pub(super) struct HeldNode {
    /// The lock's node.
    pub(super) parent: String,
    pub(super) path: String,
    /// The transaction that created the node.
    pub(super) czxid: i64,
    /// The node's data with one guard.
    pub(super) record: String,
    pub(super) ownership: Ownership,
}

/// How it is known that a node is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// No other claim's node has its name; its siblings are of this layout.
    UniqueName(Layout),
    /// It is the only child there can be, and ours as long as the parent has this version.
    ParentVersion(i32),
}

impl ZooKeeperLease {
    pub(super) fn new(
        context: &Context,
        session: &Arc<Session>,
        claim: &Claim,
        node: HeldNode,
    ) -> Self {
        Self {
            session: session.clone(),
            id: claim.id,
            node,
            valid_for: context.valid_for(session, claim),
            shown: context.shown.clone(),
            intruder: None,
            release_sent: false,
        }
    }

    /// How long the claim is valid after each renewal.
    pub(super) fn valid_for(&self) -> Duration {
        self.valid_for
    }

    /// The grant of the claim, which the session knows as held, by a request that was sent at
    /// `sent` and that the leader answered.
    pub(super) fn into_grant(self, sent: Moment) -> Grant {
        let valid_for = self.valid_for;
        let token = FencingToken::from_revision(self.node.czxid);
        Grant { lease: Box::new(self), token, sent, valid_for }
    }

    /// Deletes the node: whether it existed. After an error it may still exist, but not for long:
    /// the driver sees to that.
    async fn delete(&mut self) -> Result<bool, Failure> {
        // First, or the event of our own deletion could be taken for a loss.
        self.session.releasing(self.id);
        let mut again = std::mem::replace(&mut self.release_sent, true);
        let mut deleted = self.delete_once().await;
        if matches!(deleted, Err(Failure::Unanswered(_))) {
            again = true;
            deleted = self.delete_once().await;
        }
        match deleted {
            Err(failure) if failure != Failure::SessionEnded => {
                self.session.delete_soon(self.id);
                Err(failure)
            }
            deleted => {
                self.session.forget(self.id);
                // An earlier request may have deleted the node.
                Ok(again || deleted.unwrap_or(false))
            }
        }
    }

    /// Sends one deletion: whether there was a node to delete.
    async fn delete_once(&self) -> Result<bool, Failure> {
        let HeldNode { parent, path, .. } = &self.node;
        let deleted = match self.node.ownership {
            Ownership::UniqueName(_) => {
                self.session.call_once(Request::delete(path)).await.map(|_| true)
            }
            Ownership::ParentVersion(version) => {
                let delete = Request::delete_if(path, parent, version);
                let deleted = self.session.call_once(delete).await;
                match deleted.and_then(|answer| answer.all_done()) {
                    // Someone wrote to the lock's node; whether we hold the lock is to be seen.
                    Err(failure) if failure.is(refusal::BAD_VERSION) => {
                        node::remove(&self.session, parent, self.id).await
                    }
                    deleted => deleted.map(|()| true),
                }
            }
        };
        match deleted {
            Err(failure) if failure.is(refusal::NO_NODE) => Ok(false),
            deleted => deleted,
        }
    }

    /// Has the counter of the lock's node start over where it is time, if we were the last.
    async fn restart_counter_if_late(&self) {
        let Ownership::UniqueName(_) = self.node.ownership else { return };
        let age = layout::number_of(&self.node.path).map_or(CounterAge::Ended, CounterAge::of);
        if age != CounterAge::Young {
            // If it fails, the next release tries again.
            let _ = lock_node::restart_counter(&self.session, &self.node.parent, None).await;
        }
    }

    /// Whether a claim has come that does not see our node, and is granted beside ours.
    ///
    /// Not at first sight: a claim of lockkeeper's with another recipe or layout sees our node,
    /// and leaves at once.
    fn intrusion(&mut self, children: Vec<String>) -> Option<LossReason> {
        let problem = match self.node.ownership {
            Ownership::UniqueName(layout) => layout.entries(children).err(),
            Ownership::ParentVersion(_) => node::conflict(&self.node.parent, &children),
        };
        let intruder = problem.as_ref().and_then(|problem| problem.detail("node"));
        // The same node at two renewals in a row.
        let before = std::mem::replace(&mut self.intruder, intruder.map(str::to_owned));
        if intruder.is_none() || before.as_deref() != intruder {
            return None;
        }
        problem.map(|problem| LossReason::Broken { reason: problem.to_string() })
    }
}

#[async_trait]
impl Lease for ZooKeeperLease {
    /// Asks the leader for the node, and for its siblings in the same round trip.
    ///
    /// Nothing is written: the node lives with its session, and what a renewal proves is that the
    /// leader still has both. The ttl is kept on our side.
    async fn renew(&mut self) -> Result<Standing> {
        let HeldNode { parent, path, czxid, .. } = &self.node;
        // Before the request is sent: validity never counts from an answer.
        let sent = Moment::now();
        let requests = [Request::exists(path, false), Request::children(parent)];
        let [found, listed] = self.session.call_all_synced(path, requests).await;
        let is_ours = found
            .and_then(|found| found.stat())
            .map(|stat| stat.czxid == *czxid && stat.owner == self.session.id());
        let children = listed.and_then(|answer| answer.children()).unwrap_or_default();
        if let Some(reason) = self.intrusion(children) {
            return Ok(Standing::Lost(reason));
        }
        match is_ours {
            Ok(true) => {
                self.session.renewed(self.id, sent + self.valid_for);
                Ok(Standing::HeldFor(self.valid_for))
            }
            Err(failure @ Failure::Unanswered(_)) => Err(failure.explain(&self.shown)),
            Err(Failure::Refused(refusal::NO_NODE)) => {
                let lock = self.session.call(Request::data(&self.node.parent, false)).await;
                Ok(Standing::Lost(break_note::reason_in(lock.as_ref(), &self.node.path)))
            }
            Err(failure @ Failure::Refused(_)) => Err(failure.explain(&self.shown)),
            Ok(false) | Err(Failure::SessionEnded) => Ok(Standing::Lost(LossReason::Gone)),
        }
    }

    /// Deletes the node. That alone wakes the next claim in the queue.
    async fn release(&mut self, _: &Release<'_>) -> Result<()> {
        let existed = self.delete().await.map_err(|failure| failure.explain(&self.shown))?;
        self.restart_counter_if_late().await;
        if existed { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }

    fn watch(&mut self, alarm: Alarm) {
        self.session.set_alarm(self.id, alarm);
    }

    /// Written to the node by the driver, if it lasts.
    fn guards_changed(&mut self, guards: usize) {
        let record = record::with_count(&self.node.record, guards);
        self.session.set_guards(self.id, guards, record);
    }
}

impl Drop for ZooKeeperLease {
    fn drop(&mut self) {
        // Nothing is sent: a drop must need no runtime.
        // Released before this, or left to run out.
        self.session.silence(self.id);
    }
}
