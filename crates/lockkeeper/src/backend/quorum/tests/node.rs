//! A node in memory that votes, and can be made to hang, to fail, to forget and to mistake the time.

use crate::backend::support::sync::lock;
use crate::backend::{
    Alarm, Backend, Capability, Claim, ClaimId, FencingToken, GaveBack, Grant, Kept, Lease,
    LossReason, Moment, Name, NodeLife, Passing, Patience, Release, Released, Standing, Ticket,
    Vote, Voter,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// One claim at the node.
#[derive(Debug, Clone)]
struct Held {
    id: String,
    /// The claim that it was taken as.
    taken_as: String,
    until: Moment,
}

#[derive(Debug)]
struct State {
    locks: HashMap<String, Held>,
    floor: u64,
    life: u32,
    born: Moment,
    /// How far its clock is ahead.
    ahead: Duration,
}

/// A node in memory.
#[derive(Debug, Clone)]
pub(super) struct TestNode {
    number: usize,
    state: Arc<Mutex<State>>,
    pub(super) hangs: watch::Sender<bool>,
    /// It takes no token, and everything else.
    pub(super) hangs_at_tokens: watch::Sender<bool>,
    pub(super) fails: Arc<AtomicBool>,
    pub(super) remembers: Arc<AtomicBool>,
    /// It is asked for its life, which is known already where a connection stands.
    pub(super) tells_its_life: Arc<AtomicBool>,
    /// It loses the next claim right after its vote.
    pub(super) forgets_a_vote: Arc<AtomicBool>,
    pub(super) asked: Arc<AtomicUsize>,
    /// It cannot pass a claim on.
    pub(super) cannot_pass: Arc<AtomicBool>,
    /// It answers nothing when it is told that a claim passed on.
    pub(super) hangs_at_passing: watch::Sender<bool>,
    /// How often it was told that a claim passed on.
    pub(super) passed: Arc<AtomicUsize>,
    /// Why claims were broken, by what they were taken as.
    broken: Arc<Mutex<HashMap<String, String>>>,
    /// Told of every release.
    released: watch::Sender<()>,
    pub(super) epoch: Moment,
}

impl TestNode {
    /// One that has been up for an hour.
    pub(super) fn new(number: usize) -> Self {
        let now = Moment::now();
        let state =
            State { locks: HashMap::new(), floor: 0, life: 0, born: now, ahead: Duration::ZERO };
        Self {
            number,
            state: Arc::new(Mutex::new(state)),
            hangs: watch::Sender::new(false),
            hangs_at_tokens: watch::Sender::new(false),
            fails: Arc::default(),
            remembers: Arc::default(),
            tells_its_life: Arc::default(),
            forgets_a_vote: Arc::default(),
            asked: Arc::default(),
            cannot_pass: Arc::default(),
            hangs_at_passing: watch::Sender::new(false),
            passed: Arc::default(),
            broken: Arc::default(),
            released: watch::Sender::new(()),
            epoch: now,
        }
    }

    /// Restarts it without its data.
    pub(super) fn restart_empty(&self) {
        let mut state = lock(&self.state);
        state.locks.clear();
        (state.floor, state.born) = (0, Moment::now());
        state.life += 1;
    }

    /// Sets its clock ahead of where it is.
    pub(super) fn jump(&self, by: Duration) {
        lock(&self.state).ahead += by;
    }

    /// Who has the lock there.
    pub(super) fn holder(&self, name: &str) -> Option<String> {
        let mut state = lock(&self.state);
        state.current(name).map(|held| held.id.clone())
    }

    /// Takes the lock from whoever has it there.
    pub(super) fn break_lock(&self, name: &str, reason: &str) {
        let held = lock(&self.state).locks.remove(name).expect("a lock to break");
        lock(&self.broken).insert(held.taken_as, reason.to_owned());
    }

    pub(super) fn floor(&self) -> u64 {
        lock(&self.state).floor
    }

    fn keep_as(
        &self,
        taken_as: ClaimId,
        claim: &Claim,
        token: Option<FencingToken>,
    ) -> Result<Kept> {
        let mut state = lock(&self.state);
        let (now, id) = (state.now(), taken_as.to_string());
        let kept = match state.current(claim.name.as_str()) {
            Some(held) if held.taken_as == id => Kept::Ours { left: Some(held.until.since(now)) },
            other => match (lock(&self.broken).get(&id), other.is_some()) {
                (Some(reason), _) => return Ok(Kept::Broken(reason.clone())),
                (None, true) => return Ok(Kept::Others),
                (None, false) => Kept::Retaken,
            },
        };
        state.take_as(taken_as, claim, token);
        Ok(kept)
    }

    /// Removes the lock, if it is the one; whether it was.
    fn remove(&self, name: &Name, is_it: impl Fn(&Held) -> bool) -> bool {
        let mut state = lock(&self.state);
        let had = state.current(name.as_str()).is_some_and(|held| is_it(held));
        if had {
            state.locks.remove(name.as_str());
            self.released.send_replace(());
        }
        had
    }

    async fn answers(&self) -> Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut hangs = self.hangs.subscribe();
        let _ = hangs.wait_for(|hangs| !*hangs).await;
        match self.fails.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Unavailable, "it is down")),
            false => Ok(()),
        }
    }
}

impl State {
    fn now(&self) -> Moment {
        Moment::now() + self.ahead
    }

    fn current(&mut self, name: &str) -> Option<&mut Held> {
        let now = self.now();
        self.locks.retain(|_, held| now < held.until);
        self.locks.get_mut(name)
    }

    fn take(&mut self, claim: &Claim, token: Option<FencingToken>) {
        self.take_as(claim.id, claim, token);
    }

