//! The nodes that a session owns or may own, and what has to be done about each of them.
//!
//! A node is entered here **before** the request that creates it is sent, and forgotten when the
//! server has said that it is gone, or the session has ended. In between, a node that is to be
//! deleted is asked for until it is gone: when the answer to its creation was lost, nothing else
//! would ever remove it while the session lives.
//!
//! ZooKeeper knows no ttl of a claim. That is kept here as well: a claim that is not renewed is
//! deleted when it ends.
//!
//! The table itself does no I/O. [`OwnedNodes::take_due`] says which [`Action`]s are due, and
//! [`observer`] turns them into requests and draws the conclusions from the answers.
//!
//! Who calls it, always under the session's lock:
//!
//! ```text
//!   recipes, leases ──► enter, created, hold, renewed, releasing, delete_soon, forget
//!   the driver ───────► take_due, and what its answers say
//!   the connection ───► disconnected, ended
//! ```

mod node;
pub(super) mod observer;

use crate::backend::{Alarm, ClaimId, Moment};
use node::{GuardCount, OwnedNode, Role};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// A claim that is held for longer than this is watched. Most are released sooner, and would pay
/// for a watch that never fires.
const WATCH_AFTER: Duration = Duration::from_millis(20);
/// How long a changed count of guards waits to be written: most who enter again leave before.
const WRITE_AFTER: Duration = Duration::from_millis(100);
/// When a node that should be gone is asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// When the driver takes over a release of which nobody reported the outcome.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// The table, by claim.
#[derive(Debug, Default)]
pub(super) struct OwnedNodes {
    nodes: HashMap<ClaimId, OwnedNode>,
    /// The nodes of held claims, by path.
    held: HashMap<String, ClaimId>,
    schedule: BTreeSet<(Moment, ClaimId)>,
}

/// Something to be done about a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Have the server report changes to the node of a held claim.
    Watch { id: ClaimId, path: String },
    /// Write the node's record, if its parent still has this version where there is one.
    Write { path: String, record: String, parent: Option<(String, i32)> },
    /// Delete the node.
    Delete { id: ClaimId, path: String },
    /// Find out whether the only node there can be below `parent` is ours, to delete it.
    Identify { id: ClaimId, parent: String },
    /// Look for the node among the children of `parent`, to delete it.
    Find { id: ClaimId, parent: String },
}

impl OwnedNodes {
    /// A node is about to be created below `parent`, with a name that starts with `prefix`.
    pub(super) fn enter(&mut self, id: ClaimId, parent: &str, prefix: Option<&str>) {
        // A claim that is attempted again, in the same session, keeps its id and starts over.
        if let Some(before) = self.nodes.insert(id, OwnedNode::requested(parent, prefix)) {
            self.unlist(id, &before);
        }
    }

