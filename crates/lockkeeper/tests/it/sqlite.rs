//! The file behind `sqlite:`: kept, shared, damaged, replaced.

use lockkeeper::{ErrorKind, Keeper, LossReason};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

struct Store {
    folder: TempDir,
}

impl Store {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    fn url(&self) -> String {
        url(&self.path())
    }

    async fn keeper(&self) -> Keeper {
        lockkeeper::connect(&self.url()).await.unwrap()
    }

    fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

#[tokio::test]
async fn claims_and_tokens_outlive_the_keeper() {
    let store = Store::new();
    let first = store.keeper().await.lock("n").ttl(Duration::from_secs(60)).acquire().await;
    let token = first.as_ref().unwrap().token();
    first.unwrap().detach();
    let keeper = store.keeper().await;
    assert!(keeper.lock("n").try_acquire().await.unwrap().is_none());
    let view = keeper.show("n").await.unwrap();
    assert_eq!(view.holders[0].token, token);
    keeper.break_hold("n", token.unwrap(), "the test goes on").await.unwrap();
    assert!(keeper.lock("n").acquire().await.unwrap().token() > token);
}

#[tokio::test]
async fn a_reboot_voids_every_claim_and_no_token() {
    let store = Store::new();
    let guard = store.keeper().await.lock("n").acquire().await.unwrap();
    let token = guard.token();
    guard.detach();
    // What the file looks like after the machine was started anew, its wall clock gone wrong.
    let database = store.database();
    let label = "UPDATE meta SET value = 'boot of-yesterday' WHERE key = 'clock'";
    database.execute(label, []).unwrap();
    let far = "UPDATE claim SET ticket = ticket * 2, token = token * 2";
    database.execute(far, []).unwrap();
    drop(database);
    let keeper = store.keeper().await;
    assert!(keeper.list("").await.unwrap().is_empty());
    let guard = keeper.lock("n").try_acquire().await.unwrap().unwrap();
    assert!(guard.token().unwrap().get() > token.unwrap().get() * 2);
}

#[tokio::test]
async fn another_programs_database_is_refused_and_left_alone() {
    let store = Store::new();
    store.database().execute_batch("CREATE TABLE account(id); PRAGMA user_version = 7").unwrap();
    let before = std::fs::read(store.path()).unwrap();
    let error = lockkeeper::connect(&store.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("another program's database"), "{error}");
    assert_eq!(std::fs::read(store.path()).unwrap(), before);
}

#[tokio::test]
async fn a_damaged_file_says_what_to_do_and_is_left_alone() {
    let store = Store::new();
    let rubbish = b"this is not a database, but somebody may still want it".repeat(40);
    std::fs::write(store.path(), &rubbish).unwrap();
    let error = lockkeeper::connect(&store.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("name another"), "{error}");
    assert_eq!(std::fs::read(store.path()).unwrap(), rubbish);
}

#[tokio::test]
async fn places_where_no_file_can_be_are_told_apart() {
    let store = Store::new();
    std::fs::write(store.folder.path().join("plain"), "x").unwrap();
    for (path, hint) in [
        ("missing/locks.db", "does not exist: make it"),
        ("plain/locks.db", "not a folder"),
        ("", "is a folder: name a file in it"),
    ] {
        let path = store.folder.path().join(path);
        let error = lockkeeper::connect(&url(&path)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(hint), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_deleted_while_in_use_loses_the_lock_instead_of_pretending() {
    let store = Store::new();
    let keeper = store.keeper().await;
    let guard = keeper.lock("n").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    std::fs::remove_file(store.path()).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let error = keeper.lock("other").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("deleted or replaced"), "{error}");
    guard.lost().await;
    assert_eq!(guard.lost_reason(), Some(LossReason::Gone));
}

/// The ttl is a day: a holder that is not told learns nothing before its next renewal.
#[tokio::test]
async fn a_holder_is_told_that_its_claim_was_broken_also_after_a_quiet_time() {
    let store = Store::new();
    let (keeper, other) = (store.keeper().await, store.keeper().await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let guard = keeper.lock("n").ttl(Duration::from_secs(24 * 3600)).acquire().await.unwrap();
    other.break_hold("n", guard.token().unwrap(), "stuck").await.unwrap();
    guard.lost().await;
    let reason = guard.lost_reason().unwrap();
    let told = matches!(&reason, LossReason::Broken { reason } if reason.starts_with("stuck (by "));
    assert!(told && reason.broken_by().is_some(), "{reason:?}");
}

/// A waiter whose runtime ended with it cannot leave the queue itself.
#[tokio::test]
async fn a_waiter_that_vanished_with_its_runtime_is_not_waited_for() {
    let store = Store::new();
    let backend = lockkeeper::open(&store.url()).await.unwrap();
    let keeper = Keeper::new(backend.clone()).unwrap();
    let held = keeper.lock("n").acquire().await.unwrap();
    let _other = keeper.lock("other").acquire().await.unwrap();
    let doomed = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let theirs = Keeper::new(backend).unwrap();
    doomed.spawn(async move { theirs.lock("n").acquire().await.map(std::mem::forget) });
    while keeper.show("n").await.unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    doomed.shutdown_background();
    // A living waiter, so that signs of life are given for this process.
    let living = keeper.clone();
    let waiting = tokio::spawn(async move { living.lock("other").acquire().await });
    while !keeper.show("n").await.unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    held.release().await.unwrap();
    assert!(keeper.lock("n").try_acquire().await.unwrap().is_some());
    waiting.abort();
}

#[tokio::test]
async fn what_short_lived_processes_leave_is_cleaned_by_the_next() {
    let store = Store::new();
    for process in 0..3 {
        let keeper = store.keeper().await;
        for job in 0..100 {
            let name = format!("job/{process}/{job}");
            keeper.lock(&name).acquire().await.unwrap().release().await.unwrap();
        }
    }
    let database = store.database();
    let rows = || -> i64 {
        database.query_row("SELECT count(*) FROM claim", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(rows(), 300);
    let an_hour_later = "UPDATE claim SET expires = expires - 3600000;
                         UPDATE meta SET value = value - 3600000 WHERE key = 'swept'";
    database.execute_batch(an_hour_later).unwrap();
    let _keeper = store.keeper().await;
    while rows() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Several who write without a pause must not keep the log from being restarted.
#[test]
fn the_log_stays_small_however_busy_the_file_is() {
    let store = Store::new();
    let log = store.folder.path().join("locks.db-wal");
    let longest = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (store, log, longest) = (&store, &log, &longest);
            scope.spawn(move || {
                let keeper = lockkeeper::blocking::connect(&store.url()).unwrap();
                let lock = keeper.lock(format!("n/{number}"));
                for _ in 0..10_000 {
                    lock.acquire().unwrap().release().unwrap();
                }
                let length = std::fs::metadata(log).map_or(0, |log| log.len());
                longest.fetch_max(length, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    let longest = longest.into_inner() >> 20;
    assert!(longest < 32, "{longest} MiB of log after 60,000 commits of about 1 KiB");
}

#[tokio::test]
async fn many_who_open_a_new_file_at_once_agree_on_it() {
    let store = Store::new();
    let openers: Vec<_> = (0..12)
        .map(|_| {
            let url = store.url();
            tokio::spawn(async move { lockkeeper::connect(&url).await })
        })
        .collect();
    let mut keepers = Vec::new();
    for opener in openers {
        keepers.push(opener.await.unwrap().unwrap());
    }
    let _held = keepers[0].lock("n").acquire().await.unwrap();
    for keeper in &keepers[1..] {
        assert!(keeper.lock("n").try_acquire().await.unwrap().is_none());
    }
}

/// SQLite's locks are the process's, and closing any handle of the file drops them all: opening
/// a keeper beside another must open no handle of its own.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_second_keeper_does_not_drop_the_first_ones_file_locks() {
    use std::os::unix::fs::MetadataExt;
    let store = Store::new();
    let first = store.keeper().await;
    let _held = first.lock("n").acquire().await.unwrap();
    let inode = format!(":{} ", std::fs::metadata(store.path()).unwrap().ino());
    let locks = || {
        let all = std::fs::read_to_string("/proc/locks").unwrap();
        all.lines().filter(|line| line.contains("POSIX") && line.contains(&inode)).count()
    };
    let before = locks();
    assert!(before > 0, "unknown: the kernel lists no lock of ours");
    for _ in 0..5 {
        let second = store.keeper().await;
        assert!(second.lock("n").try_acquire().await.unwrap().is_none());
        assert_eq!(locks(), before);
    }
}

#[tokio::test]
async fn a_process_that_keeps_the_file_locked_is_reported() {
    let store = Store::new();
    let url = format!("{}?outage=1s", store.url());
    let keeper = lockkeeper::connect(&url).await.unwrap();
    let database = store.database();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = keeper.lock("n").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_retryable());
    assert!(error.to_string().contains("another process has kept"), "{error}");
    database.execute_batch("ROLLBACK").unwrap();
    keeper.lock("n").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn what_people_read_with_their_own_tools_makes_sense() {
    let store = Store::new();
    let keeper = store.keeper().await;
    let me = keeper.owner("me");
    let other = Keeper::new(lockkeeper::open(&store.url()).await.unwrap()).unwrap();
    let _one = keeper.lock("orders/42").owner(&me).note("billing").acquire().await.unwrap();
    let _two = other.lock("orders/42").owner(&me).acquire().await.unwrap();
    let row: (String, String, i64, String) = store
        .database()
        .query_row("SELECT name, owner, count, mode FROM lock", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    assert_eq!(row, ("orders/42".into(), me.id().into(), 2, "exclusive".into()));
}

#[tokio::test]
async fn one_can_look_while_another_process_keeps_the_file() {
    let store = Store::new();
    let _held = store.keeper().await.lock("n").acquire().await.unwrap();
    let database = store.database();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let keeper = store.keeper().await;
    assert_eq!(keeper.list("").await.unwrap().len(), 1);
    assert_eq!(keeper.show("n").await.unwrap().holders.len(), 1);
    database.execute_batch("ROLLBACK").unwrap();
}
