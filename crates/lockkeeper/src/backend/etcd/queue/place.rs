//! Where a claim stands in the queue of its name, from the keys that etcd returned.
//!
//! The claims stand in the order in which their keys were created; which of them hold is for
//! [`queue`](mod@crate::backend::queue) to say. Go's clients wait for every key before their own,
//! so they are safe beside readers and permits, too.
//!
//! Pure functions of what was read. A place is as old as its read, and stays true in one direction
//! only: a claim that was at the head is there for as long as its key is; one that waited may hold
//! by now.

use super::super::keys::{ClaimKey, KeyRange};
use super::super::protocol::{KeyValue, RangeResponse};
use super::super::record;
use crate::backend::{Mode, queue};

/// Where a claim is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At the head: it holds the name.
    Head,
    /// Waiting, with this number if that is known, until one of the keys `behind` goes. Then it is
    /// worth looking again; it need not hold by then.
    Waits { number: Option<usize>, behind: Vec<Vec<u8>> },
    /// Its key is not there any more: deleted, or ended with its session. Nothing may be granted.
    Nowhere,
}

/// Where the claim with `key` is among the claims created up to its own. Keys that were created
/// later make no difference, so a caller need not read them.
pub(super) fn find(range: &KeyRange, kvs: &[KeyValue], key: &[u8]) -> Place {
    let (claims, modes) = record::in_order(range, kvs);
    let index = claims.iter().position(|kv| kv.key == key);
    match index.and_then(|index| queue::place(&modes, index)) {
        None => Place::Nowhere,
        Some(queue::Place::Holds) => Place::Head,
        Some(queue::Place::Waits { number, behind }) => {
            let behind = claims[behind].iter().map(|kv| kv.key.clone()).collect();
            Place::Waits { number: Some(number), behind }
        }
    }
}

/// Where the last of the queue is, from what [`newest`](super::super::requests::newest) reads;
/// `None` when that is not enough to tell, because keys of longer names are among it.
pub(super) fn of_last(key: &ClaimKey, newest: &RangeResponse) -> Option<Place> {
    if key.mode != Mode::Exclusive {
        return Some(find(&key.range, &newest.kvs, key.bytes()));
    }
    match &newest.kvs[..] {
        [] => Some(Place::Nowhere),
        // The newest key is not ours. If it is a claim on this very name, ours is gone; a key of a
        // longer name says nothing.
        [last, ..] if last.key != key.bytes() => {
            if key.range.has(&last.key) {
                Some(Place::Nowhere)
            } else {
                None
            }
        }
        // Ours, and no other in the whole range.
        [_] => Some(Place::Head),
        [_, before, ..] if key.range.has(&before.key) => Some(Place::Waits {
            number: usize::try_from(newest.count - 1).ok(),
            behind: vec![before.key.clone()],
        }),
        _ => None,
    }
}

/// Whether a claim of this mode would hold at once behind these. Behind all of them, also those
/// that wait: a claim that overtook a waiter would not be where its create revision puts it.
pub(super) fn is_free_for(mode: Mode, range: &KeyRange, kvs: &[KeyValue]) -> bool {
    let (_, mut modes) = record::in_order(range, kvs);
    modes.push(mode);
    queue::holders(modes.iter().copied()) == modes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Name;

    fn range() -> KeyRange {
        KeyRange::new("", &Name::new("a").unwrap())
    }

    /// Keys of the name `a` in this order, each with a mode, or with no value as Go writes them.
    fn keys(values: &[&str]) -> Vec<KeyValue> {
        let kv = |(number, mode): (usize, &&str)| KeyValue {
            key: format!("a/{number}").into_bytes(),
            create_revision: i64::try_from(number).unwrap() + 1,
            value: if mode.is_empty() {
                Vec::new()
            } else {
                format!("lockkeeper 1\n{mode}\nme\nme\n0\n").into_bytes()
            },
            ..KeyValue::default()
        };
        values.iter().enumerate().map(kv).collect()
    }

    fn place(values: &[&str], number: usize) -> Place {
        find(&range(), &keys(values), format!("a/{number}").as_bytes())
    }

    fn waits(number: usize, behind: usize) -> Place {
        Place::Waits { number: Some(number), behind: vec![format!("a/{behind}").into_bytes()] }
    }

    /// Also with a key of another program in the middle, which counts as exclusive.
    #[test]
    fn the_first_holds_and_the_others_wait_for_the_one_before() {
        let values = ["exclusive", "", "exclusive"];
        assert_eq!(place(&values, 0), Place::Head);
        assert_eq!(place(&values, 1), waits(1, 0));
        assert_eq!(place(&values, 2), waits(2, 1));
        assert_eq!(find(&range(), &keys(&values), b"a/9"), Place::Nowhere);
    }

    /// All readers behind a writer watch that writer, and none watches another reader: otherwise
    /// they would be let in one after another.
    #[test]
    fn readers_hold_together_and_wait_for_the_last_writer_before() {
        let values = ["shared", "shared", "exclusive", "shared", "shared"];
        assert_eq!(place(&values, 1), Place::Head);
        assert_eq!(place(&values, 2), waits(1, 1));
        assert_eq!(place(&values, 3), waits(2, 2));
        assert_eq!(place(&values, 4), waits(3, 2));
    }

    /// The third permit of two watches both that hold, since either may go first. Permits and other
    /// modes exclude each other.
    #[test]
    fn permits_count_and_mix_with_nothing() {
        let values = ["permit 2", "permit 2", "permit 2", "exclusive", "permit 9"];
        assert_eq!(place(&values, 1), Place::Head);
        let behind = [b"a/0".to_vec(), b"a/1".to_vec()].to_vec();
        assert_eq!(place(&values, 2), Place::Waits { number: Some(1), behind });
        assert_eq!(place(&values, 4), waits(3, 3));
    }

    /// Keys of `a/b` are in the range of `a`. Fails if they are taken for claims on `a`.
    #[test]
    fn a_longer_name_is_in_nobodys_way() {
        let mut kvs = keys(&["exclusive", "exclusive"]);
        kvs[0].key = b"a/b/0".to_vec();
        assert_eq!(find(&range(), &kvs, b"a/1"), Place::Head);
    }

    /// Fails if a reader is let in beside readers although a writer waits.
    #[test]
    fn a_name_is_free_for_those_who_fit_beside_its_holders() {
        let free = |mode, values: &[&str]| is_free_for(mode, &range(), &keys(values));
        assert!(free(Mode::Exclusive, &[]));
        assert!(!free(Mode::Exclusive, &["shared"]));
        assert!(free(Mode::Shared, &["shared", "shared"]));
        assert!(!free(Mode::Shared, &["shared", "exclusive"]), "nobody is overtaken");
        assert!(free(Mode::Permit { of: 2 }, &["permit 2"]));
        assert!(!free(Mode::Permit { of: 2 }, &["permit 2", "permit 2"]));
    }
}
