//! From a lock's name to the keys of the queue, and back.
//!
//! ```text
//!   orders/42   lockkeeper:{orders/42}   lockkeeper:{orders/42}:queue   lockkeeper:{orders/42}:state
//!   a}b%        lockkeeper:{a%7Db%25}    …
//! ```
//!
//! Injective: two names never share a key, whatever characters they have. The layout is pinned by a
//! test, because processes of two versions must agree on it.

use crate::backend::Name;
use crate::backend::support::percent;
use crate::error::Result;

/// What our keys and channels begin with unless the URL says otherwise.
pub(super) const PREFIX: &str = "lockkeeper:";

/// The keys of one name: the lock itself, the queue of those that wait, and the state beside it (the
/// holders where there are several, heartbeats, reasons of broken claims).
#[derive(Debug, Clone)]
pub(super) struct Keys {
    pub(super) lock: String,
    pub(super) queue: String,
    pub(super) state: String,
}

impl Keys {
    /// `lockkeeper:{name}`, and the same with `:queue` and `:state` behind it.
    ///
    /// What is in braces decides which node of a cluster has the key, so all three meet on one.
    /// Braces in the name are written out: `{}` would be an empty tag, and `a}b` two names.
    pub(super) fn new(prefix: &str, name: &Name) -> Self {
        let lock = format!("{prefix}{{{}}}", coded(name.as_str()));
        let (queue, state) = (format!("{lock}:queue"), format!("{lock}:state"));
        Self { lock, queue, state }
    }

    /// What the keys of all names begin with that begin with `name`.
    pub(super) fn beginning(prefix: &str, name: &str) -> String {
        format!("{prefix}{{{}", coded(name))
    }

    /// All three, in the order in which the scripts take them.
    pub(super) fn all(&self) -> [&str; 3] {
        [&self.lock, &self.queue, &self.state]
    }

    /// The name that a key belongs to, whichever of the three it is; `None` for a key that is none of
    /// ours, an error for one that looks like ours and has no valid name.
    pub(super) fn name_of(prefix: &str, key: &str) -> Option<Result<Name>> {
        let (name, _) = key.strip_prefix(prefix)?.strip_prefix('{')?.rsplit_once('}')?;
        Some(Name::new(&percent::decode(name)?))
    }
}

fn coded(name: &str) -> String {
    percent::encode(name, |_, c| !matches!(c, '%' | '{' | '}'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// In users' databases: it must not change.
    #[test]
    fn the_layout_is_pinned() {
        let keys = Keys::new(PREFIX, &Name::new("orders/42").unwrap());
        assert_eq!(keys.lock, "lockkeeper:{orders/42}");
        assert_eq!(keys.queue, "lockkeeper:{orders/42}:queue");
        assert_eq!(keys.state, "lockkeeper:{orders/42}:state");
        let braces = Keys::new("x:", &Name::new("}a{%").unwrap());
        assert_eq!(braces.lock, "x:{%7Da%7B%25}");
    }

    proptest! {
        #[test]
        fn every_name_comes_back_from_each_of_its_keys(name in "[^\\p{C}]{1,40}|[%{}27BD5]{1,12}") {
            let name = Name::new(&name).unwrap();
            for key in Keys::new(PREFIX, &name).all() {
                prop_assert_eq!(Keys::name_of(PREFIX, key).unwrap().unwrap(), name.clone());
            }
        }
    }
}
