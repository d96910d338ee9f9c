//! The store's data and what is done to it in one step.

use super::Flaw;
use lockkeeper::Result;
use lockkeeper::backend::queue;
use lockkeeper::backend::{
    Alarm, Claim, FencingToken, HolderView, LockView, Mode, Moment, Name, WaiterView,
};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug)]
pub(super) struct Table {
    flaw: Flaw,
    lines: BTreeMap<Name, Line>,
    last_token: u64,
}

#[derive(Debug, Default)]
struct Line {
    holders: Vec<Held>,
    waiters: Vec<(Claim, Moment)>,
    last_token: u64,
}

#[derive(Debug)]
struct Held {
    claim: Claim,
    token: FencingToken,
    since: Moment,
    expires: Moment,
    alarm: Option<Alarm>,
}

/// What one step towards a grant led to.
pub(super) enum Step {
    Granted(FencingToken),
    Busy,
    /// The place, and when to look again.
    Queued(usize, Moment),
}

impl Table {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self { flaw, lines: BTreeMap::new(), last_token: 0 }
    }

    pub(super) fn key(&self, name: &Name) -> Name {
        let folded = Name::new(&name.as_str().to_lowercase());
        folded.ok().filter(|_| self.flaw == Flaw::FoldsCase).unwrap_or_else(|| name.clone())
    }

    /// The store's idea of how long a claim lives.
    fn lifetime(&self, claim: &Claim) -> Duration {
        match self.flaw {
            Flaw::NeverExpires => Duration::from_secs(3600),
            Flaw::ExpiresEarly => claim.ttl / 2,
            _ => claim.ttl,
        }
    }

    pub(super) fn step(&mut self, claim: &Claim, queue: bool, believes: bool) -> Result<Step> {
        let (flaw, key, lifetime) = (self.flaw, self.key(&claim.name), self.lifetime(claim));
        let now = Moment::now();
        let line = self.lines.entry(key.clone()).or_default();
        line.holders.retain(|held| now < held.expires);
        let mine = line.holders.iter().find(|held| held.claim.owner == claim.owner);
        let mine = mine.map(|held| (held.token, held.claim.mode));
        if let Some((token, mode)) = mine {
            if !mode.covers(claim.mode) {
                return Err(mode.upgrade_refused(&claim.name, claim.mode));
            }
            let token = if flaw == Flaw::NewTokenOnReentry { self.token(&key) } else { token };
            self.hold(&key, claim, token, now + lifetime);
            return Ok(Step::Granted(token));
        }
        let ahead = line.waiters.iter().take_while(|(waiter, _)| waiter.id != claim.id);
        let overtakes = match flaw {
            Flaw::TriesOvertake => !queue,
            Flaw::ReadersOvertake => claim.mode == Mode::Shared,
            _ => false,
        };
        if believes || (line.fits(claim, flaw) && (overtakes || ahead.count() == 0)) {
            line.waiters.retain(|(waiter, _)| waiter.id != claim.id);
            let token = self.token(&key);
            self.hold(&key, claim, token, now + lifetime);
            return Ok(Step::Granted(token));
        }
        if !queue {
            return Ok(Step::Busy);
        }
        if !line.waiters.iter().any(|(waiter, _)| waiter.id == claim.id) {
            line.waiters.push((claim.clone(), now));
        }
        let place = line.waiters.iter().position(|(waiter, _)| waiter.id == claim.id);
        let expiry = line.holders.iter().map(|held| held.expires).min();
        let look_again = expiry.unwrap_or(now + Duration::from_millis(100));
        Ok(Step::Queued(place.map_or(1, |place| place + 1), look_again))
    }

    fn token(&mut self, key: &Name) -> FencingToken {
        if self.flaw == Flaw::TokensStartAnew {
            let line = self.lines.entry(key.clone()).or_default();
            let token = FencingToken::after(line.last_token, 0);
            line.last_token = token.get();
            return token;
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = u64::try_from(since_epoch.as_micros()).unwrap_or_default();
        let token = FencingToken::after(self.last_token, now_us);
        self.last_token = token.get();
        token
    }

    fn hold(&mut self, key: &Name, claim: &Claim, token: FencingToken, expires: Moment) {
        let (claim, since) = (claim.clone(), Moment::now());
        let held = Held { claim, token, since, expires, alarm: None };
        self.lines.entry(key.clone()).or_default().holders.push(held);
    }

    pub(super) fn leave(&mut self, claim: &Claim) {
        let key = self.key(&claim.name);
        if let Some(line) = self.lines.get_mut(&key) {
            line.waiters.retain(|(waiter, _)| waiter.id != claim.id);
        }
        self.tidy(&key);
    }

    pub(super) fn renew(&mut self, claim: &Claim) -> bool {
        let (key, now, lifetime) = (self.key(&claim.name), Moment::now(), self.lifetime(claim));
        let late = self.flaw == Flaw::LateRenewal;
        let line = self.lines.entry(key.clone()).or_default();
        match line.holders.iter_mut().find(|held| held.claim.id == claim.id) {
            Some(held) if late || now < held.expires => held.expires = now + lifetime,
            None if late => {
                line.holders.clear();
                let token = self.token(&key);
                self.hold(&key, claim, token, now + lifetime);
            }
            _ => return false,
        }
        true
    }

    /// Whether there was something to release.
    pub(super) fn release(&mut self, claim: &Claim, linger: Duration) -> bool {
        let key = self.key(&claim.name);
        let flaw = self.flaw;
        let mut released = false;
        if let Some(line) = self.lines.get_mut(&key) {
            let until = Moment::now() + linger;
            for held in &mut line.holders {
                let mine = match flaw {
                    Flaw::BlindRelease => true,
                    Flaw::OneReleaseFreesAll => held.claim.owner == claim.owner,
                    _ => held.claim.id == claim.id,
                };
                if mine {
                    held.expires = until;
                    released = true;
                }
            }
        }
        self.tidy(&key);
        released
    }

    /// Gives the alarm back when the claim is gone.
    pub(super) fn watch(&mut self, claim: &Claim, alarm: Alarm) -> Option<Alarm> {
        let key = self.key(&claim.name);
        let holders = self.lines.get_mut(&key).map(|line| &mut line.holders);
        let mut held = holders.into_iter().flatten().filter(|held| held.claim.id == claim.id);
        match held.next() {
            Some(held) => {
                held.alarm = Some(alarm);
                None
            }
            None => Some(alarm),
        }
    }

    /// The alarms of the claims with `token`, which are gone now.
    pub(super) fn take_out(&mut self, name: &Name, token: FencingToken) -> Vec<Option<Alarm>> {
        let (key, now, any) = (self.key(name), Moment::now(), self.flaw == Flaw::BreaksAny);
        let Some(line) = self.lines.get_mut(&key) else { return Vec::new() };
        let broken = line.holders.extract_if(.., |h| (any || h.token == token) && now < h.expires);
        broken.map(|held| held.alarm).collect()
    }

    fn tidy(&mut self, key: &Name) {
        let now = Moment::now();
        let Some(line) = self.lines.get_mut(key) else { return };
        line.holders.retain(|held| now < held.expires);
        if line.holders.is_empty() && line.waiters.is_empty() {
            self.lines.remove(key);
        }
    }

    pub(super) fn views(&self, wanted: impl Fn(&str) -> bool) -> Vec<LockView> {
        let lines = self.lines.iter().filter(|(name, _)| wanted(name.as_str()));
        let views = lines.map(|(name, line)| line.view(name));
        views.filter(|view| !view.holders.is_empty() || !view.waiters.is_empty()).collect()
    }
}

