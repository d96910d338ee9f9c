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
    assert!(error.to_string().contains("move it away"), "{error}");
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
    let guard = keeper.lock("n").ttl(Duration::from_millis(900)).acquire().await.unwrap();
    std::fs::remove_file(store.path()).unwrap();
    let error = keeper.lock("other").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("deleted or replaced"), "{error}");
    guard.lost().cancelled().await;
    assert_eq!(guard.lost_reason(), Some(LossReason::Expired));
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
    let keeper = store.keeper().await;
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

#[tokio::test]
async fn a_file_of_another_version_is_refused() {
    let store = Store::new();
    drop(store.keeper().await);
    store.database().execute_batch("PRAGMA user_version = 99").unwrap();
    let error = lockkeeper::connect(&store.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("another version of lockkeeper"), "{error}");
}
