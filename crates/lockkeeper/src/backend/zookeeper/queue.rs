//! `recipe=fair` and `recipe=barging`: a node with a number for each claim, the smallest hold.

use super::Shared;
use super::jute::Stat;
use super::layout::Entry;
use super::lease::Held;
use super::line::{self, Standing};
use super::record;
use super::request::{Kind, Request};
use super::session::Session;
use super::trouble::{Fault, refusal};
use super::watchers::Told;
use crate::backend::{Claim, Grant, Moment, Patience};
use crate::error::{Error, Result};
use std::sync::Arc;

/// One attempt at a claim, in one session.
pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Shared,
    pub(super) session: &'a Arc<Session>,
    pub(super) claim: &'a Claim,
    pub(super) parent: String,
    pub(super) patience: &'a Patience,
    /// Whether everyone waits for the first, and not for the one before.
    pub(super) barging: bool,
}

/// Why an attempt ended without an answer.
pub(super) enum Stop {
    Fault(Fault),
    Error(Error),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Our node, and who else was there when a request that was sent then looked.
struct Place {
    path: String,
    stat: Stat,
    entries: Vec<Entry>,
    sent: Moment,
}

impl Attempt<'_> {
    pub(super) async fn run(&self) -> Result<Option<Grant>, Stop> {
        let patience = self.patience;
        self.session.connected_for(patience).await?;
        if patience.is_over() && self.is_busy().await? {
            return Ok(None);
        }
        let mut place = self.enter().await?;
        loop {
            match self.standing(&place) {
                Standing::Holds => return Ok(Some(self.grant(place))),
                // Someone deleted our node.
                Standing::Absent => place = self.enter().await?,
                Standing::Waits { place: number, behind, is_next } => {
                    if patience.is_over() {
                        return self.leave(&place).await;
                    }
                    patience.queued(number);
                    let told = match self.wait(&behind).await {
                        Some(told) => told,
                        None => return self.leave(&place).await,
                    };
                    if told == Told::Deleted && is_next {
                        // Nobody can be before us: only whether we are still there is to be seen.
                        let sent = Moment::now();
                        if self.is_there(&place).await? {
                            place.sent = sent;
                            return Ok(Some(self.grant(place)));
                        }
                    }
                    self.look_again(&mut place).await?;
                }
            }
        }
    }

