//! From a lock's name to its node, and back.
//!
//! ```text
//!   root /locks, name orders       /locks/orders
//!   root /locks, name orders/42    /locks/orders%2F42
//!   no root,     name zookeeper    /%7Aookeeper
//!   root /locks, sequence orders   /locks/%sequences/orders
//!   root /locks, record orders     /locks/%records/orders
//!   root /locks                    /locks/%clock
//! ```
//!
//! The mapping is injective, and its results are ordinary path elements: another library uses the lock
//! by its path.

use crate::backend::Name;
use crate::backend::support::percent;

/// The lock's node for a name below `root`: one path element, whatever the name is made of.
///
/// A `/` in the element would make two locks parent and child, and a library that counts children
/// would take one for a claim on the other. It is percent-encoded, as is everything else that
/// ZooKeeper does not allow in a path, and `%` itself so that there is a way back.
pub(super) fn path_of(root: &str, name: &Name) -> String {
    // `.` and `..` are not allowed as whole elements, and `/zookeeper` is the server's own.
    let reserved = matches!(name.as_str(), "." | ".." | "zookeeper");
    let element =
        percent::encode(name.as_str(), |index, c| is_allowed(c) && !(reserved && index == 0));
    format!("{root}/{element}")
}

/// What sequences are below: no name's element, since `%` there stands before two digits.
const SEQUENCES: &str = "%sequences";
/// What records are below.
const RECORDS: &str = "%records";
/// The node that is written to learn the time.
const CLOCK: &str = "%clock";

/// The node of a sequence.
pub(super) fn sequence_path(root: &str, name: &Name) -> String {
    path_of(&format!("{root}/{SEQUENCES}"), name)
}

/// The node that the nodes of all records are below.
pub(super) fn records_path(root: &str) -> String {
    format!("{root}/{RECORDS}")
}

/// The node that is written to learn the time.
pub(super) fn clock_path(root: &str) -> String {
    format!("{root}/{CLOCK}")
}

/// Whether Java's ZooKeeper takes the character in a path. Beyond the first plane a character is
/// two surrogates there, which it does not take.
fn is_allowed(c: char) -> bool {
    !matches!(c, '/' | '%' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}')
        && !matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The name that a path element below the root belongs to; `None` when it is none of ours.
pub(super) fn name_of(element: &str) -> Option<Name> {
    Name::new(&percent::decode(element)?).ok()
}

/// Every ancestor of `path`, the highest first, without `path` itself.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(index, _)| &path[..index]).filter(|ancestor| !ancestor.is_empty())
}

/// The last element of a path.
pub(super) fn node_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_pinned() {
        let of = |name: &str| path_of("/locks", &Name::new(name).unwrap());
        assert_eq!(of("orders"), "/locks/orders");
        assert_eq!(of("orders/42"), "/locks/orders%2F42");
        assert_eq!(of("100%"), "/locks/100%25");
        assert_eq!(of("."), "/locks/%2E");
        assert_eq!(of("zookeeper"), "/locks/%7Aookeeper");
        assert_eq!(of("é"), "/locks/é");
        assert_eq!(of("🔒\u{fffd}"), "/locks/%F0%9F%94%92%EF%BF%BD");
        let orders = Name::new("orders/42").unwrap();
        assert_eq!(sequence_path("/locks", &orders), "/locks/%sequences/orders%2F42");
        assert_eq!(path_of(&records_path("/locks"), &orders), "/locks/%records/orders%2F42");
        assert_eq!(clock_path(""), "/%clock");
        for beside in [SEQUENCES, RECORDS, CLOCK] {
            assert_eq!(name_of(beside), None);
        }
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in "[^\\p{Cc}]{1,40}|[%/.25F]{1,12}") {
            let name = Name::new(&name).unwrap();
            let path = path_of("/r", &name);
            let element = path.strip_prefix("/r/").unwrap();
            prop_assert!(!element.contains('/'));
            prop_assert_eq!(name_of(element), Some(name));
        }
    }
}
