//! A claim that is held.

use super::debt::Debt;
use super::listener::{Ear, Listening, When};
use super::proto::{RangeResponse, TxnResponse, path};
use super::queue::{Entry, Shared};
use super::{history, record, requests, session};
use crate::backend::{Alarm, Claim, Lease, LossReason, Moment, Release, Standing};
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
    /// Whether a release was tried that may have been carried out.
    tried: bool,
}

impl EtcdLease {
    /// A claim that its holder may believe in until `until`.
    pub(super) fn new(shared: Arc<Shared>, claim: &Claim, entry: Entry, until: Moment) -> Self {
        shared.debts.owe(claim.id, Debt::of(&entry).later(until));
        Self { shared, claim: claim.clone(), entry, listening: None, tried: false }
    }

    /// Why it is lost, if the key says so when asked.
    async fn look(&self) -> Result<Option<LossReason>> {
        let request = requests::one(self.entry.ticket.key.bytes().to_vec());
        let found: RangeResponse = self.shared.link.call(path::RANGE, &request).await?;
        let key = self.entry.ticket.key.bytes();
        Ok(history::loss(&self.shared.link, key, self.entry.created, &found).await)
    }

    /// Leaves the key to a lease of its own, which ends it in time, with or without us. `false`
    /// when it surely was not there any more.
    async fn stay_for(&self, stay: Duration) -> Result<bool> {
        let link = &self.shared.link;
        let (lease, _) = session::grant(link, stay).await?;
        let (key, created) = (self.entry.ticket.key.bytes(), self.entry.created);
        let request = requests::rewrite(key, created, record::write(&self.claim), lease);
        // From here on the key may be there after us.
        self.entry.ticket.key.leave_behind();
        let rewritten = link.try_call::<_, TxnResponse>(path::TXN, &request).await;
        let rewritten = rewritten.map_err(|trouble| trouble.explain(link.shown()))?;
        // Its own lease does not change which key it is: sent twice, it is done twice.
        Ok(rewritten.answer.succeeded)
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
        // A session that lives says nothing of the key: an operator may have deleted it. The watch
        // tells of that, where it is at the member by which the session was confirmed.
        let confirmed = term.vouched_on();
        if !self.listening.as_ref().is_some_and(|watch| watch.is_live_on(confirmed)) {
            self.shared.listener.revive();
            if let Some(reason) = self.look().await? {
                return Ok(Standing::Lost(reason));
            }
        }
        let valid_for = term.end().since(begun);
        self.shared.debts.put_off(self.claim.id, begun + valid_for.min(self.claim.ttl));
        Ok(Standing::HeldFor(valid_for))
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let stay = how.stay();
        self.listening = None;
        let (id, debt) = (self.claim.id, Debt::of(&self.entry));
        let tried = std::mem::replace(&mut self.tried, true);
        let was_there = if stay.is_zero() {
            self.shared.debts.owe(id, debt.clone());
            self.shared.debts.pay(id, &debt).await?
        } else {
            self.shared.debts.owe(id, debt.later(Moment::now() + stay));
            let was_there = self.stay_for(stay).await?;
            self.shared.debts.paid(id);
            was_there
        };
        if was_there || tried { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }

    fn watch(&mut self, alarm: Alarm) {
        let Entry { ticket, term, created, seen, .. } = &self.entry;
        if term.is_gone() {
            return alarm.ring(LossReason::Gone);
        }
        let (alarm, created, lease) = (Arc::new(alarm), *created, term.lease);
        let ear = Ear::Holder { alarm, created, lease };
        let (key, listener) = (ticket.key.bytes(), &self.shared.listener);
        self.listening = Some(listener.listen(When::Later, key, *seen, ear));
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
