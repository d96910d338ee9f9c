//! What claims live in: the keeper's session, and what it keeps of its nodes.
//!
//! Every function here is one step under the session's lock. Alarms leave the lock before they are
//! rung or dropped, since both may end a hold, which comes back here.

use super::cleanup::observer::Nodes;
use super::client::{self, Failure};
use crate::backend::{Alarm, ClaimId, LossReason, Moment, Patience};

/// A session that knows which nodes it owns.
pub(super) type Session = client::Session<Nodes>;

impl Session {
    /// Waits for a connection for as long as a waiting claim puts up with a silent store. A claim
    /// whose patience has run out gets the time of one request.
    pub(super) async fn connected_for(&self, patience: &Patience) -> Result<(), Failure> {
        tokio::select! {
            biased;
            connected = self.connected_within(patience.outage()) => connected,
            () = patience.over() => self.connected().await,
        }
    }

    /// The node of a claim is about to be created below `parent`, with a name that starts with
    /// `prefix`; `None` where there is only one name.
    pub(super) fn enter(&self, id: ClaimId, parent: &str, prefix: Option<&str>) {
        self.observe(|nodes, _| nodes.owned.enter(id, parent, prefix));
    }

    /// The node of a claim exists.
    pub(super) fn found(&self, id: ClaimId, path: &str) {
        self.observe(|nodes, _| nodes.owned.found(id, path));
    }

    /// The node of a claim was created by the transaction `czxid`.
    pub(super) fn created(&self, id: ClaimId, path: &str, czxid: i64) {
        self.observe(|nodes, _| nodes.owned.created(id, path, czxid));
    }

    /// The node of a claim exists, and is its own as long as its parent has this version.
    pub(super) fn created_at_version(&self, id: ClaimId, path: &str, version: i32) {
        self.observe(|nodes, _| {
            nodes.owned.found(id, path);
            nodes.owned.set_parent_version(id, Some(version));
        });
    }

    /// A claim is held until `expires`.
    pub(super) fn hold(&self, id: ClaimId, expires: Moment) {
        self.observe(|nodes, _| nodes.owned.hold(id, expires, false));
    }

    /// A claim was renewed.
    pub(super) fn renewed(&self, id: ClaimId, until: Moment) {
        self.observe(|nodes, _| nodes.owned.renewed(id, until));
    }

    /// Keeps the alarm of a held claim; rings it at once if the claim is lost already.
    pub(super) fn set_alarm(&self, id: ClaimId, alarm: Alarm) {
        let refused = self.observe(|nodes, _| nodes.owned.set_alarm(id, alarm));
        if let Err(alarm) = refused {
            alarm.ring(LossReason::Gone);
        }
    }

    /// A held claim is shared by this many guards; `record` is what its node is to say.
    pub(super) fn set_guards(&self, id: ClaimId, guards: usize, record: String) {
        self.observe(|nodes, _| nodes.owned.set_guards(id, guards, record));
    }

    /// The lease is gone: the claim is no longer renewed, and nobody is left to be told of its
    /// loss. It runs out by itself.
    pub(super) fn silence(&self, id: ClaimId) {
        drop(self.observe(|nodes, _| nodes.owned.silence(id)));
    }

    /// A claim is being released by its lease.
    pub(super) fn releasing(&self, id: ClaimId) {
        drop(self.observe(|nodes, _| nodes.owned.releasing(id)));
    }

    /// The node of a claim must go, and nobody waits for that: the driver sees to it.
    pub(super) fn delete_soon(&self, id: ClaimId) {
        self.observe(|nodes, _| nodes.owned.delete_soon(id));
        self.wake();
    }

    /// The node of a claim is gone, or never existed.
    pub(super) fn forget(&self, id: ClaimId) {
        drop(self.observe(|nodes, _| nodes.forget(id)));
    }

    /// A lock created by the transaction `made` was listed: no node with a number below `first`
    /// is left of it.
    pub(super) fn saw_first(&self, parent: &str, made: i64, first: i32) {
        self.observe(|nodes, _| nodes.gone.raise(parent, made, first));
    }
}
