//! From a lock's name to its key, and the keys beside it.
//!
//! ```text
//!   orders/42                            the lock: its name as it is, as other libraries have it
//!   lockkeeper:redlock:token             the largest token this server knows of, of all names
//!   lockkeeper:redlock:kept-since        since when this server has kept what it answered, by its clock
//!   lockkeeper:redlock:broken:<claim>    why a claim was broken, for as long as it would have lasted
//!   lockkeeper:redlock:free:orders/42    no key: the channel on which a release is told
//! ```
//!
//! One key for the tokens of all names, so that nothing is left of a lock that is free.

use crate::backend::Name;
use crate::error::{Error, ErrorKind, Result};

/// What the keys begin with that are no locks. No lock's name may begin so.
const OURS: &str = "lockkeeper:redlock:";

/// The keys of one server.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
    pub(super) token: String,
    pub(super) kept_since: String,
}

impl Keys {
    pub(super) fn new(prefix: String) -> Self {
        let (token, kept_since) =
            (format!("{prefix}{OURS}token"), format!("{prefix}{OURS}kept-since"));
        Self { prefix, token, kept_since }
    }

    /// The key of a lock.
    pub(super) fn lock(&self, name: &Name) -> Result<String> {
        if name.as_str().starts_with(OURS) {
            let message = format!("the name {:?} is that of a key beside the locks", name.as_str());
            return Err(Error::new(ErrorKind::InvalidName, message));
        }
        Ok(format!("{}{name}", self.prefix))
    }

    /// The key of the reason why a claim was broken.
    pub(super) fn broken(&self, claim: &str) -> String {
        format!("{}{OURS}broken:{claim}", self.prefix)
    }

    /// The channel on which it is told that a lock may be free. No name is empty, so that without one it
    /// is a channel that nobody publishes to.
    pub(super) fn freed(&self, name: &str) -> String {
        format!("{}{OURS}free:{name}", self.prefix)
    }

    /// What the keys of locks begin with whose names begin with `start`.
    pub(super) fn starting_with(&self, start: &str) -> String {
        format!("{}{start}", self.prefix)
    }

    /// The name of the lock with this key; `None` for a key that is no lock of ours.
    pub(super) fn name_of(&self, key: &str) -> Option<Name> {
        let name = key.strip_prefix(&self.prefix)?;
        if name.starts_with(OURS) {
            return None;
        }
        Name::new(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In users' databases, and shared with other libraries: it must not change.
    #[test]
    fn the_layout_is_pinned() {
        let keys = Keys::new(String::new());
        assert_eq!(keys.lock(&Name::new("orders/42").unwrap()).unwrap(), "orders/42");
        assert_eq!(keys.token, "lockkeeper:redlock:token");
        assert_eq!(keys.kept_since, "lockkeeper:redlock:kept-since");
        assert_eq!(keys.broken("ab"), "lockkeeper:redlock:broken:ab");
        assert_eq!(keys.freed("orders/42"), "lockkeeper:redlock:free:orders/42");
        let keys = Keys::new("shop:".into());
        let key = keys.lock(&Name::new("a").unwrap()).unwrap();
        assert_eq!((key.as_str(), keys.name_of(&key).unwrap().as_str()), ("shop:a", "a"));
        assert_eq!(keys.token, "shop:lockkeeper:redlock:token");
    }

    #[test]
    fn no_lock_has_the_key_of_something_else() {
        let keys = Keys::new(String::new());
        let error = keys.lock(&Name::new("lockkeeper:redlock:token").unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName);
        assert_eq!(keys.name_of("lockkeeper:redlock:token"), None);
    }
}