    fn take_as(&mut self, taken_as: ClaimId, claim: &Claim, token: Option<FencingToken>) {
        let (id, taken_as) = (claim.id.to_string(), taken_as.to_string());
        let held = Held { id, taken_as, until: self.now() + claim.ttl };
        self.locks.insert(claim.name.to_string(), held);
        self.floor = self.floor.max(token.map_or(0, FencingToken::get));
    }
}

#[async_trait]
impl Voter for TestNode {
    async fn ask(
        &self,
        claim: &Claim,
        token: Option<FencingToken>,
        wants_clock: bool,
    ) -> Result<Vote> {
        self.answers().await?;
        let mut state = lock(&self.state);
        let (now, id) = (state.now(), claim.id.to_string());
        if let Some(held) = state.current(claim.name.as_str()).filter(|held| held.taken_as != id) {
            let left = Some(held.until.since(now));
            return Ok(Vote::No { holder: held.id.clone(), left });
        }
        let floor = state.floor;
        state.take(claim, token);
        if self.forgets_a_vote.swap(false, Ordering::SeqCst) {
            state.locks.remove(claim.name.as_str());
        }
        let clock = now.since(self.epoch).as_micros().try_into().unwrap_or(0);
        let clock = if wants_clock { 1_000_000_u64.saturating_add(clock) } else { 0 };
        Ok(Vote::Yes { floor, clock })
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<bool> {
        self.answers().await?;
        let _ = self.hangs_at_tokens.subscribe().wait_for(|hangs| !*hangs).await;
        let mut state = lock(&self.state);
        let id = claim.id.to_string();
        if state.current(claim.name.as_str()).is_none_or(|held| held.id != id) {
            return Ok(false);
        }
        state.floor = state.floor.max(token.get());
        Ok(true)
    }

    async fn keep(&self, claim: &Claim, token: Option<FencingToken>) -> Result<Kept> {
        self.answers().await?;
        self.keep_as(claim.id, claim, token)
    }

    async fn life(&self) -> Result<NodeLife> {
        if self.tells_its_life.load(Ordering::SeqCst) {
            self.answers().await?;
        }
        let state = lock(&self.state);
        let lived = Moment::now().since(state.born);
        let first = if state.life == 0 { Duration::from_secs(3600) } else { Duration::ZERO };
        let remembers = self.remembers.load(Ordering::SeqCst);
        Ok(NodeLife {
            id: Some(format!("{}-{}", self.number, state.life)),
            up_for: Some(lived + first),
            remembers,
            kept_for: remembers.then_some(Duration::from_secs(3600)),
            unfit: None,
        })
    }

    fn released(&self, _: &Name) -> Option<Released> {
        let (node, mut released) = (self.clone(), self.released.subscribe());
        Some(Box::pin(async move {
            node.answers().await?;
            // Never fails: the node has the sender.
            let _ = released.changed().await;
            Ok(())
        }))
    }

    fn passing(&self) -> Option<&dyn Passing> {
        (!self.cannot_pass.load(Ordering::SeqCst)).then_some(self)
    }
}

#[async_trait]
impl Passing for TestNode {
    async fn pass(
        &self,
        taken_as: ClaimId,
        claim: &Claim,
        token: Option<FencingToken>,
    ) -> Result<Kept> {
        self.answers().await?;
        let _ = self.hangs_at_passing.subscribe().wait_for(|hangs| !*hangs).await;
        self.passed.fetch_add(1, Ordering::SeqCst);
        self.keep_as(taken_as, claim, token)
    }

    async fn give_back(&self, name: &Name, taken_as: ClaimId, _: Duration) -> Result<GaveBack> {
        self.answers().await?;
        let awaited = self.released.receiver_count() > 0;
        let had = self.remove(name, |held| held.taken_as == taken_as.to_string());
        Ok(if had { GaveBack::Had { awaited } } else { GaveBack::Lacked })
    }
}

#[async_trait]
impl Backend for TestNode {
    fn capability(&self) -> Capability {
        Capability { portable: true, ..Capability::least(crate::backend::Reach::Network) }
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let sent = Moment::now();
        Ok(match self.ask(claim, None, false).await? {
            Vote::No { .. } => None,
            Vote::Yes { .. } => {
                let lease = TestLease { node: self.clone(), ticket: Ticket::of(claim) };
                Some(Grant::new(Box::new(lease), None, sent, claim.ttl))
            }
        })
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.answers().await?;
        self.remove(&claim.name, |held| held.taken_as == claim.id.to_string());
        Ok(())
    }

    fn voter(&self) -> Option<&dyn Voter> {
        Some(self)
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        Some(Box::new(TestLease { node: self.clone(), ticket: ticket.clone() }))
    }
}

impl fmt::Display for TestNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.number)
    }
}

#[derive(Debug)]
struct TestLease {
    node: TestNode,
    ticket: Ticket,
}

#[async_trait]
impl Lease for TestLease {
    async fn renew(&mut self) -> Result<Standing> {
        self.node.answers().await?;
        let (mut state, id) = (lock(&self.node.state), self.ticket.id.to_string());
        let until = state.now() + self.ticket.ttl;
        Ok(match state.current(self.ticket.name.as_str()).filter(|held| held.id == id) {
            Some(held) => {
                held.until = until;
                Standing::Held
            }
            None => Standing::Lost(LossReason::Gone),
        })
    }

    async fn release(&mut self, _: &Release<'_>) -> Result<()> {
        self.node.answers().await?;
        let id = self.ticket.id.to_string();
        match self.node.remove(&self.ticket.name, |held| held.id == id) {
            true => Ok(()),
            false => Err(LossReason::Gone.to_error()),
        }
    }

    fn watch(&mut self, _: Alarm) {}
}
