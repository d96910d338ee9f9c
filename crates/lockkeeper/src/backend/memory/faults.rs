//! A store in memory that fails when it is told to.

use crate::error::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const PAUSED: u8 = 2;

/// What becomes of requests. Every request asks here first.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: AtomicU8,
    changed: Notify,
}

impl Faults {
    pub(super) fn fail(&self) {
        self.set(FAILS);
    }

    pub(super) fn pause(&self) {
        self.set(PAUSED);
    }

    pub(super) fn resume(&self) {
        self.set(WORKS);
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Lets a request through, fails it, or has it wait.
    pub(super) async fn pass(&self) -> Result<()> {
        loop {
            // Made before the look: a change after that is not missed.
            let changed = self.changed.notified();
            match self.state.load(Ordering::SeqCst) {
                PAUSED => changed.await,
                FAILS => return Err(failed()),
                _ => return Ok(()),
            }
        }
    }

    /// Resolves when the store fails: for a claim that waits, and asks nothing meanwhile.
    pub(super) async fn failing(&self) -> Error {
        loop {
            let changed = self.changed.notified();
            if self.state.load(Ordering::SeqCst) == FAILS {
                return failed();
            }
            changed.await;
        }
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Unavailable, "memory: was told to fail: Memory::resume ends it")
}

#[cfg(test)]
mod tests {
    use crate::backend::memory::Memory;
    use crate::{ErrorKind, Keeper, LossReason};
    use std::sync::Arc;
    use std::time::Duration;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn stores() -> (Arc<Memory>, Keeper, Keeper) {
        let store = Arc::new(Memory::new());
        let (one, two) = (Keeper::new(store.clone()).unwrap(), Keeper::new(store.clone()).unwrap());
        (store, one, two)
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_answers_nothing_and_loses_nothing() {
        let (store, one, two) = stores();
        let guard = one.lock("a").ttl(secs(30)).acquire().await.unwrap();
        store.fail();
        let kinds = [
            two.lock("b").try_acquire().await.map(drop).unwrap_err().kind(),
            two.list("").await.map(drop).unwrap_err().kind(),
            two.show("a").await.map(drop).unwrap_err().kind(),
            two.reserve("n", 1, 1).await.map(drop).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Unavailable; 4]);
        store.resume();
        assert!(guard.is_held());
        assert!(two.lock("a").try_acquire().await.unwrap().is_none(), "the claim is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_outlives_a_failure_and_leaves_nothing_when_it_does_not() {
        let (store, one, two) = stores();
        let guard = one.lock("a").ttl(secs(600)).acquire().await.unwrap();
        let lock = two.lock("a").ttl(secs(60));
        let waiter = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(secs(1)).await;
        store.fail();
        tokio::time::sleep(secs(5)).await;
        store.resume();
        tokio::time::sleep(secs(5)).await;
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        let held = one.lock("a").acquire().await.unwrap();
        let lock = two.lock("a").ttl(secs(60));
        let waiter = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(secs(1)).await;
        store.fail();
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
        store.resume();
        tokio::time::sleep(secs(60)).await;
        assert!(one.show("a").await.unwrap().waiters.is_empty(), "a waiter was left behind");
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_hang_while_it_is_paused_and_are_carried_out_afterwards() {
        let (store, one, two) = stores();
        let guard = one.lock("a").ttl(secs(3)).acquire().await.unwrap();
        store.pause();
        let late = two.lock("b").acquire_within(secs(1)).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Unavailable);
        let lock = two.lock("c");
        let waiter = tokio::spawn(async move { lock.acquire().await });
        guard.lost().await;
        assert_eq!(guard.lost_reason(), Some(LossReason::Expired));
        store.resume();
        assert!(waiter.await.unwrap().unwrap().is_held());
        assert!(two.lock("a").acquire_within(secs(5)).await.is_ok());
    }
}
