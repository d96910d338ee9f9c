//! A claim that is held.

use super::debt::Debt;
use super::listener::{Ear, Listening, Target};
use super::proto::{RangeResponse, TxnResponse, path};
use super::queue::{Entry, Shared};
use super::{record, requests, session};
use crate::backend::{Alarm, Claim, Lease, LossReason, Moment, Standing};
use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct EtcdLease {
    shared: Arc<Shared>,
    claim: Claim,
    entry: Entry,
    listening: Option<Listening>,
}

impl EtcdLease {
    /// A claim that its holder may believe in until `until`.
    pub(super) fn new(shared: Arc<Shared>, claim: &Claim, entry: Entry, until: Moment) -> Self {
        shared.debts.owe(claim.id, Debt::of(&entry).later(until));
        Self { shared, claim: claim.clone(), entry, listening: None }
    }

    /// Whether the key is there, by asking.
    async fn look(&self) -> Result<Standing> {
        let request = requests::one(self.entry.ticket.key.bytes().to_vec());
        let answer: RangeResponse = self.shared.link.call(path::RANGE, &request).await?;
        Ok(match answer.kvs.first() {
            Some(kv) if kv.create_revision == self.entry.created => match record::broken(&kv.value)
            {
                Some(reason) => Standing::Lost(LossReason::Broken { reason }),
                None => Standing::Held,
            },
            _ => Standing::Lost(LossReason::Gone),
        })
    }

    /// Leaves the key to a lease of its own, which ends it in time, with or without us.
    async fn linger(&self, linger: Duration) -> Result<()> {
        let link = &self.shared.link;
        let (lease, _) = session::grant(link, linger).await?;
        let (key, created) = (self.entry.ticket.key.bytes(), self.entry.created);
        let request = requests::rewrite(key, created, record::write(&self.claim), lease);
        // From here on the key may be there after us.
        self.entry.ticket.key.leave_behind();
        let _: TxnResponse = link.call(path::TXN, &request).await?;
        Ok(())
    }
}

#[async_trait]
impl Lease for EtcdLease {
    async fn renew(&mut self) -> Result<Standing> {
        let begun = Moment::now();
        let term = self.entry.term.clone();
        // So many holds share a session that one sign of life must do for all.
        self.shared.keep_alive(&term, term.ttl / 6).await?;
        if term.is_gone() {
            return Ok(Standing::Lost(LossReason::Gone));
        }
        // A sign of life that was answered says nothing of the key: an operator may have deleted
        // it, or a leader that was cut off.
        if !self.listening.as_ref().is_some_and(Listening::is_live) {
            self.shared.listener.revive();
            if let lost @ Standing::Lost(_) = self.look().await? {
                return Ok(lost);
            }
        }
        let valid_for = term.end().since(begun);
        self.shared.debts.put_off(self.claim.id, begun + valid_for.min(self.claim.ttl));
        Ok(Standing::HeldFor(valid_for))
    }

    async fn release(&mut self, linger: Duration) -> Result<()> {
        self.listening = None;
        let debt = Debt::of(&self.entry);
        if linger.is_zero() {
            self.shared.debts.owe(self.claim.id, debt.clone());
            return self.shared.debts.pay(self.claim.id, &debt).await;
        }
        let id = self.claim.id;
        self.shared.debts.owe(id, debt.later(Moment::now() + linger));
        self.linger(linger).await?;
        self.shared.debts.paid(id);
        Ok(())
    }

    fn watch(&mut self, alarm: Alarm) {
        let key = self.entry.ticket.key.bytes().to_vec();
        let target = Target { key, range_end: Vec::new(), from: self.entry.seen + 1 };
        let ear = Ear::Holder(Arc::new(alarm), self.entry.term.lease);
        self.listening = Some(self.shared.listener.listen(target, ear));
    }
}

impl Drop for EtcdLease {
    fn drop(&mut self) {
        // Still owed, so it was detached: its key goes when the claim is over.
        if let Some(due) = self.shared.debts.due_at(self.claim.id) {
            self.shared.listener.mind(self.claim.id, due);
        }
    }
}
