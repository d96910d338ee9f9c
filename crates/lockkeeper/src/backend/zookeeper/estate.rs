//! The nodes that a session has, or may have, in ZooKeeper.
//!
//! A node is entered here before the request to make it is sent, and leaves when the server said
//! that it is gone, or the session ended. What is to go is asked for until then: there is no
//! other end to a node whose maker does not know that it was made. ZooKeeper knows no ttl
//! of a claim, so that is kept here as well: a claim that nobody renews is removed at its end.

use crate::backend::{Alarm, ClaimId, Moment};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A claim held for longer than this is watched; most are given back sooner.
const SOON: Duration = Duration::from_millis(20);
/// What a node says is changed no sooner: most who enter again leave before.
const LEISURE: Duration = Duration::from_millis(100);
/// When a node that should be gone is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Estate {
    traces: HashMap<ClaimId, Trace>,
    held: HashMap<String, ClaimId>,
    agenda: BTreeSet<(Moment, ClaimId)>,
}

/// What is known of one node.
#[derive(Debug)]
struct Trace {
    parent: String,
    /// What the name of the node starts with, unlike any other; `None` where there is but one.
    start: Option<String>,
    /// The version of `parent` on which it depends that the node is ours, if it does.
    seal: Option<i32>,
    path: Option<String>,
    /// The transaction that made the node, where that is known.
    czxid: Option<i64>,
    /// What the node is to say other than when it was made.
    said: Option<Said>,
    role: Role,
    due: Option<Moment>,
}

/// How many guards share a claim, as its node tells it.
#[derive(Debug)]
struct Said {
    guards: usize,
    data: String,
    /// What was last written.
    written: usize,
    /// When it is to be written.
    due: Option<Moment>,
}

#[derive(Debug)]
enum Role {
    Asked,
    Held {
        expires: Moment,
        watched: bool,
        alarm: Option<Arc<Alarm>>,
    },
    /// Whoever held it asks the server to delete it, and must not find it gone by our doing.
    Leaving,
    Doomed,
}

/// Something to be done about a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Duty {
    Watch {
        id: ClaimId,
        path: String,
    },
    /// Have the node say something else, if its parent has the version on which it depends that
    /// it is ours.
    Write {
        path: String,
        data: String,
        seal: Option<(String, i32)>,
    },
    Delete {
        id: ClaimId,
        path: String,
    },
    /// See whether the only node there can be is ours, to delete it.
    Identify {
        id: ClaimId,
        parent: String,
    },
    /// Look for it among the children of `parent`, to delete it.
    Find {
        id: ClaimId,
        parent: String,
    },
}

impl Trace {
    /// When a held one is to be looked at, that ends then.
    fn next_look(&self, expires: Moment) -> Moment {
        let write = self.said.as_ref().and_then(|said| said.due);
        write.map_or(expires, |write| write.min(expires))
    }
}

impl Estate {
    /// A node is about to be asked for.
    pub(super) fn enter(&mut self, id: ClaimId, parent: &str, start: Option<&str>) {
        let (parent, start) = (parent.to_owned(), start.map(str::to_owned));
        let (path, czxid, seal, said) = (None, None, None, None);
        let (role, due) = (Role::Asked, None);
        let trace = Trace { parent, start, path, czxid, seal, said, role, due };
        if let Some(before) = self.traces.insert(id, trace) {
            self.strike(id, &before);
        }
    }

    /// The node is known to be there, and to be at `path`.
    pub(super) fn found(&mut self, id: ClaimId, path: &str) {
        if let Some(trace) = self.traces.get_mut(&id) {
            trace.path = Some(path.to_owned());
        }
    }

    /// The same, and which transaction made it.
    pub(super) fn made(&mut self, id: ClaimId, path: &str, czxid: i64) {
        self.found(id, path);
        if let Some(trace) = self.traces.get_mut(&id) {
            trace.czxid = Some(czxid);
        }
    }

    /// The node is ours as long as its parent has this version.
    pub(super) fn seal(&mut self, id: ClaimId, seal: Option<i32>) {
        if let Some(trace) = self.traces.get_mut(&id) {
            trace.seal = seal;
        }
    }

    /// The node is the only one there can be, if it is ours and still to go: how to delete it.
    pub(super) fn sealed(&self, id: ClaimId) -> Option<(&str, i32)> {
        let trace = self.traces.get(&id).filter(|trace| matches!(trace.role, Role::Doomed))?;
        Some((&trace.parent, trace.seal?))
    }

    /// The claim is held, until `expires` unless renewed, and its node may be watched already.
    /// Returns when it is next looked at.
    pub(super) fn hold(&mut self, id: ClaimId, expires: Moment, watched: bool) -> Moment {
        let Some(trace) = self.traces.get_mut(&id) else { return expires };
        trace.role = Role::Held { expires, watched, alarm: None };
        if let Some(path) = &trace.path {
            self.held.insert(path.clone(), id);
        }
        let due = if watched { expires } else { expires.min(Moment::now() + SOON) };
        self.put(id, Some(due));
        due
    }

