//! Keepers and the runtimes they are used on.

use lockkeeper::{ErrorKind, Guard, Keeper};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const SHORT: Duration = Duration::from_millis(900);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn held(keeper: &Keeper) -> Guard {
    keeper.lock("n").ttl(SHORT).acquire().await.unwrap()
}

/// A keeper that was used on another runtime before.
fn used_elsewhere(first: &Runtime) -> Keeper {
    first.block_on(async {
        let keeper = lockkeeper::connect("memory:").await.unwrap();
        held(&keeper).await.release().await.unwrap();
        keeper
    })
}

#[test]
fn a_keeper_outlives_the_runtime_it_was_first_used_on() {
    let first = runtime();
    let keeper = used_elsewhere(&first);
    drop(first);
    runtime().block_on(async {
        let guard = held(&keeper).await;
        let late = keeper.lock("n").acquire_within(SHORT * 3).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut, "it was not renewed");
        assert!(guard.is_held());
    });
}

#[test]
fn a_runtime_that_nobody_drives_keeps_no_renewal() {
    let idle = Builder::new_current_thread().enable_all().build().unwrap();
    let keeper = used_elsewhere(&idle);
    runtime().block_on(async {
        let guard = held(&keeper).await;
        tokio::time::sleep(SHORT * 3).await;
        assert!(guard.is_held());
    });
    drop(idle);
}

#[test]
fn a_hold_goes_on_when_its_runtime_ends_and_there_is_another() {
    let (first, second) = (runtime(), runtime());
    let keeper = first.block_on(async { lockkeeper::connect("memory:").await.unwrap() });
    let guard = first.block_on(held(&keeper));
    second.block_on(async {
        assert!(keeper.lock("n").try_acquire().await.unwrap().is_none());
    });
    drop(first);
    second.block_on(async {
        tokio::time::sleep(SHORT * 3).await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
    });
}

#[test]
fn nothing_is_left_of_a_keeper_that_is_gone() {
    let runtime = runtime();
    runtime.block_on(async {
        for _ in 0..50 {
            let keeper = lockkeeper::connect("memory:").await.unwrap();
            let guard = held(&keeper).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            guard.release().await.unwrap();
        }
        while runtime.metrics().num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn closing_works_where_there_is_no_runtime() {
    use futures_util::FutureExt;
    let first = runtime();
    let keeper = used_elsewhere(&first);
    assert_eq!(keeper.close(Duration::from_secs(5)).now_or_never(), Some(true));
}

#[test]
fn a_keeper_goes_on_where_it_was_when_another_runtime_ends() {
    let (first, second) = (runtime(), runtime());
    let keeper = used_elsewhere(&first);
    // Long enough for the first runtime's walker to have nothing planned.
    std::thread::sleep(Duration::from_millis(1300));
    second.block_on(async { held(&keeper).await.release().await.unwrap() });
    drop(second);
    first.block_on(async {
        let guard = held(&keeper).await;
        tokio::time::sleep(SHORT * 3).await;
        assert!(guard.is_held(), "it was not renewed");
    });
}

#[test]
fn a_guard_dropped_on_a_plain_thread_is_released_though_the_last_runtime_ended() {
    let (first, second) = (runtime(), runtime());
    let keeper = first.block_on(async { lockkeeper::connect("memory:").await.unwrap() });
    let long = keeper.lock("n").ttl(Duration::from_secs(3600));
    let guard = first.block_on(long.acquire()).unwrap();
    second.block_on(async { assert!(long.try_acquire().await.unwrap().is_none()) });
    drop(second);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    first.block_on(async {
        while long.try_acquire().await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_release_in_a_strange_place_is_a_release_all_the_same() {
    let first = runtime();
    let timeless = Builder::new_current_thread().build().unwrap();
    let keeper = first.block_on(async { lockkeeper::connect("memory:").await.unwrap() });
    let guard = first.block_on(held(&keeper));
    timeless.block_on(guard.release()).unwrap();
    first.block_on(async { assert!(keeper.list("").await.unwrap().is_empty()) });
}
