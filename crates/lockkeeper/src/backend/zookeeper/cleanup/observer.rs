//! Looks after the owned nodes in step with the session: due actions become requests, and answers
//! become conclusions.
//!
//! How a node ends that must go, by what is known of it:
//!
//! ```text
//!   name known           Delete ───────────────► gone: forget
//!   only its prefix      Find ──► found: Delete
//!                             └─► not found: forget (it was never created)
//!   recipe=ephemeral     ParentVersion, Identify ──► ours: delete if the version is the same, look again
//!                                               └──► not ours: forget
//! ```
//!
//! How a held claim learns of its loss:
//!
//! ```text
//!   Watch ──► event: deleted ──► Explain (read the parent's note) ──► ring the alarm
//!         └─► no such node ────►
//! ```
//!
//! Every request here may be lost with its connection. That needs no handling: the action is due again
//! a second later, or at once with the next connection.

use super::super::break_note;
use super::super::client::{
    Afterwards, Answer, Change, Failure, NodeEvent, Observer, Outgoing, Request, refusal,
};
use super::super::gone::GoneNodes;
use super::super::layout::SINGLE_NODE;
use super::super::record;
use super::{Action, OwnedNodes};
use crate::backend::{Alarm, ClaimId, LossReason, Moment};

/// What this keeper knows of nodes, under the lock of its session.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// Ours.
    pub(in super::super) owned: OwnedNodes,
    /// Those of any client, in queues where one of our claims waits.
    pub(in super::super) gone: GoneNodes,
}

/// What a request was sent for. Each carries the claim that it is about.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// To watch the node of a held claim.
    Watch(ClaimId),
    /// To learn from the parent why the node of a held claim is gone.
    Explain(ClaimId),
    /// To find the node by its name among its parent's children.
    Find(ClaimId),
    /// `recipe=ephemeral`: to learn the parent's version.
    ParentVersion(ClaimId),
    /// `recipe=ephemeral`: to learn whose the node is.
    Identify(ClaimId),
    /// To delete the node.
    Delete(ClaimId),
}

impl Nodes {
    /// The server said that the node of a claim is gone, or never existed. Returns the claim's
    /// alarm, to be dropped unlocked.
    pub(in super::super) fn forget(&mut self, id: ClaimId) -> Option<Alarm> {
        // This keeper's waiters behind the node need not ask for it.
        if let Some((path, czxid)) = self.owned.identity(id) {
            self.gone.gone_since(path, czxid);
        }
        self.owned.forget(id)
    }

    /// Deletes the node of `recipe=ephemeral` if it is ours. The check and the deletion are two
    /// steps, so the deletion depends on the parent's version as of the check.
    fn identified(&mut self, id: ClaimId, is_ours: bool, outgoing: &mut Outgoing<'_, Purpose>) {
        if !is_ours {
            self.owned.forget_deleted(id);
        } else if let Some((parent, version)) = self.owned.parent_to_check(id) {
            let path = format!("{parent}/{SINGLE_NODE}");
            outgoing.tell(Request::delete_if(&path, parent, version));
            // Whether that was done is seen at the next look.
            self.owned.check_soon(id);
        }
    }
}

impl Observer for Nodes {
    type Purpose = Purpose;

    fn next_due(&self) -> Option<Moment> {
        self.owned.next_due()
    }

    /// Sends the first request of every action that is due.
    fn tick(&mut self, now: Moment, outgoing: &mut Outgoing<'_, Purpose>) {
        for action in self.owned.take_due(now) {
            match action {
                Action::Watch { id, path } => {
                    outgoing.ask(Request::exists(&path, true), Purpose::Watch(id));
                }
                Action::Write { path, record, parent: None } => {
                    outgoing.tell(Request::write(&path, record.as_bytes()));
                }
                Action::Write { path, record, parent: Some((parent, version)) } => {
                    let data = record.as_bytes();
                    outgoing.tell(Request::write_if(&path, data, &parent, version));
                }
                Action::Delete { id, path } => {
                    outgoing.ask(Request::delete(&path), Purpose::Delete(id));
                }
                Action::Identify { id, parent } => {
                    let path = format!("{parent}/{SINGLE_NODE}");
                    outgoing.tell(Request::sync(&parent));
                    outgoing.ask(Request::exists(&parent, false), Purpose::ParentVersion(id));
                    outgoing.ask(Request::data(&path, false), Purpose::Identify(id));
                }
                Action::Find { id, parent } => {
                    // The server may be behind the one that carried out our creation.
                    outgoing.tell(Request::sync(&parent));
                    outgoing.ask(Request::children(&parent), Purpose::Find(id));
                }
            }
        }
    }

