//! `memory:` — the reference backend, for tests and for the tasks of one process.
//!
//! A lock is an ordered queue of claims, those at its head hold it. Release hands over: the step
//! that frees the name grants it to the next in line and wakes only those.

use crate::backend::queue;
use crate::backend::support::sync::lock;
use crate::backend::{
    Alarm, Backend, Capability, Claim, FencingToken, Grant, HolderView, Inspector, Lease, LockView,
    LossReason, Mode, Moment, Name, Patience, Release, Reserve, Reserved, Sequencer, Standing,
    Ticket, WaiterView, check_record,
};
use crate::error::Result;
use async_trait::async_trait;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, oneshot};

/// A store in this process's memory. Keepers made from clones of one `Arc` share its locks.
#[derive(Debug, Default)]
pub struct Memory {
    table: Arc<Mutex<Table>>,
    /// A claim will end earlier than its waiters were counting on.
    sooner: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    /// Only names that are held or waited for.
    lines: BTreeMap<Name, Line>,
    /// The last number reserved of each sequence.
    sequences: BTreeMap<Name, u64>,
    records: BTreeMap<Name, String>,
    /// The largest token given, of whatever name.
    last_token: u64,
    /// Where the search for names that nobody asks for any more goes on.
    tidied: Option<Name>,
}

