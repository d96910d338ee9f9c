//! Claims of one owner that are under way at the same time.

use super::{keeper, secs};
use crate::{ErrorKind, Keeper, Lock};

/// A claim of `owner` that reaches the store beside others of the same owner, not by re-entry
/// into one of them: all of them are under way before the first is answered.
async fn at_once(keeper: &Keeper, script: &super::Script, locks: &[Lock]) -> Vec<crate::Guard> {
    *script.acquire_takes.lock().unwrap() = secs(1);
    let guards = locks.iter().map(|lock| lock.acquire());
    let guards = futures_util::future::try_join_all(guards).await.unwrap();
    *script.acquire_takes.lock().unwrap() = secs(0);
    let shown = keeper.show("name").await.unwrap();
    assert_eq!(shown.holders[0].count, locks.len(), "each is a claim of its own");
    guards
}

#[tokio::test(start_paused = true)]
async fn a_later_answer_does_not_hide_an_earlier_one() {
    let (keeper, script) = keeper();
    let both = keeper.rw_lock("name").owner(&keeper.owner("me"));
    let (write, read) = (both.write().ttl(secs(3)), both.read().ttl(secs(3)));
    let guards = at_once(&keeper, &script, &[write.clone(), read.clone()]).await;
    let again = write.try_acquire().await.unwrap().expect("what covers it is held");
    assert_eq!(again.token(), guards[0].token());
    drop(again);
    // And when the writer is gone, the reader is what there is.
    let mut guards = guards.into_iter();
    guards.next().unwrap().release().await.unwrap();
    let refused = write.try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldDeadlock);
    assert!(read.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_does_not_hide_another_that_stays() {
    let (keeper, script) = keeper();
    let lock = keeper.lock("name").ttl(secs(3)).owner(&keeper.owner("me"));
    let mut guards = at_once(&keeper, &script, &[lock.clone(), lock.clone()]).await;
    for first in [0, 1] {
        *script.release_takes.lock().unwrap() = secs(1);
        let releasing = tokio::spawn(guards.remove(first).release());
        tokio::task::yield_now().await;
        // By re-entry, not by way of the store: there it would be one claim more.
        let stays = lock.try_acquire().await.unwrap().expect("one of the two is still held");
        releasing.await.unwrap().unwrap();
        let after = lock.try_acquire().await.unwrap().expect("also when the other has gone");
        assert_eq!(keeper.show("name").await.unwrap().holders[0].count, 3);
        drop((stays, after));
        *script.release_takes.lock().unwrap() = secs(0);
        drop(guards);
        super::free(&keeper).await;
        guards = at_once(&keeper, &script, &[lock.clone(), lock.clone()]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_gone_takes_no_mark_of_another_with_it() {
    let (keeper, script) = keeper();
    let lock = keeper.lock("name").ttl(secs(30)).owner(&keeper.owner("me"));
    let start = |takes| {
        *script.acquire_takes.lock().unwrap() = secs(takes);
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let release = |guard: crate::Guard, takes| {
        *script.release_takes.lock().unwrap() = secs(takes);
        tokio::spawn(guard.release())
    };
    let one = start(1);
    tokio::task::yield_now().await;
    let two = start(2);
    tokio::task::yield_now().await;
    let one = release(one.await.unwrap(), 3);
    let two = two.await.unwrap();
    let token = two.token();
    let two = release(two, 5);
    one.await.unwrap().unwrap();
    *script.acquire_takes.lock().unwrap() = secs(0);
    // The second is still on its way out: who asks now waits for it, and gets a claim anew.
    let next = lock.acquire().await.unwrap();
    assert!(two.is_finished());
    assert!(next.token() > token, "entered what was on its way out");
}
