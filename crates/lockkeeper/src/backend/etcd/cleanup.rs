//! Keys of ours that must be gone, and when.
//!
//! A key lives as long as the session, whatever the ttl of its claim. So every claim is scheduled
//! for deletion from its grant on, due when it is over: a detached claim at the end of its ttl, a
//! key that could not be deleted as soon as etcd answers again. The driver of the watches deletes
//! the detached, and every heartbeat whatever else is due. A keeper that sends no heartbeat has no
//! session for long, and its keys end with that.
//!
//! ```text
//!   granted ──► scheduled for the end of its ttl ──► renewed: postponed
//!   released, given up, answer lost ──► scheduled for now ──► run ──► forgotten
//!                                                     ▲         │
//!                                                     └─ failed ┘ again with the next heartbeat
//! ```
//!
//! How a key is deleted depends on what is known of it:
//!
//! | the request for the key | deletion |
//! |---|---|
//! | was sent once and answered | one transaction, if the create revision is ours |
//! | was sent twice, and answered | the same, and the session's generation changes |
//! | was not answered | whatever its revision, and the generation changes: two round trips |
//!
//! What is due because the claim ran out is deleted only if it still lives on the session: one that was
//! moved to a lease of its own is kept by whoever has its ticket, and ends with that lease.
//!
//! The engine retries a withdrawal too, but only for as long as the claim's ttl: a session may keep
//! a key for longer.

use super::client::{Answered, Client};
use super::keys::ClaimKey;
use super::protocol::{TxnRequest, TxnResponse, path};
use super::requests;
use crate::backend::support::sync::lock;
use crate::backend::{ClaimId, Moment};
use crate::error::Result;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A key to delete.
#[derive(Debug, Clone)]
pub(super) struct Deletion {
    key: ClaimKey,
    /// The revision that tells our key from a later one; not known where the answer was lost that
    /// would have told.
    created: Option<i64>,
    /// Whether a request that creates the key may still be carried out.
    may_reappear: bool,
    /// Whether to leave alone a key that was moved from the session: it is kept by its ticket.
    unless_moved: bool,
    /// Not before.
    due: Moment,
    /// Whether a request for it is under way. A second one would find no key, and a release that
    /// comes second would take that for a loss.
    running: bool,
}

impl Deletion {
    /// Of a key that was created at this revision; `sent_twice` is whether the request for it was
    /// sent more than once.
    pub(super) fn of(key: &ClaimKey, created: i64, sent_twice: bool) -> Self {
        Self { created: Some(created), may_reappear: sent_twice, ..Self::in_doubt(key) }
    }

    /// Of a key whose request was not answered, and may yet be carried out.
    pub(super) fn in_doubt(key: &ClaimKey) -> Self {
        let (key, due) = (key.clone(), Moment::now());
        Self { key, created: None, may_reappear: true, unless_moved: false, due, running: false }
    }

    fn is_due(&self, now: Moment) -> bool {
        self.due <= now && !self.running
    }

    /// The same of a claim that runs out, rather than being given back.
    pub(super) fn unless_moved(self) -> Self {
        Self { unless_moved: true, ..self }
    }

    /// The same, not before `due`.
    pub(super) fn at(self, due: Moment) -> Self {
        Self { due, ..self }
    }
}

/// The deletions that this keeper still has to do, by claim.
#[derive(Debug)]
pub(super) struct Cleanup {
    client: Arc<Client>,
    pending: Mutex<HashMap<ClaimId, Deletion>>,
    /// Numbers the generations that deletions begin.
    generations: AtomicU64,
}

