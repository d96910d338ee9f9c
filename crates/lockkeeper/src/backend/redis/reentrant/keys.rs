//! From a lock's name to Redisson's keys and channels, and to ours beside them.
//!
//! | | name `orders/42` | name `a{b}c` |
//! |---|---|---|
//! | lock | `orders/42` | `a{b}c` |
//! | readers | `{orders/42}:<owner>:rwlock_timeout:<n>` | `a{b}c:<owner>:rwlock_timeout:<n>` |
//! | told of releases | `redisson_lock__channel:{orders/42}` | `redisson_lock__channel:a{b}c` |
//! | | `redisson_rwlock:{orders/42}` | `redisson_rwlock:a{b}c` |
//! | our notes | `lockkeeper:reentrant:{orders/42}` | `lockkeeper:reentrant:tagged:a{b}c` |
//!
//! The first four rows are Redisson's, which puts braces around a name that has no opening one and
//! leaves all others as they are. In a cluster all keys of a lock must be on one node, which some names
//! with braces do not allow: those are refused there.

use crate::backend::Name;
use crate::error::{Error, ErrorKind, Result};

/// What our own keys begin with, so that no lock may.
const NOTES: &str = "lockkeeper:reentrant:";

/// How names become keys.
#[derive(Debug)]
pub(super) struct Layout {
    /// Before every name, as a name mapper of Redisson may put it.
    pub(super) prefix: String,
    /// Whether keys are spread over the nodes of a cluster.
    pub(super) clustered: bool,
}

/// The keys of one name.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    pub(super) lock: String,
    notes: String,
    /// Where Redisson's locks are told of a release.
    lock_channel: String,
    /// Where its read-write locks are.
    rw_channel: String,
    /// What the keys begin with that keep readers alive.
    pub(super) readers: String,
}

impl Keys {
    /// All that the scripts take, in their order.
    pub(super) fn all(&self) -> [&str; 4] {
        [&self.lock, &self.notes, &self.lock_channel, &self.rw_channel]
    }

    /// Those that are keys, without the channels.
    pub(super) fn stored(&self) -> [&str; 2] {
        [&self.lock, &self.notes]
    }

    /// Where releases are published.
    pub(super) fn channels(&self) -> [&str; 2] {
        [&self.lock_channel, &self.rw_channel]
    }
}

impl Layout {
    /// # Errors
    /// `InvalidName` for a name that Redisson cannot use, or that is a key of ours.
    pub(super) fn keys(&self, name: &Name) -> Result<Keys> {
        let lock = format!("{}{name}", self.prefix);
        if lock.starts_with(NOTES) {
            return Err(refused(name, "it begins as our own keys do"));
        }
        if self.clustered && !has_one_slot(&lock) {
            return Err(refused(
                name,
                "its braces put the keys of one lock on several nodes of the cluster",
            ));
        }
        // Redisson's rule, braces in the name and all; `tagged` keeps `a` from meeting `{a}`.
        let tagged = lock.contains('{');
        let (open, close) = if tagged { ("", "") } else { ("{", "}") };
        let mark = if tagged { "tagged:" } else { "" };
        Ok(Keys {
            notes: format!("{NOTES}{mark}{open}{lock}{close}"),
            lock_channel: format!("redisson_lock__channel:{open}{lock}{close}"),
            rw_channel: format!("redisson_rwlock:{open}{lock}{close}"),
            readers: format!("{open}{lock}{close}:"),
            lock,
        })
    }

    /// The name that a lock's key belongs to, if it can be one.
    pub(super) fn name_of(&self, key: &str) -> Option<Name> {
        let name = key.strip_prefix(&self.prefix).filter(|_| !key.starts_with(NOTES))?;
        Name::new(name).ok()
    }
}

/// Whether Redisson's keys for `lock` meet in one slot: it puts braces around a name that has no
/// opening one, and leaves all others as they are.
fn has_one_slot(lock: &str) -> bool {
    match lock.split_once('{') {
        None => !lock.contains('}'),
        Some((_, rest)) => rest.find('}').is_some_and(|end| end > 0),
    }
}

/// The error for a name that cannot be a lock.
fn refused(name: &Name, why: &str) -> Error {
    Error::new(ErrorKind::InvalidName, format!("{name:?} cannot be a lock here: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str, clustered: bool) -> Result<Keys> {
        let layout = Layout { prefix: String::new(), clustered };
        layout.keys(&Name::new(name).unwrap())
    }

    /// Redisson's part is what its source does; ours must not change between versions.
    #[test]
    fn the_layout_is_pinned() {
        let plain = keys("orders/42", true).unwrap();
        assert_eq!(plain.lock, "orders/42");
        assert_eq!(plain.notes, "lockkeeper:reentrant:{orders/42}");
        assert_eq!(plain.lock_channel, "redisson_lock__channel:{orders/42}");
        assert_eq!(plain.rw_channel, "redisson_rwlock:{orders/42}");
        assert_eq!(plain.readers, "{orders/42}:");
        let tagged = keys("a{b}c", true).unwrap();
        assert_eq!(tagged.notes, "lockkeeper:reentrant:tagged:a{b}c");
        assert_eq!(tagged.lock_channel, "redisson_lock__channel:a{b}c");
        assert_eq!(tagged.readers, "a{b}c:");
        assert_ne!(keys("{a}", false).unwrap().notes, keys("a", false).unwrap().notes);
    }

    #[test]
    fn a_name_without_one_slot_is_refused_in_a_cluster_only() {
        for name in ["a{b", "x{}", "a}b", "{", "}", "}{", "{}a{b}"] {
            assert!(keys(name, false).is_ok(), "{name}");
            assert_eq!(keys(name, true).unwrap_err().kind(), ErrorKind::InvalidName, "{name}");
        }
        for name in ["a", "{a}", "a{b}c", "a}b{c}", "{a}{"] {
            assert!(keys(name, true).is_ok(), "{name}");
        }
    }

    /// A lock called as our notes are would be its own neighbour.
    #[test]
    fn our_own_keys_are_no_locks() {
        let name = "lockkeeper:reentrant:{a}";
        assert_eq!(keys(name, false).unwrap_err().kind(), ErrorKind::InvalidName);
        let layout = Layout { prefix: "app:".into(), clustered: false };
        assert_eq!(layout.name_of("app:a").unwrap().as_str(), "a");
        assert_eq!(layout.name_of("other:a"), None);
        assert_eq!(Layout { prefix: String::new(), clustered: false }.name_of(name), None);
    }
}
