//! `recipe=fair` and `recipe=barging`: a node with a number for each claim, the smallest hold.

use super::Shared;
use super::jute::Stat;
use super::layout;
use super::lease::{Held, Kin};
use super::line::{self, Standing};
use super::numbers::Age;
use super::record;
use super::request::{Kind, Request};
use super::session::Session;
use super::trouble::{Fault, refusal};
use super::vigil::{Queue, Turn, Vigil};
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
pub(super) struct Place {
    path: String,
    stat: Stat,
    record: String,
    pub(super) queue: Queue,
    sent: Moment,
}

impl Place {
    fn node(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether the numbers of the queue are so near their end that we must not stay in it.
    fn is_to_be_left(&self, standing: &Standing) -> bool {
        let number = layout::number_of(self.node()).unwrap_or(-1);
        // Libraries that compare them as text take the negative for the first.
        let lost = self.queue.entries.iter().any(|entry| entry.number < 0);
        match Age::of(number) {
            Age::Young | Age::Late => lost,
            Age::Closing => lost || matches!(standing, Standing::Waits { .. }),
            Age::Ended => true,
        }
    }
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
            let standing = self.standing(&place);
            if place.is_to_be_left(&standing) {
                if !self.step_back(place).await? {
                    return Ok(None);
                }
                place = self.enter().await?;
                continue;
            }
            match standing {
                Standing::Holds => return Ok(Some(self.grant(place))),
                // Someone deleted our node.
                Standing::Absent => place = self.enter().await?,
                Standing::Waits { place: number, behind, settled } => {
                    if patience.is_over() {
                        return self.leave(&place).await;
                    }
                    patience.queued(number);
                    let queue = std::mem::take(&mut place.queue);
                    match self.wait(&place, queue, behind, settled).await {
                        None => return self.leave(&place).await,
                        Some(Turn::Ours(sent)) => return Ok(Some(self.held(place).grant(sent))),
                        Some(Turn::Next) => {
                            let sent = Moment::now();
                            if self.is_there(&place).await? {
                                place.sent = sent;
                                return Ok(Some(self.grant(place)));
                            }
                            self.look_again(&mut place).await?;
                        }
                        Some(Turn::NotKnown) => self.look_again(&mut place).await?,
                    }
                }
            }
        }
    }

    /// Whether a claim made now would have to wait. Changes nothing.
    async fn is_busy(&self) -> Result<bool, Stop> {
        match self.session.call(Request::children(&self.parent)).await {
            Ok(answer) => {
                let entries = self.shared.layout.entries(answer.children()?)?;
                Ok(!line::holds_behind(entries.iter().map(|entry| entry.mode), self.claim.mode))
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
            // Answers come in order. With the last the others are there, and we are woken once.
            let listed = self.session.answer(listed).await;
            match self.session.answer(created).await.and_then(|answer| answer.created()) {
                Ok((path, stat)) => {
                    self.session.made(self.claim.id, &path, stat.czxid);
                    let queue = Queue::default();
                    let mut place = Place { path, stat, record: data, queue, sent };
                    match listed {
                        Ok(answer) => {
                            place.queue = self.queue(answer.listing()?, place.node())?;
                        }
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
                    if let Some(place) = self.find(&start, &data).await? {
                        return Ok(place);
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Our node, if it was made by a request whose answer was lost.
    async fn find(&self, start: &str, data: &str) -> Result<Option<Place>, Stop> {
        loop {
            let (sent, listing) = self.list().await?;
            let Some((children, parent)) = listing else { return Ok(None) };
            let Some(node) = children.iter().find(|child| child.starts_with(start)).cloned() else {
                return Ok(None);
            };
            let path = format!("{}/{node}", self.parent);
            self.session.found(self.claim.id, &path);
            match self.session.call(Request::exists(&path, false)).await {
                Ok(answer) => {
                    let (stat, queue) = (answer.stat()?, self.queue((children, parent), &node)?);
                    return Ok(Some(Place { path, stat, record: data.to_owned(), queue, sent }));
                }
                Err(fault) if fault.is(refusal::NO_NODE) => return Ok(None),
                Err(Fault::Unanswered(_)) if !self.patience.is_over() => {}
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// The claims in a listing of the lock's node, in which ours is called `own`.
    fn queue(&self, (children, parent): (Vec<String>, Stat), own: &str) -> Result<Queue> {
        let mut entries = self.shared.layout.entries(children)?;
        line::give_way(&mut entries, own);
        Ok(Queue { made: parent.czxid, entries })
    }

    /// Who is there now, as the leader sees it: also after the connection broke. `None` where
    /// there is no such lock.
    pub(super) async fn list(&self) -> Result<(Moment, Option<(Vec<String>, Stat)>), Fault> {
        let begin = Moment::now();
        loop {
            let sent = Moment::now();
            let request = Request::children(&self.parent);
            match self.session.call_surely(&self.parent, request).await {
                Ok(answer) => return Ok((sent, Some(answer.listing()?))),
                Err(fault) if fault.is(refusal::NO_NODE) => return Ok((sent, None)),
                Err(fault @ Fault::Unanswered(_)) => {
                    let silent = Moment::now().since(begin);
                    if silent > self.patience.outage() || self.patience.is_over() {
                        return Err(fault);
                    }
                    self.session.connected_for(self.patience).await?;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    async fn look_again(&self, place: &mut Place) -> Result<(), Stop> {
        let (sent, listing) = self.list().await?;
        place.queue = match listing {
            Some(listing) => self.queue(listing, place.node())?,
            None => Queue::default(),
        };
        // Also for the others of this keeper, should we hold it now.
        self.session.saw(&self.parent, &place.queue);
        place.sent = sent;
        Ok(())
    }

    fn standing(&self, place: &Place) -> Standing {
        // A node of that name that another session made is not ours.
        if place.stat.owner != self.session.id() {
            return Standing::Absent;
        }
        let entries = &place.queue.entries;
        match line::standing(entries, place.node()) {
            Standing::Waits { place: number, settled, .. } if self.barging => {
                let behind = entries.first().map(|entry| entry.node.clone());
                Standing::Waits { place: number, behind: behind.into_iter().collect(), settled }
            }
            standing => standing,
        }
    }

    /// Waits behind these nodes until it may be our turn; `None` when patience ran out first.
    async fn wait(
        &self,
        place: &Place,
        queue: Queue,
        behind: Vec<String>,
        settled: bool,
    ) -> Option<Turn> {
        let behind: Vec<_> = behind.iter().map(|node| format!("{}/{node}", self.parent)).collect();
        // They read the node, which is one step with watching it; asking whether it exists would
        // leave a watch on one that does not.
        let paths = [&place.path].into_iter().chain(&behind);
        let requests: Vec<_> = paths.map(|path| Request::data(path, true)).collect();
        // Before the requests are sent, so that nothing is missed.
        let mut vigil = Vigil::new(self.session, &self.parent, queue, &place.path, behind.clone());
        let mut told = None;
        for (index, coming) in self.session.ask_all(requests).into_iter().enumerate() {
            match (self.session.answer(coming).await, index.checked_sub(1)) {
                (Ok(_), _) => {}
                (Err(fault), Some(index)) if fault.is(refusal::NO_NODE) => {
                    vigil.is_gone(&behind[index]);
                    told = Some(Told::Deleted);
                }
                (Err(_), _) => return Some(Turn::NotKnown),
            }
        }
        if told.is_none() {
            tokio::select! {
                biased;
                news = vigil.told() => told = Some(news),
                () = self.patience.over() => return None,
            }
        }
        match told {
            Some(Told::Deleted) if settled => {
                Some(vigil.turn(self.claim.id, self.shared.valid_for(self.session, self.claim)))
            }
            _ => Some(Turn::NotKnown),
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
    pub(super) async fn leave(&self, place: &Place) -> Result<Option<Grant>, Stop> {
        match self.session.call(Request::delete(&place.path)).await {
            Ok(_) | Err(Fault::Over) => {}
            Err(fault) if fault.is(refusal::NO_NODE) => {}
            Err(fault) => return Err(fault.into()),
        }
        self.session.strike_off(self.claim.id);
        Ok(None)
    }

    fn grant(&self, place: Place) -> Grant {
        let sent = place.sent;
        let held = self.held(place);
        held.session.hold(held.id, sent + held.valid_for);
        held.grant(sent)
    }

    fn held(&self, place: Place) -> Held {
        Held {
            session: self.session.clone(),
            id: self.claim.id,
            parent: self.parent.clone(),
            path: place.path,
            kin: Kin::Numbered(self.shared.layout),
            czxid: place.stat.czxid,
            record: place.record,
            valid_for: self.shared.valid_for(self.session, self.claim),
            shown: self.shared.shown.clone(),
            stranger: None,
            asked_to_go: false,
        }
    }
}
