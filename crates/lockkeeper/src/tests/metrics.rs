//! What a keeper measures: every outcome, and gauges that come back to where they were whatever happens.

use super::ledger::Ledger;
use super::scripted::{Script, Scripted};
use super::secs;
use crate::backend::memory::Memory;
use crate::metrics::{METRICS, Metrics};
use crate::{ErrorKind, Keeper};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const HELD: &str = "lockkeeper_held{";
const WAITING: &str = "lockkeeper_waiting{";
const ACQUIRES: &str = "lockkeeper_acquires_total{";

fn measured(metrics: Metrics) -> (Keeper, Arc<Script>, Arc<Ledger>) {
    let (backend, ledger) = (Scripted::default(), Arc::new(Ledger::default()));
    let script = backend.script.clone();
    let keeper = Keeper::new(Arc::new(backend)).unwrap();
    (keeper.with_metrics(metrics.recorder(ledger.clone())).unwrap(), script, ledger)
}

fn keeper() -> (Keeper, Arc<Script>, Arc<Ledger>) {
    measured(Metrics::new())
}

/// How often an acquire came to this.
fn count(ledger: &Ledger, outcome: &str) -> f64 {
    ledger.sum(&[ACQUIRES, &format!("outcome={outcome}")])
}

#[tokio::test(start_paused = true)]
async fn every_outcome_of_an_acquire_is_counted_once() {
    let (keeper, script, ledger) = keeper();
    let owner = keeper.owner("one");
    let lock = keeper.lock("name").ttl(secs(600));
    let guard = lock.clone().owner(&owner).acquire().await.unwrap();
    let again = lock.clone().owner(&owner).acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(lock.acquire_within(secs(2)).await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(tokio::time::timeout(secs(3), lock.acquire()).await.is_err());
    drop((guard, again));
    keeper.close(secs(5)).await;
    script.unreachable.store(true, Ordering::SeqCst);
    assert!(lock.acquire().await.is_err());
    for outcome in ["granted", "reentered", "busy", "timed_out", "cancelled", "failed"] {
        assert_eq!(count(&ledger, outcome), 1.0, "{outcome}");
    }
    let waits = |outcome| ledger.samples(&["lockkeeper_wait_seconds{", outcome]);
    assert_eq!(waits("outcome=granted"), [0.0]);
    let in_vain = waits("outcome=not_granted");
    assert_eq!(in_vain.len(), 3, "one that would not wait is not among them: {in_vain:?}");
    assert!((2.0..3.0).contains(&in_vain[0]) && (3.0..4.0).contains(&in_vain[1]), "{in_vain:?}");
    assert!(in_vain[2] >= 30.0, "{in_vain:?}");
    assert_eq!((ledger.sum(&[HELD]), ledger.sum(&[WAITING])), (0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn several_at_once_are_counted_one_by_one() {
    let (keeper, _, ledger) = keeper();
    let both = keeper.multi(["a", "b"]).acquire().await.unwrap();
    assert_eq!((count(&ledger, "granted"), ledger.sum(&[HELD])), (2.0, 2.0));
    assert!(keeper.multi(["a", "c"]).try_acquire().await.unwrap().is_none());
    assert_eq!((count(&ledger, "granted"), count(&ledger, "busy")), (2.0, 1.0));
    both.release().await.unwrap();
    assert_eq!(ledger.sum(&[HELD]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn waiting_goes_up_with_the_queue_and_down_with_each_way_out() {
    let (keeper, script, ledger) = keeper();
    let guard = keeper.lock("name").ttl(secs(600)).acquire().await.unwrap();
    assert_eq!((ledger.sum(&[HELD]), ledger.sum(&[WAITING])), (1.0, 0.0));
    let wait = || {
        let lock = keeper.lock("name").ttl(secs(600));
        tokio::spawn(async move { lock.acquire_within(secs(60)).await })
    };
    let (granted, dropped, late) = (wait(), wait(), wait());
    tokio::time::sleep(secs(1)).await;
    assert_eq!(ledger.sum(&[WAITING]), 3.0);
    // The future of one is dropped, which the background goes on with.
    dropped.abort();
    assert!(dropped.await.is_err());
    assert_eq!(ledger.sum(&[WAITING]), 2.0);
    guard.release().await.unwrap();
    let second = granted.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((ledger.sum(&[HELD]), ledger.sum(&[WAITING])), (1.0, 1.0));
    assert!(late.await.unwrap().is_err());
    assert_eq!(ledger.sum(&[WAITING]), 0.0);
    // Those wait, too, who cannot reach the store.
    script.unreachable.store(true, Ordering::SeqCst);
    let away = wait();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(ledger.sum(&[WAITING]), 1.0);
    script.unreachable.store(false, Ordering::SeqCst);
    away.abort();
    assert!(away.await.is_err());
    second.release().await.unwrap();
    keeper.close(secs(60)).await;
    assert_eq!((ledger.sum(&[HELD]), ledger.sum(&[WAITING])), (0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn held_goes_down_however_a_hold_ends() {
    let (keeper, script, ledger) = keeper();
    let hold = async |name: &str| keeper.lock(name).ttl(secs(3)).acquire().await;
    let ends =
        |end: &str| ledger.samples(&["lockkeeper_hold_seconds{", &format!("end={end}")]).len();

    let (dropped, detached) = (hold("a").await.unwrap(), hold("b").await.unwrap());
    let handed_out = hold("c").await.unwrap();
    let lost = hold("d").await.unwrap();
    assert_eq!(ledger.sum(&[HELD]), 4.0);
    drop(dropped);
    assert_eq!((ledger.sum(&[HELD]), ends("released")), (3.0, 1));
    detached.detach();
    assert_eq!((ledger.sum(&[HELD]), ends("left")), (2.0, 1));
    handed_out.hand_out().await.unwrap();
    assert_eq!((ledger.sum(&[HELD]), ends("left")), (1.0, 2));
    // A keeper that is closed under a guard holds it still.
    keeper.close(secs(1)).await;
    assert_eq!(ledger.sum(&[HELD]), 1.0);
    *script.renew_fails.lock().unwrap() = true;
    lost.lost().await;
    assert_eq!((ledger.sum(&[HELD]), ends("lost")), (0.0, 1));
    // Not once more.
    assert!(lost.release().await.is_err());
    assert_eq!((ledger.sum(&[HELD]), ends("lost"), ends("released")), (0.0, 1, 1));
    assert_eq!(ledger.sum(&["lockkeeper_losses_total{", "reason=expired"]), 1.0);
}

/// A guard that is forgotten is held, and renewed, for as long as the keeper's thread lives; one whose grant
/// came after its caller left is given back.
#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_waits_for_any_more_leaves_nothing() {
    let (keeper, script, ledger) = keeper();
    *script.acquire_takes.lock().unwrap() = secs(2);
    let left = tokio::time::timeout(secs(1), keeper.lock("name").ttl(secs(9)).acquire()).await;
    assert!(left.is_err());
    keeper.close(secs(60)).await;
    assert_eq!((ledger.sum(&[HELD]), ledger.sum(&[WAITING])), (0.0, 0.0));
    assert_eq!((count(&ledger, "cancelled"), count(&ledger, "granted")), (1.0, 0.0));
    *script.acquire_takes.lock().unwrap() = Duration::ZERO;
    std::mem::forget(keeper.lock("name").ttl(secs(3)).acquire().await.unwrap());
    tokio::time::sleep(secs(60)).await;
    assert_eq!(ledger.sum(&[HELD]), 1.0, "it is renewed");
    assert!(ledger.sum(&["lockkeeper_renewals_total{", "outcome=renewed"]) > 50.0);
}

/// The runtime of the callers ends under them: one waits, one holds.
#[test]
fn a_runtime_that_ends_takes_its_waiters_and_guards_with_it() {
    let store = Arc::new(Memory::new());
    let ledger = Arc::new(Ledger::default());
    let metrics = Metrics::new().recorder(ledger.clone());
    let keeper = Keeper::new(store).unwrap().with_metrics(metrics).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for _ in 0..2 {
        let keeper = keeper.clone();
        runtime.spawn(async move {
            let _guard = keeper.lock("name").acquire().await.unwrap();
            std::future::pending::<()>().await;
        });
    }
    let patience = std::time::Instant::now() + Duration::from_secs(60);
    while ledger.sum(&[WAITING]) < 1.0 {
        assert!(std::time::Instant::now() < patience, "nobody waits");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ledger.sum(&[HELD]), 1.0);
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(keeper.close(Duration::from_secs(60))));
    assert_eq!((ledger.sum(&[HELD]), ledger.sum(&[WAITING])), (0.0, 0.0), "{:?}", ledger.lines());
    let asked = ["granted", "cancelled"].map(|outcome| count(&ledger, outcome));
    // Whether the second was granted in between is for the runtime's end to decide.
    assert!(asked == [1.0, 1.0] || asked == [2.0, 0.0], "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn renewals_are_told_apart_and_their_margin_is_what_was_left() {
    let (keeper, script, ledger) = keeper();
    let renewals =
        |outcome: &str| ledger.sum(&["lockkeeper_renewals_total{", &format!("outcome={outcome}")]);
    let guard = keeper.lock("name").ttl(secs(30)).acquire().await.unwrap();
    *script.renew_takes.lock().unwrap() = secs(4);
    tokio::time::sleep(secs(15)).await;
    assert_eq!(renewals("renewed"), 1.0);
    let margin = ledger.samples(&["lockkeeper_renewal_margin_seconds{"]);
    // Valid for 29.7 s; renewed after a third of the ttl or a little less; answered 4 s later.
    assert!(margin.len() == 1 && (15.0..17.0).contains(&margin[0]), "{margin:?}");
    *script.renew_fails.lock().unwrap() = true;
    tokio::time::sleep(secs(10)).await;
    assert!(renewals("unanswered") >= 1.0);
    *script.renew_fails.lock().unwrap() = false;
    *script.renew_takes.lock().unwrap() = secs(60);
    guard.lost().await;
    tokio::time::sleep(secs(120)).await;
    assert_eq!((renewals("renewed"), renewals("too_late")), (1.0, 1.0));
    assert_eq!(margin.len(), 1, "an answer that was not believed has no margin");
}

#[tokio::test(start_paused = true)]
async fn losses_have_their_reason() {
    let (keeper, _, ledger) = keeper();
    let losses =
        |reason: &str| ledger.sum(&["lockkeeper_losses_total{", &format!("reason={reason}")]);
    let lock = keeper.lock("name").ttl(secs(3));
    let guard = lock.acquire().await.unwrap();
    // Before anything was lost, so that the first loss is seen to be one.
    assert!(ledger.lines().iter().any(|line| line.contains("reason=broken")));
    keeper.break_hold("name", guard.token().unwrap(), "it hung").await.unwrap();
    tokio::time::sleep(secs(2)).await;
    assert!(guard.release().await.is_err());
    // What the memory tells by its alarm, this store finds out by a renewal.
    assert_eq!(losses("gone") + losses("broken"), 1.0);
    let guard = keeper.lock("short").max_hold(secs(5)).acquire().await.unwrap();
    guard.lost().await;
    assert_eq!(losses("held_too_long"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn names_become_the_longest_prefix_that_was_given_and_nothing_else() {
    let metrics = Metrics::new().prefix("cron/").prefix("cron/night/").store("prod");
    let (keeper, _, ledger) = measured(metrics);
    for name in ["cron/night/backup", "cron/1", "secret-customer-4711", "cron"] {
        keeper.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
    keeper.rw_lock("cron/1").read().acquire().await.unwrap().release().await.unwrap();
    keeper.semaphore("cron/1", 3).acquire().await.unwrap().release().await.unwrap();
    let granted = |mode: &str, prefix: &str| {
        let series = format!("{{store=prod,recipe=other,mode={mode},prefix={prefix},");
        ledger.sum(&["lockkeeper_acquires_total", &series, "outcome=granted"])
    };
    assert_eq!(granted("exclusive", "cron/night/"), 1.0);
    assert_eq!(granted("exclusive", "cron/"), 1.0);
    assert_eq!(granted("exclusive", "other"), 2.0);
    assert_eq!((granted("shared", "cron/"), granted("permit", "cron/")), (1.0, 1.0));
    let lines = ledger.lines().join("\n");
    assert!(!lines.contains("4711") && !lines.contains("backup"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_what_was_asked_and_answered() {
    let (keeper, script, ledger) = keeper();
    let requests = |operation: &str, outcome: &str| {
        let labels = format!("operation={operation},outcome={outcome}");
        ledger.sum(&["lockkeeper_store_requests_total{", &labels])
    };
    let guard = keeper.lock("name").ttl(secs(30)).acquire().await.unwrap();
    keeper.show("name").await.unwrap();
    assert_eq!((requests("acquire", "ok"), requests("inspect", "ok")), (1.0, 1.0));
    *script.renew_fails.lock().unwrap() = true;
    tokio::time::sleep(secs(11)).await;
    assert!(requests("renew", "unavailable") >= 1.0);
    *script.renew_fails.lock().unwrap() = false;
    tokio::time::sleep(secs(5)).await;
    assert_eq!(ledger.sum(&["lockkeeper_reconnects_total{"]), 1.0);
    script.releases_fail.store(1, Ordering::SeqCst);
    assert!(guard.release().await.is_err());
    keeper.close(secs(60)).await;
    assert_eq!((requests("release", "unavailable"), requests("release", "ok")), (1.0, 1.0));
    script.answers_lost.store(1, Ordering::SeqCst);
    script.withdrawals_fail.store(1, Ordering::SeqCst);
    assert!(keeper.lock("name").try_acquire().await.is_err());
    keeper.close(secs(60)).await;
    assert_eq!((requests("withdraw", "unavailable"), requests("withdraw", "ok")), (1.0, 1.0));
}

/// Everything that is in the list is measured, and nothing else is.
#[tokio::test(start_paused = true)]
async fn the_list_of_metrics_is_what_is_measured() {
    let store = Arc::new(Memory::new());
    let ledger = Arc::new(Ledger::default());
    let metrics = Metrics::new().recorder(ledger.clone());
    let keeper = Keeper::new(store.clone()).unwrap().with_metrics(metrics).unwrap();
    let guard = keeper.lock("name").ttl(secs(3)).acquire().await.unwrap();
    assert!(keeper.lock("name").acquire_within(secs(9)).await.is_err());
    store.fail();
    guard.lost().await;
    store.resume();
    keeper.lock("other").acquire().await.unwrap().release().await.unwrap();
    let mut listed: Vec<_> = METRICS.iter().map(|metric| metric.name.to_owned()).collect();
    assert_eq!(ledger.described(), listed);
    listed.sort();
    assert_eq!(ledger.names(), listed);
    let lines = ledger.lines();
    assert!(lines.iter().all(|line| line.contains("{store=memory,recipe=queue")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_keeper_is_told_once_and_before_it_measures_and_may_measure_nothing() {
    let (keeper, _, ledger) = keeper();
    let late = keeper.clone().with_metrics(Metrics::off()).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Config);
    assert!(late.to_string().contains("right after it was opened"), "{late}");
    let used = Keeper::new(Arc::new(Memory::new())).unwrap();
    used.lock("name").acquire().await.unwrap().release().await.unwrap();
    assert!(used.with_metrics(Metrics::new()).is_err());
    let (lines, silent) = (ledger.lines().len(), Keeper::new(Arc::new(Memory::new())).unwrap());
    let silent =
        silent.with_metrics(Metrics { is_off: true, ..Metrics::new().recorder(ledger.clone()) });
    silent.unwrap().lock("name").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(ledger.lines().len(), lines);
}