impl Cleanup {
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self { client, pending: Mutex::default(), generations: AtomicU64::new(0) }
    }

    /// Remembers the deletion until it is done; replaces an earlier one of the same claim.
    pub(super) fn schedule(&self, claim: ClaimId, deletion: Deletion) {
        lock(&self.pending).insert(claim, deletion);
    }

    /// Puts the deletion off: the claim was renewed.
    pub(super) fn postpone(&self, claim: ClaimId, due: Moment) {
        if let Some(deletion) = lock(&self.pending).get_mut(&claim) {
            deletion.due = due;
        }
    }

    /// The deletion that is scheduled for the claim.
    pub(super) fn of(&self, claim: ClaimId) -> Option<Deletion> {
        lock(&self.pending).get(&claim).cloned()
    }

    /// Nothing is left to delete.
    pub(super) fn forget(&self, claim: ClaimId) {
        lock(&self.pending).remove(&claim);
    }

    /// Whether any key on this server lease is to be deleted, now or later.
    pub(super) fn any_on(&self, lease: i64) -> bool {
        lock(&self.pending).values().any(|deletion| deletion.key.lease == lease)
    }

    /// When the claim's key is due, if it is scheduled.
    pub(super) fn due_at(&self, claim: ClaimId) -> Option<Moment> {
        lock(&self.pending).get(&claim).map(|deletion| deletion.due)
    }

    /// Schedules the deletion and does it. Once this is answered, no request sent before can bring
    /// the key back; `false` when it surely was not there any more. What fails is tried again with
    /// the next heartbeat.
    pub(super) async fn delete(&self, claim: ClaimId, deletion: &Deletion) -> Result<bool> {
        // In one step, or a heartbeat could be quicker: a release that comes second finds no key,
        // and would take that for a loss.
        let running = Deletion { running: true, ..deletion.clone() };
        self.schedule(claim, running);
        let _running = Running { cleanup: self, claim };
        self.run(claim, deletion).await
    }

    /// Does a deletion that is scheduled.
    async fn run(&self, claim: ClaimId, deletion: &Deletion) -> Result<bool> {
        let generation = self.next_generation(claim);
        let key = &deletion.key;
        let request =
            deletion.created.map(|created| match (deletion.may_reappear, deletion.unless_moved) {
                (false, false) => requests::delete(key.bytes(), created),
                (false, true) => requests::delete_if_here(key, created),
                (true, false) => requests::delete_for_good(key, created, &generation),
                (true, true) => requests::delete_if_here_for_good(key, created, &generation),
            });
        let answered = match &request {
            Some(request) => self.send(request).await?,
            None => None,
        };
        // Sent twice, it may have been there the first time.
        let was_there = request.is_none()
            || answered.as_ref().is_some_and(|it| it.answer.succeeded || it.sent_twice);
        let is_void = answered.is_some_and(|it| it.answer.succeeded || deletion.unless_moved);
        if deletion.may_reappear && !is_void {
            self.withdraw(key, &generation).await?;
        }
        self.forget(claim);
        Ok(was_there)
    }

    /// Never the same twice: a late request that expects an old generation must not find it.
    fn next_generation(&self, claim: ClaimId) -> Vec<u8> {
        let number = self.generations.fetch_add(1, Ordering::Relaxed);
        format!("{claim}-{number}").into_bytes()
    }

    /// Makes sure that no request sent before can create the key, and leaves it as it is.
    pub(super) async fn void(&self, claim: ClaimId, key: &ClaimKey) -> Result<()> {
        self.send(&requests::void(key, &self.next_generation(claim))).await.map(|_| ())
    }

    /// Deletes the key, whichever of our requests created it, and begins a new generation. Usually
    /// two round trips: the first learns which generation the session is in.
    async fn withdraw(&self, key: &ClaimKey, generation: &[u8]) -> Result<()> {
        let mut expected = Vec::new();
        loop {
            let request = requests::withdraw(key, generation, &expected);
            let Some(Answered { answer, .. }) = self.send(&request).await? else { return Ok(()) };
            let found = requests::first_of(requests::reads(answer.responses).next());
            expected = found.map(|kv| kv.value).unwrap_or_default();
            // Ours is there when this was carried out before and the answer lost.
            if answer.succeeded || expected == generation {
                return Ok(());
            }
        }
    }

    /// `None` when the server lease is gone: then so is the key, and requests that are still under
    /// way are refused.
    async fn send(&self, request: &TxnRequest) -> Result<Option<Answered<TxnResponse>>> {
        match self.client.try_call(path::TXN, request).await {
            Ok(answered) => Ok(Some(answered)),
            Err(failure) if failure.is_lease_gone() => Ok(None),
            Err(failure) => Err(failure.explain(self.client.shown())),
        }
    }

    /// Deletes what is due, until etcd does not answer.
    pub(super) async fn run_due(&self) {
        let due = self.due();
        for claim in due {
            if let Err(error) = self.run_if_due(claim).await {
                tracing::debug!(%error, "a key could not be deleted yet");
                return;
            }
        }
    }

    /// Does what is scheduled for the claim, if it is due and not under way.
    pub(super) async fn run_if_due(&self, claim: ClaimId) -> Result<()> {
        let Some((deletion, _running)) = self.begin(claim) else { return Ok(()) };
        self.run(claim, &deletion).await.map(|_| ())
    }

    fn due(&self) -> Vec<ClaimId> {
        let now = Moment::now();
        let pending = lock(&self.pending);
        let due = pending.iter().filter(|(_, deletion)| deletion.is_due(now));
        due.map(|(claim, _)| *claim).collect()
    }

    fn begin(&self, claim: ClaimId) -> Option<(Deletion, Running<'_>)> {
        let mut pending = lock(&self.pending);
        let deletion = pending.get_mut(&claim).filter(|deletion| deletion.is_due(Moment::now()))?;
        deletion.running = true;
        Some((deletion.clone(), Running { cleanup: self, claim }))
    }
}

/// Marks a deletion as under way, for as long as this lives.
struct Running<'a> {
    cleanup: &'a Cleanup,
    claim: ClaimId,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(deletion) = lock(&self.cleanup.pending).get_mut(&self.claim) {
            deletion.running = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::KeyPool;
    use super::super::options::EtcdOptions;
    use super::*;
    use crate::backend::{Background, Claim, Mode, Name, Owner, Primitive};
    use crate::claim::ClaimIds;
    use std::time::Duration;

    #[test]
    fn what_is_due_and_not_under_way_is_deleted() {
        let options = EtcdOptions::new([("127.0.0.1", 1)]).connecting().unwrap();
        let cleanup = Cleanup::new(Arc::new(Client::new(options, Background::new())));
        let claim = Claim {
            id: ClaimIds::new().unwrap().next(),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            primitive: Primitive::Lock,
            owner: Owner::from_id("me".into()),
            ttl: Duration::from_secs(1),
            identity: "".into(),
            note: "".into(),
            by_id: false,
        };
        let id = claim.id;
        let deletion = Deletion::of(&ClaimKey::new("", &KeyPool::default(), &claim, 7), 3, false);
        let later = Moment::now() + Duration::from_secs(60);
        cleanup.schedule(id, deletion.clone().at(later));
        assert!(cleanup.due().is_empty() && cleanup.any_on(7) && !cleanup.any_on(8));
        cleanup.schedule(id, deletion);
        assert_eq!(cleanup.due().len(), 1);
        let running = cleanup.begin(id);
        assert!(running.is_some());
        assert!(cleanup.due().is_empty(), "a heartbeat must not do what a release is doing");
        assert!(cleanup.begin(id).is_none());
        drop(running);
        assert_eq!(cleanup.due().len(), 1, "it failed, so it is tried again");
        cleanup.postpone(id, later);
        assert!(cleanup.due().is_empty());
        cleanup.forget(id);
        assert!(!cleanup.any_on(7));
    }
}