    pub(super) fn renewed(&mut self, id: ClaimId, until: Moment) {
        let Some(trace) = self.traces.get_mut(&id) else { return };
        if let Role::Held { expires, watched, .. } = &mut trace.role {
            *expires = until;
            if *watched {
                let next = trace.next_look(until);
                self.put(id, Some(next));
            }
        }
    }

    /// The node is to say that so many guards share the claim, with this for all its data, unless
    /// that changes back soon. Returns when it is looked at.
    pub(super) fn note(&mut self, id: ClaimId, guards: usize, data: String) -> Option<Moment> {
        let trace = self.traces.get_mut(&id)?;
        let Role::Held { expires, .. } = trace.role else { return None };
        let (written, due) = trace.said.as_ref().map_or((1, None), |said| (said.written, said.due));
        let due = due.unwrap_or_else(|| Moment::now() + LEISURE);
        let due = (guards != written).then_some(due);
        trace.said = Some(Said { guards, data, written, due });
        let next = trace.due.unwrap_or(expires).min(trace.next_look(expires));
        self.put(id, Some(next));
        Some(next)
    }

    /// Gives the alarm back when no such claim is held.
    pub(super) fn alarm(&mut self, id: ClaimId, new: Alarm) -> Result<(), Alarm> {
        match self.traces.get_mut(&id) {
            Some(Trace { role: Role::Held { alarm, .. }, .. }) => {
                *alarm = Some(Arc::new(new));
                Ok(())
            }
            _ => Err(new),
        }
    }

    /// There is nobody left to alarm.
    pub(super) fn hush(&mut self, id: ClaimId) {
        if let Some(Trace { role: Role::Held { alarm, .. }, .. }) = self.traces.get_mut(&id) {
            *alarm = None;
        }
    }

    /// The node is about to be deleted by whoever held it.
    pub(super) fn let_go(&mut self, id: ClaimId) -> Option<Arc<Alarm>> {
        let trace = self.traces.get_mut(&id)?;
        if let Some(path) = &trace.path {
            self.held.remove(path);
        }
        let role = std::mem::replace(&mut trace.role, Role::Leaving);
        // Should nobody come back to say how it went, it is asked for again.
        self.put(id, Some(Moment::now() + AGAIN * 10));
        match role {
            Role::Held { alarm, .. } => alarm,
            _ => None,
        }
    }

    /// The node is to go, whether or not it is known to be there.
    pub(super) fn doom(&mut self, id: ClaimId) {
        if let Some(trace) = self.traces.get_mut(&id) {
            trace.role = Role::Doomed;
            if let Some(path) = &trace.path {
                self.held.remove(path);
            }
            self.put(id, Some(Moment::now()));
        }
    }

    /// The node is gone, or never was.
    pub(super) fn strike_off(&mut self, id: ClaimId) -> Option<Arc<Alarm>> {
        let trace = self.traces.remove(&id)?;
        self.strike(id, &trace);
        match trace.role {
            Role::Held { alarm, .. } => alarm,
            _ => None,
        }
    }

    fn strike(&mut self, id: ClaimId, trace: &Trace) {
        if let Some(path) = &trace.path {
            self.held.remove(path);
        }
        if let Some(due) = trace.due {
            self.agenda.remove(&(due, id));
        }
    }

