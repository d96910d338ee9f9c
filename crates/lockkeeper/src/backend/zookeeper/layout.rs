//! What the nodes of claims are called, here and in other libraries.

use crate::backend::{Claim, Mode};
use crate::error::{Error, ErrorKind, Result};

/// Whose names are used. A lock is shared with the users of one library, never of both: each
/// finds its own nodes by what stands right before the number, and overlooks the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Curator's `InterProcessMutex` and `InterProcessReadWriteLock`.
    Curator,
    /// kazoo's `Lock`, `ReadLock` and `WriteLock`.
    Kazoo,
}

/// What stands before the number, and what it means.
const CURATOR: &[(&str, Mode)] =
    &[("lock-", Mode::Exclusive), ("__READ__", Mode::Shared), ("__WRIT__", Mode::Exclusive)];
const KAZOO: &[(&str, Mode)] = &[("__lock__", Mode::Exclusive), ("__rlock__", Mode::Shared)];

/// Precedes the limit in a permit's name: `_c_…-permit-3-lock-0000000042`. With `lock-` behind
/// it, so that a mutex of Curator's takes its turn among permits.
const PERMIT: &str = "-permit-";

/// What the node is called where there is only one: `recipe=ephemeral`.
pub(super) const NODE: &str = "lock";

/// A child of a lock's node that stands for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) node: String,
    pub(super) mode: Mode,
    /// Counted by the parent; after the largest comes the smallest.
    pub(super) number: i32,
    /// Another of the same number may come before it or after.
    pub(super) may_be_doubled: bool,
}

impl Layout {
    /// What the node of `claim` is called, without the number that ZooKeeper puts behind.
    pub(super) fn prefix(self, claim: &Claim) -> String {
        let marker = match (self, claim.mode, claim.sided) {
            (Self::Curator, Mode::Shared, _) => "__READ__".to_owned(),
            (Self::Curator, Mode::Exclusive, true) => "__WRIT__".to_owned(),
            (Self::Curator, Mode::Exclusive, false) => "lock-".to_owned(),
            (Self::Curator, Mode::Permit { of }, _) => format!("permit-{of}-lock-"),
            (Self::Kazoo, Mode::Shared, _) => "__rlock__".to_owned(),
            (Self::Kazoo, ..) => "__lock__".to_owned(),
        };
        self.start(claim) + &marker
    }

    /// What tells the node of `claim` from every other: the claim's id, as the library writes it.
    pub(super) fn start(self, claim: &Claim) -> String {
        let id = claim.id.to_string();
        match self {
            Self::Kazoo => id,
            Self::Curator => {
                let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
                format!("_c_{}-", parts.join("-"))
            }
        }
    }

    /// The claims among the children of a lock, in their order.
    ///
    /// # Errors
    /// When there are claims of the other library: neither side would wait for the other.
    pub(super) fn entries(self, children: Vec<String>) -> Result<Vec<Entry>> {
        let (own, foreign) = match self {
            Self::Curator => (CURATOR, KAZOO),
            Self::Kazoo => (KAZOO, CURATOR),
        };
        let mut entries = Vec::with_capacity(children.len());
        for node in children {
            if let Some((mode, number, marker)) = read(&node, own) {
                let may_be_doubled = may_be_doubled(marker);
                entries.push(Entry { node, mode, number, may_be_doubled });
            } else if read(&node, foreign).is_some() || node == NODE {
                return Err(self.mixed(&node));
            } else {
                tracing::debug!(node, "a child of a lock that is no claim");
            }
        }
        // Whichever number is taken for the start, the order is right as long as no two numbers
        // are half the circle apart.
        if let Some(start) = entries.first().map(|entry| entry.number) {
            entries.sort_by_key(|entry| entry.number.wrapping_sub(start));
        }
        Ok(entries)
    }