impl Line {
    fn fits(&self, claim: &Claim, flaw: Flaw) -> bool {
        let mode = match (claim.mode, flaw) {
            (Mode::Permit { of }, Flaw::OneTooMany) => Mode::Permit { of: of + 1 },
            (mode, _) => mode,
        };
        queue::fits(
            mode,
            self.holders.iter().map(|held| {
                let theirs = match (held.claim.mode, mode) {
                    (Mode::Permit { .. }, Mode::Permit { .. })
                        if [Flaw::LastNumberCounts, Flaw::OneTooMany].contains(&flaw) =>
                    {
                        mode
                    }
                    (theirs, _) => theirs,
                };
                (theirs, held.token)
            }),
        )
    }

    fn view(&self, name: &Name) -> LockView {
        let now = Moment::now();
        let mut holders: Vec<HolderView> = Vec::new();
        for held in self.holders.iter().filter(|held| now < held.expires) {
            let owner = held.claim.owner.clone();
            if let Some(view) = holders.iter_mut().find(|view| view.owner == owner) {
                view.count += 1;
                continue;
            }
            let mut view = HolderView::new(owner, held.claim.mode);
            view.identity = held.claim.identity.to_string();
            view.note = held.claim.note.to_string();
            view.token = Some(held.token);
            view.held_for = now.since(held.since);
            view.expires_in = held.expires.since(now);
            holders.push(view);
        }
        let waiters = self.waiters.iter().map(|(claim, since)| {
            let mut view = WaiterView::new(claim.owner.clone(), claim.mode);
            view.identity = claim.identity.to_string();
            view.note = claim.note.to_string();
            view.waiting_for = now.since(*since);
            view
        });
        let mut view = LockView::new(name.clone());
        (view.holders, view.waiters) = (holders, waiters.collect());
        view
    }
}