    /// Takes note of a node that went, and looks after it if it is the node of a held claim.
    fn event(&mut self, event: &NodeEvent, outgoing: &mut Outgoing<'_, Purpose>) {
        let is_deleted = event.change == Change::Deleted;
        if is_deleted {
            self.gone.gone(&event.path);
        }
        let Some((id, parent)) = self.owned.holder(&event.path) else { return };
        if is_deleted {
            outgoing.ask(Request::data(parent, false), Purpose::Explain(id));
        } else {
            // A watch fires once.
            outgoing.ask(Request::exists(&event.path, true), Purpose::Watch(id));
        }
    }

    fn answered(
        &mut self,
        purpose: Purpose,
        answer: Result<Answer, Failure>,
        outgoing: &mut Outgoing<'_, Purpose>,
    ) -> Option<Afterwards> {
        let is_gone = matches!(&answer, Err(failure) if failure.is(refusal::NO_NODE));
        match purpose {
            Purpose::Watch(id) if is_gone => {
                let parent = self.owned.parent(id)?;
                outgoing.ask(Request::data(parent, false), Purpose::Explain(id));
            }
            Purpose::Explain(id) => {
                let reason = break_note::reason_in(answer.as_ref(), self.owned.path(id)?);
                let alarm = self.owned.forget(id)?;
                return Some(Box::new(move || alarm.ring(reason)));
            }
            Purpose::Delete(id) if is_gone || answer.is_ok() => {
                let alarm = self.forget(id)?;
                return Some(Box::new(move || drop(alarm)));
            }
            Purpose::Find(id) => {
                let children = match &answer {
                    Ok(answer) => answer.children().ok()?,
                    Err(_) if is_gone => Vec::new(),
                    Err(_) => return None,
                };
                match self.owned.find_among(id, &children) {
                    Some(path) => {
                        self.owned.found(id, &path);
                        outgoing.ask(Request::delete(&path), Purpose::Delete(id));
                    }
                    None => self.owned.forget_deleted(id),
                }
            }
            Purpose::ParentVersion(id) => {
                let stat = answer.and_then(|answer| answer.stat()).ok();
                self.owned.set_parent_version(id, stat.map(|stat| stat.version));
            }
            Purpose::Identify(id) => {
                let is_ours = match answer.and_then(|answer| answer.data()) {
                    Ok((data, _)) => record::is_of(&data, &id.to_string()),
                    Err(_) if is_gone => false,
                    Err(_) => return None,
                };
                self.identified(id, is_ours, outgoing);
            }
            // Neither done nor refused for good: looked at again when it is due.
            Purpose::Watch(_) | Purpose::Delete(_) => {}
        }
        None
    }

    /// Held claims are in jeopardy from here on: whether their nodes exist cannot be known until
    /// there is a connection again.
    fn disconnected(&mut self) -> Vec<Afterwards> {
        let endanger = |alarm: Alarm| -> Afterwards { Box::new(move || alarm.endanger()) };
        self.owned.disconnected().into_iter().map(endanger).collect()
    }

    /// Held claims are lost: their nodes went with the session.
    fn ended(&mut self) -> Vec<Afterwards> {
        let ring = |alarm: Alarm| -> Afterwards { Box::new(move || alarm.ring(LossReason::Gone)) };
        self.owned.ended().into_iter().map(ring).collect()
    }

    /// A session that owns no node is of no use to anyone.
    fn is_idle(&self) -> bool {
        self.owned.is_empty()
    }
}
