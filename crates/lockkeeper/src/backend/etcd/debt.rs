//! Keys of ours, and when they must be gone.
//!
//! A key lives as long as the session, whatever the ttl of its claim. So every claim is owed from
//! its grant on, due when it is over: a detached one at the end of its ttl, one that could not be
//! deleted as soon as etcd answers again. The driver of the watches pays the detached, and every
//! sign of life what else is due; a keeper that gives none has no session for long.

use super::link::Link;
use super::lock;
use super::proto::{TxnResponse, path};
use super::queue::Entry;
use super::requests::{self, Ticket};
use crate::backend::{ClaimId, Moment};
use crate::error::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A key to delete.
#[derive(Debug, Clone)]
pub(super) struct Debt {
    key: Vec<u8>,
    lease: i64,
    /// Which key it is; not known where the answer was lost that would have told.
    created: Option<i64>,
    /// Not before.
    due: Moment,
}

#[derive(Debug)]
pub(super) struct Debts {
    link: Arc<Link>,
    prefix: String,
    owed: Mutex<HashMap<ClaimId, Debt>>,
}

impl Debt {
    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            key: entry.ticket.key.clone(),
            lease: entry.term.lease,
            created: Some(entry.created),
            due: Moment::now(),
        }
    }

    /// The request for the key was not answered, and may yet be carried out.
    pub(super) fn in_doubt(ticket: &Ticket, lease: i64) -> Self {
        Self { key: ticket.key.clone(), lease, created: None, due: Moment::now() }
    }

    pub(super) fn later(self, due: Moment) -> Self {
        Self { due, ..self }
    }
}

impl Debts {
    pub(super) fn new(link: Arc<Link>, prefix: String) -> Self {
        Self { link, prefix, owed: Mutex::default() }
    }

    pub(super) fn owe(&self, claim: ClaimId, debt: Debt) {
        lock(&self.owed).insert(claim, debt);
    }

    /// Puts it off: the claim was renewed.
    pub(super) fn put_off(&self, claim: ClaimId, due: Moment) {
        if let Some(debt) = lock(&self.owed).get_mut(&claim) {
            debt.due = due;
        }
    }

    pub(super) fn of(&self, claim: ClaimId) -> Option<Debt> {
        lock(&self.owed).get(&claim).cloned()
    }

    pub(super) fn paid(&self, claim: ClaimId) {
        lock(&self.owed).remove(&claim);
    }

    fn due(&self) -> Vec<(ClaimId, Debt)> {
        let now = Moment::now();
        let debts = lock(&self.owed);
        let due = debts.iter().filter(|(_, debt)| debt.due <= now);
        due.map(|(claim, debt)| (*claim, debt.clone())).collect()
    }

    /// When the claim's key is due, if it is owed.
    pub(super) fn due_at(&self, claim: ClaimId) -> Option<Moment> {
        lock(&self.owed).get(&claim).map(|debt| debt.due)
    }

    /// Deletes the key; once this is answered, no request made before can bring it back.
    pub(super) async fn pay(&self, claim: ClaimId, debt: &Debt) -> Result<()> {
        let mark = claim.to_string().into_bytes();
        let request = match debt.created {
            Some(created) => requests::delete(&debt.key, created),
            None => requests::withdraw(&self.prefix, debt.lease, &debt.key, &mark),
        };
        let answer: Result<TxnResponse, _> = self.link.try_call(path::TXN, &request).await;
        match answer {
            Ok(_) => {}
            // Then the key is gone with it, and what is still on its way will be refused.
            Err(trouble) if trouble.is_lease_gone() => {}
            Err(trouble) => return Err(trouble.explain(self.link.shown())),
        }
        self.paid(claim);
        Ok(())
    }

    pub(super) async fn pay_what_is_due(&self) {
        for (claim, debt) in self.due() {
            if let Err(error) = self.pay(claim, &debt).await {
                tracing::debug!(%error, "a key could not be deleted yet");
                return;
            }
        }
    }
}
