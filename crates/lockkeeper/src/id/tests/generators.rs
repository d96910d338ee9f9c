//! Sequences, segments, dated and striped numbers.

use super::store::Breakable;
use crate::error::ErrorKind;
use crate::id::{DateFormat, Digits, Generator, Id, Kind, Layout, Order, Striped};
use std::collections::BTreeSet;
use std::time::Duration;

fn numbers(ids: &[Id]) -> Vec<u64> {
    ids.iter().map(|id| id.get()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_sequence_grows_whoever_asks() {
    let store = Breakable::new();
    let one = store.keeper().ids("user/42").sequence().await.unwrap();
    let two = store.keeper().ids("user/42").sequence().await.unwrap();
    assert_eq!(one.order(), Order::Strict);
    assert_eq!(one.next().await.unwrap().get(), 1);
    assert_eq!(numbers(&two.next_n(3).await.unwrap()), [2, 3, 4]);
    assert_eq!(one.next().await.unwrap().get(), 5);
    assert!(one.try_next().unwrap().is_none());
    assert!(one.next_n(0).await.unwrap().is_empty());
    // Another key is another count.
    let other = store.keeper().ids("user/43").floor(1_000).sequence().await.unwrap();
    assert_eq!(other.next().await.unwrap().get(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn another_kind_is_refused_and_what_is_there_can_be_opened() {
    let store = Breakable::new();
    let keeper = store.keeper();
    let absent = keeper.ids("orders").open().await.unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::Config);
    assert_eq!(
        keeper.ids("orders").existing().sequence().await.unwrap_err().kind(),
        ErrorKind::Config
    );
    keeper.ids("orders").snowflake(Layout::default()).await.unwrap().close().await.unwrap();
    for refused in [
        keeper.ids("orders").sequence().await.map(drop),
        keeper.ids("orders").snowflake(Layout::javascript()).await.map(drop),
        keeper.ids("orders").dated(DateFormat::new(Digits::Day16)).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("snowflake 41/10/12"), "{error}");
    }
    let opened = keeper.ids("orders").open().await.unwrap();
    assert_eq!(opened.kind(), Kind::Snowflake(Layout::default()));
    let keys = keeper.id_keys().await.unwrap();
    assert_eq!(keys.iter().map(|key| key.key.as_str()).collect::<Vec<_>>(), ["orders"]);
}

#[tokio::test(start_paused = true)]
async fn a_count_that_is_lost_is_not_begun_again() {
    let store = Breakable::new();
    let keeper = store.keeper();
    let ids = keeper.ids("orders").sequence().await.unwrap();
    assert_eq!(ids.next().await.unwrap().get(), 1);
    store.forget_everything();
    let error = ids.next().await.unwrap_err();
    assert!(error.to_string().contains("lost the count"), "{error}");
    assert!(!error.is_retryable());
    // Made anew by another, the key is another one: who knew the one of before still stops.
    let anew = keeper.ids("orders").floor(100).sequence().await.unwrap();
    assert_eq!(anew.next().await.unwrap().get(), 100);
    assert!(ids.next().await.is_err());
    assert_eq!(keeper.ids("orders").sequence().await.unwrap().next().await.unwrap().get(), 101);
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_leave_gaps_and_no_number_twice() {
    let store = Breakable::new();
    let ids = store.keeper().ids("orders").sequence().await.unwrap();
    let mut last = 0;
    for round in 0..20 {
        store.lose_answers(round % 3 == 1);
        match ids.next().await {
            Ok(id) => {
                assert!(id.get() > last);
                last = id.get();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
        }
    }
    assert!(last > 13, "no answer was lost: {last}");
}

#[tokio::test(start_paused = true)]
async fn segments_grow_here_and_never_meet_those_of_others() {
    let store = Breakable::new();
    let one = store.keeper().ids("photos").segment().await.unwrap();
    let two = store.keeper().ids("photos").segment().await.unwrap();
    let mut seen = BTreeSet::new();
    for ids in [&one, &two, &one, &two] {
        let mut taken = ids.next_n(700).await.unwrap();
        for _ in 0..300 {
            taken.push(ids.next().await.unwrap());
        }
        assert!(taken.is_sorted_by(|one, two| one < two));
        seen.extend(taken);
    }
    assert_eq!(seen.len(), 4_000);
    assert!(one.health().reservations < 40, "{:?}", one.health());
}

#[tokio::test(start_paused = true)]
async fn a_segment_goes_on_while_its_store_is_away_and_then_says_so() {
    let store = Breakable::new();
    let ids = store.keeper().ids("photos").segment().await.unwrap();
    ids.next_n(100).await.unwrap();
    // The next range arrives meanwhile.
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.cut_off(true);
    let mut given = 0;
    let error = loop {
        match ids.next().await {
            Ok(_) => given += 1,
            Err(error) => break error,
        }
    };
    assert!(given > 0);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(ids.health().left == Some(0));
    store.cut_off(false);
    ids.next().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_block_is_one_threads() {
    let store = Breakable::new();
    let ids = store.keeper().ids("photos").segment().await.unwrap();
    let (mut one, mut two) = (ids.block(64), ids.block(64));
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        for block in [&mut one, &mut two] {
            assert!(seen.insert(block.next().await.unwrap()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dated_id_tells_its_day_and_second() {
    let store = Breakable::new();
    let keeper = store.keeper();
    tokio::time::sleep(Duration::from_secs(10)).await;
    for (digits, offset, expected) in [
        (Digits::Second19, "+00:00", "2026111507301300001"),
        (Digits::Second16, "+08:00", "2611151530130001"),
        (Digits::Day16, "+00:00", "2026111500000001"),
        (Digits::Day16, "-08:00", "2026111400000001"),
    ] {
        let format = DateFormat::new(digits).offset(offset).unwrap();
        let key = format!("{}{offset}", digits.name());
        let ids = keeper.ids(&key).dated(format.clone()).await.unwrap();
        let first = ids.next().await.unwrap();
        // A new key begins where one that was lost can have come to: two seconds on.
        assert_eq!(first.to_string()[..8], expected[..8], "{key}");
        tokio::time::sleep(Duration::from_secs(3)).await;
        let second = ids.next().await.unwrap();
        assert!(second > first);
        let told = Kind::Dated(format).inspect(&second.to_string()).unwrap();
        assert!(told.time.is_some() && told.worker.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn more_dated_ids_than_a_second_has_wait_for_the_next() {
    let store = Breakable::new();
    let ids = store.keeper().ids("orders").dated(DateFormat::new(Digits::Second16)).await.unwrap();
    let mut last = ids.next().await.unwrap();
    let begun = tokio::time::Instant::now();
    for _ in 0..5 {
        let batch = ids.next_n(10_000).await.unwrap();
        assert!(batch.is_sorted_by(|one, two| one < two) && batch[0] > last);
        last = *batch.last().unwrap();
    }
    assert!(begun.elapsed() > Duration::from_secs(1));
    assert_eq!(ids.next_n(30_000).await.unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test(start_paused = true)]
async fn prefix_and_check_digit_are_written_and_checked() {
    let format = DateFormat::new(Digits::Second19).prefix("ORD").unwrap().check_digit();
    let store = Breakable::new();
    let id =
        store.keeper().ids("orders").dated(format.clone()).await.unwrap().next().await.unwrap();
    let text = format.text(id);
    assert!(text.starts_with("ORD2026") && text.len() == 23, "{text}");
    assert_eq!(format.parse(&text).unwrap(), id);
    let wrong = text.replace("ORD2026", "ORD2062");
    assert!(format.parse(&wrong).is_err());
    assert!(format.parse(&text[3..]).is_err());
}

#[tokio::test(start_paused = true)]
async fn stripes_go_on_while_a_store_is_down_and_take_it_back() {
    let (one, two) = (Breakable::new(), Breakable::new());
    let keepers = [one.keeper(), two.keeper()];
    let ids = Striped::open(&keepers, "orders").await.unwrap();
    let mut seen = Vec::new();
    for round in 0..60 {
        one.cut_off((10..30).contains(&round));
        two.cut_off((35..50).contains(&round));
        seen.push(ids.next().await.unwrap());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(seen.is_sorted_by(|one, two| one < two));
    for stripe in 0..2 {
        assert!(seen.iter().filter(|id| id.get() % 2 == stripe).count() > 10);
    }
    // Those of another process are near in time, though its stores were asked in another state.
    let other = Striped::open(&keepers, "orders").await.unwrap().next().await.unwrap();
    assert!(other.get().abs_diff(seen[59].get()) < 5_000_000, "{other} and {}", seen[59]);
    one.cut_off(true);
    two.cut_off(true);
    assert_eq!(ids.next().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn stripes_in_another_order_are_refused() {
    let (one, two) = (Breakable::new(), Breakable::new());
    let keepers = [one.keeper(), two.keeper()];
    Striped::open(&keepers, "orders").await.unwrap();
    let turned = [keepers[1].clone(), keepers[0].clone()];
    assert_eq!(Striped::open(&turned, "orders").await.unwrap_err().kind(), ErrorKind::Config);
    let twice = [keepers[0].clone(), keepers[0].clone()];
    assert_eq!(Striped::open(&twice, "orders").await.unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(Striped::open(&keepers[..1], "x").await.unwrap_err().kind(), ErrorKind::Config);
    // A store that is down is opened when it is back.
    two.cut_off(true);
    let ids = Striped::open(&keepers, "orders").await.unwrap();
    ids.next().await.unwrap();
}