    /// Whether a claim made now would have to wait. Changes nothing.
    async fn is_busy(&self) -> Result<bool, Stop> {
        match self.session.call(Request::children(&self.parent)).await {
            Ok(answer) => {
                let entries = self.shared.layout.entries(answer.children()?)?;
                Ok(!line::would_hold(&entries, self.claim.mode))
            }
            Err(fault) if fault.is(refusal::NO_NODE) => Ok(false),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Makes our node and looks who is there: both in one round trip, where there is a parent.
    async fn enter(&self) -> Result<Place, Stop> {
        let layout = self.shared.layout;
        let start = layout.start(self.claim);
        self.session.enter(self.claim.id, &self.parent, Some(&start));
        let path = format!("{}/{}", self.parent, layout.prefix(self.claim));
        let data = record::write(self.claim, self.shared.valid_for(self.session, self.claim));
        loop {
            let sent = Moment::now();
            let access = self.shared.access;
            let create = Request::create(&path, data.as_bytes(), Kind::Sequential, access);
            let [created, listed] = self.session.ask([create, Request::children(&self.parent)]);
            match self.session.answer(created).await.and_then(|answer| answer.created()) {
                Ok((path, stat)) => {
                    self.session.found(self.claim.id, &path);
                    let mut place = Place { path, stat, entries: Vec::new(), sent };
                    match self.session.answer(listed).await {
                        Ok(answer) => place.entries = layout.entries(answer.children()?)?,
                        Err(Fault::Unanswered(_)) => self.look_again(&mut place).await?,
                        Err(fault) => return Err(fault.into()),
                    }
                    return Ok(place);
                }
                Err(fault) if fault.is(refusal::NO_NODE) => {
                    match self.shared.make(self.session, &self.parent).await {
                        // As patiently as anything else.
                        Err(Fault::Unanswered(_)) => drop(self.list().await?),
                        made => made?,
                    }
                }
                // It may have been made, and is ours only if this is still our session.
                Err(Fault::Unanswered(_)) => {
                    if let Some(place) = self.find(&start).await? {
                        return Ok(place);
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Our node, if it was made by a request whose answer was lost.
    async fn find(&self, start: &str) -> Result<Option<Place>, Stop> {
        loop {
            let (sent, children) = self.list().await?;
            let Some(node) = children.iter().find(|child| child.starts_with(start)) else {
                return Ok(None);
            };
            let path = format!("{}/{node}", self.parent);
            self.session.found(self.claim.id, &path);
            match self.session.call(Request::exists(&path, false)).await {
                Ok(answer) => {
                    let (stat, entries) = (answer.stat()?, self.shared.layout.entries(children)?);
                    return Ok(Some(Place { path, stat, entries, sent }));
                }
                Err(fault) if fault.is(refusal::NO_NODE) => return Ok(None),
                Err(Fault::Unanswered(_)) if !self.patience.is_over() => {}
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Who is there now, as the leader sees it: also after the connection broke.
    async fn list(&self) -> Result<(Moment, Vec<String>), Fault> {
        let begin = Moment::now();
        loop {
            let sent = Moment::now();
            let request = Request::children(&self.parent);
            match self.session.call_surely(&self.parent, request).await {
                Ok(answer) => return Ok((sent, answer.children()?)),
                Err(fault) if fault.is(refusal::NO_NODE) => return Ok((sent, Vec::new())),
                Err(fault @ Fault::Unanswered(_)) => {
                    let silent = Moment::now().since(begin);
                    if silent > self.session.forbearance() || self.patience.is_over() {
                        return Err(fault);
                    }
                    self.session.connected_for(self.patience).await?;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    async fn look_again(&self, place: &mut Place) -> Result<(), Stop> {
        let (sent, children) = self.list().await?;
        place.entries = self.shared.layout.entries(children)?;
        place.sent = sent;
        Ok(())
    }

    fn standing(&self, place: &Place) -> Standing {
        let node = place.path.rsplit('/').next().unwrap_or_default();
        // A node of that name that another session made is not ours.
        if place.stat.owner != self.session.id() {
            return Standing::Absent;
        }
        match line::standing(&place.entries, node) {
            Standing::Waits { place: number, is_next, .. } if self.barging => {
                let behind = place.entries.first().map(|entry| entry.node.clone());
                Standing::Waits { place: number, behind: behind.into_iter().collect(), is_next }
            }
            standing => standing,
        }
    }

    /// Waits until something happens to one of these nodes; `None` when patience ran out first.
    async fn wait(&self, nodes: &[String]) -> Option<Told> {
        let paths: Vec<_> = nodes.iter().map(|node| format!("{}/{node}", self.parent)).collect();
        let requests: Vec<_> = paths.iter().map(|path| Request::data(path, true)).collect();
        // Before the requests, so that nothing is missed. They read the node, which is one step
        // with watching it; asking whether it exists would leave a watch on one that does not.
        let mut watch = self.session.watch(paths);
        for coming in self.session.ask_all(requests) {
            match self.session.answer(coming).await {
                Ok(_) => {}
                Err(fault) if fault.is(refusal::NO_NODE) => return Some(Told::Deleted),
                Err(_) => return Some(Told::Changed),
            }
        }
        tokio::select! {
            biased;
            told = watch.told() => Some(told),
            () = self.patience.over() => None,
        }
    }

    async fn is_there(&self, place: &Place) -> Result<bool, Fault> {
        let request = Request::exists(&place.path, false);
        match self.session.call_surely(&place.path, request).await.and_then(|found| found.stat()) {
            Ok(stat) => Ok(stat.czxid == place.stat.czxid && stat.owner == self.session.id()),
            Err(Fault::Over) => Err(Fault::Over),
            // Looked at again, with the patience that takes.
            Err(_) => Ok(false),
        }
    }

    /// Gives up our place.
    async fn leave(&self, place: &Place) -> Result<Option<Grant>, Stop> {
        match self.session.call(Request::delete(&place.path)).await {
            Ok(_) | Err(Fault::Over) => {}
            Err(fault) if fault.is(refusal::NO_NODE) => {}
            Err(fault) => return Err(fault.into()),
        }
        self.session.strike_off(self.claim.id);
        Ok(None)
    }

    fn grant(&self, place: Place) -> Grant {
        let held = Held {
            session: self.session.clone(),
            id: self.claim.id,
            parent: self.parent.clone(),
            path: place.path,
            seal: None,
            czxid: place.stat.czxid,
            valid_for: self.shared.valid_for(self.session, self.claim),
            shown: self.shared.shown.clone(),
        };
        held.grant(place.sent)
    }
}
