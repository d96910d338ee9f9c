//! From a lock's name to a node.

use crate::backend::Name;

/// The node of a name below `root`: one element, whatever the name is made of.
///
/// `/` would make two locks parent and child, and a library that counts children would take one
/// for a claim on the other. What ZooKeeper does not allow in a path is written as `%` and two
/// digits for each of its bytes, and so is `%` itself.
pub(super) fn of(root: &str, name: &Name) -> String {
    let mut path = String::with_capacity(root.len() + name.as_str().len() + 1);
    path.push_str(root);
    path.push('/');
    let reserved = matches!(name.as_str(), "." | ".." | "zookeeper");
    for (index, c) in name.as_str().chars().enumerate() {
        if allowed(c) && !(reserved && index == 0) {
            path.push(c);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in c.encode_utf8(&mut bytes).bytes() {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// As Java sees it: beyond the first plane a character is two surrogates, which are not allowed.
fn allowed(c: char) -> bool {
    !matches!(c, '/' | '%' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}')
        && !matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The name that an element below the root belongs to; `None` when it is none of ours.
pub(super) fn name_of(element: &str) -> Option<Name> {
    let mut bytes = Vec::with_capacity(element.len());
    let mut rest = element.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &tail[2..];
    }
    Name::new(&String::from_utf8(bytes).ok()?).ok()
}

/// Every ancestor of `path`, the highest first, without `path` itself.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(index, _)| &path[..index]).filter(|ancestor| !ancestor.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_pinned() {
        let of = |name: &str| of("/locks", &Name::new(name).unwrap());
        assert_eq!(of("orders"), "/locks/orders");
        assert_eq!(of("orders/42"), "/locks/orders%2F42");
        assert_eq!(of("100%"), "/locks/100%25");
        assert_eq!(of("."), "/locks/%2E");
        assert_eq!(of("zookeeper"), "/locks/%7Aookeeper");
        assert_eq!(of("é"), "/locks/é");
        assert_eq!(of("🔒\u{fffd}"), "/locks/%F0%9F%94%92%EF%BF%BD");
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in "[^\\p{Cc}]{1,40}|[%/.25F]{1,12}") {
            let name = Name::new(&name).unwrap();
            let path = of("/r", &name);
            let element = path.strip_prefix("/r/").unwrap();
            prop_assert!(!element.contains('/'));
            prop_assert_eq!(name_of(element), Some(name));
        }
    }
}