    /// The node exists, at `path`.
    pub(super) fn found(&mut self, id: ClaimId, path: &str) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.path = Some(path.to_owned());
        }
    }

    /// The node exists at `path`, created by the transaction `czxid`.
    pub(super) fn created(&mut self, id: ClaimId, path: &str, czxid: i64) {
        self.found(id, path);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.czxid = Some(czxid);
        }
    }

    /// The node is ours as long as its parent has this version.
    pub(super) fn set_parent_version(&mut self, id: ClaimId, version: Option<i32>) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.parent_version = version;
        }
    }

    /// The parent of a node that is to be deleted, and the version that makes the node ours.
    fn parent_to_check(&self, id: ClaimId) -> Option<(&str, i32)> {
        let node = self.nodes.get(&id).filter(|node| node.is_to_delete())?;
        Some((&node.parent, node.parent_version?))
    }

    /// The claim is held until `expires`, unless it is renewed. `watched` says whether its node
    /// is watched already.
    pub(super) fn hold(&mut self, id: ClaimId, expires: Moment, watched: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.role = Role::Held { expires, watched, alarm: None };
        if let Some(path) = &node.path {
            self.held.insert(path.clone(), id);
        }
        let due = if watched { expires } else { expires.min(Moment::now() + WATCH_AFTER) };
        self.schedule(id, due);
    }

    /// The claim was renewed.
    pub(super) fn renewed(&mut self, id: ClaimId, until: Moment) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Role::Held { expires, watched, .. } = &mut node.role {
            *expires = until;
            // Otherwise it is looked at soon, to be watched.
            if *watched {
                let next = node.next_look(until);
                self.schedule(id, next);
            }
        }
    }

    /// The claim is shared by this many guards now. `record` is what its node is to say, unless
    /// the count changes back soon.
    pub(super) fn set_guards(&mut self, id: ClaimId, guards: usize, record: String) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Role::Held { expires, .. } = node.role else { return };
        let (written, due) = node.guards.as_ref().map_or((1, None), |c| (c.written, c.due));
        let due = due.unwrap_or_else(|| Moment::now() + WRITE_AFTER);
        // A count that changed back before it was written need not be written at all.
        let due = (guards != written).then_some(due);
        node.guards = Some(GuardCount { guards, record, written, due });
        let next = node.due.unwrap_or(expires).min(node.next_look(expires));
        self.schedule(id, next);
    }

    /// Keeps the alarm of a held claim, or gives it back when no such claim is held.
    pub(super) fn set_alarm(&mut self, id: ClaimId, new: Alarm) -> Result<(), Alarm> {
        match self.nodes.get_mut(&id).map(|node| &mut node.role) {
            Some(Role::Held { alarm, .. }) => {
                *alarm = Some(new);
                Ok(())
            }
            _ => Err(new),
        }
    }

    /// Nobody is left to be told of the claim's loss. Returns the alarm, to be dropped unlocked.
    pub(super) fn silence(&mut self, id: ClaimId) -> Option<Alarm> {
        match self.nodes.get_mut(&id).map(|node| &mut node.role) {
            Some(Role::Held { alarm, .. }) => alarm.take(),
            _ => None,
        }
    }

    /// The node is about to be deleted by the claim's own release, so that its end is no loss.
    /// Returns the alarm, to be dropped unlocked.
    pub(super) fn releasing(&mut self, id: ClaimId) -> Option<Alarm> {
        let node = self.nodes.get_mut(&id)?;
        if let Some(path) = &node.path {
            self.held.remove(path);
        }
        let role = std::mem::replace(&mut node.role, Role::Releasing);
        self.schedule(id, Moment::now() + RELEASE_LIMIT);
        match role {
            Role::Held { alarm, .. } => alarm,
            _ => None,
        }
    }

    /// The node must go, whether or not it is known to exist.
    pub(super) fn delete_soon(&mut self, id: ClaimId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.role = Role::ToDelete;
            if let Some(path) = &node.path {
                self.held.remove(path);
            }
            self.schedule(id, Moment::now());
        }
    }

    /// The node is gone, or never existed. Returns the alarm, to be rung or dropped unlocked.
    pub(super) fn forget(&mut self, id: ClaimId) -> Option<Alarm> {
        let node = self.nodes.remove(&id)?;
        self.unlist(id, &node);
        node.into_alarm()
    }

    /// The same for a node that was looked for in order to delete it. A claim that was made again
    /// meanwhile, with the same id, stays.
    fn forget_deleted(&mut self, id: ClaimId) {
        if self.nodes.get(&id).is_some_and(OwnedNode::is_to_delete) {
            self.forget(id);
        }
    }

    /// Takes the node out of both indexes.
    fn unlist(&mut self, id: ClaimId, node: &OwnedNode) {
        if let Some(path) = &node.path {
            self.held.remove(path);
        }
        if let Some(due) = node.due {
            self.schedule.remove(&(due, id));
        }
    }

    fn schedule(&mut self, id: ClaimId, due: Moment) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(before) = node.due.replace(due) {
            self.schedule.remove(&(before, id));
        }
        self.schedule.insert((due, id));
    }

    /// The server was asked to delete the node: whether it did is looked at shortly.
    fn check_soon(&mut self, id: ClaimId) {
        self.schedule(id, Moment::now() + WATCH_AFTER);
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.schedule.first().map(|(due, _)| *due)
    }

    /// What is due at `now`. Everything that must not be forgotten is scheduled again at once: an
    /// action is repeated until an answer says that the node is gone.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((due, id)) = self.schedule.first().copied().filter(|(due, _)| *due <= now) {
            self.schedule.remove(&(due, id));
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            node.due = None;
            match node.role {
                Role::Held { expires, .. } if expires > now => {
                    look_after(id, node, now, &mut actions);
                    let next = node.next_look(expires);
                    self.schedule(id, next);
                }
                // An expired claim, or a release that nobody finished: deleted in the next turn.
                Role::Held { .. } | Role::Releasing => self.delete_soon(id),
                Role::ToDelete => {
                    actions.push(deletion(id, node));
                    self.schedule(id, now + RETRY_AFTER);
                }
                Role::Requested => {}
            }
        }
        actions
    }

    /// Which of `children` is the node, if it is still to be deleted.
    fn find_among(&self, id: ClaimId, children: &[String]) -> Option<String> {
        let node = self.nodes.get(&id).filter(|node| node.is_to_delete())?;
        let prefix = node.prefix.as_ref()?;
        let child = children.iter().find(|child| child.starts_with(prefix))?;
        Some(format!("{}/{child}", node.parent))
    }

    /// The claim that is held by the node at `path`, and the node's parent.
    fn holder(&self, path: &str) -> Option<(ClaimId, &str)> {
        let id = self.held.get(path)?;
        Some((*id, &self.nodes.get(id)?.parent))
    }

    fn parent(&self, id: ClaimId) -> Option<&str> {
        self.nodes.get(&id).map(|node| node.parent.as_str())
    }

    fn path(&self, id: ClaimId) -> Option<&str> {
        self.nodes.get(&id)?.path.as_deref()
    }

    /// The node's path, and the transaction that created it.
    pub(super) fn identity(&self, id: ClaimId) -> Option<(&str, i64)> {
        let node = self.nodes.get(&id)?;
        Some((node.path.as_deref()?, node.czxid?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The connection broke, and the watches with it: everything is looked at again. Returns the
    /// alarms of held claims.
    fn disconnected(&mut self) -> Vec<Alarm> {
        let now = Moment::now();
        let (mut ids, mut alarms) = (Vec::new(), Vec::new());
        for (id, node) in &mut self.nodes {
            match &mut node.role {
                Role::Held { watched, alarm, .. } => {
                    *watched = false;
                    // What was written last may not have arrived.
                    if let Some(count) = &mut node.guards {
                        count.due = Some(now);
                    }
                    alarms.extend(alarm.clone());
                }
                Role::ToDelete => {}
                Role::Requested | Role::Releasing => continue,
            }
            ids.push(*id);
        }
        ids.iter().for_each(|id| self.schedule(*id, now));
        alarms
    }

    /// The session is over: no node is left. Returns the alarms of what was held.
    fn ended(&mut self) -> Vec<Alarm> {
        let nodes = std::mem::take(self).nodes;
        nodes.into_values().filter_map(OwnedNode::into_alarm).collect()
    }
}

/// What is due about the node of a held claim that has not expired.
fn look_after(id: ClaimId, node: &mut OwnedNode, now: Moment, actions: &mut Vec<Action>) {
    let (Role::Held { watched, .. }, Some(path)) = (&mut node.role, &node.path) else { return };
    if !std::mem::replace(watched, true) {
        actions.push(Action::Watch { id, path: path.clone() });
    }
    let count = node.guards.as_mut();
    if let Some(count) = count.filter(|count| count.due.is_some_and(|due| due <= now)) {
        (count.written, count.due) = (count.guards, None);
        let parent = node.parent_version.map(|version| (node.parent.clone(), version));
        let (path, record) = (path.clone(), count.record.clone());
        actions.push(Action::Write { path, record, parent });
    }
}

/// The first step towards the end of a node, by what is known of it.
fn deletion(id: ClaimId, node: &OwnedNode) -> Action {
    let parent = node.parent.clone();
    match (&node.prefix, &node.path) {
        (None, _) => Action::Identify { id, parent },
        (Some(_), Some(path)) => Action::Delete { id, path: path.clone() },
        (Some(_), None) => Action::Find { id, parent },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimIds;

    /// A claim with a node, held, and then being released.
    fn releasing() -> (OwnedNodes, ClaimId) {
        let (mut owned, id) = (OwnedNodes::default(), ClaimIds::new().unwrap().next());
        owned.enter(id, "/l", Some("a"));
        owned.created(id, "/l/a-1", 7);
        owned.hold(id, Moment::now() + Duration::from_secs(60), true);
        owned.releasing(id);
        (owned, id)
    }

    #[test]
    fn a_break_leaves_what_is_being_released_to_its_release() {
        let (mut owned, id) = releasing();
        owned.disconnected();
        let soon = Moment::now() + RETRY_AFTER;
        assert_eq!(owned.take_due(soon), []);
        // The release failed: from now on it is for the driver to do.
        owned.delete_soon(id);
        let path = "/l/a-1".to_owned();
        assert_eq!(owned.take_due(soon), [Action::Delete { id, path }]);
    }

    #[test]
    fn a_release_that_nobody_finished_is_finished() {
        let (mut owned, id) = releasing();
        let path = "/l/a-1".to_owned();
        let later = Moment::now() + RELEASE_LIMIT + RETRY_AFTER;
        assert_eq!(owned.take_due(later), [Action::Delete { id, path }]);
    }
}
