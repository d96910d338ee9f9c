//! `recipe=ephemeral`: one node, for whoever makes it first; the others watch it.
//!
//! ZooKeeper deletes a node by its name, whoever made it. So that a late release cannot delete
//! the node of the next holder, every step that makes or deletes it also depends on the version
//! of the lock's own node, and making it raises that: the version is the seal of the hold.

use super::Shared;
use super::layout::NODE;
use super::lease::{Held, Kin};
use super::numbers::{self, Age};
use super::queue::Stop;
use super::record;
use super::request::{Kind, Request};
use super::session::Session;
use super::trouble::{Fault, refusal};
use super::vigil::Watch;
use crate::backend::{Claim, ClaimId, Grant, Moment, Patience};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// One attempt at a claim, in one session.
pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Shared,
    pub(super) session: &'a Arc<Session>,
    pub(super) claim: &'a Claim,
    pub(super) parent: String,
}

/// What was found at the lock.
enum Found {
    /// Nobody holds it; what its own node says, and the version of that.
    Free(Vec<u8>, i32),
    Held,
    /// Look again.
    Changing,
    Nothing,
}

impl Attempt<'_> {
    pub(super) async fn run(&self, patience: &Patience) -> Result<Option<Grant>, Stop> {
        self.session.connected_for(patience).await?;
        self.session.enter(self.claim.id, &self.parent, None);
        let path = format!("{}/{NODE}", self.parent);
        let mut silent = None;
        loop {
            let may_wait = !patience.is_over();
            let mut watch =
                Watch::new(self.session, if may_wait { vec![path.clone()] } else { vec![] });
            let found = match self.look(&path, may_wait).await {
                Err(Stop::Fault(fault @ Fault::Unanswered(_))) => {
                    let since = *silent.get_or_insert_with(Moment::now);
                    let silent = Moment::now().since(since);
                    if silent > patience.outage() || !may_wait {
                        return Err(fault.into());
                    }
                    self.session.connected_for(patience).await?;
                    continue;
                }
                found => found?,
            };
            silent = None;
            match found {
                Found::Nothing => self.shared.make(self.session, &self.parent).await?,
                // Versions are numbers too, and the one before zero means any.
                Found::Free(_, version) if Age::of(version) != Age::Young => {
                    numbers::start_over(self.session, &self.parent, None).await?;
                }
                Found::Free(said, version) => {
                    if let Some(grant) = self.take(&path, &said, version, patience).await? {
                        return Ok(Some(grant));
                    }
                }
                Found::Changing => {}
                Found::Held if may_wait => {
                    patience.queued(0);
                    tokio::select! {
                        biased;
                        _ = watch.told() => {}
                        () = patience.over() => {}
                    }
                }
                Found::Held => {
                    self.session.strike_off(self.claim.id);
                    return Ok(None);
                }
            }
        }
    }

    async fn look(&self, path: &str, watch: bool) -> Result<Found, Stop> {
        let requests = [Request::data(&self.parent, false), Request::data(path, watch)];
        let [lock, node] = self.session.ask(requests);
        let lock = match self.session.answer(lock).await {
            Ok(answer) => answer.data()?,
            Err(fault) if fault.is(refusal::NO_NODE) => return Ok(Found::Nothing),
            Err(fault) => return Err(fault.into()),
        };
        match self.session.answer(node).await {
            Ok(_) => Ok(Found::Held),
            Err(fault) if fault.is(refusal::NO_NODE) => {
                let (said, stat) = lock;
                if stat.children > 0 {
                    return self.others().await;
                }
                Ok(Found::Free(said, stat.version))
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// There is a child other than the node, or the node came or went just now.
    async fn others(&self) -> Result<Found, Stop> {
        match self.session.call(Request::children(&self.parent)).await {
            Ok(answer) => match others(&self.parent, &answer.children()?) {
                Some(error) => Err(error.into()),
                None => Ok(Found::Changing),
            },
            Err(fault) if fault.is(refusal::NO_NODE) => Ok(Found::Changing),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Makes the node; `None` when someone else was faster.
    async fn take(
        &self,
        path: &str,
        said: &[u8],
        version: i32,
        patience: &Patience,
    ) -> Result<Option<Grant>, Stop> {
        let data = record::write(self.claim, self.shared.valid_for(self.session, self.claim));
        let kind = Kind::Ephemeral;
        let create = Request::create(path, data.as_bytes(), kind, self.shared.access);
        let sealed = Request::create_sealing(create, &self.parent, said, version);
        let sent = Moment::now();
        let [created, found] = self.session.ask([sealed, Request::data(path, false)]);
        match self.session.answer(created).await.and_then(|answer| answer.all_done()) {
            Ok(()) | Err(Fault::Unanswered(_)) => {}
            Err(Fault::Refused(refusal::NODE_EXISTS | refusal::BAD_VERSION | refusal::NO_NODE)) => {
                return Ok(None);
            }
            Err(fault) => return Err(fault.into()),
        }
        let (found, sent) = match self.session.answer(found).await {
            Err(Fault::Unanswered(_)) => {
                // Not before: it counts from a request that was answered.
                let sent = Moment::now();
                self.session.connected_for(patience).await?;
                (self.session.call_surely(path, Request::data(path, false)).await, sent)
            }
            found => (found, sent),
        };
        let (found, stat) = match found.and_then(|found| found.data()) {
            Err(fault) if fault.is(refusal::NO_NODE) => return Ok(None),
            other => other?,
        };
        let ours = record::is_of(&found, &self.claim.id.to_string());
        if !ours || stat.owner != self.session.id() {
            return Ok(None);
        }
        let seal = version.wrapping_add(1);
        self.session.sealed(self.claim.id, path, seal);
        let held = Held {
            session: self.session.clone(),
            id: self.claim.id,
            parent: self.parent.clone(),
            path: path.to_owned(),
            kin: Kin::Sealed(seal),
            czxid: stat.czxid,
            record: data,
            valid_for: self.shared.valid_for(self.session, self.claim),
            shown: self.shared.shown.clone(),
            stranger: None,
            asked_to_go: false,
        };
        self.session.hold(held.id, sent + held.valid_for);
        Ok(Some(held.grant(sent)))
    }
}

/// Deletes the node of a claim if it is there, and no other's: whether it was.
pub(super) async fn remove(session: &Session, parent: &str, id: ClaimId) -> Result<bool, Fault> {
    let path = format!("{parent}/{NODE}");
    loop {
        session.connected().await?;
        let requests =
            [Request::sync(parent), Request::exists(parent, false), Request::data(&path, false)];
        let [synced, lock, node] = session.ask(requests);
        session.answer(synced).await?;
        let lock = session.answer(lock).await.and_then(|answer| answer.stat());
        let node = session.answer(node).await.and_then(|answer| answer.data());
        let version = match (lock, node) {
            (Ok(lock), Ok((data, _))) if record::is_of(&data, &id.to_string()) => lock.version,
            (Ok(_), Ok(_)) => return Ok(false),
            (Err(fault), _) | (_, Err(fault)) if fault.is(refusal::NO_NODE) => return Ok(false),
            (Err(fault), _) | (_, Err(fault)) => return Err(fault),
        };
        let delete = Request::delete_sealed(&path, parent, version);
        match session.call(delete).await.and_then(|answer| answer.all_done()) {
            Ok(()) => return Ok(true),
            Err(fault) if fault.is(refusal::BAD_VERSION) || fault.is(refusal::NO_NODE) => {}
            Err(fault) => return Err(fault),
        }
    }
}

/// What is wrong where there are others below a lock than the one there can be.
pub(super) fn others(parent: &str, children: &[String]) -> Option<Error> {
    let other = children.iter().find(|child| *child != NODE)?;
    let error = Error::new(
        ErrorKind::Config,
        "the lock has claims of another recipe or library, and neither side would wait for the \
         other: leave recipe=ephemeral out here, or use another name",
    );
    Some(error.with("node", format!("{parent}/{other}")))
}
