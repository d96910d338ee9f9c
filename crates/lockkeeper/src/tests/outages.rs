//! Claims that wait while the store does not answer.

use super::{Script, free, keeper, secs};
use crate::backend::{Backend, Moment};
use crate::background::Background;
use crate::{ErrorKind, Keeper};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Makes the store unreachable for so long, from now on.
fn outage(script: &Arc<Script>, length: Duration) {
    script.unreachable.store(true, Ordering::SeqCst);
    let script = script.clone();
    tokio::spawn(async move {
        tokio::time::sleep(length).await;
        script.unreachable.store(false, Ordering::SeqCst);
    });
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_outlives_an_outage() {
    let (keeper, script) = keeper();
    outage(&script, secs(20));
    keeper.lock("name").acquire().await.unwrap().release().await.unwrap();
    outage(&script, secs(20));
    keeper.lock("name").acquire_within(secs(25)).await.unwrap().release().await.unwrap();
    free(&keeper).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_lasts_is_reported_with_its_length() {
    let (keeper, script) = keeper();
    outage(&script, secs(3600));
    let start = Moment::now();
    let error = keeper.lock("name").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.detail("silent for").is_some(), "{error}");
    let after = Moment::now().since(start);
    assert!(after >= secs(30) && after < secs(31), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn how_long_is_forgiven_can_be_chosen() {
    let (_, script) = keeper();
    let backend = super::Scripted { script: script.clone(), ..Default::default() };
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let keeper = Keeper::over(backend, Background::new(), secs(3)).unwrap();
    outage(&script, secs(3600));
    let start = Moment::now();
    keeper.lock("name").acquire().await.unwrap_err();
    let after = Moment::now().since(start);
    assert!(after >= secs(3) && after < secs(4), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_wait_is_told_at_once() {
    let (keeper, script) = keeper();
    outage(&script, secs(3600));
    let start = Moment::now();
    let error = keeper.lock("name").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(Moment::now().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_are_withdrawn_and_asked_for_again() {
    let (keeper, script) = keeper();
    script.answers_lost.store(3, Ordering::SeqCst);
    script.withdrawals_fail.store(5, Ordering::SeqCst);
    let guard = keeper.lock("name").acquire().await.unwrap();
    let view = keeper.show("name").await.unwrap();
    assert_eq!(view.holders.len(), 1);
    assert!(view.waiters.is_empty());
    guard.release().await.unwrap();
    free(&keeper).await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_kept_while_the_store_is_silent() {
    let (keeper, script) = keeper();
    *script.acquire_takes.lock().unwrap() = secs(2);
    for names in [&["a"][..], &["a", "b"]] {
        let start = Moment::now();
        let limit = Duration::from_millis(5);
        let error = keeper.multi(names).acquire_within(limit).await.unwrap_err();
        let after = Moment::now().since(start);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(after < Duration::from_millis(100), "answered after {after:?}");
        // What is granted behind the caller's back is given back.
        tokio::time::sleep(secs(2)).await;
        free(&keeper).await;
    }
}
