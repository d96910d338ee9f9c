//! The table of a store in memory: who holds and who waits, by name. Does no waiting.

use crate::backend::queue;
use crate::backend::{
    Alarm, Claim, FencingToken, HolderView, LockView, Mode, Moment, Name, Ticket, WaiterView,
};
use crate::error::Result;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, oneshot};

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Only names that are held or waited for.
    pub(super) lines: BTreeMap<Name, Line>,
    /// The last number reserved of each sequence.
    pub(super) sequences: BTreeMap<Name, u64>,
    pub(super) records: BTreeMap<Name, String>,
    /// The largest token given, of whatever name.
    last_token: u64,
    /// Where the search for names that nobody asks for any more goes on.
    tidied: Option<Name>,
    /// Names whose holders somebody watches.
    watched: BTreeMap<Name, Weak<Notify>>,
}

#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) holders: Vec<Held>,
    pub(super) waiters: VecDeque<Waiting>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) claim: Claim,
    pub(super) token: FencingToken,
    pub(super) since: Moment,
    pub(super) expires: Moment,
    /// Of each that keeps it.
    pub(super) alarms: Vec<Alarm>,
    /// Released, but kept for its `min_hold`: nobody's any more.
    pub(super) stays: bool,
    /// How many guards share it.
    pub(super) count: usize,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) claim: Claim,
    pub(super) since: Moment,
    /// Of each that asked for the claim: several, if it was asked for again by its id.
    pub(super) granted: Vec<oneshot::Sender<(FencingToken, Moment)>>,
}

/// What became of asking for a name.
pub(super) enum Asked {
    Granted(FencingToken, Moment),
    Busy,
    Queued(oneshot::Receiver<(FencingToken, Moment)>, usize),
}

impl Table {
    pub(super) fn ask(&mut self, claim: &Claim, may_queue: bool) -> Result<Asked> {
        self.tidy();
        self.advance(&claim.name);
        let sent = Moment::now();
        let line = self.lines.entry(claim.name.clone()).or_default();
        if let Some(asked) = line.find(claim, sent)? {
            return Ok(asked);
        }
        if let Some(mine) = line.holders.iter().find(|h| h.claim.owner == claim.owner && !h.stays) {
            let (token, mode) = (mine.token, mine.claim.mode);
            if !mode.covers(claim.mode) {
                return Err(mode.upgrade_refused(&claim.name, claim.mode));
            }
            line.holders.push(Held::new(claim, token, sent));
            return Ok(Asked::Granted(token, sent));
        }
        if line.waiters.is_empty() && queue::fits(claim.mode, line.modes()) {
            let token = next_token(&mut self.last_token);
            line.holders.push(Held::new(claim, token, sent));
            self.tell_watchers(&claim.name);
            return Ok(Asked::Granted(token, sent));
        }
        if !may_queue {
            return Ok(Asked::Busy);
        }
        let (granted, answer) = oneshot::channel();
        line.waiters.push_back(Waiting {
            claim: claim.clone(),
            since: sent,
            granted: vec![granted],
        });
        Ok(Asked::Queued(answer, line.waiters.len()))
    }

    /// Looks at a name or two that may have run out unnoticed: claims that were detached, or that
    /// stay for their `min_hold`.
    fn tidy(&mut self) {
        let from = self.tidied.take().map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<Name> = self
            .lines
            .range((from, Bound::Unbounded))
            .take(2)
            .map(|(name, _)| name.clone())
            .collect();
        some.iter().for_each(|name| self.advance(name));
        self.tidied = some.last().cloned();
    }

