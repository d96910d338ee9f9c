//! Who is where in the queue of a name.
//!
//! The claims stand in the order in which their keys were created. Go's clients wait for every key
//! before their own, so beside readers they are safe too.

use super::key::Line;
use super::proto::KeyValue;
use super::record;
use crate::backend::queue;
use crate::backend::{FencingToken, Mode};

/// Where a claim is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At the head: it holds the name.
    Head,
    /// Waiting, as number so many if that is known, until one of the keys `behind` goes.
    Waits { number: Option<usize>, behind: Vec<Vec<u8>> },
    /// Its key is not there any more.
    Nowhere,
}

/// The token of a key that was created then.
pub(super) fn token(create_revision: i64) -> Option<FencingToken> {
    FencingToken::from_revision(create_revision)
}

/// The claims of a line in order, and how each is meant.
fn queue<'a>(line: &Line, kvs: &'a [KeyValue]) -> (Vec<&'a KeyValue>, Vec<Mode>) {
    let mut claims: Vec<_> = kvs.iter().filter(|kv| line.has(&kv.key)).collect();
    claims.sort_by_key(|kv| kv.create_revision);
    let modes = claims.iter().map(|kv| record::mode_of(&kv.value)).collect();
    (claims, modes)
}

/// Parts the claims of a line, in order, into those who hold and those who wait.
pub(super) fn part<'a>(line: &Line, kvs: &'a [KeyValue]) -> (Vec<&'a KeyValue>, Vec<&'a KeyValue>) {
    let (mut claims, modes) = queue(line, kvs);
    let waiting = claims.split_off(queue::holders(modes));
    (claims, waiting)
}

/// Where the claim with `key` is among the claims created up to its own.
pub(super) fn find(line: &Line, kvs: &[KeyValue], key: &[u8]) -> Place {
    let (claims, modes) = queue(line, kvs);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Name;

    fn line() -> Line {
        Line::new("", &Name::new("a").unwrap())
    }

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
        find(&line(), &keys(values), format!("a/{number}").as_bytes())
    }

    fn waits(number: usize, behind: usize) -> Place {
        Place::Waits { number: Some(number), behind: vec![format!("a/{behind}").into_bytes()] }
    }

    #[test]
    fn the_first_holds_and_the_others_wait_for_the_one_before() {
        let values = ["exclusive", "", "exclusive"];
        assert_eq!(place(&values, 0), Place::Head);
        assert_eq!(place(&values, 1), waits(1, 0));
        assert_eq!(place(&values, 2), waits(2, 1));
        assert_eq!(find(&line(), &keys(&values), b"a/9"), Place::Nowhere);
    }

    #[test]
    fn readers_hold_together_and_wait_for_the_last_writer_before() {
        let values = ["shared", "shared", "exclusive", "shared", "shared"];
        assert_eq!(place(&values, 1), Place::Head);
        assert_eq!(place(&values, 2), waits(1, 1));
        assert_eq!(place(&values, 3), waits(2, 2));
        assert_eq!(place(&values, 4), waits(3, 2));
    }

    #[test]
    fn permits_count_and_mix_with_nothing() {
        let values = ["permit 2", "permit 2", "permit 2", "exclusive", "permit 9"];
        assert_eq!(place(&values, 1), Place::Head);
        let behind = [b"a/0".to_vec(), b"a/1".to_vec()].to_vec();
        assert_eq!(place(&values, 2), Place::Waits { number: Some(1), behind });
        assert_eq!(place(&values, 4), waits(3, 3));
    }

    #[test]
    fn a_longer_name_is_in_nobodys_way() {
        let mut kvs = keys(&["exclusive", "exclusive"]);
        kvs[0].key = b"a/b/0".to_vec();
        assert_eq!(find(&line(), &kvs, b"a/1"), Place::Head);
    }
}
