//! A claim that is held: one node.

use super::layout::Layout;
use super::numbers::{self, Age};
use super::request::Request;
use super::session::Session;
use super::trouble::{Fault, refusal};
use super::{broken, layout, record, single};
use crate::backend::{
    Alarm, ClaimId, FencingToken, Grant, Lease, LossReason, Moment, Release, Standing,
};
use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// A node, and the session that has it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) session: Arc<Session>,
    pub(super) id: ClaimId,
    pub(super) parent: String,
    pub(super) path: String,
    pub(super) kin: Kin,
    pub(super) czxid: i64,
    /// What the node said when it was made.
    pub(super) record: String,
    pub(super) valid_for: Duration,
    /// The URL, for errors.
    pub(super) shown: Arc<str>,
    /// A child beside it that should not be there, as the last renewal found it.
    pub(super) stranger: Option<String>,
    /// A release was sent before.
    pub(super) asked_to_go: bool,
}

/// What else is below the same parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kin {
    /// Other claims, each with a number.
    Numbered(Layout),
    /// Nothing. The name alone does not tell whose the node is: it is ours as long as the parent
    /// has this version.
    Sealed(i32),
}

impl Held {
    /// The claim, held by a request sent at `sent` that the leader answered, and in the estate.
    pub(super) fn grant(self, sent: Moment) -> Grant {
        let valid_for = self.valid_for;
        let token = FencingToken::from_revision(self.czxid);
        Grant { lease: Box::new(self), token, sent, valid_for }
    }

    /// Deletes the node: whether it was there. An error means that it may still be, but will not
    /// stay.
    async fn delete(&mut self) -> Result<bool, Fault> {
        self.session.let_go(self.id);
        let mut again = std::mem::replace(&mut self.asked_to_go, true);
        let mut deleted = self.ask_to_go().await;
        if matches!(deleted, Err(Fault::Unanswered(_))) {
            again = true;
            deleted = self.ask_to_go().await;
        }
        match deleted {
            Err(fault) if fault != Fault::Over => {
                self.session.doom(self.id);
                Err(fault)
            }
            deleted => {
                self.session.strike_off(self.id);
                // What was asked for before may have been done then.
                Ok(again || deleted.unwrap_or(false))
            }
        }
    }

    async fn ask_to_go(&self) -> Result<bool, Fault> {
        let deleted = match self.kin {
            Kin::Numbered(_) => {
                self.session.call_once(Request::delete(&self.path)).await.map(|_| true)
            }
            Kin::Sealed(seal) => {
                let delete = Request::delete_sealed(&self.path, &self.parent, seal);
                let deleted = self.session.call_once(delete).await;
                match deleted.and_then(|answer| answer.all_done()) {
                    // Someone wrote to the lock's node; whether we hold it is to be seen.
                    Err(fault) if fault.is(refusal::BAD_VERSION) => {
                        single::remove(&self.session, &self.parent, self.id).await
                    }
                    deleted => deleted.map(|()| true),
                }
            }
        };
        match deleted {
            Err(fault) if fault.is(refusal::NO_NODE) => Ok(false),
            deleted => deleted,
        }
    }

    /// Has the lock's numbers start over where it is time, if we were the last.
    async fn close_the_door(&self) {
        let Kin::Numbered(_) = self.kin else { return };
        let age = layout::number_of(&self.path).map_or(Age::Ended, Age::of);
        if age != Age::Young {
            // If it fails, whoever comes next will see to it.
            let _ = numbers::start_over(&self.session, &self.parent, None).await;
        }
    }

    /// Whether someone has come who does not see our node, and goes in beside us.
    ///
    /// Not at first sight: one of ours that came with another recipe or layout sees us, and goes
    /// again at once.
    fn is_disturbed(&mut self, children: Vec<String>) -> Option<LossReason> {
        let problem = match self.kin {
            Kin::Numbered(layout) => layout.entries(children).err(),
            Kin::Sealed(_) => single::others(&self.parent, &children),
        };
        let node = problem.as_ref().and_then(|problem| problem.detail("node"));
        let before = std::mem::replace(&mut self.stranger, node.map(str::to_owned));
        if node.is_none() || before.as_deref() != node {
            return None;
        }
        problem.map(|problem| LossReason::Broken { reason: problem.to_string() })
    }
}

#[async_trait]
impl Lease for Held {
    async fn renew(&mut self) -> Result<Standing> {
        let sent = Moment::now();
        let requests = [Request::exists(&self.path, false), Request::children(&self.parent)];
        let [found, listed] = self.session.call_all_surely(&self.path, requests).await;
        let children = listed.and_then(|answer| answer.children()).unwrap_or_default();
        if let Some(reason) = self.is_disturbed(children) {
            return Ok(Standing::Lost(reason));
        }
        match found.and_then(|found| found.stat()) {
            Ok(stat) if stat.czxid == self.czxid && stat.owner == self.session.id() => {
                self.session.renewed(self.id, sent + self.valid_for);
                Ok(Standing::HeldFor(self.valid_for))
            }
            Err(fault @ Fault::Unanswered(_)) => Err(fault.explain(&self.shown)),
            Err(Fault::Refused(refusal::NO_NODE)) => {
                let lock = self.session.call(Request::data(&self.parent, false)).await;
                Ok(Standing::Lost(broken::reason_in(lock.as_ref(), &self.path)))
            }
            Err(fault @ Fault::Refused(_)) => Err(fault.explain(&self.shown)),
            Ok(_) | Err(Fault::Over) => Ok(Standing::Lost(LossReason::Gone)),
        }
    }

    async fn release(&mut self, _: &Release<'_>) -> Result<()> {
        let there = self.delete().await.map_err(|fault| fault.explain(&self.shown))?;
        self.close_the_door().await;
        if there { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }

    fn watch(&mut self, alarm: Alarm) {
        self.session.alarm(self.id, alarm);
    }

    fn guards_changed(&mut self, guards: usize) {
        self.session.note(self.id, guards, record::with_count(&self.record, guards));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Released before this, or left to run out.
        self.session.hush(self.id);
    }
}