    fn put(&mut self, id: ClaimId, due: Option<Moment>) {
        let Some(trace) = self.traces.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut trace.due, due) {
            self.agenda.remove(&(before, id));
        }
        self.agenda.extend(due.map(|due| (due, id)));
    }

    /// The node was asked to go: whether it did is to be seen.
    pub(super) fn look_again(&mut self, id: ClaimId) {
        self.put(id, Some(Moment::now() + SOON));
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.agenda.first().map(|(due, _)| *due)
    }

    /// What is due now.
    pub(super) fn duties(&mut self, now: Moment) -> Vec<Duty> {
        let mut duties = Vec::new();
        while let Some((due, id)) = self.agenda.first().copied().filter(|(due, _)| *due <= now) {
            self.agenda.remove(&(due, id));
            let Some(trace) = self.traces.get_mut(&id) else { continue };
            trace.due = None;
            let is_over = match trace.role {
                Role::Held { expires, .. } => expires <= now,
                Role::Leaving => true,
                Role::Asked | Role::Doomed => false,
            };
            if is_over {
                self.doom(id);
                continue;
            }
            let next = match (&mut trace.role, &trace.path) {
                (Role::Held { watched, expires, .. }, Some(path)) => {
                    if !std::mem::replace(watched, true) {
                        duties.push(Duty::Watch { id, path: path.clone() });
                    }
                    let said = trace.said.as_mut();
                    if let Some(said) = said.filter(|s| s.due.is_some_and(|due| due <= now)) {
                        (said.written, said.due) = (said.guards, None);
                        let seal = trace.seal.map(|seal| (trace.parent.clone(), seal));
                        duties.push(Duty::Write {
                            path: path.clone(),
                            data: said.data.clone(),
                            seal,
                        });
                    }
                    let expires = *expires;
                    trace.next_look(expires)
                }
                (Role::Doomed, _) if trace.start.is_none() => {
                    duties.push(Duty::Identify { id, parent: trace.parent.clone() });
                    now + AGAIN
                }
                (Role::Doomed, Some(path)) => {
                    duties.push(Duty::Delete { id, path: path.clone() });
                    now + AGAIN
                }
                (Role::Doomed, None) => {
                    duties.push(Duty::Find { id, parent: trace.parent.clone() });
                    now + AGAIN
                }
                _ => continue,
            };
            self.put(id, Some(next));
        }
        duties
    }

    /// Which of `children` is the node, if it is still to go.
    pub(super) fn sought(&self, id: ClaimId, children: &[String]) -> Option<String> {
        let trace = self.traces.get(&id).filter(|trace| matches!(trace.role, Role::Doomed))?;
        let start = trace.start.as_ref()?;
        let child = children.iter().find(|child| child.starts_with(start))?;
        Some(format!("{}/{child}", trace.parent))
    }

    /// The claim that is held by the node at `path`.
    pub(super) fn holder(&self, path: &str) -> Option<(ClaimId, &str)> {
        let id = self.held.get(path)?;
        Some((*id, &self.traces.get(id)?.parent))
    }

    pub(super) fn parent(&self, id: ClaimId) -> Option<&str> {
        self.traces.get(&id).map(|trace| trace.parent.as_str())
    }

    pub(super) fn path(&self, id: ClaimId) -> Option<&str> {
        self.traces.get(&id)?.path.as_deref()
    }

    /// The node, and the transaction that made it.
    pub(super) fn node(&self, id: ClaimId) -> Option<(&str, i64)> {
        let trace = self.traces.get(&id)?;
        Some((trace.path.as_deref()?, trace.czxid?))
    }

    /// The node was looked for and is not there. A claim made again meanwhile stays.
    pub(super) fn strike_off_doomed(&mut self, id: ClaimId) {
        if matches!(self.traces.get(&id), Some(Trace { role: Role::Doomed, .. })) {
            self.strike_off(id);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.traces.is_empty()
    }

    /// The connection broke, and the watches with it: everything is looked at again. Returns the
    /// alarms of what is held.
    pub(super) fn disconnected(&mut self) -> Vec<Arc<Alarm>> {
        let now = Moment::now();
        let (mut ids, mut alarms) = (Vec::new(), Vec::new());
        for (id, trace) in &mut self.traces {
            match &mut trace.role {
                Role::Held { watched, alarm, .. } => {
                    *watched = false;
                    // What was written last may not have arrived.
                    if let Some(said) = trace.said.as_mut() {
                        said.due = Some(now);
                    }
                    alarms.extend(alarm.clone());
                }
                Role::Doomed => {}
                Role::Asked | Role::Leaving => continue,
            }
            ids.push(*id);
        }
        ids.iter().for_each(|id| self.put(*id, Some(now)));
        alarms
    }

    /// The session is over: no node is left.
    pub(super) fn dissolve(&mut self) -> Vec<Arc<Alarm>> {
        let traces = std::mem::take(self).traces;
        let alarm = |trace: Trace| match trace.role {
            Role::Held { alarm, .. } => alarm,
            _ => None,
        };
        traces.into_values().filter_map(alarm).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimIds;

    /// A claim with a node, held, and then given back.
    fn given_back() -> (Estate, ClaimId) {
        let (mut estate, id) = (Estate::default(), ClaimIds::new().unwrap().next());
        estate.enter(id, "/l", Some("a"));
        estate.made(id, "/l/a-1", 7);
        estate.hold(id, Moment::now() + Duration::from_secs(60), true);
        estate.let_go(id);
        (estate, id)
    }

    #[test]
    fn a_break_leaves_what_is_being_given_back_to_whoever_does() {
        let (mut estate, id) = given_back();
        estate.disconnected();
        let soon = Moment::now() + AGAIN;
        assert_eq!(estate.duties(soon), []);
        // The release failed: from now on it is for the driver to do.
        estate.doom(id);
        let path = "/l/a-1".to_owned();
        assert_eq!(estate.duties(soon), [Duty::Delete { id, path }]);
    }

    #[test]
    fn a_release_that_nobody_finished_is_finished() {
        let (mut estate, id) = given_back();
        let path = "/l/a-1".to_owned();
        let later = Moment::now() + AGAIN * 11;
        assert_eq!(estate.duties(later), [Duty::Delete { id, path }]);
    }
}
