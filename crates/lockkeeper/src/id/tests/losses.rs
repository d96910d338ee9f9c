//! Stores that lose everything, while those who knew it go on.

use super::store::Breakable;
use crate::id::{Generator, Layout, Lease};
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_floor_is_good_for_one_loss() {
    let store = Breakable::new();
    let keeper = store.keeper();
    let one = keeper.ids("orders").floor(100).sequence().await.unwrap();
    let two = keeper.ids("orders").floor(100).sequence().await.unwrap();
    assert_eq!(one.next_n(5).await.unwrap().last().unwrap().get(), 104);
    assert_eq!(two.next().await.unwrap().get(), 105);
    store.forget_everything();
    // Else they would give what the other gave before.
    for ids in [&one, &two] {
        let error = ids.next().await.unwrap_err();
        assert!(error.to_string().contains("lost the count"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_not_begun_notices_that_what_others_began_is_lost() {
    let store = Breakable::new();
    let keeper = store.keeper();
    for floor in [None, Some(7)] {
        let key = || {
            let key = keeper.ids("orders");
            if let Some(floor) = floor { key.floor(floor) } else { key }
        };
        let (late, early) = (key().sequence().await.unwrap(), key().sequence().await.unwrap());
        assert_eq!(early.next().await.unwrap().get(), floor.unwrap_or(1));
        store.forget_everything();
        for _ in 0..2 {
            let error = late.next().await.unwrap_err();
            assert!(error.to_string().contains("lost the count"), "{error}");
        }
    }
}

/// One of two workers notices the loss and takes a number anew, which may be that of the other, who is
/// cut off and goes on up to its mark.
#[tokio::test(start_paused = true)]
async fn a_lost_number_is_replaced_by_none_that_another_still_has() {
    let lease = Lease { window: Some(Duration::from_secs(3)), ..Lease::default() };
    for _ in 0..12 {
        let store = Breakable::new();
        let (far, link) = store.link();
        let layout = Layout::new(41, 1, 12).unwrap();
        let near = store.keeper().ids("events").lease(lease).snowflake(layout).await.unwrap();
        let far = far.ids("events").lease(lease).snowflake(layout).await.unwrap();
        let (one, two) = (near.next().await.unwrap(), far.next().await.unwrap());
        tokio::time::sleep(Duration::from_secs(10)).await;
        link.cut();
        store.forget_everything();
        let (mut seen, mut given) = (BTreeSet::from([one, two]), 2);
        for _ in 0..4_000 {
            for ids in [&near, &far] {
                if let Ok(Some(id)) = ids.try_next() {
                    given += 1;
                    assert!(seen.insert(id), "{id} came twice");
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(given > 3_000, "only {given} ids");
    }
}
