//! From a lock's name to etcd keys, and back.
//!
//! ```text
//! prefix name / lease          a claim: the key that Go's concurrency package would use
//! prefix name / lease-1        a further claim of the same keeper on the same name
//! prefix name / claim id       a claim that was asked for by its id
//! prefix lease \x01            the generation key of a session; see `requests::withdraw`
//! prefix \x01                  never there: read to confirm a heartbeat
//! prefix \x01 sequence/ name   the last number of a sequence
//! prefix \x01 record/ name     a record
//! ```
//!
//! A name may contain slashes, and is then a folder of a shorter name: `orders` and `orders/42`
//! are two locks, and `orders/42/…` is in the range of both. [`KeyRange::has`] tells them apart by
//! the last slash, since the part behind it, a number in hex, has none. The prefix is copied to the
//! letter, so that it can be whatever another program's names begin with, and nothing at all.

use crate::backend::support::sync::lock;
use crate::backend::{Claim, ClaimId, Mode, Moment, Name};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The keys of all claims on one name.
///
/// A claim on the name is a key directly below `prefix name /`, as in Go's concurrency package:
/// what is behind a further slash belongs to another, longer name. (Go itself does not look for
/// that slash: its lock on `a` also waits for those on `a/b`.)
#[derive(Debug, Clone)]
pub(super) struct KeyRange {
    /// `prefix name /`.
    start: Vec<u8>,
}

impl KeyRange {
    /// That of `name`, below a prefix that may be empty.
    pub(super) fn new(prefix: &str, name: &Name) -> Self {
        Self { start: format!("{prefix}{name}/").into_bytes() }
    }

    /// What all keys of the range begin with: its first key could be no smaller.
    pub(super) fn start(&self) -> Vec<u8> {
        self.start.clone()
    }

    /// The first key behind all that begin with `start`.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = self.start.clone();
        // In place of the slash.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        end
    }

    /// `prefix name / lease`, which is Go's, with `-1`, `-2` … appended where that is in use: the
    /// tasks of one keeper share its lease, and stand in one queue with all others.
    fn key(&self, lease: i64, number: usize) -> Vec<u8> {
        let mut key = self.start.clone();
        match number {
            0 => key.extend_from_slice(format!("{lease:x}").as_bytes()),
            number => key.extend_from_slice(format!("{lease:x}-{number}").as_bytes()),
        }
        key
    }

    /// Where the claim is that was asked for by this id, whoever asked.
    pub(super) fn key_by_id(&self, id: ClaimId) -> Vec<u8> {
        let mut key = self.start.clone();
        key.extend_from_slice(id.to_string().as_bytes());
        key
    }

    /// Whether the key is a claim on this very name, and not on a longer one that begins with it:
    /// those are in the same range of keys.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        key.strip_prefix(&self.start[..]).is_some_and(|rest| !rest.contains(&b'/'))
    }
}

/// The keys that this keeper's claims have at the moment.
///
/// Keys are used again and again, since etcd looks at every key there ever was below a name until
/// its history is compacted: a new key for each claim would make a lock slower every time it is
/// taken.
#[derive(Debug, Default)]
pub(super) struct KeyPool(Taken);

/// Until when keys are out of use that claims left behind; those of claims that are there have no end.
type Taken = Arc<Mutex<HashMap<Vec<u8>, Option<Moment>>>>;

/// A key that no other claim of this keeper has while this lives.
#[derive(Debug)]
pub(super) struct OwnKey {
    bytes: Vec<u8>,
    keys: Taken,
    /// Until when the key must stay out of use although its claim is over.
    left_behind: Mutex<Option<Moment>>,
}

impl KeyPool {
    /// The first key on this lease that no other claim of this keeper has.
    pub(super) fn take(&self, range: &KeyRange, lease: i64) -> Arc<OwnKey> {
        let mut taken = lock(&self.0);
        let now = Moment::now();
        let mut number = 0;
        loop {
            let bytes = range.key(lease, number);
            let is_free = match taken.get(&bytes) {
                None => true,
                Some(until) => until.is_some_and(|until| until <= now),
            };
            if is_free {
                taken.insert(bytes.clone(), None);
                let (keys, left_behind) = (self.0.clone(), Mutex::default());
                return Arc::new(OwnKey { bytes, keys, left_behind });
            }
            number += 1;
        }
    }
}