    fn mixed(self, node: &str) -> Error {
        let (ours, theirs) = match self {
            Self::Curator => ("Curator's", "layout=kazoo"),
            Self::Kazoo => ("kazoo's", "layout=curator"),
        };
        let there = if node == NODE { "recipe=ephemeral" } else { theirs };
        Error::new(
            ErrorKind::Config,
            format!(
                "the lock is also used otherwise than in {ours} layout, and neither side would \
                 wait for the other: say ?{there} here, or use another name there"
            ),
        )
        .with("node", node)
    }
}

/// The number of a claim's node, in whichever layout; `None` where another may have the same.
pub(super) fn only_number(node: &str) -> Option<i32> {
    let (_, number, marker) = read(node, CURATOR).or_else(|| read(node, KAZOO))?;
    (!may_be_doubled(marker)).then_some(number)
}

/// Curator lets a writer that also reads reuse its number.
fn may_be_doubled(marker: &str) -> bool {
    matches!(marker, "__READ__" | "__WRIT__")
}

fn read<'m>(node: &str, markers: &'m [(&str, Mode)]) -> Option<(Mode, i32, &'m str)> {
    markers.iter().find_map(|(marker, mode)| {
        let (start, number) = node.rsplit_once(marker)?;
        let plain = |c: char| c.is_ascii_digit() || c == '-';
        if number.len() < 10 || !number.chars().all(plain) {
            return None;
        }
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
    use crate::claim::ClaimIds;
    use std::time::Duration;

    fn claim(mode: Mode, sided: bool) -> Claim {
        Claim {
            id: ClaimIds::new().unwrap().next(),
            name: Name::new("n").unwrap(),
            mode,
            sided,
            owner: Owner::resume("o").unwrap(),
            ttl: Duration::from_secs(1),
            whom: "".into(),
            note: "".into(),
        }
    }

    #[test]
    fn the_names_are_those_of_the_libraries() {
        let curator = |mode, sided| Layout::Curator.prefix(&claim(mode, sided));
        let mutex = curator(Mode::Exclusive, false);
        assert!(mutex.starts_with("_c_") && mutex.ends_with("-lock-"), "{mutex}");
        assert_eq!(mutex.len(), "_c_658e40f9-714a-4667-8607-f50059b5ee9d-lock-".len());
        assert!(curator(Mode::Exclusive, true).ends_with("-__WRIT__"));
        assert!(curator(Mode::Shared, true).ends_with("-__READ__"));
        let kazoo = Layout::Kazoo.prefix(&claim(Mode::Exclusive, true));
        assert_eq!(kazoo.len(), 32 + "__lock__".len());
        assert!(Layout::Kazoo.prefix(&claim(Mode::Shared, true)).ends_with("__rlock__"));
    }

    #[test]
    fn every_mode_comes_back() {
        for (layout, mode) in [
            (Layout::Curator, Mode::Exclusive),
            (Layout::Curator, Mode::Shared),
            (Layout::Curator, Mode::Permit { of: 3 }),
            (Layout::Kazoo, Mode::Exclusive),
            (Layout::Kazoo, Mode::Shared),
        ] {
            for sided in [false, true] {
                let node = layout.prefix(&claim(mode, sided)) + "0000000042";
                let entries = layout.entries(vec![node.clone()]).unwrap();
                assert_eq!((entries[0].mode, entries[0].number), (mode, 42), "{node}");
                let other = if layout == Layout::Kazoo { Layout::Curator } else { Layout::Kazoo };
                assert_eq!(other.entries(vec![node]).unwrap_err().kind(), ErrorKind::Config);
            }
        }
    }

    #[test]
    fn numbers_are_in_order_across_the_wrap() {
        let node = |number: &str| format!("_c_0-lock-{number}");
        let children =
            ["2147483647", "-2147483647", "2147483646", "-2147483648"].map(node).to_vec();
        let numbers: Vec<i32> =
            Layout::Curator.entries(children).unwrap().iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]);
    }

    #[test]
    fn what_is_no_claim_is_passed_over() {
        let children = ["locks", "leases", "lock-", "lock-12", "x-1-0000000001", "lock-00000000zz"];
        let children = children.map(str::to_owned).to_vec();
        assert_eq!(Layout::Curator.entries(children).unwrap(), []);
    }
}
