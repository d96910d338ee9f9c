//! The engine on a paused clock: hours of holding in milliseconds.

mod closing;
mod events;
#[cfg(feature = "metrics")]
mod ledger;
#[cfg(feature = "metrics")]
mod metrics;
mod min_hold;
mod outages;
mod reentry;
mod scripted;
mod tickets;

use crate::backend::Moment;
use crate::event::EventKind;
use crate::{ErrorKind, Guard, Keeper, LossReason};
use futures_util::FutureExt;
use scripted::{Script, Scripted};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn keeper() -> (Keeper, Arc<Script>) {
    let backend = Scripted::default();
    let script = backend.script.clone();
    (Keeper::new(Arc::new(backend)).unwrap(), script)
}

async fn held(keeper: &Keeper) -> Guard {
    keeper.lock("name").ttl(secs(3)).acquire().await.unwrap()
}

/// Waits until the store is empty, for an hour of its time at the most.
async fn free(keeper: &Keeper) -> Duration {
    let start = Moment::now();
    while !keeper.list("").await.unwrap().is_empty() {
        assert!(Moment::now().since(start) < secs(3600), "{:?}", keeper.list("").await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Moment::now().since(start)
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_renewed_for_as_long_as_it_is_held() {
    let (keeper, script) = keeper();
    let guard = held(&keeper).await;
    tokio::time::sleep(secs(3600)).await;
    assert!(guard.is_held());
    let renewals = script.renewals.load(Ordering::SeqCst);
    assert!((3590..=4100).contains(&renewals), "{renewals} renewals of 3 s in an hour");
    guard.release().await.unwrap();
    assert_eq!(free(&keeper).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn loss_is_signalled_on_time_while_a_renewal_hangs() {
    let (keeper, script) = keeper();
    let start = Moment::now();
    let guard = held(&keeper).await;
    *script.renew_takes.lock().unwrap() = secs(600);
    *script.renew_fails.lock().unwrap() = false;
    guard.lost().await;
    let after = Moment::now().since(start);
    assert!(after < secs(3), "signalled {after:?} after the request of 3 s");
    assert!(after >= Duration::from_millis(2960), "signalled early, after {after:?}");
    assert_eq!(guard.lost_reason(), Some(LossReason::Expired));
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_deadline_does_not_revive_and_is_given_back() {
    let (keeper, script) = keeper();
    let guard = held(&keeper).await;
    *script.renew_takes.lock().unwrap() = secs(5);
    guard.lost().await;
    tokio::time::sleep(secs(10)).await;
    assert!(!guard.is_held());
    assert!(guard.remaining().is_zero());
    free(&keeper).await;
}

/// The whole process was paused, and the answer is looked at before the clock is.
#[tokio::test(start_paused = true)]
async fn an_answer_found_after_the_deadline_is_not_believed() {
    let (keeper, script) = keeper();
    let guard = held(&keeper).await;
    *script.renew_takes.lock().unwrap() = Duration::from_millis(500);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(script.renewals.load(Ordering::SeqCst), 1, "a renewal is under way");
    tokio::time::advance(secs(2)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(guard.lost_reason(), Some(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn unanswered_renewals_neither_extend_nor_end() {
    let (keeper, script) = keeper();
    let guard = held(&keeper).await;
    *script.renew_fails.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(guard.is_held());
    assert!(guard.remaining() < secs(1), "{:?}", guard.remaining());
    *script.renew_fails.lock().unwrap() = false;
    tokio::time::sleep(secs(60)).await;
    assert!(guard.is_held());
    *script.renew_fails.lock().unwrap() = true;
    guard.lost().await;
    assert_eq!(guard.lost_reason(), Some(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_may_vouch_for_less_than_a_ttl() {
    let (keeper, script) = keeper();
    let short = Duration::from_millis(600);
    *script.vouches_for.lock().unwrap() = Some(short);
    let guard = held(&keeper).await;
    tokio::time::sleep(secs(20)).await;
    assert!(guard.is_held());
    assert!(guard.remaining() < short, "{:?}", guard.remaining());
    assert!(script.renewals.load(Ordering::SeqCst) > 60, "not renewed in time for that");
    // More than a ttl is not believed.
    *script.vouches_for.lock().unwrap() = Some(secs(600));
    tokio::time::sleep(secs(1)).await;
    assert!(guard.remaining() < secs(3), "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_in_jeopardy_until_the_store_answers() {
    let (keeper, script) = keeper();
    let guard = held(&keeper).await;
    assert!(!guard.is_in_jeopardy());
    *script.renew_fails.lock().unwrap() = true;
    script.alarm.lock().unwrap().as_ref().unwrap().endanger();
    assert!(guard.is_in_jeopardy() && guard.is_held());
    // Asked at once, not when it would have been.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(script.renewals.load(Ordering::SeqCst) > 0);
    *script.renew_fails.lock().unwrap() = false;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!guard.is_in_jeopardy() && guard.is_held());
    *script.renew_fails.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(guard.is_in_jeopardy() && guard.is_held(), "an unanswered renewal is jeopardy too");
    guard.lost().await;
    assert!(!guard.is_in_jeopardy(), "what is lost is in danger no more");
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_before_the_request() {
    let (keeper, script) = keeper();
    script.grants_late.store(1, Ordering::SeqCst);
    let start = Moment::now();
    // The first answer comes after its ttl: no guard may come of it.
    let guard = held(&keeper).await;
    assert!(Moment::now().since(start) >= secs(3));
    assert!(guard.remaining() > secs(2));
    let view = keeper.show("name").await.unwrap();
    assert_eq!(view.holders.len(), 1, "the store knows nothing of this guard");
    guard.release().await.unwrap();
    free(&keeper).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_withdrawn_however_often_that_takes() {
    let (keeper, script) = keeper();
    script.answers_lost.store(1, Ordering::SeqCst);
    script.withdrawals_fail.store(3, Ordering::SeqCst);
    let error = keeper.lock("name").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(free(&keeper).await < secs(5), "withdrawn long before the ttl of 30 s");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_says_so_and_is_tried_again() {
    let (keeper, script) = keeper();
    script.releases_fail.store(2, Ordering::SeqCst);
    let guard = keeper.lock("name").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(free(&keeper).await < secs(5));
}

#[tokio::test(start_paused = true)]
async fn what_is_passed_on_is_over_before_the_store_says_so() {
    for passes_on in [true, false] {
        let (keeper, script) = keeper();
        script.passes_on.store(passes_on, Ordering::SeqCst);
        script.releases_fail.store(2, Ordering::SeqCst);
        let guard = held(&keeper).await;
        let mut events = keeper.events();
        guard.release().await.unwrap_err();
        let told = events.next().now_or_never();
        assert_eq!(told.is_some(), passes_on);
        free(&keeper).await;
        keeper.close(secs(60)).await;
        drop(keeper);
        let mut released = usize::from(passes_on);
        while let Some(event) = events.next().await {
            released += usize::from(event.kind == EventKind::Released);
        }
        assert_eq!(released, 1, "and told once");
    }
}

#[tokio::test(start_paused = true)]
async fn what_lingers_is_not_passed_on() {
    let (keeper, script) = keeper();
    script.passes_on.store(true, Ordering::SeqCst);
    script.releases_fail.store(1, Ordering::SeqCst);
    let lock = keeper.lock("name").ttl(secs(3)).min_hold(secs(10));
    let (guard, mut events) = (lock.acquire().await.unwrap(), keeper.events());
    guard.release().await.unwrap_err();
    assert!(events.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_goes_while_its_renewal_is_under_way_is_released_after_it() {
    for how in ["release", "drop", "detach"] {
        let (keeper, script) = keeper();
        let guard = held(&keeper).await;
        *script.renew_takes.lock().unwrap() = Duration::from_millis(700);
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert_eq!(script.renewals.load(Ordering::SeqCst), 1, "a renewal is under way");
        match how {
            "release" => guard.release().await.unwrap(),
            "drop" => drop(guard),
            _ => guard.detach(),
        }
        let after = free(&keeper).await;
        match how {
            "detach" => assert!(after > secs(2), "detached, so it runs out: {after:?}"),
            _ => assert!(after < secs(1), "{how}: {after:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn release_does_not_wait_for_a_renewal_that_hangs() {
    let (keeper, script) = keeper();
    let guard = held(&keeper).await;
    *script.renew_takes.lock().unwrap() = secs(600);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let start = Moment::now();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(Moment::now().since(start) < secs(3));
    free(&keeper).await;
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_it_and_leaves_time_to_stop() {
    let (keeper, _) = keeper();
    let lock = keeper.lock("name").ttl(secs(3)).max_hold(secs(10));
    let start = Moment::now();
    let guard = lock.acquire().await.unwrap();
    guard.lost().await;
    let after = Moment::now().since(start);
    assert!((secs(10)..secs(11)).contains(&after), "{after:?}");
    assert_eq!(guard.lost_reason(), Some(LossReason::HeldTooLong));
    assert!(!guard.is_held());
    assert!(guard.until_others() > Duration::ZERO, "others must still wait");
    assert!(lock.try_acquire().await.unwrap().is_none());
    drop(guard);
    assert!(free(&keeper).await < secs(1));
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_it_after_release_without_us() {
    let (keeper, _) = keeper();
    let start = Moment::now();
    let lock = keeper.lock("name").ttl(secs(3)).min_hold(secs(60));
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    lock.acquire().await.unwrap().detach();
    let after = Moment::now().since(start);
    assert!((secs(60)..secs(62)).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_enters_again_and_is_out_after_as_many_releases() {
    let (keeper, _) = keeper();
    let me = keeper.owner("me");
    let outer = keeper.lock("name").owner(&me).acquire().await.unwrap();
    let inner = keeper.lock("name").owner(&me).try_acquire().await.unwrap().unwrap();
    let read = keeper.rw_lock("name").owner(&me).read().acquire().await.unwrap();
    assert_eq!(outer.token(), inner.token());
    assert_eq!(outer.token(), read.token());
    outer.release().await.unwrap();
    drop(inner);
    assert!(keeper.lock("name").try_acquire().await.unwrap().is_none());
    read.release().await.unwrap();
    assert!(keeper.lock("name").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_refused_rather_than_waited_for() {
    let (keeper, _) = keeper();
    let me = keeper.owner("me");
    let _read = keeper.rw_lock("name").owner(&me).read().acquire().await.unwrap();
    let upgrade = keeper.rw_lock("name").owner(&me).write().acquire().await;
    assert_eq!(upgrade.unwrap_err().kind(), ErrorKind::WouldDeadlock);
}

#[tokio::test(start_paused = true)]
async fn events_tell_the_story_in_order() {
    let (keeper, script) = keeper();
    let mut events = keeper.events();
    let guard = held(&keeper).await;
    let waiting = keeper.lock("name").ttl(secs(3));
    let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(1500)).await;
    guard.release().await.unwrap();
    let next = waiter.await.unwrap();
    *script.renew_fails.lock().unwrap() = true;
    next.lost().await;
    let mut told = Vec::new();
    while told.len() < 7 {
        told.push(events.next().await.unwrap().kind);
    }
    // The hand-over wakes the next one before the releaser has its answer.
    told[3..5].sort_by_key(|what| *what == EventKind::Acquired);
    let expected = [
        EventKind::Acquired,
        EventKind::Queued { place: Some(1) },
        EventKind::Renewed,
        EventKind::Released,
        EventKind::Acquired,
        told[5].clone(),
        EventKind::Lost(LossReason::Expired),
    ];
    assert_eq!(told, expected);
    assert!(matches!(told[5], EventKind::InJeopardy { .. }), "{:?}", told[5]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_holds_are_renewed_by_one_task() {
    let (keeper, script) = keeper();
    let mut guards = Vec::new();
    for number in 0..10_000 {
        let lock = keeper.lock(format!("name/{number}")).ttl(secs(30));
        guards.push(lock.acquire().await.unwrap());
    }
    tokio::time::sleep(secs(120)).await;
    assert!(guards.iter().all(Guard::is_held));
    assert!(script.renewals.load(Ordering::SeqCst) >= 110_000);
    drop(guards);
    free(&keeper).await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_never_early_and_names_the_holder() {
    let (keeper, _) = keeper();
    let _held = keeper.lock("name").note("payroll").acquire().await.unwrap();
    let start = Moment::now();
    let error = keeper.lock("name").acquire_within(secs(7)).await.unwrap_err();
    assert!(Moment::now().since(start) >= secs(7));
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.detail("holder").unwrap().contains("'payroll'"), "{error}");
    assert_eq!(error.detail("place"), Some("1"));
}

#[test]
fn a_guard_can_be_dropped_where_there_is_no_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (keeper, _) = keeper();
    let guard = runtime.block_on(held(&keeper));
    std::thread::spawn(move || drop(guard)).join().unwrap();
    runtime.block_on(free(&keeper));
}

#[tokio::test(start_paused = true)]
async fn the_store_learns_how_many_share_a_claim() {
    let (keeper, script) = keeper();
    let lock = keeper.lock("name").ttl(secs(3)).owner(&keeper.owner("me"));
    let shown = async || keeper.show("name").await.unwrap().holders[0].count;
    let outer = lock.acquire().await.unwrap();
    assert_eq!(shown().await, 1);
    let inner = lock.acquire().await.unwrap();
    let shared = inner.share();
    assert_eq!(shown().await, 3);
    inner.release().await.unwrap();
    assert_eq!(shown().await, 2);
    // With the lease away for a renewal, it is told when it is back.
    *script.renew_takes.lock().unwrap() = Duration::from_millis(500);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    drop(shared);
    assert_eq!(shown().await, 2);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(shown().await, 1);
    outer.release().await.unwrap();
    free(&keeper).await;
}
