//! Closing a keeper: what it waits for, and what is left of it when its caller leaves.

use super::{held, keeper, secs};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A close whose caller left goes on, but is nothing that another close would have to wait for; least
/// of all that it would itself.
#[tokio::test(start_paused = true)]
async fn a_close_that_was_given_up_waits_neither_for_itself_nor_keeps_another() {
    let (keeper, script) = keeper();
    let guard = held(&keeper).await;
    *script.release_takes.lock().unwrap() = secs(2);
    drop(guard);
    let given_up = tokio::time::timeout(secs(1), keeper.close(Duration::MAX)).await;
    assert!(given_up.is_err(), "unknown: it was through before it was given up");
    assert_eq!(script.closes.load(Ordering::SeqCst), 0, "closed under a release");
    tokio::time::sleep(secs(5)).await;
    assert_eq!(script.closes.load(Ordering::SeqCst), 1, "the rest of the first close was not done");
    assert!(keeper.close(secs(5)).await, "nothing is under way any more");
    assert_eq!(script.closes.load(Ordering::SeqCst), 2);
}

/// With no time at all, it says whether something is under way.
#[tokio::test(start_paused = true)]
async fn a_close_without_patience_finds_nothing_to_wait_for() {
    let (keeper, script) = keeper();
    held(&keeper).await.release().await.unwrap();
    for _ in 0..64 {
        assert!(keeper.close(Duration::ZERO).await, "nothing is under way");
    }
    *script.release_takes.lock().unwrap() = secs(2);
    drop(held(&keeper).await);
    assert!(!keeper.close(Duration::ZERO).await, "a release is under way");
}
