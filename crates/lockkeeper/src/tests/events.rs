//! What is told of waits, of jeopardy and of a store that comes back, and for how long.

use super::{held, keeper, secs};
use crate::backend::memory::Memory;
use crate::event::{Event, EventKind, Events, GaveUp};
use crate::{ErrorKind, Keeper};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

async fn until(events: &mut Events, wanted: impl Fn(&EventKind) -> bool) -> Event {
    loop {
        let event = events.next().await.unwrap();
        if wanted(&event.kind) {
            return event;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_is_told_with_its_reason_and_its_length() {
    let (keeper, script) = keeper();
    let _guard = keeper.lock("name").ttl(secs(600)).acquire().await.unwrap();
    let mut events = keeper.events();
    let gave_up = |kind: &EventKind| matches!(kind, EventKind::GaveUp(_));

    assert!(keeper.lock("name").acquire_within(secs(2)).await.is_err());
    let told = until(&mut events, gave_up).await;
    assert_eq!(told.kind, EventKind::GaveUp(GaveUp::TimedOut));
    assert!(told.waited.unwrap() >= secs(2), "{told:?}");
    assert_eq!((told.held, told.token), (None, None));

    let left = tokio::time::timeout(secs(3), keeper.lock("name").acquire()).await;
    assert!(left.is_err());
    let told = until(&mut events, gave_up).await;
    assert_eq!(told.kind, EventKind::GaveUp(GaveUp::Cancelled));
    assert_eq!(told.waited, Some(secs(3)));

    // Not one that did not wait.
    assert!(keeper.lock("name").try_acquire().await.unwrap().is_none());
    script.unreachable.store(true, Ordering::SeqCst);
    let error = keeper.lock("other").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let told = until(&mut events, gave_up).await;
    assert_eq!(told.kind, EventKind::GaveUp(GaveUp::Failed));
    assert_eq!(told.name.as_str(), "other", "told of one that did not wait");
    assert!(told.waited.unwrap() >= secs(30), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_told_with_its_wait_and_an_end_with_the_time_it_was_held() {
    let (keeper, _) = keeper();
    let guard = keeper.lock("name").ttl(secs(600)).acquire().await.unwrap();
    let mut events = keeper.events();
    let waiting = keeper.lock("name").ttl(secs(600));
    let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
    tokio::time::sleep(secs(7)).await;
    guard.release().await.unwrap();
    let next = waiter.await.unwrap();
    let told = until(&mut events, |kind| *kind == EventKind::Acquired).await;
    assert_eq!((told.waited, told.held), (Some(secs(7)), None));
    tokio::time::sleep(secs(5)).await;
    next.release().await.unwrap();
    let mut told = until(&mut events, |kind| *kind == EventKind::Released).await;
    if told.token == guard_token(&told, secs(7)) {
        told = until(&mut events, |kind| *kind == EventKind::Released).await;
    }
    assert_eq!((told.waited, told.held), (None, Some(secs(5))));
}

/// The token of the event, if it is of the hold that lasted for `held`.
fn guard_token(event: &Event, held: Duration) -> Option<crate::FencingToken> {
    event.token.filter(|_| event.held == Some(held))
}

#[tokio::test(start_paused = true)]
async fn jeopardy_is_told_once_and_so_is_its_end() {
    let (keeper, script) = keeper();
    let guard = held(&keeper).await;
    let mut events = keeper.events();
    *script.renew_fails.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_millis(2000)).await;
    assert!(guard.is_held(), "unknown: it was lost");
    *script.renew_fails.lock().unwrap() = false;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut kinds = Vec::new();
    while kinds.last() != Some(&EventKind::Renewed) {
        kinds.push(events.next().await.unwrap().kind);
    }
    let [EventKind::InJeopardy { remaining }, EventKind::Reconnected { after }, EventKind::Renewed] =
        kinds[..]
    else {
        panic!("told was {kinds:?}");
    };
    assert!(remaining > secs(1) && remaining < secs(3), "{remaining:?}");
    assert!(after > Duration::from_millis(500) && after < secs(2), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_tells_when_the_store_is_back() {
    let store = Arc::new(Memory::new());
    let (one, two) = (Keeper::new(store.clone()).unwrap(), Keeper::new(store.clone()).unwrap());
    let guard = one.lock("name").ttl(secs(600)).acquire().await.unwrap();
    let mut events = two.events();
    let waiting = two.lock("name").ttl(secs(600));
    let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
    tokio::time::sleep(secs(1)).await;
    store.fail();
    tokio::time::sleep(secs(9)).await;
    store.resume();
    let told = until(&mut events, |kind| matches!(kind, EventKind::Reconnected { .. })).await;
    let EventKind::Reconnected { after } = told.kind else { unreachable!() };
    assert!(after >= secs(9) && after < secs(12), "{after:?}");
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}
