//! What the nodes of claims are called, here and in other libraries.
//!
//! Every library recognises its own nodes by the text right before the number, and overlooks all
//! others: two libraries with different texts on one node would both grant the lock. So a lock
//! that has children of another layout or recipe is refused instead of shared in silence.
//!
//! | layout | claim | node |
//! |---|---|---|
//! | curator | lock | `_c_<uuid>-lock-0000000042` |
//! | | read, write | `_c_<uuid>-__READ__0000000042`, `_c_<uuid>-__WRIT__0000000042` |
//! | | permit of 3 | `_c_<uuid>-permit-3-lock-0000000042` |
//! | kazoo | lock and write, read | `<hex>__lock__0000000042`, `<hex>__rlock__0000000042` |
//! | latch | lock | `_c_<uuid>-latch-0000000042` |
//! | `recipe=ephemeral` | lock | `lock` |

use crate::backend::{Claim, Mode, Primitive};
use crate::error::{Error, ErrorKind, Result};

/// Which library's node names are used. A lock is shared with the users of one layout, never of
/// two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Curator's `InterProcessMutex` and `InterProcessReadWriteLock`.
    Curator,
    /// kazoo's `Lock`, `ReadLock` and `WriteLock`.
    Kazoo,
    /// Curator's `LeaderLatch`, which counts none but its own.
    Latch,
}

/// Every layout, to recognise a node of another one.
const ALL: [Layout; 3] = [Layout::Curator, Layout::Kazoo, Layout::Latch];

/// The text before the number, and the mode that it stands for.
const CURATOR: &[(&str, Mode)] =
    &[("lock-", Mode::Exclusive), ("__READ__", Mode::Shared), ("__WRIT__", Mode::Exclusive)];
const KAZOO: &[(&str, Mode)] = &[("__lock__", Mode::Exclusive), ("__rlock__", Mode::Shared)];
const LATCH: &[(&str, Mode)] = &[("latch-", Mode::Exclusive)];

/// Precedes the limit in a permit's name: `_c_…-permit-3-lock-0000000042`. The name goes on with
/// `lock-`, so that a mutex of Curator's counts permits and takes its turn among them.
const PERMIT: &str = "-permit-";

/// The only node there can be: `recipe=ephemeral`.
pub(super) const SINGLE_NODE: &str = "lock";

/// A child of a lock's node that stands for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name, without the path.
    pub(super) node: String,
    pub(super) mode: Mode,
    /// From the counter of the lock's node.
    pub(super) number: i32,
    /// Another node with the same number may be created, before this one in the queue or after.
    pub(super) may_be_doubled: bool,
}

impl Layout {
    /// The name of the node of `claim`, without the number that ZooKeeper appends.
    pub(super) fn name_without_number(self, claim: &Claim) -> String {
        // A claim of a read-write lock that writes is a writer to Curator, and a lock is a mutex:
        // Curator's two recipes do not see each other's nodes, so neither may ours be mixed up.
        let marker = match (self, claim.mode, claim.primitive == Primitive::RwLock) {
            (Self::Curator, Mode::Shared, _) => "__READ__".to_owned(),
            (Self::Curator, Mode::Exclusive, true) => "__WRIT__".to_owned(),
            (Self::Curator, Mode::Exclusive, false) => "lock-".to_owned(),
            (Self::Curator, Mode::Permit { of }, _) => format!("permit-{of}-lock-"),
            (Self::Kazoo, Mode::Shared, _) => "__rlock__".to_owned(),
            (Self::Kazoo, ..) => "__lock__".to_owned(),
            (Self::Latch, ..) => "latch-".to_owned(),
        };
        self.unique_prefix(claim) + &marker
    }

    /// A prefix that only the node of `claim` has: the claim's id, as the library writes ids. By it
    /// the node is found again when the answer to its creation was lost.
    pub(super) fn unique_prefix(self, claim: &Claim) -> String {
        let id = claim.id.to_string();
        match self {
            Self::Kazoo => id,
            Self::Curator | Self::Latch => {
                let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
                format!("_c_{}-", parts.join("-"))
            }
        }
    }