impl OwnKey {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Keeps the key out of use until then: what is in it stays there after its claim, on a lease of
    /// its own. Should it be there for longer, whoever uses the key next finds another's id in it.
    pub(super) fn leave_behind(&self, until: Moment) {
        *lock(&self.left_behind) = Some(until);
    }
}

/// Everything that the requests for one claim need to know of its keys.
#[derive(Debug, Clone)]
pub(super) struct ClaimKey {
    pub(super) range: KeyRange,
    pub(super) own: Arc<OwnKey>,
    pub(super) mode: Mode,
    /// The lease of the session that the key is to live on.
    pub(super) lease: i64,
    /// The session's generation key.
    pub(super) generation_key: Vec<u8>,
    /// For how many seconds the lease was asked for, if it is the claim's own.
    pub(super) length: Option<u64>,
}

impl ClaimKey {
    /// A free key for the claim on this server lease; taken until the last clone is dropped.
    pub(super) fn new(prefix: &str, pool: &KeyPool, claim: &Claim, lease: i64) -> Self {
        let range = KeyRange::new(prefix, &claim.name);
        let own = pool.take(&range, lease);
        let generation_key = generation_key(prefix, lease);
        Self { range, own, mode: claim.mode, lease, generation_key, length: None }
    }

    /// That of a claim that is asked for by its id, on a lease of its own that was asked for so many
    /// seconds.
    pub(super) fn by_id(prefix: &str, claim: &Claim, lease: i64, length: u64) -> Self {
        let range = KeyRange::new(prefix, &claim.name);
        let bytes = range.key_by_id(claim.id);
        let own = Arc::new(OwnKey { bytes, keys: Arc::default(), left_behind: Mutex::default() });
        let generation_key = generation_key(prefix, lease);
        Self { range, own, mode: claim.mode, lease, generation_key, length: Some(length) }
    }

    /// The key itself.
    pub(super) fn bytes(&self) -> &[u8] {
        self.own.bytes()
    }
}

/// A key that is given back is free for the next claim of this keeper.
impl Drop for OwnKey {
    fn drop(&mut self) {
        let left_behind = *lock(&self.left_behind);
        let mut taken = lock(&self.keys);
        taken.remove(&self.bytes);
        if let Some(until) = left_behind {
            let now = Moment::now();
            taken.retain(|_, until| until.is_none_or(|until| now < until));
            taken.insert(std::mem::take(&mut self.bytes), Some(until));
        }
    }
}

/// The name that a key is a claim on, if it is one.
pub(super) fn name_of(prefix: &str, key: &[u8]) -> Option<Name> {
    let (name, _) = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.rsplit_once('/')?;
    Name::new(name).ok()
}

/// The key that says which requests of a session still count: each carries the generation that its
/// sender knew, and a withdrawal changes it. It ends with a character that no name has, and without
/// a slash, so it is no claim on anything.
fn generation_key(prefix: &str, lease: i64) -> Vec<u8> {
    format!("{prefix}{lease:x}\u{1}").into_bytes()
}

/// A key that can be read by every user that may read the prefix, and that is never there.
pub(super) fn probe_key(prefix: &str) -> Vec<u8> {
    format!("{prefix}\u{1}").into_bytes()
}

/// Where the count of a sequence is: behind a character that no name has, so that it is no claim on
/// anything.
pub(super) fn sequence_key(prefix: &str, name: &str) -> Vec<u8> {
    format!("{prefix}\u{1}sequence/{name}").into_bytes()
}

/// Where a record is; of the beginning of a name, what the keys of all such records begin with.
pub(super) fn record_key(prefix: &str, name: &str) -> Vec<u8> {
    format!("{prefix}\u{1}record/{name}").into_bytes()
}

/// The name of the record that a key is, if it is one.
pub(super) fn record_of(prefix: &str, key: &[u8]) -> Option<Name> {
    let name = key.strip_prefix(&record_key(prefix, "")[..])?;
    Name::new(std::str::from_utf8(name).ok()?).ok()
}

