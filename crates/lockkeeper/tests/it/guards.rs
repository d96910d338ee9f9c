//! What guards say, in the odd cases.

use lockkeeper::{ErrorKind, LossReason};
use std::time::Duration;

#[tokio::test]
async fn a_signal_given_out_outlives_its_guard() {
    let keeper = lockkeeper::connect("memory:").await.unwrap();
    let me = keeper.owner("me");
    let outer = keeper.lock("n").owner(&me).acquire().await.unwrap();
    let inner = keeper.lock("n").owner(&me).acquire().await.unwrap();
    let given = inner.lost();
    drop(inner);
    assert!(!given.is_signalled(), "the claim is still held");
    keeper.break_hold("n", outer.token().unwrap(), "test").await.unwrap();
    given.await;
}

#[tokio::test]
async fn work_that_blocked_past_the_claim_counts_as_lost() {
    let keeper = lockkeeper::connect("memory:").await.unwrap();
    let lock = keeper.lock("n").max_hold(Duration::from_millis(100));
    let guard = lock.acquire().await.unwrap();
    let blocking_work = async { std::thread::sleep(Duration::from_millis(200)) };
    let error = guard.run(blocking_work).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn work_that_blocks_its_runtime_blocks_no_renewal() {
    let keeper = lockkeeper::connect("memory:").await.unwrap();
    let guard = keeper.lock("n").ttl(Duration::from_millis(900)).acquire().await.unwrap();
    std::thread::sleep(Duration::from_millis(2700));
    assert!(guard.is_held(), "{:?}", guard.lost_reason());
}

#[tokio::test]
async fn several_locks_are_all_held_or_not_acquired() {
    let keeper = lockkeeper::connect("memory:").await.unwrap();
    let second = keeper.lock("b").acquire().await.unwrap();
    let both = keeper.multi(["a", "b"]).max_hold(Duration::from_millis(50));
    let waiting = tokio::spawn(async move { both.acquire().await });
    let view = loop {
        let view = keeper.show("b").await.unwrap();
        if !view.waiters.is_empty() {
            break view;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(view.waiters.len(), 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(second);
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains(&LossReason::HeldTooLong.to_string()), "{error}");
}

#[tokio::test]
async fn a_note_stays_in_its_line() {
    let keeper = lockkeeper::connect("memory:").await.unwrap();
    let _held = keeper.lock("n").note("a\n\u{1b}[2Jb").acquire().await.unwrap();
    let error = keeper.lock("n").acquire_within(Duration::from_millis(5)).await.unwrap_err();
    assert!(error.to_string().contains(r"'a\n\u{1b}[2Jb'"), "{error}");
}

#[tokio::test]
async fn a_lock_takes_a_name_of_any_kind_and_its_keeper_is_one_line() {
    let keeper = lockkeeper::connect("memory:").await.unwrap();
    let name: lockkeeper::Name = "orders/42".parse().unwrap();
    for lock in
        [keeper.lock(String::from("orders/42")), keeper.lock(&name), keeper.lock("orders/42")]
    {
        assert_eq!(lock.acquire().await.unwrap().name(), &"orders/42");
    }
    assert_eq!(format!("{keeper:?}"), "Keeper(memory:)");
    let threads = lockkeeper::blocking::Keeper::new(std::sync::Arc::new(
        lockkeeper::backend::memory::Memory::new(),
    ));
    assert_eq!(format!("{:?}", threads.unwrap()), "Keeper(memory:)");
    assert!(format!("{:?}", keeper.lock("x")).contains("Engine(memory:)"));
}

#[tokio::test]
async fn a_token_that_is_not_known_is_an_error_that_says_what_to_do() {
    let keeper = lockkeeper::connect("memory:").await.unwrap();
    let guard = keeper.lock("orders/42").fenced().acquire().await.unwrap();
    assert_eq!(guard.require_token().ok(), guard.token());
    let ticket = guard.hand_out().await.unwrap().with_token(None);
    let error = keeper.take_over(&ticket).await.unwrap().require_token().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("hand_out"), "{error}");
}
