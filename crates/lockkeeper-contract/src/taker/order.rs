//! Parses one order.

use lockkeeper::{Error, ErrorKind, Keeper, Lock, Owner, Result, Ticket};
use std::collections::HashMap;
use std::time::Duration;

/// `slot verb key=value … name=anything`.
pub(super) struct Order {
    pub(super) slot: String,
    pub(super) verb: String,
    words: HashMap<String, String>,
}

impl Order {
    pub(super) fn parse(line: &str) -> Self {
        let (head, name) = line.split_once(" name=").unwrap_or((line, ""));
        let mut parts = head.split_whitespace();
        let mut part = || parts.next().unwrap_or("-").to_owned();
        let (slot, verb) = (part(), part());
        let pairs = parts.filter_map(|part| part.split_once('='));
        let mut words: HashMap<String, String> =
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        words.insert("name".into(), name.into());
        Self { slot, verb, words }
    }

    pub(super) fn word(&self, key: &str) -> Option<&str> {
        self.words.get(key).map(String::as_str)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.word(key)?.parse().ok()
    }

    pub(super) fn time(&self, key: &str) -> Option<Duration> {
        self.number(key).map(Duration::from_millis)
    }

    /// The ticket that the order is about, which stands where a name would.
    pub(super) fn ticket(&self) -> Result<Ticket> {
        self.word("name").unwrap_or_default().parse()
    }

    /// The lock that the order is about, with its terms.
    pub(super) fn lock(&self, keeper: &Keeper) -> Result<Lock> {
        let name = self.word("name").unwrap_or_default();
        let mut lock = match self.word("mode") {
            None | Some("exclusive") => keeper.lock(name),
            Some("shared") => keeper.rw_lock(name).read(),
            Some(other) => match other.strip_prefix("permit:").and_then(|of| of.parse().ok()) {
                Some(permits) => keeper.semaphore(name, permits),
                None => {
                    return Err(Error::new(ErrorKind::Config, format!("no mode {other:?}")));
                }
            },
        };
        if let Some(ttl) = self.time("ttl") {
            lock = lock.ttl(ttl);
        }
        if let Some(least) = self.time("min") {
            lock = lock.min_hold(least);
        }
        if let Some(most) = self.time("max") {
            lock = lock.max_hold(most);
        }
        if let Some(id) = self.word("id") {
            lock = lock.claim(id.parse()?);
        }
        if let Some(owner) = self.word("owner") {
            lock = lock.owner(&Owner::new(owner)?);
        }
        Ok(lock)
    }
}
