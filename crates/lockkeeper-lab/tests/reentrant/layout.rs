//! The keys, fields and messages that Redisson knows.

use crate::stage::Stage;
use lockkeeper::backend::Mode;
use lockkeeper::{ErrorKind, Owner};
use std::collections::BTreeMap;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
}

/// An owner, and its field.
fn owner() -> (Owner, &'static str) {
    let owner = Owner::new("0123456789abcdef012300000000002a").unwrap();
    (owner, "49f7d739-6ea2-4f99-9de7-aa078f50d512:42")
}

const NOTES: &str = "lockkeeper:reentrant:{orders/42}";

#[tokio::test]
async fn an_exclusive_claim_is_a_writer() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    let (owner, field) = owner();
    let guard = keeper.lock("orders/42").owner(&owner).ttl(TTL).acquire().await.unwrap();
    assert_eq!(stage.keys(), [NOTES, "orders/42"]);
    let field = format!("{field}:write");
    assert_eq!(stage.hash("orders/42"), map(&[("mode", "write"), (&field, "1")]));
    stage.expires_within("orders/42", 60_000);
    let mut listening = stage.another();
    let mut heard = listening.as_pubsub();
    heard
        .subscribe(&["redisson_lock__channel:{orders/42}", "redisson_rwlock:{orders/42}"])
        .unwrap();
    guard.release().await.unwrap();
    let mut said = BTreeMap::new();
    for _ in 0..2 {
        let message = heard.get_message().unwrap();
        said.insert(message.get_channel_name().to_owned(), message.get_payload().unwrap());
    }
    let expected =
        map(&[("redisson_lock__channel:{orders/42}", "0"), ("redisson_rwlock:{orders/42}", "1")]);
    assert_eq!(said, expected);
    assert_eq!(stage.keys(), [NOTES], "the last token is kept for a while");
    stage.expires_within(NOTES, 60_000);
}

#[tokio::test]
async fn a_shared_claim_is_a_reader_with_a_key_per_entry() {
    let mut stage = Stage::new();
    let ((one, _), (two, _)) = (stage.keeper().await, stage.keeper().await);
    let (owner, field) = owner();
    let first = one.rw_lock("orders/42").owner(&owner).ttl(TTL).read().acquire().await.unwrap();
    assert_eq!(stage.hash("orders/42"), map(&[("mode", "read"), (field, "1")]));
    stage.expires_within("orders/42", 60_000);
    let key = |number| format!("{{orders/42}}:{field}:rwlock_timeout:{number}");
    assert_eq!(stage.command::<String>(&format!("GET {}", key(1))), "1");
    stage.expires_within(&key(1), 60_000);
    let again = two.rw_lock("orders/42").owner(&owner).ttl(TTL * 2).read().acquire().await.unwrap();
    assert_eq!(stage.hash("orders/42"), map(&[("mode", "read"), (field, "2")]));
    stage.expires_within("orders/42", 120_000);
    stage.expires_within(&key(2), 120_000);
    first.release().await.unwrap();
    assert_eq!(stage.hash("orders/42"), map(&[("mode", "read"), (field, "1")]));
    assert_eq!(stage.keys(), [NOTES, "orders/42", &key(1)]);
    let mut listening = stage.another();
    let mut heard = listening.as_pubsub();
    heard.subscribe("redisson_rwlock:{orders/42}").unwrap();
    again.release().await.unwrap();
    assert_eq!(heard.get_message().unwrap().get_payload::<String>().unwrap(), "0");
    assert_eq!(stage.keys(), [NOTES]);
}

#[tokio::test]
async fn a_reader_is_renewed_with_its_key() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    let (owner, field) = owner();
    let lock = keeper.rw_lock("a").owner(&owner).ttl(Duration::from_secs(1)).read();
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(guard.is_held());
    let key = format!("{{a}}:{field}:rwlock_timeout:1");
    assert!(stage.command::<i64>(&format!("PTTL {key}")) > 0, "Redisson would take it for dead");
}

