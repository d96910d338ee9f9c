//! What is known of one node that this session owns, or may own.

use crate::backend::{Alarm, Moment};

#[derive(Debug)]
pub(super) struct OwnedNode {
    /// The lock's node, which this one is a child of.
    pub(super) parent: String,
    /// A prefix of the node's name that no other node has; `None` for `recipe=ephemeral`, where
    /// all claims use one name.
    pub(super) prefix: Option<String>,
    /// `recipe=ephemeral`: the node is ours as long as `parent` has this version.
    pub(super) parent_version: Option<i32>,
    /// The whole path, once the server has said that the node exists.
    pub(super) path: Option<String>,
    /// The transaction that created the node, where it is known.
    pub(super) czxid: Option<i64>,
    /// How many guards share the claim, if that was ever more than one.
    pub(super) guards: Option<GuardCount>,
    pub(super) role: Role,
    /// When the node is looked at next: the same as in the schedule.
    pub(super) due: Option<Moment>,
}

/// What is to happen to a node.
///
/// ```text
///   Requested ──► Held ──► Releasing ──► (forgotten)
///       │           │          │
///       └───────────┴──────────┴──► ToDelete ──► (forgotten)
/// ```
#[derive(Debug)]
pub(super) enum Role {
    /// Its creation was asked for; the claim may be waiting in the queue.
    Requested,
    /// The claim is held.
    Held {
        /// When the claim ends unless it is renewed.
        expires: Moment,
        /// Whether the server was asked to report changes to the node.
        watched: bool,
        alarm: Option<Alarm>,
    },
    /// The lease is asking the server to delete the node, and must not find that we did: a node
    /// that is gone before its release means that the claim was lost.
    Releasing,
    /// The node must be deleted by the driver, whether or not it is known to exist.
    ToDelete,
}

/// How many guards share a claim, and what its node says about that.
#[derive(Debug)]
pub(super) struct GuardCount {
    pub(super) guards: usize,
    /// The whole record of the node, with that count.
    pub(super) record: String,
    /// The count that was written last.
    pub(super) written: usize,
    /// When `record` is to be written.
    pub(super) due: Option<Moment>,
}

impl OwnedNode {
    /// One whose creation is about to be asked for.
    pub(super) fn requested(parent: &str, prefix: Option<&str>) -> Self {
        Self {
            parent: parent.to_owned(),
            prefix: prefix.map(str::to_owned),
            parent_version: None,
            path: None,
            czxid: None,
            guards: None,
            role: Role::Requested,
            due: None,
        }
    }

    pub(super) fn is_to_delete(&self) -> bool {
        matches!(self.role, Role::ToDelete)
    }

    /// When the node of a held claim that ends at `expires` is to be looked at.
    pub(super) fn next_look(&self, expires: Moment) -> Moment {
        // Without a path there is nowhere to write yet.
        let write = self.path.as_ref().and(self.guards.as_ref()).and_then(|count| count.due);
        write.map_or(expires, |write| write.min(expires))
    }

    /// The alarm of a held claim.
    pub(super) fn into_alarm(self) -> Option<Alarm> {
        match self.role {
            Role::Held { alarm, .. } => alarm,
            Role::Requested | Role::Releasing | Role::ToDelete => None,
        }
    }
}