/// The range of all keys that begin with `start`: its first key, and the first behind it.
pub(super) fn keys_beginning(start: &[u8]) -> (Vec<u8>, Vec<u8>) {
    // etcd takes no empty key; the first that there can be is a zero byte.
    let first = if start.is_empty() { vec![0] } else { start.to_vec() };
    let mut end = start.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (first, end);
        }
    }
    // No key is behind all that begin so: to the end of the store.
    (first, vec![0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_pinned() {
        let range = KeyRange::new("locks/", &Name::new("orders/42").unwrap());
        assert_eq!(range.start(), b"locks/orders/42/");
        assert_eq!(range.end(), b"locks/orders/420");
        let keys = KeyPool::default();
        let first = keys.take(&range, 0x1eee_a1de);
        assert_eq!(first.bytes(), b"locks/orders/42/1eeea1de");
        assert_eq!(keys.take(&range, 0x1eee_a1de).bytes(), b"locks/orders/42/1eeea1de-1");
        drop(first);
        let first = keys.take(&range, 0x1eee_a1de);
        assert_eq!(first.bytes(), b"locks/orders/42/1eeea1de", "it is used again");
        first.leave_behind(Moment::now() + std::time::Duration::from_secs(60));
        drop(first);
        let second = keys.take(&range, 0x1eee_a1de);
        assert_eq!(second.bytes(), b"locks/orders/42/1eeea1de-1");
        second.leave_behind(Moment::now());
        drop(second);
        assert_eq!(keys.take(&range, 0x1eee_a1de).bytes(), b"locks/orders/42/1eeea1de-1");
        let id = "00112233445566778899aabbccddeeff".parse().unwrap();
        assert_eq!(range.key_by_id(id), b"locks/orders/42/00112233445566778899aabbccddeeff");
        assert!(range.has(b"locks/orders/42/694d7a"), "a key of Go's is a claim");
        assert!(!range.has(b"locks/orders/42/item/694d7a"), "a longer name is another");
        assert!(!range.has(&generation_key("locks/", 7)));
        assert_eq!(sequence_key("locks/", "orders/42"), b"locks/\x01sequence/orders/42");
        assert_eq!(record_key("locks/", "orders/42"), b"locks/\x01record/orders/42");
    }

    #[test]
    fn a_range_has_all_keys_that_begin_so_and_no_other() {
        assert_eq!(keys_beginning(b"a/b"), (b"a/b".to_vec(), b"a/c".to_vec()));
        assert_eq!(keys_beginning(b"a\xff"), (b"a\xff".to_vec(), b"b".to_vec()));
        assert_eq!(keys_beginning(b""), (vec![0], vec![0]), "all of them");
    }

    #[test]
    fn without_a_prefix_the_keys_are_those_of_etcdctl_lock() {
        let gox = Name::new("gox").unwrap();
        let key = KeyRange::new("", &gox).key(0x1eee_a1de, 0);
        assert_eq!(key, b"gox/1eeea1de");
        assert_eq!(name_of("", &key), Some(gox));
    }

    proptest! {
        #[test]
        fn every_name_comes_back_and_no_two_meet(
            one in "[^\\p{C}]{1,20}|[/a]{1,6}",
            two in "[^\\p{C}]{1,20}|[/a]{1,6}",
        ) {
            let (one, two) = (Name::new(&one).unwrap(), Name::new(&two).unwrap());
            let key = KeyRange::new("p/", &one).key(7, 3);
            prop_assert_eq!(name_of("p/", &key), Some(one.clone()));
            prop_assert_eq!(KeyRange::new("p/", &two).has(&key), one == two);
            let record = record_key("p/", one.as_str());
            prop_assert_eq!(record_of("p/", &record), Some(one.clone()));
            for beside in [record, sequence_key("p/", one.as_str())] {
                prop_assert_eq!(name_of("p/", &beside), None);
                prop_assert!(!KeyRange::new("p/", &two).has(&beside));
            }
        }
    }
}
