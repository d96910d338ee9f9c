//! The memory backend, behaving badly on demand.

use crate::backend::memory::Memory;
use crate::backend::{
    Alarm, Backend, Capability, Claim, Grant, Inspector, Lease, Moment, Patience, Release, Standing,
};
use crate::{Error, ErrorKind, Result};
use async_trait::async_trait;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What to do with the next calls.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// An acquire takes effect, and is answered after this long.
    pub(super) acquire_takes: Mutex<Duration>,
    /// A release takes effect after this long.
    pub(super) release_takes: Mutex<Duration>,
    /// A renewal takes effect, and is answered after this long.
    pub(super) renew_takes: Mutex<Duration>,
    /// Renewals fail without effect.
    pub(super) renew_fails: Mutex<bool>,
    /// Renewals vouch for so long only.
    pub(super) vouches_for: Mutex<Option<Duration>>,
    /// The alarm of the last grant.
    pub(super) alarm: Mutex<Option<Alarm>>,
    /// So many releases fail without effect.
    pub(super) releases_fail: AtomicUsize,
    /// So many acquires take effect, but their answer is lost.
    pub(super) answers_lost: AtomicUsize,
    /// Nobody is there.
    pub(super) unreachable: AtomicBool,
    /// So many withdrawals fail without effect.
    pub(super) withdrawals_fail: AtomicUsize,
    /// So many acquires are answered only after their ttl.
    pub(super) grants_late: AtomicUsize,
    /// Claims are passed on.
    pub(super) passes_on: AtomicBool,
    pub(super) renewals: AtomicUsize,
    pub(super) closes: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct Scripted {
    pub(super) inner: Memory,
    pub(super) script: Arc<Script>,
}

/// Counts one down; whether there was one.
fn take(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Unavailable, "scripted")
}

#[async_trait]
impl Backend for Scripted {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        if self.script.unreachable.load(Ordering::SeqCst) {
            return Err(no_answer());
        }
        let Some(grant) = self.inner.acquire(claim, patience).await? else { return Ok(None) };
        let takes = *self.script.acquire_takes.lock().unwrap();
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        if take(&self.script.answers_lost) {
            return Err(no_answer());
        }
        if take(&self.script.grants_late) {
            (Moment::now() + claim.ttl).reached().await;
        }
        let lease = Box::new(ScriptedLease { inner: grant.lease, script: self.script.clone() });
        Ok(Some(Grant { lease, ..grant }))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        if take(&self.script.withdrawals_fail) {
            return Err(no_answer());
        }
        self.inner.withdraw(claim).await
    }

    async fn close(&self) -> Result<()> {
        self.script.closes.fetch_add(1, Ordering::SeqCst);
        self.inner.close().await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.inner.inspector()
    }
}

impl fmt::Display for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scripted({})", self.inner)
    }
}

#[derive(Debug)]
struct ScriptedLease {
    inner: Box<dyn Lease>,
    script: Arc<Script>,
}

#[async_trait]
impl Lease for ScriptedLease {
    async fn renew(&mut self) -> Result<Standing> {
        self.script.renewals.fetch_add(1, Ordering::SeqCst);
        if *self.script.renew_fails.lock().unwrap() {
            return Err(no_answer());
        }
        let answer = self.inner.renew().await;
        let takes = *self.script.renew_takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        match *self.script.vouches_for.lock().unwrap() {
            Some(span) => answer.map(|_| Standing::HeldFor(span)),
            None => answer,
        }
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        if how.stay().is_zero() && self.script.passes_on.load(Ordering::SeqCst) {
            how.over();
        }
        if take(&self.script.releases_fail) {
            return Err(no_answer());
        }
        let takes = *self.script.release_takes.lock().unwrap();
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        self.inner.release(how).await
    }

    fn watch(&mut self, alarm: Alarm) {
        *self.script.alarm.lock().unwrap() = Some(alarm);
    }

    fn guards_changed(&mut self, guards: usize) {
        self.inner.guards_changed(guards);
    }
}
