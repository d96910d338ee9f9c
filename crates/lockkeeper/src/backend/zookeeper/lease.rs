//! A claim that is held: one node.

use super::request::Request;
use super::session::Session;
use super::trouble::{Fault, refusal};
use super::{broken, record, single};
use crate::backend::{Alarm, ClaimId, FencingToken, Grant, Lease, LossReason, Moment, Standing};
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
    /// The version of `parent` on which it depends that the node is ours, where the name alone
    /// does not tell.
    pub(super) seal: Option<i32>,
    pub(super) czxid: i64,
    /// What the node said when it was made.
    pub(super) record: String,
    pub(super) valid_for: Duration,
    /// The URL, for errors.
    pub(super) shown: Arc<str>,
}

impl Held {
    /// The claim, held by a request sent at `sent` that the leader answered, and in the estate.
    pub(super) fn grant(self, sent: Moment) -> Grant {
        let valid_for = self.valid_for;
        let number = u64::try_from(self.czxid).unwrap_or_default();
        let token = FencingToken::new(number.saturating_mul(FencingToken::STEP));
        Grant { lease: Box::new(self), token, sent, valid_for }
    }

    /// Deletes the node. An error means that it may still be there, but will not stay.
    async fn delete(&self) -> Result<(), Fault> {
        self.session.let_go(self.id);
        let deleted = match self.seal {
            None => self.session.call(Request::delete(&self.path)).await.map(drop),
            Some(seal) => {
                let delete = Request::delete_sealed(&self.path, &self.parent, seal);
                let deleted = self.session.call(delete).await;
                match deleted.and_then(|answer| answer.all_done()) {
                    // Someone wrote to the lock's node; whether we hold it is to be seen.
                    Err(fault) if fault.is(refusal::BAD_VERSION) => {
                        single::remove(&self.session, &self.parent, self.id).await
                    }
                    deleted => deleted,
                }
            }
        };
        match deleted {
            Err(fault @ Fault::Unanswered(_)) => {
                self.session.doom(self.id);
                Err(fault)
            }
            Err(Fault::Refused(code)) if code != refusal::NO_NODE => {
                self.session.doom(self.id);
                Err(Fault::Refused(code))
            }
            _ => {
                self.session.strike_off(self.id);
                Ok(())
            }
        }
    }
}

#[async_trait]
impl Lease for Held {
    async fn renew(&mut self) -> Result<Standing> {
        let sent = Moment::now();
        let request = Request::exists(&self.path, false);
        match self.session.call_surely(&self.path, request).await.and_then(|found| found.stat()) {
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

    async fn release(&mut self, _: Duration) -> Result<()> {
        self.delete().await.map_err(|fault| fault.explain(&self.shown))
    }

    fn watch(&mut self, alarm: Alarm) {
        self.session.alarm(self.id, alarm);
    }

    fn shared_by(&mut self, guards: usize) {
        self.session.note(self.id, guards, record::with_count(&self.record, guards));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Released before this, or left to run out.
        self.session.hush(self.id);
    }
}