/// As Redisson does it: the lock lasts as long as the last reader that has keys, and no longer.
#[tokio::test]
async fn a_reader_that_leaves_goes_by_the_keys_of_others() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    let read = keeper.rw_lock("a").ttl(TTL).read();
    for (alive, left) in [(true, true), (false, false)] {
        let guard = read.acquire().await.unwrap();
        stage.command::<()>("HSET a theirs:1 1");
        if alive {
            stage.command::<()>("SET {a}:theirs:1:rwlock_timeout:1 1 PX 20000");
        }
        guard.release().await.unwrap();
        assert_eq!(stage.hash("a").is_empty(), !left);
        if left {
            assert_eq!(stage.hash("a"), map(&[("mode", "read"), ("theirs:1", "1")]));
            stage.expires_within("a", 20_000);
            stage.command::<()>("DEL a {a}:theirs:1:rwlock_timeout:1");
        }
    }
}

#[tokio::test]
async fn a_writer_that_also_reads_lets_readers_in_when_it_stops_writing() {
    let mut stage = Stage::new();
    let ((one, _), (two, _)) = (stage.keeper().await, stage.keeper().await);
    let (owner, field) = owner();
    let writer = one.rw_lock("a").owner(&owner).ttl(TTL).write().acquire().await.unwrap();
    let reader = two.rw_lock("a").owner(&owner).ttl(TTL).read().acquire().await.unwrap();
    assert_eq!(writer.token(), reader.token());
    let writing = format!("{field}:write");
    assert_eq!(stage.hash("a"), map(&[("mode", "write"), (field, "1"), (&writing, "1")]));
    writer.release().await.unwrap();
    assert_eq!(stage.hash("a"), map(&[("mode", "read"), (field, "1")]));
    assert!(two.rw_lock("a").read().try_acquire().await.unwrap().is_some());
    assert!(two.lock("a").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn an_rlock_keeps_out_and_is_shown() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    stage.command::<()>("HSET a 6cd1bd60-1b2a-4c1c-9b6a-6b7f5a1c3a55:31 2");
    stage.command::<()>("PEXPIRE a 30000");
    assert!(keeper.lock("a").try_acquire().await.unwrap().is_none());
    assert!(keeper.rw_lock("a").read().try_acquire().await.unwrap().is_none());
    let view = &keeper.list("").await.unwrap()[0];
    let holder = &view.holders[0];
    assert_eq!(holder.owner.id(), "6cd1bd60-1b2a-4c1c-9b6a-6b7f5a1c3a55:31");
    assert_eq!((holder.mode, holder.count, holder.token), (Mode::Exclusive, 2, None));
    assert_eq!(holder.to_string(), "6cd1bd60-1b2a-4c1c-9b6a-6b7f5a1c3a55:31 for 0s");
    assert_eq!(stage.hash("a").len(), 1, "it was left as it was");
}

#[tokio::test]
async fn what_lingers_is_nobodys() {
    let mut stage = Stage::new();
    let (keeper, spy) = stage.keeper().await;
    let me = keeper.owner("me");
    let lock = keeper.lock("a").owner(&me).min_hold(TTL);
    lock.acquire().await.unwrap().release().await.unwrap();
    let field = format!("{}:lingering:write", spy.last_claim().id);
    assert_eq!(stage.hash("a"), map(&[("mode", "write"), (&field, "1")]));
    stage.expires_within("a", 60_000);
    assert!(lock.try_acquire().await.unwrap().is_none(), "its owner entered again");
}

#[tokio::test]
async fn what_is_no_lock_is_refused_and_left_alone() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    stage.command::<()>("SET text value");
    stage.command::<()>("HSET data mode dark name theirs");
    stage.command::<()>("HSET session user theirs");
    stage.command::<()>("PEXPIRE session 60000");
    stage.command::<()>("HSET counters hits 7 misses 1");
    stage.command::<()>("SET lockkeeper:reentrant:{notes} value");
    for name in ["text", "data", "session", "counters", "notes"] {
        let error = keeper.lock(name).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(error.to_string().contains("holds something else"), "{error}");
    }
    assert_eq!(keeper.show("text").await.unwrap_err().kind(), ErrorKind::Store);
    assert!(keeper.list("").await.unwrap().is_empty());
    assert_eq!(stage.command::<String>("GET text"), "value");
    assert_eq!(stage.hash("data").len(), 2);
    assert_eq!(stage.hash("counters"), map(&[("hits", "7"), ("misses", "1")]));
}
