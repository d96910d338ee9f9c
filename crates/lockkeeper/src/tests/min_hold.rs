//! Who serves `min_hold`: those who held the claim, and nobody else.

use super::{free, keeper, secs};
use crate::{ErrorKind, Keeper, Lock, LossReason};
use futures_util::FutureExt;
use std::time::Duration;

const HOUR: Duration = secs(3600);

fn hourly(keeper: &Keeper, name: &str) -> Lock {
    keeper.lock(name).ttl(secs(3)).min_hold(HOUR)
}

/// The store is empty long before the stay would be over.
async fn is_free_at_once(keeper: &Keeper) {
    let after = free(keeper).await;
    assert!(after < secs(1), "kept for {after:?} although nobody held it");
}

#[tokio::test(start_paused = true)]
async fn not_a_waiter_that_left_in_the_moment_of_its_grant() {
    let (keeper, _) = keeper();
    for _ in 0..20 {
        let holder = keeper.lock("name").acquire().await.unwrap();
        let lock = hourly(&keeper, "name");
        let mut waiter = Box::pin(lock.acquire());
        assert!(waiter.as_mut().now_or_never().is_none());
        holder.release().await.unwrap();
        drop(waiter);
        is_free_at_once(&keeper).await;
    }
}

#[tokio::test(start_paused = true)]
async fn not_a_caller_that_left_before_a_late_answer() {
    let (keeper, script) = keeper();
    *script.acquire_takes.lock().unwrap() = secs(1);
    let lock = hourly(&keeper, "name");
    assert!(tokio::time::timeout(secs(1) / 2, lock.try_acquire()).await.is_err());
    tokio::time::sleep(secs(1)).await;
    is_free_at_once(&keeper).await;
}

#[tokio::test(start_paused = true)]
async fn not_one_of_several_names_when_another_is_not_free() {
    let (keeper, _) = keeper();
    let held = keeper.lock("b").acquire().await.unwrap();
    let both = keeper.multi(["a", "b"]).min_hold(HOUR);
    assert!(both.try_acquire().await.unwrap().is_none());
    let late = both.acquire_within(secs(2)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let gone = tokio::time::timeout(secs(2), both.acquire()).await;
    assert!(gone.is_err());
    held.release().await.unwrap();
    is_free_at_once(&keeper).await;
}

#[tokio::test(start_paused = true)]
async fn not_one_of_several_names_that_was_lost_while_another_was_waited_for() {
    let (keeper, script) = keeper();
    let held = keeper.lock("b").acquire().await.unwrap();
    let both = keeper.multi(["a", "b"]).ttl(secs(60)).min_hold(HOUR);
    let waiter = tokio::spawn(async move { both.acquire().await });
    tokio::time::sleep(secs(1)).await;
    let alarm = script.alarm.lock().unwrap().take().unwrap();
    alarm.ring(LossReason::Broken { reason: "a test".into() });
    held.release().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    is_free_at_once(&keeper).await;
}

#[tokio::test(start_paused = true)]
async fn not_who_says_that_no_work_was_done() {
    for how in ["release", "drop", "both", "several"] {
        let (keeper, _) = keeper();
        if how == "several" {
            let mut all = keeper.multi(["a", "b"]).min_hold(HOUR).acquire().await.unwrap();
            all.cancel_min_hold();
            all.release().await.unwrap();
        } else {
            let mut guard = hourly(&keeper, "name").acquire().await.unwrap();
            guard.cancel_min_hold();
            guard.cancel_min_hold();
            match how {
                "release" => guard.release().await.unwrap(),
                "drop" => drop(guard),
                _ => {
                    let mut other = guard.share();
                    other.cancel_min_hold();
                    drop((guard, other));
                }
            }
        }
        is_free_at_once(&keeper).await;
    }
}

#[tokio::test(start_paused = true)]
async fn but_whoever_held_it_even_if_others_did_no_work() {
    let (keeper, script) = keeper();
    let lock = hourly(&keeper, "name").owner(&keeper.owner("me"));
    let outer = lock.acquire().await.unwrap();
    let mut inner = lock.acquire().await.unwrap();
    inner.cancel_min_hold();
    drop(outer);
    drop(inner);
    stays(&keeper).await;

    // An owner that enters again and leaves before it could be told has ended nothing.
    let outer = lock.acquire().await.unwrap();
    let other = keeper.lock("other").acquire().await.unwrap();
    let both = keeper.multi(["name", "other"]).owner(outer.owner()).min_hold(HOUR);
    assert!(both.try_acquire().await.unwrap().is_none());
    drop((outer, other));
    stays(&keeper).await;

    // Nor is it over for one whose claim ran out while it was at work.
    let guard = lock.acquire().await.unwrap();
    *script.renew_fails.lock().unwrap() = true;
    guard.lost().await;
    stays(&keeper).await;
}

/// The claim stays for its hour, and no longer.
async fn stays(keeper: &Keeper) {
    tokio::time::sleep(HOUR / 2).await;
    assert_eq!(keeper.list("").await.unwrap().len(), 1);
    tokio::time::sleep(HOUR / 2).await;
    assert!(keeper.list("").await.unwrap().is_empty());
}