    /// The markers of this layout.
    fn markers(self) -> &'static [(&'static str, Mode)] {
        match self {
            Self::Curator => CURATOR,
            Self::Kazoo => KAZOO,
            Self::Latch => LATCH,
        }
    }

    /// The name in a URL.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
            Self::Latch => "latch",
        }
    }

    /// The layout with this name in a URL.
    pub(super) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|layout| layout.name() == name)
    }

    /// The claims among the children of a lock's node, in order of number.
    ///
    /// # Errors
    /// When there are nodes of another layout or recipe: neither side would wait for the other.
    pub(super) fn entries(self, children: Vec<String>) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(children.len());
        for node in children {
            if let Some((mode, number, marker)) = read(&node, self.markers()) {
                let may_be_doubled = may_be_doubled(marker);
                entries.push(Entry { node, mode, number, may_be_doubled });
            } else if let Some(error) = self.conflict(&node) {
                return Err(error);
            } else {
                tracing::debug!(node, "a child of a lock that is no claim");
            }
        }
        entries.sort_by_key(|entry| entry.number);
        Ok(entries)
    }

    /// Why this child, which is no claim of this layout, must not be there; `None` if it may.
    fn conflict(self, node: &str) -> Option<Error> {
        let other = ALL.into_iter().find(|layout| read(node, layout.markers()).is_some());
        let here = match other {
            Some(other) => format!("say ?layout={} here", other.name()),
            None if node == SINGLE_NODE => "say ?recipe=ephemeral here".to_owned(),
            None => format!("{} has it", recipe_of(node)?),
        };
        let message = format!(
            "the lock is also used otherwise than in the layout {}, and neither side would wait \
             for the other: {here}, or use another name",
            self.name()
        );
        Some(Error::new(ErrorKind::Config, message).with("node", node))
    }
}

/// Which recipe a node belongs to that none of our layouts shares.
///
/// `None` for a node that belongs to none: with other libraries, one lock may be below another.
fn recipe_of(node: &str) -> Option<&'static str> {
    // Ten digits behind a separator: what a sequential node of any recipe looks like.
    let is_numbered = || {
        let (start, number) = node.split_at_checked(node.len().checked_sub(10)?)?;
        let is_one = start.ends_with(['-', '_']) && number.bytes().all(|c| c.is_ascii_digit());
        is_one.then_some(())
    };
    let is_hex = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    if matches!(node, "locks" | "leases") {
        Some("Curator's InterProcessSemaphoreV2 or InterProcessSemaphoreMutex")
    } else if node.len() == 32 && node.bytes().all(is_hex) {
        Some("kazoo's Semaphore")
    } else {
        is_numbered().map(|()| "another recipe")
    }
}

/// The number of a claim's node, in any layout.
pub(super) fn number_of(node: &str) -> Option<i32> {
    read_any(node).map(|(_, number, _)| number)
}

/// The same; `None` where another node may have that number too.
pub(super) fn only_number(node: &str) -> Option<i32> {
    let (_, number, marker) = read_any(node)?;
    (!may_be_doubled(marker)).then_some(number)
}

fn read_any(node: &str) -> Option<(Mode, i32, &'static str)> {
    ALL.into_iter().find_map(|layout| read(node, layout.markers()))
}

/// Curator lets a writer that begins to read create its reader's node with the same number.
fn may_be_doubled(marker: &str) -> bool {
    matches!(marker, "__READ__" | "__WRIT__")
}

