//! Runtimes of callers that end, or that nobody drives, while something is under way on them.

use crate::slow::Slow;
use lockkeeper::{Guard, Keeper, Lock, blocking};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Nothing here is left to run out: a test that waited for that would take an hour.
const HOUR: Duration = Duration::from_secs(3600);
const STEP: Duration = Duration::from_millis(20);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn slow() -> (Keeper, Arc<Slow>) {
    let store = Arc::new(Slow::new(STEP));
    (Keeper::new(store.clone()).unwrap(), store)
}

fn long(keeper: &Keeper) -> Lock {
    keeper.lock("n").ttl(HOUR)
}

/// Waits until nobody holds or waits for anything.
fn free(keeper: &Keeper) {
    let (second, start) = (runtime(), Instant::now());
    while let views = second.block_on(keeper.list("")).unwrap()
        && !views.is_empty()
    {
        assert!(start.elapsed() < Duration::from_secs(30), "left to its ttl: {views:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a runtime at many points of acquiring, holding and releasing.
#[test]
fn a_runtime_that_ends_leaves_nothing_to_the_ttl() {
    for phase in 0..24 {
        let (keeper, _) = slow();
        let (first, lock) = (runtime(), long(&keeper));
        first.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            tokio::time::sleep(STEP).await;
            guard.release().await.unwrap();
        });
        std::thread::sleep(STEP * phase / 4);
        first.shutdown_background();
        free(&keeper);
        assert!(runtime().block_on(keeper.close(Duration::from_secs(5))));
    }
}

#[test]
fn a_guard_in_a_task_goes_with_its_runtime() {
    let (keeper, _) = slow();
    let (first, lock) = (runtime(), long(&keeper));
    let guard = first.block_on(lock.acquire()).unwrap();
    first.spawn(async move {
        let _kept: Guard = guard;
        std::future::pending::<()>().await;
    });
    drop(first);
    free(&keeper);
}

#[test]
fn those_who_wait_leave_the_queue_with_their_runtime() {
    let (keeper, _) = slow();
    let (first, second) = (runtime(), runtime());
    let guard = second.block_on(long(&keeper).acquire()).unwrap();
    for _ in 0..10 {
        let lock = long(&keeper);
        first.spawn(async move { lock.acquire().await.map(Guard::detach) });
    }
    while second.block_on(keeper.show("n")).unwrap().waiters.len() < 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(first);
    second.block_on(guard.release()).unwrap();
    free(&keeper);
}

/// The renewal was begun while one runtime was in use, the release is awaited on another, and the
/// first ends in between.
#[test]
fn a_release_is_sent_although_a_renewal_hung_on_a_runtime_that_ended() {
    let (keeper, store) = slow();
    store.script.renewals_hang.store(1, Ordering::SeqCst);
    let (first, second) = (runtime(), runtime());
    let lock = keeper.lock("n").ttl(Duration::from_secs(3));
    let guard = first.block_on(lock.acquire()).unwrap();
    while store.script.hanging.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let release = second.spawn(guard.release());
    drop(first);
    store.script.go_on.notify_one();
    second.block_on(release).unwrap().unwrap();
    assert!(second.block_on(keeper.list("")).unwrap().is_empty(), "told Ok, and still held");
}

/// The caller's thread is the one that the release of before would have run on.
#[test]
fn blocking_calls_inside_async_tasks_do_not_wait_for_themselves() {
    let flavours: [fn() -> Builder; 2] = [Builder::new_current_thread, Builder::new_multi_thread];
    for flavour in flavours {
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = flavour().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::spawn(async {
                    let keeper = blocking::connect("memory:").unwrap();
                    let lock = keeper.lock("x").owner(&keeper.owner("one")).ttl(HOUR);
                    let other = keeper.lock("x").owner(&keeper.owner("two")).ttl(HOUR);
                    drop(lock.acquire().unwrap());
                    other.acquire().unwrap().release().unwrap();
                })
                .await
                .unwrap();
            });
            done.send(()).unwrap();
        });
        finished.recv_timeout(Duration::from_secs(30)).expect("it waits for itself");
    }
}

#[test]
fn a_keeper_needs_no_runtime_of_its_caller() {
    use futures_util::FutureExt;
    let keeper = lockkeeper::connect("memory:").now_or_never().unwrap().unwrap();
    let guard = keeper.lock("n").acquire().now_or_never().unwrap().unwrap();
    guard.release().now_or_never().unwrap().unwrap();
    let timeless = Builder::new_current_thread().build().unwrap();
    timeless.block_on(async {
        let _held = keeper.lock("n").acquire().await.unwrap();
        let late = keeper.lock("n").acquire_within(Duration::from_millis(50)).await;
        assert_eq!(late.unwrap_err().kind(), lockkeeper::ErrorKind::TimedOut);
    });
}
