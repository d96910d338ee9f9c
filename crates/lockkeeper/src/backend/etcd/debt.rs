//! Keys of ours, and when they must be gone.
//!
//! A key lives as long as the session, whatever the ttl of its claim. So every claim is owed from
//! its grant on, due when it is over: a detached one at the end of its ttl, one that could not be
//! deleted as soon as etcd answers again. The driver of the watches pays the detached, and every
//! sign of life what else is due; a keeper that gives none has no session for long.

use super::key::OwnKey;
use super::link::{Answered, Link};
use super::lock;
use super::proto::{TxnRequest, TxnResponse, path};
use super::queue::Entry;
use super::requests::{self, Ticket};
use crate::backend::{ClaimId, Moment};
use crate::error::Result;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A key to delete.
#[derive(Debug, Clone)]
pub(super) struct Debt {
    key: Arc<OwnKey>,
    lease: i64,
    /// Which key it is; not known where the answer was lost that would have told.
    created: Option<i64>,
    /// Whether a request for it may still be on its way.
    asked_twice: bool,
    /// Not before.
    due: Moment,
}

#[derive(Debug)]
pub(super) struct Debts {
    link: Arc<Link>,
    prefix: String,
    owed: Mutex<HashMap<ClaimId, Debt>>,
    marks: AtomicU64,
}

impl Debt {
    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            key: entry.ticket.key.clone(),
            lease: entry.term.lease,
            created: Some(entry.created),
            asked_twice: entry.asked_twice,
            due: Moment::now(),
        }
    }

    /// The request for the key was not answered, and may yet be carried out.
    pub(super) fn in_doubt(ticket: &Ticket, lease: i64) -> Self {
        let (key, due) = (ticket.key.clone(), Moment::now());
        Self { key, lease, created: None, asked_twice: true, due }
    }

    pub(super) fn later(self, due: Moment) -> Self {
        Self { due, ..self }
    }
}

impl Debts {
    pub(super) fn new(link: Arc<Link>, prefix: String) -> Self {
        Self { link, prefix, owed: Mutex::default(), marks: AtomicU64::new(0) }
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

    /// Whether any key on this lease is owed, now or later.
    pub(super) fn any_on(&self, lease: i64) -> bool {
        lock(&self.owed).values().any(|debt| debt.lease == lease)
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

    /// Deletes the key; once this is answered, no request made before can bring it back. `false`
    /// when it surely was not there any more.
    pub(super) async fn pay(&self, claim: ClaimId, debt: &Debt) -> Result<bool> {
        // Never the same twice: what expects one that was must not find it again.
        let number = self.marks.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{claim}-{number}").into_bytes();
        let (prefix, key, lease) = (&self.prefix, debt.key.bytes(), debt.lease);
        let request = debt.created.map(|created| {
            if debt.asked_twice {
                requests::delete_for_good(prefix, lease, key, created, &mark)
            } else {
                requests::delete(key, created)
            }
        });
        let answered = match &request {
            Some(request) => self.ask(request).await?,
            None => None,
        };
        // Sent twice, it may have been there the first time.
        let was_there = request.is_none()
            || answered.as_ref().is_some_and(|it| it.answer.succeeded || it.asked_twice);
        if debt.asked_twice && !answered.is_some_and(|it| it.answer.succeeded) {
            self.withdraw(lease, key, &mark).await?;
        }
        self.paid(claim);
        Ok(was_there)
    }

    async fn withdraw(&self, lease: i64, key: &[u8], mark: &[u8]) -> Result<()> {
        let mut expected = Vec::new();
        loop {
            let request = requests::withdraw(&self.prefix, lease, key, mark, &expected);
            let Some(Answered { answer, .. }) = self.ask(&request).await? else { return Ok(()) };
            let found = requests::first_of(requests::reads(answer.responses).next());
            expected = found.map(|kv| kv.value).unwrap_or_default();
            // Ours is there when this was carried out before and the answer lost.
            if answer.succeeded || expected == mark {
                return Ok(());
            }
        }
    }

    /// `None` when the lease is gone: then so is the key, and what is on its way is refused.
    async fn ask(&self, request: &TxnRequest) -> Result<Option<Answered<TxnResponse>>> {
        match self.link.try_call(path::TXN, request).await {
            Ok(answered) => Ok(Some(answered)),
            Err(trouble) if trouble.is_lease_gone() => Ok(None),
            Err(trouble) => Err(trouble.explain(self.link.shown())),
        }
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
