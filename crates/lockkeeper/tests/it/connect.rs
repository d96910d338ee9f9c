//! URLs, errors, and what they must not tell.

use lockkeeper::{ErrorKind, Keeper, backend::memory::Memory};
use std::sync::Arc;

#[tokio::test]
async fn bad_urls_say_what_would_be_right() {
    for (url, hint) in [
        ("", "sqlite:locks.db"),
        ("locks.db", "sqlite:locks.db"),
        ("mongodb://localhost", "the known ones are memory:"),
        #[cfg(feature = "sqlite")]
        ("sqlite:x?colour=red", "no option \"colour\""),
        #[cfg(feature = "sqlite")]
        ("sqlite://me:hunter2@host/x", "without a host"),
        #[cfg(feature = "sqlite")]
        ("sqlite::memory:", "use memory:"),
        #[cfg(not(feature = "sqlite"))]
        ("sqlite:", "build lockkeeper with the feature \"sqlite\""),
    ] {
        let error = lockkeeper::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_keeper_of_ones_own_backend_names_it() {
    let keeper = Keeper::new(Arc::new(Memory::new())).unwrap();
    assert_eq!(keeper.to_string(), "memory:");
}

#[test]
fn guards_and_futures_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let keeper = lockkeeper::connect("memory:").await.unwrap();
        let lock = keeper.lock("name");
        is_send(&lock.acquire());
        is_send(&lock.try_acquire());
        is_send(&keeper.multi(["a", "b"]).acquire());
        is_send(&keeper.election("e").campaign());
        let guard = lock.acquire().await.unwrap();
        is_send(&guard);
        is_send(&guard.release());
    });
}