/// Takes a node's name apart: its mode, its number and the marker before it. A number has at least
/// ten digits, as ZooKeeper pads it; it is negative where the counter has overflown.
fn read<'m>(node: &str, markers: &'m [(&str, Mode)]) -> Option<(Mode, i32, &'m str)> {
    markers.iter().find_map(|(marker, mode)| {
        let (start, number) = node.rsplit_once(marker)?;
        let plain = |c: char| c.is_ascii_digit() || c == '-';
        if number.len() < 10 || !number.chars().all(plain) {
            return None;
        }
        // A number beyond 32 bits is none of ZooKeeper's.
        let number = number.parse().ok()?;
        let permit = start.rsplit_once(PERMIT).filter(|_| *marker == "lock-");
        let of = permit.and_then(|(_, of)| of.strip_suffix('-')?.parse().ok());
        Some((of.map_or(*mode, |of| Mode::Permit { of }), number, *marker))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Name, Owner};
    use crate::claim::{ClaimIds, Primitive};
    use std::time::Duration;

    fn claim(mode: Mode, sided: bool) -> Claim {
        Claim {
            id: ClaimIds::new().unwrap().next(),
            name: Name::new("n").unwrap(),
            mode,
            primitive: if sided { Primitive::RwLock } else { Primitive::Lock },
            owner: Owner::new("o").unwrap(),
            ttl: Duration::from_secs(1),
            identity: "".into(),
            note: "".into(),
            by_id: false,
        }
    }

    #[test]
    fn the_names_are_those_of_the_libraries() {
        let curator = |mode, sided| Layout::Curator.name_without_number(&claim(mode, sided));
        let mutex = curator(Mode::Exclusive, false);
        assert!(mutex.starts_with("_c_") && mutex.ends_with("-lock-"), "{mutex}");
        assert_eq!(mutex.len(), "_c_658e40f9-714a-4667-8607-f50059b5ee9d-lock-".len());
        assert!(curator(Mode::Exclusive, true).ends_with("-__WRIT__"));
        assert!(curator(Mode::Shared, true).ends_with("-__READ__"));
        let kazoo = Layout::Kazoo.name_without_number(&claim(Mode::Exclusive, true));
        assert_eq!(kazoo.len(), 32 + "__lock__".len());
        assert!(
            Layout::Kazoo.name_without_number(&claim(Mode::Shared, true)).ends_with("__rlock__")
        );
    }

    #[test]
    fn every_mode_comes_back() {
        for (layout, mode) in [
            (Layout::Curator, Mode::Exclusive),
            (Layout::Curator, Mode::Shared),
            (Layout::Curator, Mode::Permit { of: 3 }),
            (Layout::Kazoo, Mode::Exclusive),
            (Layout::Kazoo, Mode::Shared),
            (Layout::Latch, Mode::Exclusive),
        ] {
            for sided in [false, true] {
                let node = layout.name_without_number(&claim(mode, sided)) + "0000000042";
                let entries = layout.entries(vec![node.clone()]).unwrap();
                assert_eq!((entries[0].mode, entries[0].number), (mode, 42), "{node}");
                for other in ALL.into_iter().filter(|other| *other != layout) {
                    let error = other.entries(vec![node.clone()]).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Config);
                    assert!(error.to_string().contains(layout.name()), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_claim_is_passed_over() {
        let children = ["42", "order-42", "lock-", "lock-12", "lock-00000000zz", "a%2Fb"];
        let children = children.map(str::to_owned).to_vec();
        assert_eq!(Layout::Curator.entries(children).unwrap(), []);
    }

    #[test]
    fn nodes_of_other_recipes_are_reported() {
        for (node, whose) in [
            ("locks", "InterProcessSemaphoreV2"),
            ("leases", "InterProcessSemaphoreV2"),
            ("0123456789abcdef0123456789abcdef", "kazoo's Semaphore"),
            ("x-72057594037927936-0000000001", "another recipe"),
            ("n_0000000000", "another recipe"),
            ("lock", "recipe=ephemeral"),
        ] {
            for layout in ALL {
                let error = layout.entries(vec![node.to_owned()]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains(whose), "{error}");
                assert_eq!(error.detail("node"), Some(node));
            }
        }
    }
}
