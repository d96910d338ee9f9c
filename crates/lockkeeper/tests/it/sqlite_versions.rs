//! Files that another version of the library made.
//!
//! `stored/sqlite_version_2.db` was made by the first build with version 2 of the tables. It stays
//! as it is for as long as this version is read: a change of the tables needs another version, and
//! then another file beside it, made by `LOCKKEEPER_SAVE=1 cargo test --features sqlite --test it
//! sqlite_versions`.

use lockkeeper::{ErrorKind, FencingToken, Keeper};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;
use tempfile::TempDir;

const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stored/sqlite_version_2.db");

/// A copy of the stored file, for which SQLite makes others beside it.
fn copied() -> (TempDir, PathBuf) {
    static SAVED: Once = Once::new();
    if std::env::var_os("LOCKKEEPER_SAVE").is_some() {
        SAVED.call_once(|| save(Path::new(STORED)));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    std::fs::copy(STORED, &path).unwrap();
    (folder, path)
}

async fn open(path: &Path) -> lockkeeper::Result<Keeper> {
    lockkeeper::connect(&format!("sqlite:{}", path.display())).await
}

fn number(path: &Path, sql: &str) -> u64 {
    let database = rusqlite::Connection::open(path).unwrap();
    let number: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
    number.try_into().unwrap()
}

/// Makes the file anew: one holder, one that waits, one name that is free, numbers and a record.
fn save(to: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    // On a thread of its own, with its own runtime: whoever needs the file may be in one.
    let made = path.clone();
    let work = move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let keeper = open(&made).await.unwrap();
            let long = Duration::from_secs(3600);
            keeper.lock("orders/42").ttl(long).note("nightly").acquire().await.unwrap().detach();
            keeper.rw_lock("pages").read().ttl(long).acquire().await.unwrap().detach();
            keeper.semaphore("pool", 3).ttl(long).acquire().await.unwrap().detach();
            keeper.lock("free").acquire().await.unwrap().release().await.unwrap();
            assert_eq!(keeper.reserve("numbers", 41, 0).await.unwrap(), 1);
            let waits = keeper.lock("orders/42").acquire_within(Duration::from_millis(500)).await;
            assert_eq!(waits.unwrap_err().kind(), ErrorKind::TimedOut);
            keeper.close(Duration::from_secs(10)).await;
        });
    };
    std::thread::spawn(work).join().unwrap();
    let database = rusqlite::Connection::open(&path).unwrap();
    // Of no boot that there is, so that the file means the same wherever it is opened; and not of the
    // machine that it was made on.
    database
        .execute_batch(
            "UPDATE meta SET value = 'boot 00000000-0000-0000-0000-000000000000' WHERE key = 'clock';
             UPDATE claim SET identity = 'ann@build7 pid 4242' WHERE identity <> '';
             PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = delete; VACUUM;",
        )
        .unwrap();
    drop(database);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(&path, to).unwrap();
}

#[tokio::test]
async fn what_an_earlier_build_stored_is_read() {
    let (_folder, path) = copied();
    let newest = number(&path, "SELECT max(token) FROM claim");
    assert!(number(&path, "SELECT count(*) FROM claim WHERE state = 1") >= 3);
    let keeper = open(&path).await.unwrap();
    // Claims of an earlier boot are void.
    assert!(keeper.list("").await.unwrap().is_empty());
    for name in ["orders/42", "pages", "pool", "free", "new"] {
        let guard = keeper.lock(name).try_acquire().await.unwrap().expect("it is free");
        assert!(guard.token() > FencingToken::new(newest), "{name}: {:?}", guard.token());
        guard.release().await.unwrap();
    }
    // Numbers are not.
    assert_eq!(keeper.reserve("numbers", 1, 0).await.unwrap(), 42);
    drop(keeper);
    assert_eq!(number(&path, "PRAGMA user_version"), 2, "it was made another version's");
}

#[tokio::test]
async fn a_file_of_another_version_is_refused_and_left_alone() {
    for (version, said) in [(1, "an earlier lockkeeper"), (3, "upgrade this program"), (99, "99")] {
        let (_folder, path) = copied();
        let database = rusqlite::Connection::open(&path).unwrap();
        database.execute_batch(&format!("PRAGMA user_version = {version}")).unwrap();
        drop(database);
        let before = std::fs::read(&path).unwrap();
        let error = open(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "version {version} was written to");
    }
}
