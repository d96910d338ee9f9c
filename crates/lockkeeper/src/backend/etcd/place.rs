//! Who is where in the queue of a name.
//!
//! The claims stand in the order in which their keys were created; those at the head hold the
//! name. Whether one holds depends only on those before it, and they only ever leave: so a claim
//! that was found to hold goes on holding for as long as its key is there. Go's clients wait for
//! every key before their own, so beside readers they are safe too.

use super::key::Line;
use super::proto::KeyValue;
use super::record;
use crate::backend::{FencingToken, Mode};

/// Where a claim is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At the head: it holds the name.
    Head,
    /// Waiting, as number so many if that is known, until `behind` changes.
    Waits { number: Option<usize>, behind: Behind },
    /// Its key is not there any more.
    Nowhere,
}

/// What has to go before it is worth looking again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Behind {
    Key(Vec<u8>),
    /// Any one of those in front.
    Anyone,
}

/// The token of a key that was created then.
pub(super) fn token(create_revision: i64) -> Option<FencingToken> {
    FencingToken::new(u64::try_from(create_revision).ok()?.saturating_mul(FencingToken::STEP))
}

/// Parts the claims of a line, in order, into those who hold and those who wait.
pub(super) fn part<'a>(line: &Line, kvs: &'a [KeyValue]) -> (Vec<&'a KeyValue>, Vec<&'a KeyValue>) {
    let mut claims: Vec<_> = kvs.iter().filter(|kv| line.has(&kv.key)).collect();
    claims.sort_by_key(|kv| kv.create_revision);
    let mut modes: Vec<(Mode, FencingToken)> = Vec::new();
    let head = claims.iter().position(|kv| {
        let mode = record::mode_of(&kv.value);
        let fits = mode.fits(modes.iter().copied());
        modes.extend(token(kv.create_revision).map(|token| (mode, token)));
        !fits
    });
    let waiting = claims.split_off(head.unwrap_or(claims.len()));
    (claims, waiting)
}

/// Where the claim with `key` is among the claims created up to its own.
pub(super) fn find(line: &Line, kvs: &[KeyValue], key: &[u8], mode: Mode) -> Place {
    let (holders, waiting) = part(line, kvs);
    if holders.iter().any(|kv| kv.key == key) {
        return Place::Head;
    }
    let Some(ahead) = waiting.iter().position(|kv| kv.key == key) else { return Place::Nowhere };
    let mut before = holders.iter().chain(&waiting[..ahead]).rev();
    let in_the_way = match mode {
        Mode::Exclusive => before.next(),
        // Readers let readers pass, and permits permits, up to their number.
        mode => before.find(|kv| {
            let other = record::mode_of(&kv.value);
            std::mem::discriminant(&other) != std::mem::discriminant(&mode)
        }),
    };
    let behind = in_the_way.map_or(Behind::Anyone, |kv| Behind::Key(kv.key.clone()));
    Place::Waits { number: Some(ahead + 1), behind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Name;

    fn line() -> Line {
        Line::new("", &Name::new("a").unwrap())
    }

    fn queue(values: &[&str]) -> Vec<KeyValue> {
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
        let kvs = queue(values);
        let mode = record::mode_of(&kvs[number].value);
        find(&line(), &kvs, format!("a/{number}").as_bytes(), mode)
    }

    fn waits(number: usize, behind: usize) -> Place {
        Place::Waits {
            number: Some(number),
            behind: Behind::Key(format!("a/{behind}").into_bytes()),
        }
    }

    #[test]
    fn the_first_holds_and_the_others_wait_for_the_one_before() {
        let values = ["exclusive", "", "exclusive"];
        assert_eq!(place(&values, 0), Place::Head);
        assert_eq!(place(&values, 1), waits(1, 0));
        assert_eq!(place(&values, 2), waits(2, 1));
        assert_eq!(find(&line(), &queue(&values), b"a/9", Mode::Exclusive), Place::Nowhere);
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
        assert_eq!(place(&values, 2), Place::Waits { number: Some(1), behind: Behind::Anyone });
        assert_eq!(place(&values, 4), waits(3, 3));
    }

    #[test]
    fn a_longer_name_is_in_nobodys_way() {
        let mut kvs = queue(&["exclusive", "exclusive"]);
        kvs[0].key = b"a/b/0".to_vec();
        assert_eq!(find(&line(), &kvs, b"a/1", Mode::Exclusive), Place::Head);
    }
}
