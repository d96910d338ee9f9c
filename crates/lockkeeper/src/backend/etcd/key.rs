//! From a lock's name to etcd keys.

use super::lock;
use crate::backend::Name;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Everything about where the claims on one name are.
///
/// A name's claims are the keys directly below `prefix name /`, as in Go's concurrency package:
/// what is behind a further slash belongs to another, longer name. (Go itself does not look for
/// that slash: its lock on `a` also waits for those on `a/b`.)
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// `prefix name /`.
    start: Vec<u8>,
}

impl Line {
    pub(super) fn new(prefix: &str, name: &Name) -> Self {
        Self { start: format!("{prefix}{name}/").into_bytes() }
    }

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

    /// `prefix name / lease`, which is Go's, and with `-1`, `-2` … behind it where that is in use:
    /// the tasks of one keeper, which share its lease, stand in one queue with everyone else.
    fn key(&self, lease: i64, number: usize) -> Vec<u8> {
        let mut key = self.start.clone();
        match number {
            0 => key.extend_from_slice(format!("{lease:x}").as_bytes()),
            number => key.extend_from_slice(format!("{lease:x}-{number}").as_bytes()),
        }
        key
    }

    /// Whether the key is a claim on this very name.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        key.strip_prefix(&self.start[..]).is_some_and(|rest| !rest.contains(&b'/'))
    }
}

/// The keys that this keeper's claims have.
///
/// They are used again and again, since etcd looks at every key there ever was below a name until
/// its history is compacted: a key for each claim would make a lock the slower the oftener it was
/// taken.
#[derive(Debug, Default)]
pub(super) struct Keys(Arc<Mutex<HashSet<Vec<u8>>>>);

/// A key that no other claim of this keeper has while this lives.
#[derive(Debug)]
pub(super) struct OwnKey {
    bytes: Vec<u8>,
    keys: Arc<Mutex<HashSet<Vec<u8>>>>,
    left_behind: Mutex<bool>,
}

impl Keys {
    pub(super) fn take(&self, line: &Line, lease: i64) -> Arc<OwnKey> {
        let mut taken = lock(&self.0);
        let mut number = 0;
        loop {
            let bytes = line.key(lease, number);
            if taken.insert(bytes.clone()) {
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

    /// Never uses it again: what is in it stays there for a while.
    pub(super) fn leave_behind(&self) {
        *lock(&self.left_behind) = true;
    }
}

impl Drop for OwnKey {
    fn drop(&mut self) {
        if !*lock(&self.left_behind) {
            lock(&self.keys).remove(&self.bytes);
        }
    }
}

/// The name that a key is a claim on, if it is one.
pub(super) fn name_of(prefix: &str, key: &[u8]) -> Option<Name> {
    let (name, _) = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.rsplit_once('/')?;
    Name::new(name).ok()
}

/// The key that requests made before a claim was withdrawn are checked against. It ends with a
/// character that no name has, and without a slash, so it is no claim on anything.
pub(super) fn doubt_key(prefix: &str, lease: i64) -> Vec<u8> {
    format!("{prefix}{lease:x}\u{1}").into_bytes()
}

/// The end of all keys that begin so.
pub(super) fn end_of(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // No key is behind all that begin so: to the end of the store.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_pinned() {
        let line = Line::new("locks/", &Name::new("orders/42").unwrap());
        assert_eq!(line.start(), b"locks/orders/42/");
        assert_eq!(line.end(), b"locks/orders/420");
        let keys = Keys::default();
        let first = keys.take(&line, 0x1eee_a1de);
        assert_eq!(first.bytes(), b"locks/orders/42/1eeea1de");
        assert_eq!(keys.take(&line, 0x1eee_a1de).bytes(), b"locks/orders/42/1eeea1de-1");
        drop(first);
        let first = keys.take(&line, 0x1eee_a1de);
        assert_eq!(first.bytes(), b"locks/orders/42/1eeea1de", "it is used again");
        first.leave_behind();
        drop(first);
        assert_eq!(keys.take(&line, 0x1eee_a1de).bytes(), b"locks/orders/42/1eeea1de-1");
        assert!(line.has(b"locks/orders/42/694d7a"), "a key of Go's is a claim");
        assert!(!line.has(b"locks/orders/42/item/694d7a"), "a longer name is another");
        assert!(!line.has(&doubt_key("locks/", 7)));
    }

    proptest! {
        #[test]
        fn every_name_comes_back_and_no_two_meet(
            one in "[^\\p{C}]{1,20}|[/a]{1,6}",
            two in "[^\\p{C}]{1,20}|[/a]{1,6}",
        ) {
            let (one, two) = (Name::new(&one).unwrap(), Name::new(&two).unwrap());
            let key = Line::new("p/", &one).key(7, 3);
            prop_assert_eq!(name_of("p/", &key), Some(one.clone()));
            prop_assert_eq!(Line::new("p/", &two).has(&key), one == two);
        }
    }
}