#[derive(Debug, Default)]
struct Line {
    holders: Vec<Held>,
    waiters: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Held {
    claim: Claim,
    token: FencingToken,
    since: Moment,
    expires: Moment,
    alarm: Option<Alarm>,
    /// Released, but kept for its `min_hold`: nobody's any more.
    stays: bool,
    /// How many guards share it.
    count: usize,
}

#[derive(Debug)]
struct Waiting {
    claim: Claim,
    since: Moment,
    granted: oneshot::Sender<(FencingToken, Moment)>,
}

/// What became of asking for a name.
enum Asked {
    Granted(FencingToken, Moment),
    Busy,
    Queued(oneshot::Receiver<(FencingToken, Moment)>, usize),
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn grant(&self, claim: &Claim, token: FencingToken, sent: Moment) -> Grant {
        let (table, sooner) = (self.table.clone(), self.sooner.clone());
        let lease = MemoryLease { table, sooner, ticket: Ticket::of(claim) };
        Grant { lease: Box::new(lease), token: Some(token), sent, valid_for: claim.ttl }
    }
}

#[async_trait]
impl Backend for Memory {
    fn capability(&self) -> Capability {
        crate::recipes::MEMORY
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let asked = self.table().ask(claim, !patience.is_over())?;
        let mut granted = match asked {
            Asked::Granted(token, sent) => return Ok(Some(self.grant(claim, token, sent))),
            Asked::Busy => return Ok(None),
            Asked::Queued(granted, place) => {
                patience.queued(place);
                granted
            }
        };
        loop {
            let sooner = self.sooner.notified();
            let expiry = self.table().next_expiry(&claim.name);
            tokio::select! {
                biased;
                Ok((token, sent)) = &mut granted => {
                    return Ok(Some(self.grant(claim, token, sent)));
                }
                () = patience.over() => {
                    let place = self.table().leave(claim);
                    place.into_iter().for_each(|place| patience.queued(place));
                    // Granted in the moment of leaving: then it is ours.
                    let granted = granted.try_recv().ok();
                    return Ok(granted.map(|(token, sent)| self.grant(claim, token, sent)));
                }
                () = expiry.reached() => self.table().advance(&claim.name),
                () = sooner => {}
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let mut table = self.table();
        table.leave(claim);
        table.release(&Ticket::of(claim), Duration::ZERO);
        Ok(())
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        let (table, sooner) = (self.table.clone(), self.sooner.clone());
        Some(Box::new(MemoryLease { table, sooner, ticket: ticket.clone() }))
    }
}

#[async_trait]
impl Sequencer for Memory {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        let mut table = self.table();
        let last = table.sequences.get(name).copied();
        let reserved = Reserved::of(last, wish);
        if let Reserved::From(first) = reserved {
            let last = first + u64::from(wish.count.max(1)) - 1;
            table.sequences.insert(name.clone(), last);
        }
        Ok(reserved)
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        Ok(self.table().records.get(name).cloned())
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        check_record(value)?;
        let mut table = self.table();
        let matches = table.records.get(name).map(String::as_str) == expected;
        if matches {
            table.records.insert(name.clone(), value.to_owned());
        }
        Ok(matches)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        let table = self.table();
        let from = table.records.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let of_prefix = from.take_while(|(name, _)| name.as_str().starts_with(prefix));
        Ok(of_prefix.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    async fn time(&self) -> Result<Option<SystemTime>> {
        Ok(Some(SystemTime::now()))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

#[derive(Debug)]
struct MemoryLease {
    table: Arc<Mutex<Table>>,
    sooner: Arc<Notify>,
    ticket: Ticket,
}

#[async_trait]
impl Lease for MemoryLease {
    async fn renew(&mut self) -> Result<Standing> {
        let now = Moment::now();
        let mut table = lock(&self.table);
        Ok(match table.held(&self.ticket) {
            Some(held) if now < held.expires && !held.stays => {
                let before = std::mem::replace(&mut held.expires, now + self.ticket.ttl);
                // By a ticket with a shorter ttl.
                if held.expires < before {
                    self.sooner.notify_waiters();
                }
                Standing::Held
            }
            _ => Standing::Lost(LossReason::Gone),
        })
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let released = lock(&self.table).release(&self.ticket, how.stay());
        if !how.stay().is_zero() {
            self.sooner.notify_waiters();
        }
        if released { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }

    fn watch(&mut self, alarm: Alarm) {
        let gone = match lock(&self.table).held(&self.ticket) {
            Some(held) => {
                held.alarm = Some(alarm);
                None
            }
            None => Some(alarm),
        };
        // Broken since the grant, perhaps granted to another: nobody else would say so.
        if let Some(alarm) = gone {
            alarm.ring(LossReason::Gone);
        }
    }

    fn guards_changed(&mut self, guards: usize) {
        if let Some(held) = lock(&self.table).held(&self.ticket) {
            held.count = guards;
        }
    }
}

impl Table {
    fn ask(&mut self, claim: &Claim, may_queue: bool) -> Result<Asked> {
        self.tidy();
        self.advance(&claim.name);
        let sent = Moment::now();
        let line = self.lines.entry(claim.name.clone()).or_default();
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
            return Ok(Asked::Granted(token, sent));
        }
        if !may_queue {
            return Ok(Asked::Busy);
        }
        let (granted, answer) = oneshot::channel();
        line.waiters.push_back(Waiting { claim: claim.clone(), since: sent, granted });
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
    fn advance(&mut self, name: &Name) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let now = Moment::now();
        line.holders.retain(|held| now < held.expires);
        while let Some(next) = line.waiters.front() {
            if !next.granted.is_closed() && !queue::fits(next.claim.mode, line.modes()) {
                break;
            }
            let Some(next) = line.waiters.pop_front() else { break };
            let token = next_token(&mut self.last_token);
            if next.granted.send((token, now)).is_ok() {
                line.holders.push(Held::new(&next.claim, token, now));
            }
        }
        if line.holders.is_empty() && line.waiters.is_empty() {
            self.lines.remove(name);
        }
    }

    /// Takes the claim out of the queue; its place there, if it was in it.
    fn leave(&mut self, claim: &Claim) -> Option<usize> {
        let line = self.lines.get_mut(&claim.name)?;
        let place = line.waiters.iter().position(|waiting| waiting.claim.id == claim.id)?;
        line.waiters.remove(place);
        // The one behind may now be at the head, and fit.
        self.advance(&claim.name);
        Some(place + 1)
    }

    /// Whether there was something to release.
    fn release(&mut self, ticket: &Ticket, stay: Duration) -> bool {
        let Some(held) = self.held(ticket).filter(|held| !held.stays) else { return false };
        held.expires = Moment::now() + stay;
        held.stays = true;
        self.advance(&ticket.name);
        true
    }

    fn held(&mut self, ticket: &Ticket) -> Option<&mut Held> {
        let line = self.lines.get_mut(&ticket.name)?;
        line.holders.iter_mut().find(|held| held.claim.id == ticket.id)
    }

    fn next_expiry(&self, name: &Name) -> Moment {
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
    fn modes(&self) -> impl Iterator<Item = (Mode, FencingToken)> {
        self.holders.iter().map(|held| (held.claim.mode, held.token))
    }

    fn view(&self, name: &Name) -> LockView {
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
            alarm: None,
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

#[async_trait]
impl Inspector for Memory {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let table = self.table();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let views = table
            .lines
            .range::<str, _>(from)
            .take_while(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, line)| line.view(name));
        Ok(views.filter(|view| !view.holders.is_empty() || !view.waiters.is_empty()).collect())
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        let table = self.table();
        let free = LockView::new(name.clone());
        Ok(table.lines.get(name).map_or(free, |line| line.view(name)))
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let broken: Vec<Held> = {
            let mut table = self.table();
            let Some(line) = table.lines.get_mut(name) else { return Ok(false) };
            let now = Moment::now();
            let gone = line.holders.extract_if(.., |h| h.token == token && now < h.expires);
            let broken = gone.collect();
            table.advance(name);
            broken
        };
        // Rung outside the lock: a lost hold may release, which takes it again.
        for alarm in broken.iter().filter_map(|held| held.alarm.as_ref()) {
            alarm.ring(LossReason::Broken { reason: reason.to_owned() });
        }
        Ok(!broken.is_empty())
    }
}
