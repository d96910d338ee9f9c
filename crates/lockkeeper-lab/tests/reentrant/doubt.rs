//! Whatever is asked twice is done once, and for the claim it was asked for.

use crate::stage::Stage;
use lockkeeper::ErrorKind;
use lockkeeper::backend::{Backend, Release};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

/// How often the owners of `a` are in it.
fn counts(stage: &mut Stage) -> Vec<String> {
    stage.hash("a").into_iter().filter(|(field, _)| field != "mode").map(|(_, n)| n).collect()
}

#[tokio::test]
async fn a_claim_made_twice_counts_once() {
    let mut stage = Stage::new();
    let (keeper, spy) = stage.keeper().await;
    for lock in [keeper.lock("a"), keeper.rw_lock("a").read()] {
        let guard = lock.ttl(TTL).acquire().await.unwrap();
        let again = spy.make(&spy.last_claim()).await.expect("it is held by this very claim");
        assert_eq!(again.token, guard.token());
        assert_eq!(counts(&mut stage), ["1"]);
        guard.release().await.unwrap();
        assert!(stage.hash("a").is_empty());
    }
}

#[tokio::test]
async fn a_release_made_twice_takes_nothing_from_another_claim() {
    let mut stage = Stage::new();
    let ((one, spy), (two, _)) = (stage.keeper().await, stage.keeper().await);
    for read in [false, true] {
        let me = one.owner("me");
        let of = |keeper: &lockkeeper::Keeper| {
            let lock = if read { keeper.rw_lock("a").read() } else { keeper.lock("a") };
            lock.owner(&me).ttl(TTL)
        };
        let first = of(&one).acquire().await.unwrap();
        let second = of(&two).acquire().await.unwrap();
        let claim = spy.last_claim();
        let mut lease = spy.make(&claim).await.unwrap().lease;
        assert_eq!(counts(&mut stage), ["2"]);
        lease.release(&Release::now()).await.unwrap();
        assert_eq!(counts(&mut stage), ["1"]);
        for _ in 0..2 {
            let gone = lease.release(&Release::now()).await.unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::Lost);
            assert_eq!(counts(&mut stage), ["1"]);
        }
        spy.withdraw(&claim).await.unwrap();
        assert_eq!(counts(&mut stage), ["1"]);
        let _ = first.release().await;
        assert!(second.is_held());
        assert_eq!(counts(&mut stage), ["1"]);
        second.release().await.unwrap();
        assert!(stage.hash("a").is_empty());
    }
}

#[tokio::test]
async fn withdrawing_what_never_happened_takes_nothing_and_keeps_it_from_happening() {
    let mut stage = Stage::new();
    let ((one, spy), (two, _)) = (stage.keeper().await, stage.keeper().await);
    let me = one.owner("me");
    let held = two.lock("a").ttl(TTL).acquire().await.unwrap();
    assert!(one.lock("a").owner(&me).ttl(TTL).try_acquire().await.unwrap().is_none());
    let claim = spy.last_claim();
    held.release().await.unwrap();
    let mine = two.lock("a").owner(&me).ttl(TTL).acquire().await.unwrap();
    spy.withdraw(&claim).await.unwrap();
    assert_eq!(counts(&mut stage), ["1"]);
    // A request that was under way all the time.
    assert!(spy.make(&claim).await.is_none());
    assert_eq!(counts(&mut stage), ["1"]);
    mine.release().await.unwrap();
    assert!(stage.hash("a").is_empty());
}

/// The owner is the same, and so is its field; the claim is another.
#[tokio::test]
async fn a_claim_of_a_time_before_has_no_part_in_a_later_one() {
    let mut stage = Stage::new();
    let ((one, spy), (two, _)) = (stage.keeper().await, stage.keeper().await);
    let me = one.owner("me");
    let first = one.lock("a").owner(&me).ttl(TTL).acquire().await.unwrap();
    let mut lease = spy.make(&spy.last_claim()).await.unwrap().lease;
    // As forceUnlock does.
    stage.command::<()>("DEL a");
    let second = two.lock("a").owner(&me).ttl(TTL).acquire().await.unwrap();
    assert!(second.token() > first.token());
    assert!(matches!(lease.renew().await.unwrap(), lockkeeper::backend::Standing::Lost(_)));
    assert_eq!(lease.release(&Release::now()).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(counts(&mut stage), ["1"]);
    assert!(two.lock("a").try_acquire().await.unwrap().is_none());
    second.release().await.unwrap();
}

/// Each claim of an owner has a time of its own, although Redisson's layout has but one for all.
#[tokio::test]
async fn a_claim_that_expired_is_counted_no_more() {
    let mut stage = Stage::new();
    let ((one, _), (two, _)) = (stage.keeper().await, stage.keeper().await);
    for read in [false, true] {
        let me = one.owner("me");
        let of = |keeper: &lockkeeper::Keeper| {
            if read { keeper.rw_lock("a").read() } else { keeper.lock("a") }.owner(&me)
        };
        of(&one).ttl(Duration::from_millis(300)).acquire().await.unwrap().detach();
        let second = of(&two).ttl(TTL).acquire().await.unwrap();
        assert_eq!(counts(&mut stage), ["2"]);
        tokio::time::sleep(Duration::from_millis(400)).await;
        second.release().await.unwrap();
        assert!(stage.hash("a").is_empty(), "a claim that is over keeps the lock");
    }
}
