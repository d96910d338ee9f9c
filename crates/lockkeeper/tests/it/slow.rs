//! A store that takes its time, so that a runtime can end in the middle of everything.

use async_trait::async_trait;
use lockkeeper::backend::memory::Memory;
use lockkeeper::backend::{
    Alarm, Backend, Capability, Claim, Grant, Inspector, Lease, Patience, Release, Standing,
};
use lockkeeper::{ErrorKind, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Every request takes `delay` on its way and as long on its way back.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    inner: Memory,
    delay: Duration,
    pub(crate) script: Arc<Script>,
}

#[derive(Debug, Default)]
pub(crate) struct Script {
    /// So many renewals hang until `go_on`.
    pub(crate) renewals_hang: AtomicUsize,
    /// So many have begun to.
    pub(crate) hanging: AtomicUsize,
    pub(crate) go_on: Notify,
    /// So many acquires fail, as if nobody was there.
    pub(crate) unreachable: AtomicUsize,
}

impl Slow {
    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("slow:")
    }
}

#[async_trait]
impl Backend for Slow {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        tokio::time::sleep(self.delay).await;
        let less = |left: usize| left.checked_sub(1);
        let unreachable = &self.script.unreachable;
        if unreachable.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(lockkeeper::Error::new(ErrorKind::Unavailable, "nobody is there"));
        }
        let grant = self.inner.acquire(claim, patience).await?;
        tokio::time::sleep(self.delay).await;
        Ok(grant.map(|mut grant| {
            let (delay, script) = (self.delay, self.script.clone());
            grant.lease = Box::new(SlowLease { inner: grant.lease, delay, script });
            grant
        }))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.inner.withdraw(claim).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.inner.inspector()
    }
}

#[derive(Debug)]
struct SlowLease {
    inner: Box<dyn Lease>,
    delay: Duration,
    script: Arc<Script>,
}

#[async_trait]
impl Lease for SlowLease {
    async fn renew(&mut self) -> Result<Standing> {
        let less = |left: usize| left.checked_sub(1);
        let hangs = &self.script.renewals_hang;
        if hangs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            self.script.hanging.fetch_add(1, Ordering::SeqCst);
            self.script.go_on.notified().await;
        }
        self.inner.renew().await
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        tokio::time::sleep(self.delay).await;
        let released = self.inner.release(how).await;
        tokio::time::sleep(self.delay).await;
        released
    }

    fn watch(&mut self, alarm: Alarm) {
        self.inner.watch(alarm);
    }
}
