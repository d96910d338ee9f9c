//! A claim ↔ the value of its key.
//!
//! ```text
//!   0123456789abcdef0123456789abcdef 1763274000000000 billing me@here%20pid%207 nightly%20run
//!   claim                            token, or -      owner   identity          note
//! ```
//!
//! Behind that, `%=` and an id say as which claim the lock was taken, if it passed from that one to this within
//! a keeper; and a lone `%` that someone with the ticket kept the claim. Neither is in a word before.
//!
//! Other libraries put random bytes there and compare the whole value with their own, so what stands
//! behind the id is for people only. Ours compare the id, its first 32 bytes.

use crate::backend::support::percent;
use crate::backend::{Claim, ClaimId, FencingToken, HolderView, Mode, Owner};
use std::time::Duration;

/// The length of an id.
const ID: usize = 32;

/// What stands before the id of the claim that a lock was taken as.
const PASSED: &str = "%=";

/// The value of a claim's key.
pub(super) fn value_of(claim: &Claim, token: Option<FencingToken>) -> String {
    let word = |text: &str| percent::encode(text, |_, c| c != '%' && !c.is_whitespace());
    let token = token.map_or_else(|| "-".to_owned(), |token| token.to_string());
    let (owner, identity, note) =
        (word(claim.owner.id()), word(&claim.identity), word(&claim.note));
    format!("{} {token} {owner} {identity} {note}", claim.id)
}

/// The value of a claim that the lock passed to, after it was taken as another.
pub(super) fn passed_value_of(
    claim: &Claim,
    token: Option<FencingToken>,
    taken_as: ClaimId,
) -> String {
    format!("{} {PASSED}{taken_as}", value_of(claim, token))
}

/// The id of the claim that the lock was taken as; `None` for a value of another library.
pub(super) fn taken_as(value: &[u8]) -> Option<&str> {
    let (id, rest) = (id_of(value)?, std::str::from_utf8(&value[ID..]).ok()?);
    let passed = rest.split(' ').find_map(|word| word.strip_prefix(PASSED));
    Some(passed.unwrap_or(id))
}

/// The id of the claim that a value is of; `None` for a value of another library.
pub(super) fn id_of(value: &[u8]) -> Option<&str> {
    let (id, rest) = value.split_at_checked(ID)?;
    let digits = id.iter().all(u8::is_ascii_hexdigit) && rest.first() == Some(&b' ');
    std::str::from_utf8(id).ok().filter(|_| digits)
}

/// Tells holders apart, of whatever library.
pub(super) fn holder_of(value: &[u8]) -> String {
    let id = id_of(value).map(str::to_owned);
    id.unwrap_or_else(|| String::from_utf8_lossy(&value[..value.len().min(64)]).into_owned())
}

/// Who holds a lock of this value, on a server whose clock reads `now` microseconds, for `left` more.
pub(super) fn view_of(value: &[u8], now: u64, left: Duration) -> HolderView {
    let ours = id_of(value).and_then(|_| std::str::from_utf8(value).ok());
    let view = ours.and_then(|text| ours_of(text, now));
    let foreign = || HolderView::new(Owner::from_id(holder_of(value)), Mode::Exclusive);
    HolderView { expires_in: left, ..view.unwrap_or_else(foreign) }
}

fn ours_of(text: &str, now: u64) -> Option<HolderView> {
    let mut words = text.split(' ');
    let (_, token) = (words.next()?, words.next()?);
    let owner = percent::decode(words.next()?)?;
    let identity = percent::decode(words.next()?)?;
    let note = percent::decode(words.next()?)?;
    let token = token.parse().ok().and_then(FencingToken::new);
    // A token is the time of its grant, or later where one came right after another.
    let held_for = token.map_or(0, |token| now.saturating_sub(token.get()));
    let view = HolderView::new(Owner::from_id(owner), Mode::Exclusive);
    Some(HolderView { identity, note, token, held_for: Duration::from_micros(held_for), ..view })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Name, Primitive};
    use proptest::prelude::*;

    fn claim(owner: &str, identity: &str, note: &str) -> Claim {
        Claim {
            id: "000102030405060708090a0b0c0d0e0f".parse().unwrap(),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            primitive: Primitive::Lock,
            owner: Owner::from_id(owner.to_owned()),
            ttl: Duration::from_secs(1),
            identity: identity.into(),
            note: note.into(),
            by_id: false,
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let value = value_of(&claim("billing", "me@here pid 7", ""), FencingToken::new(12));
        assert_eq!(value, "000102030405060708090a0b0c0d0e0f 12 billing me@here%20pid%207 ");
        let view = view_of(value.as_bytes(), 2_000_012, Duration::from_secs(3));
        assert_eq!((view.identity.as_str(), view.held_for.as_secs()), ("me@here pid 7", 2));
        assert_eq!(taken_as(value.as_bytes()), id_of(value.as_bytes()));
        let first = "ffffffffffffffffffffffffffffffff".parse().unwrap();
        let passed = passed_value_of(&claim("billing", "me@here pid 7", ""), None, first);
        let end = " - billing me@here%20pid%207  %=ffffffffffffffffffffffffffffffff";
        assert_eq!(passed, format!("000102030405060708090a0b0c0d0e0f{end}"));
        assert_eq!(taken_as(passed.as_bytes()), Some(&*first.to_string()));
        let marked = format!("{passed} %");
        assert_eq!(taken_as(marked.as_bytes()), Some(&*first.to_string()));
        let kept = format!("{value} %");
        assert_eq!(view_of(kept.as_bytes(), 2_000_012, Duration::from_secs(3)), view);
    }

    #[test]
    fn what_other_libraries_write_is_a_holder_too() {
        for value in [&b"\xff\x00random-bytes-20-long"[..], b"c29tZSBiYXNlNjQgdGV4dA==", b""] {
            let view = view_of(value, 5, Duration::from_secs(1));
            assert!(view.identity.is_empty() && view.token.is_none(), "{view:?}");
        }
        let hex = b"000102030405060708090a0b0c0d0e0f";
        assert_eq!(id_of(hex), None, "node-redlock's values are as long as our ids");
    }

    proptest! {
        #[test]
        fn everything_comes_back(owner in "\\PC{1,30}", identity in ".{0,30}", note in ".{0,30}") {
            let value = value_of(&claim(&owner, &identity, &note), None);
            prop_assert!(!value.ends_with(" %"), "as if a ticket had been used");
            prop_assert!(!value.contains(PASSED), "as if the lock had passed on");
            let view = view_of(value.as_bytes(), 0, Duration::ZERO);
            prop_assert_eq!((view.owner.id(), view.identity, view.note), (owner.as_str(), identity, note));
        }
    }
}
