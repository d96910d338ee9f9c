//! A node in memory that votes, and can be made to hang, to fail, to forget and to mistake the time.

use crate::backend::support::sync::lock;
use crate::backend::{
    Alarm, Backend, Capability, Claim, FencingToken, Grant, Kept, Lease, LossReason, Moment, Name,
    NodeLife, Patience, Release, Released, Standing, Ticket, Vote, Voter,
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

    pub(super) fn floor(&self) -> u64 {
        lock(&self.state).floor
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
        let held = Held { id: claim.id.to_string(), until: self.now() + claim.ttl };
        self.locks.insert(claim.name.to_string(), held);
        self.floor = self.floor.max(token.map_or(0, FencingToken::get));
    }
}

#[async_trait]
impl Voter for TestNode {
    async fn ask(&self, claim: &Claim, token: Option<FencingToken>) -> Result<Vote> {
        self.answers().await?;
        let mut state = lock(&self.state);
        let (now, id) = (state.now(), claim.id.to_string());
        if let Some(held) = state.current(claim.name.as_str()).filter(|held| held.id != id) {
            let left = Some(held.until.since(now));
            return Ok(Vote::No { holder: held.id.clone(), left });
        }
        let floor = state.floor;
        state.take(claim, token);
        if self.forgets_a_vote.swap(false, Ordering::SeqCst) {
            state.locks.remove(claim.name.as_str());
        }
        let clock = now.since(self.epoch).as_micros().try_into().unwrap_or(0);
        Ok(Vote::Yes { floor, clock: 1_000_000_u64.saturating_add(clock) })
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
        let mut state = lock(&self.state);
        let (now, id) = (state.now(), claim.id.to_string());
        let kept = match state.current(claim.name.as_str()) {
            Some(held) if held.id == id => Kept::Ours { left: Some(held.until.since(now)) },
            Some(_) => return Ok(Kept::Others),
            None => Kept::Retaken,
        };
        state.take(claim, token);
        Ok(kept)
    }

    async fn life(&self) -> Result<NodeLife> {
        if self.tells_its_life.load(Ordering::SeqCst) {
            self.answers().await?;
        }
        let state = lock(&self.state);
        let lived = Moment::now().since(state.born);
        let first = if state.life == 0 { Duration::from_secs(3600) } else { Duration::ZERO };
        Ok(NodeLife {
            id: Some(format!("{}-{}", self.number, state.life)),
            up_for: Some(lived + first),
            remembers: self.remembers.load(Ordering::SeqCst),
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
}

#[async_trait]
impl Backend for TestNode {
    fn capability(&self) -> Capability {
        Capability { portable: true, ..Capability::least(crate::backend::Reach::Network) }
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let sent = Moment::now();
        Ok(match self.ask(claim, None).await? {
            Vote::No { .. } => None,
            Vote::Yes { .. } => {
                let lease = TestLease { node: self.clone(), ticket: Ticket::of(claim) };
                Some(Grant::new(Box::new(lease), None, sent, claim.ttl))
            }
        })
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let mut lease = TestLease { node: self.clone(), ticket: Ticket::of(claim) };
        match lease.release(&Release::now()).await {
            Err(error) if error.kind() == ErrorKind::Lost => Ok(()),
            other => other,
        }
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
        let (mut state, id) = (lock(&self.node.state), self.ticket.id.to_string());
        let name = self.ticket.name.as_str();
        match state.current(name).is_some_and(|held| held.id == id) {
            true => {
                state.locks.remove(name);
                self.node.released.send_replace(());
                Ok(())
            }
            false => Err(LossReason::Gone.to_error()),
        }
    }

    fn watch(&mut self, _: Alarm) {}
}
