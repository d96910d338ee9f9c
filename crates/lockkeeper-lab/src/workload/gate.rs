//! A store that a whole member can be cut off from: this blocks not only the member's own thread
//! but also the thread of its keeper, which renews in the background.

use async_trait::async_trait;
use lockkeeper::Result;
use lockkeeper::backend::{
    Alarm, Backend, Background, Capability, Claim, Finding, Grant, Inspector, Lease, MultiAcquire,
    Name, Patience, Release, Sequencer, Standing, Ticket, Together, Voter,
};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Closed while a member is stalled. A thread that reaches the closed gate is blocked, like
/// everything in a paused process: before a request is sent, and before its answer is seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<RwLock<()>>);

impl Gate {
    /// Blocks this thread, and every thread that reaches the gate, for this long.
    pub(crate) fn close_for(&self, span: Duration) {
        let _closed = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(span);
    }

    fn pass(&self) {
        drop(self.0.read().unwrap_or_else(PoisonError::into_inner));
    }

    async fn through<T>(&self, request: impl Future<Output = T>) -> T {
        self.pass();
        let answer = request.await;
        self.pass();
        answer
    }
}

/// A store behind a gate.
#[derive(Debug)]
pub(crate) struct Gated {
    inner: Arc<dyn Backend>,
    gate: Gate,
}

impl Gated {
    pub(crate) fn behind(gate: Gate, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, gate })
    }

    fn gated(&self, mut grant: Grant) -> Grant {
        grant.lease = self.gated_lease(grant.lease);
        grant
    }

    fn gated_lease(&self, inner: Box<dyn Lease>) -> Box<dyn Lease> {
        Box::new(GatedLease { inner, gate: self.gate.clone() })
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Gated {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    fn recipe(&self) -> &'static str {
        self.inner.recipe()
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let granted = self.gate.through(self.inner.acquire(claim, patience)).await?;
        Ok(granted.map(|grant| self.gated(grant)))
    }

    fn attach(&self, background: &Background) {
        self.inner.attach(background);
    }

    fn multi(&self) -> Option<&dyn MultiAcquire> {
        self.inner.multi().map(|_| self as &dyn MultiAcquire)
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        Some(self.gated_lease(self.inner.lease_of(ticket)?))
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        self.inner.keys(name)
    }

    async fn incarnation(&self) -> Result<Option<String>> {
        self.gate.through(self.inner.incarnation()).await
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        self.gate.through(self.inner.checkup()).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        self.gate.through(self.inner.round_trips(count)).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.gate.through(self.inner.withdraw(claim)).await
    }

    async fn close(&self) -> Result<()> {
        self.gate.through(self.inner.close()).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.inner.inspector()
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        self.inner.sequencer()
    }

    fn no_sequencer(&self) -> Option<&'static str> {
        self.inner.no_sequencer()
    }

    /// None: what a quorum asks of a node would not come through here.
    fn voter(&self) -> Option<&dyn Voter> {
        None
    }
}

#[async_trait]
impl MultiAcquire for Gated {
    async fn acquire_all(&self, claims: &[Claim]) -> Result<Together> {
        let Some(multi) = self.inner.multi() else { return Ok(Together::OneByOne) };
        Ok(match self.gate.through(multi.acquire_all(claims)).await? {
            Together::Granted(grants) => {
                Together::Granted(grants.into_iter().map(|grant| self.gated(grant)).collect())
            }
            other => other,
        })
    }
}

impl fmt::Display for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[derive(Debug)]
struct GatedLease {
    inner: Box<dyn Lease>,
    gate: Gate,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Lease for GatedLease {
    async fn renew(&mut self) -> Result<Standing> {
        self.gate.through(self.inner.renew()).await
    }

    async fn hand_out(&mut self) -> Result<Standing> {
        self.gate.through(self.inner.hand_out()).await
    }

    async fn take_over(&mut self) -> Result<Standing> {
        self.gate.through(self.inner.take_over()).await
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        self.gate.through(self.inner.release(how)).await
    }

    fn watch(&mut self, alarm: Alarm) {
        self.inner.watch(alarm);
    }

    fn guards_changed(&mut self, guards: usize) {
        self.inner.guards_changed(guards);
    }
}