    /// Drops what has expired and grants to those now at the head.
    pub(super) fn advance(&mut self, name: &Name) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let now = Moment::now();
        let before = line.holders.len();
        line.holders.retain(|held| now < held.expires);
        let mut changed = line.holders.len() != before;
        while let Some(next) = line.waiters.front() {
            let is_waited_for = next.granted.iter().any(|granted| !granted.is_closed());
            if is_waited_for && !queue::fits(next.claim.mode, line.modes()) {
                break;
            }
            let Some(next) = line.waiters.pop_front() else { break };
            let token = next_token(&mut self.last_token);
            let told = next.granted.into_iter().map(|granted| granted.send((token, now)));
            if told.filter(Result::is_ok).count() > 0 {
                line.holders.push(Held::new(&next.claim, token, now));
                changed = true;
            }
        }
        if line.holders.is_empty() && line.waiters.is_empty() {
            self.lines.remove(name);
        }
        if changed {
            self.tell_watchers(name);
        }
    }

    /// What is notified when other claims hold `name`.
    pub(super) fn watch(&mut self, name: &Name) -> Arc<Notify> {
        self.watched.retain(|_, watcher| watcher.strong_count() > 0);
        if let Some(watcher) = self.watched.get(name).and_then(Weak::upgrade) {
            return watcher;
        }
        let watcher = Arc::new(Notify::new());
        self.watched.insert(name.clone(), Arc::downgrade(&watcher));
        watcher
    }

    fn tell_watchers(&self, name: &Name) {
        if !self.watched.is_empty()
            && let Some(watcher) = self.watched.get(name).and_then(Weak::upgrade)
        {
            watcher.notify_waiters();
        }
    }

    /// Takes the claims with `token` out, whoever holds them, and lets the next ones in.
    pub(super) fn take_out(&mut self, name: &Name, token: FencingToken) -> Vec<Held> {
        let Some(line) = self.lines.get_mut(name) else { return Vec::new() };
        let now = Moment::now();
        let gone = line.holders.extract_if(.., |held| held.token == token && now < held.expires);
        let broken: Vec<Held> = gone.collect();
        self.advance(name);
        if !broken.is_empty() {
            self.tell_watchers(name);
        }
        broken
    }

    /// Takes the claim out of the queue; its place there, if it was in it.
    pub(super) fn leave(&mut self, claim: &Claim) -> Option<usize> {
        let line = self.lines.get_mut(&claim.name)?;
        let place = line.waiters.iter().position(|waiting| waiting.claim.id == claim.id)?;
        let waiting = &mut line.waiters[place];
        // Another keeper may wait for the same claim.
        waiting.granted.retain(|granted| !granted.is_closed());
        if !claim.by_id || waiting.granted.is_empty() {
            line.waiters.remove(place);
        }
        // The one behind may now be at the head, and fit.
        self.advance(&claim.name);
        Some(place + 1)
    }

    /// Whether there was something to release.
    pub(super) fn release(&mut self, ticket: &Ticket, stay: Duration) -> bool {
        let Some(held) = self.held(ticket).filter(|held| !held.stays) else { return false };
        held.expires = Moment::now() + stay;
        held.stays = true;
        self.advance(&ticket.name);
        true
    }

    pub(super) fn held(&mut self, ticket: &Ticket) -> Option<&mut Held> {
        let line = self.lines.get_mut(&ticket.name)?;
        // An id may be asked for again after its claim was lost: then it is another grant.
        let is_it = |held: &&mut Held| {
            held.claim.id == ticket.id && ticket.token.is_none_or(|token| token == held.token)
        };
        line.holders.iter_mut().find(is_it)
    }

    pub(super) fn next_expiry(&self, name: &Name) -> Moment {
        let expiries = self.lines.get(name).map(|line| line.holders.iter().map(|h| h.expires));
        let now = Moment::now();
        expiries.into_iter().flatten().min().unwrap_or(now + Duration::from_secs(1))
    }
}

fn next_token(last: &mut u64) -> FencingToken {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let token = FencingToken::after(*last, u64::try_from(since_epoch.as_micros()).unwrap_or(0));
    *last = token.get();
    token
}

impl Line {
    /// What became of a claim that was asked for by its id before.
    fn find(&mut self, claim: &Claim, now: Moment) -> Result<Option<Asked>> {
        if !claim.by_id {
            return Ok(None);
        }
        if let Some(held) = self.holders.iter_mut().find(|h| h.claim.id == claim.id && !h.stays) {
            claim.refuse_other_terms(held.claim.mode, Some(held.claim.ttl))?;
            held.expires = held.expires.max(now + claim.ttl);
            return Ok(Some(Asked::Granted(held.token, now)));
        }
        let Some(place) = self.waiters.iter().position(|waiting| waiting.claim.id == claim.id)
        else {
            return Ok(None);
        };
        let waiting = &mut self.waiters[place];
        claim.refuse_other_terms(waiting.claim.mode, Some(waiting.claim.ttl))?;
        let (granted, answer) = oneshot::channel();
        waiting.granted.push(granted);
        Ok(Some(Asked::Queued(answer, place + 1)))
    }

    fn modes(&self) -> impl Iterator<Item = (Mode, FencingToken)> {
        self.holders.iter().map(|held| (held.claim.mode, held.token))
    }

    pub(super) fn view(&self, name: &Name) -> LockView {
        let now = Moment::now();
        let mut holders: Vec<HolderView> = Vec::new();
        for held in self.holders.iter().filter(|held| now < held.expires) {
            match holders.iter_mut().find(|view| view.owner == held.claim.owner) {
                Some(view) => view.count += held.count,
                None => holders.push(held.view(now)),
            }
        }
        let waiters = self.waiters.iter().map(|waiting| waiting.view(now)).collect();
        LockView { holders, waiters, ..LockView::new(name.clone()) }
    }
}

impl Held {
    fn new(claim: &Claim, token: FencingToken, now: Moment) -> Self {
        Self {
            claim: claim.clone(),
            token,
            since: now,
            expires: now + claim.ttl,
            alarms: Vec::new(),
            stays: false,
            count: 1,
        }
    }

    fn view(&self, now: Moment) -> HolderView {
        HolderView {
            owner: self.claim.owner.clone(),
            identity: self.claim.identity.to_string(),
            note: self.claim.note.to_string(),
            mode: self.claim.mode,
            token: Some(self.token),
            count: self.count,
            held_for: now.since(self.since),
            expires_in: self.expires.since(now),
        }
    }
}

impl Waiting {
    fn view(&self, now: Moment) -> WaiterView {
        WaiterView {
            owner: self.claim.owner.clone(),
            identity: self.claim.identity.to_string(),
            note: self.claim.note.to_string(),
            mode: self.claim.mode,
            waiting_for: now.since(self.since),
        }
    }
}
