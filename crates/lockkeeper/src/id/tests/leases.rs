//! Worker numbers, their marks, and what becomes of them when stores and processes fail.

use super::store::Breakable;
use crate::error::ErrorKind;
use crate::id::{DateFormat, Digits, Generator, Kind, Layout, Lease};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const WINDOW: Duration = Duration::from_secs(30);

fn lease() -> Lease {
    Lease { window: Some(WINDOW), cached_clock: false }
}

#[tokio::test(start_paused = true)]
async fn ids_of_two_generators_never_meet_and_grow_in_each() {
    let store = Breakable::new();
    let layout = Layout::default();
    let one = store.keeper().ids("orders").snowflake(layout).await.unwrap();
    let two = store.keeper().ids("orders").snowflake(layout).await.unwrap();
    assert_ne!(one.health().worker, two.health().worker);
    let mut seen = BTreeSet::new();
    for ids in [&one, &two, &one, &two] {
        let taken = ids.next_n(5_000).await.unwrap();
        assert!(taken.is_sorted_by(|one, two| one < two));
        seen.extend(taken);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(seen.len(), 20_000);
    let told = Kind::Snowflake(layout).inspect(&one.next().await.unwrap().to_string()).unwrap();
    assert_eq!(told.worker, one.health().worker);
}

#[tokio::test(start_paused = true)]
async fn a_millisecond_has_so_many_and_the_rest_waits() {
    let store = Breakable::new();
    let ids = store.keeper().ids("orders").snowflake(Layout::javascript()).await.unwrap();
    tokio::time::sleep(WINDOW * 2).await;
    let begun = tokio::time::Instant::now();
    let taken = ids.next_n(64 * 100).await.unwrap();
    assert!(taken.is_sorted_by(|one, two| one < two));
    // A hundred milliseconds' worth, of which five may be borrowed.
    assert!(begun.elapsed() >= Duration::from_millis(90), "{:?}", begun.elapsed());
    while ids.try_next().unwrap().is_some() {}
}

#[tokio::test(start_paused = true)]
async fn without_the_store_ids_go_on_up_to_the_mark_and_then_stop() {
    let store = Breakable::new();
    let keeper = store.keeper();
    let ids = keeper.ids("orders").lease(lease()).snowflake(Layout::default()).await.unwrap();
    tokio::time::sleep(WINDOW * 3).await;
    store.cut_off(true);
    // A third of the window may have passed since the last confirmation.
    tokio::time::sleep(WINDOW / 2).await;
    let last = ids.next().await.unwrap();
    tokio::time::sleep(WINDOW).await;
    let error = ids.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("does not answer"), "{error}");
    assert!(ids.try_next().is_err());
    assert!(ids.health().trouble.is_some());
    store.cut_off(false);
    assert!(ids.next().await.unwrap() > last);
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_given_back_is_taken_again_above_its_mark() {
    let store = Breakable::new();
    let keeper = store.keeper();
    let layout = Layout::new(41, 1, 12).unwrap();
    let other = keeper.ids("orders").snowflake(layout).await.unwrap();
    let mut last = 0;
    for _ in 0..5 {
        let ids = keeper.ids("orders").snowflake(layout).await.unwrap();
        assert_ne!(ids.health().worker, other.health().worker);
        for id in ids.next_n(10_000).await.unwrap() {
            assert!(id.get() > last);
            last = id.get();
        }
        ids.close().await.unwrap();
        assert_eq!(ids.next().await.unwrap_err().kind(), ErrorKind::NotHeld);
    }
    let workers = keeper.id_workers(Some("orders")).await.unwrap();
    assert_eq!(workers.iter().filter(|worker| worker.held).count(), 1);
    assert_eq!(workers.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_generator_gives_its_number_back() {
    let store = Breakable::new();
    let keeper = store.keeper();
    let ids = keeper.ids("orders").snowflake(Layout::default()).await.unwrap();
    drop(ids.clone());
    ids.next().await.unwrap();
    drop(ids);
    assert!(keeper.close(Duration::from_secs(5)).await);
    let workers = keeper.id_workers(None).await.unwrap();
    assert!(workers.iter().all(|worker| !worker.held), "{workers:?}");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_a_silent_holder_is_taken_over_after_two_windows_and_above_its_mark() {
    let store = Breakable::new();
    let layout = Layout::new(41, 1, 12).unwrap();
    let mut seen = BTreeSet::new();
    let mut holders = Vec::new();
    for _ in 0..2 {
        let (keeper, link) = store.link();
        let ids = keeper.ids("orders").lease(lease()).snowflake(layout).await.unwrap();
        holders.push((ids, link));
    }
    tokio::time::sleep(WINDOW * 3).await;
    holders.iter().for_each(|(_, link)| link.cut());
    let other = store.keeper();
    let taking = async || other.ids("orders").lease(lease()).snowflake(layout).await;
    let full = taking().await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Exhausted);
    assert!(full.to_string().contains("all 2 worker numbers"), "{full}");
    // The last confirmation was at most a third of a window ago.
    let cut = tokio::time::Instant::now();
    let taken = loop {
        for (ids, _) in &holders {
            seen.extend(ids.next_n(10).await.unwrap_or_default());
        }
        match taking().await {
            Ok(taken) => break taken,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Exhausted),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let waited = cut.elapsed();
    assert!(waited >= WINDOW * 2 - WINDOW / 3 - Duration::from_secs(1), "{waited:?}");
    assert!(seen.len() > 400, "the silent ones gave nothing: {}", seen.len());
    for id in taken.next_n(10_000).await.unwrap() {
        assert!(seen.insert(id), "{id} came twice");
    }
    for (ids, _) in &holders {
        assert!(ids.try_next().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgot_everything_gives_no_id_twice() {
    let store = Breakable::new();
    let layout = Layout::new(41, 2, 12).unwrap();
    let mut seen = BTreeSet::new();
    let keeper = store.keeper();
    let old = keeper.ids("orders").lease(lease()).snowflake(layout).await.unwrap();
    for id in old.next_n(5_000).await.unwrap() {
        assert!(seen.insert(id));
    }
    store.forget_everything();
    // All numbers are taken anew while the old holders go on; one of them by the old holder itself.
    let mut new = Vec::new();
    for _ in 0..3 {
        new.push(store.keeper().ids("orders").lease(lease()).snowflake(layout).await.unwrap());
    }
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for ids in new.iter().chain([&old]) {
            for id in ids.next_n(100).await.unwrap_or_default() {
                assert!(seen.insert(id), "{id} came twice");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn extensions_whose_answers_are_lost_cost_nothing() {
    let store = Breakable::new();
    let keeper = store.keeper();
    let ids = keeper.ids("orders").lease(lease()).snowflake(Layout::default()).await.unwrap();
    let worker = ids.health().worker;
    for _ in 0..6 {
        store.lose_answers(true);
        tokio::time::sleep(WINDOW / 2).await;
        store.lose_answers(false);
        tokio::time::sleep(WINDOW / 2).await;
        ids.next().await.unwrap();
    }
    assert_eq!(ids.health().worker, worker);
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_clock_is_set_forward_is_not_followed_far() {
    let store = Breakable::new();
    let keeper = store.keeper();
    let layout = Layout::default();
    let ids = keeper.ids("orders").lease(lease()).snowflake(layout).await.unwrap();
    let time = |text: String| Kind::Snowflake(layout).inspect(&text).unwrap().time.unwrap();
    let before = ids.next().await.unwrap();
    store.set_clock_ahead(365 * 86_400);
    tokio::time::sleep(WINDOW).await;
    let after = ids.next().await.unwrap();
    assert!(after > before);
    let apart = time(after.to_string()).duration_since(time(before.to_string())).unwrap();
    assert!(apart < WINDOW * 4, "{apart:?}");
}

#[tokio::test(start_paused = true)]
async fn dated_ids_with_a_worker_number_read_as_the_moment() {
    let store = Breakable::new();
    let format = DateFormat::new(Digits::Worker19);
    let ids = store.keeper().ids("orders").dated_local(format.clone()).await.unwrap();
    tokio::time::sleep(WINDOW * 2).await;
    let id = ids.next().await.unwrap();
    assert_eq!(id.to_string().len(), 19);
    let told = Kind::Dated(format.clone()).inspect(&id.to_string()).unwrap();
    assert_eq!(told.worker, ids.health().worker);
    let moment = UNIX_EPOCH + Duration::from_secs(super::store::START + 90);
    let off = told.time.unwrap().duration_since(moment).unwrap_or_default();
    assert!(off <= Duration::from_secs(2), "{off:?}");
    let taken = ids.next_n(30_000).await.unwrap();
    assert!(taken.is_sorted_by(|one, two| one < two));
    let (low, high) = Kind::Dated(format).range("2026-11-15").unwrap();
    assert!(low < id && id < high);
    assert!(ids.health().end.unwrap() > SystemTime::now());
}

/// Of two holders in a store that is emptied, neither takes the number of the other while that goes on.
#[tokio::test(start_paused = true)]
async fn holders_that_take_numbers_anew_in_an_emptied_store_do_not_meet() {
    let layout = Layout::new(41, 1, 12).unwrap();
    for _ in 0..8 {
        let store = Breakable::new();
        let (one, two) = (store.link(), store.link());
        let open = async |keeper: &crate::Keeper| {
            keeper.ids("orders").lease(lease()).snowflake(layout).await.unwrap()
        };
        let (going, cut) = (open(&one.0).await, open(&two.0).await);
        tokio::time::sleep(WINDOW).await;
        // One goes on up to its mark, and the other finds both numbers unused.
        two.1.cut();
        store.forget_everything();
        let mut seen = BTreeSet::new();
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for ids in [&going, &cut] {
                while let Ok(Some(id)) = ids.try_next() {
                    assert!(seen.insert(id), "{id} came twice");
                    if seen.len() % 50 == 0 {
                        break;
                    }
                }
            }
        }
        assert!(seen.len() > 1_000, "{}", seen.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_opened_when_it_is_a_window_old() {
    let store = Breakable::new();
    let begun = tokio::time::Instant::now();
    let ids = store.keeper().ids("orders").lease(lease()).snowflake(Layout::default()).await;
    assert!(begun.elapsed() >= WINDOW, "{:?}", begun.elapsed());
    assert!(ids.unwrap().try_next().unwrap().is_some());
    // The memory of a process is not outlived by its holders.
    let keeper = crate::connect("memory:").await.unwrap();
    let begun = tokio::time::Instant::now();
    let ids = keeper.ids("orders").lease(lease()).snowflake(Layout::default()).await.unwrap();
    assert!(ids.try_next().unwrap().is_some());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// Holders with different windows would not wait long enough for each other.
#[tokio::test(start_paused = true)]
async fn another_window_is_refused_and_none_is_the_one_on_record() {
    let store = Breakable::new();
    let open = |lease| store.keeper().ids("orders").lease(lease).snowflake(Layout::default());
    let first = open(lease()).await.unwrap();
    let other = Lease { window: Some(WINDOW * 2), ..Lease::default() };
    let error = open(other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("leave the window to the store"), "{error}");
    let second = open(Lease::default()).await.unwrap();
    assert_ne!(first.next().await.unwrap(), second.next().await.unwrap());
    // Its mark is a window of the record ahead, not thirty seconds.
    store.cut_off(true);
    tokio::time::sleep(WINDOW + Duration::from_secs(1)).await;
    assert!(second.try_next().is_err() || second.try_next().unwrap().is_none());
}
