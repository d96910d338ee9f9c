//! Names ↔ keys, and which server a name is on. Pinned by tests: all programs must agree.
//!
//! ```text
//! lockkeeper:orders/42                       the lock orders/42
//! lockkeeper:nightly%20report                what is not plain is written %XX
//! lockkeeper:%F0%9F%94%92%F0…%#5f0c…         longer than a key may be: a beginning, and a hash
//! lockkeeper:%=invoices                      the sequence invoices
//! lockkeeper:%@workers/7                     the record workers/7
//! lockkeeper:%!5f0c…                         why the claim with this id was broken
//! ```
//!
//! A key of memcached has at most 250 bytes, without spaces and control characters; a longer one,
//! or one with a line break in it, would be taken for commands. So no character reaches the server
//! that is not on a short list, and `%` in front of anything but two digits marks what is no plain
//! name.

use crate::backend::Name;
use crate::backend::support::options::config;
use crate::backend::support::percent;
use crate::error::Result;
use ring::digest::{SHA256, digest};
use std::borrow::Cow;

/// The longest key.
const LONGEST: usize = 250;
/// The longest prefix: what remains is enough for a hash, and for a beginning that people recognise.
const LONGEST_PREFIX: usize = 100;
/// Two characters, and 64 digits of SHA-256.
const HASH: usize = 66;

/// What stands between the prefix and what is no lock.
const SEQUENCE: &str = "%=";
const RECORD: &str = "%@";
const BROKEN: &str = "%!";

/// How names become keys.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
    /// The servers, as they are hashed.
    servers: Vec<String>,
}

/// Where a name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The index of the server.
    pub(super) server: usize,
    pub(super) key: String,
}

impl Keys {
    /// # Errors
    /// For a prefix that keys cannot begin with, and for servers of which there is none, or one
    /// twice.
    pub(super) fn new(prefix: &str, hosts: &[(String, u16)]) -> Result<Self> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
        if prefix.len() > LONGEST_PREFIX || !prefix.bytes().all(plain) {
            return Err(config(format!(
                "a prefix has at most {LONGEST_PREFIX} ASCII characters, without spaces and %"
            )));
        }
        let servers: Vec<String> = hosts.iter().map(address).collect();
        if servers.is_empty() {
            return Err(config("name at least one server: memcached://host:11211"));
        }
        if (1..servers.len()).any(|index| servers[..index].contains(&servers[index])) {
            return Err(config("a server is named twice"));
        }
        Ok(Self { prefix: prefix.to_owned(), servers })
    }

    /// What every key of ours begins with; empty where a key cannot be told from another program's.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Where the lock of this name is.
    pub(super) fn of(&self, name: &Name) -> Place {
        self.place(self.coded("", name))
    }

    /// Where the count of a sequence is.
    pub(super) fn sequence(&self, name: &Name) -> Place {
        self.place(self.coded(SEQUENCE, name))
    }

    /// Where a record is.
    pub(super) fn record(&self, name: &Name) -> Place {
        self.place(self.coded(RECORD, name))
    }

    /// Whether a key that a server listed may be that of a record.
    pub(super) fn is_record(&self, key: &str) -> bool {
        key.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(RECORD))
    }

    /// The server whose clock counts: the same for all programs, in whatever order they name them.
    pub(super) fn clock(&self) -> usize {
        self.place(format!("{}{RECORD}", self.prefix)).server
    }

    /// Where it is said why a claim was broken: on the server of the lock.
    pub(super) fn broken(&self, lock: &Place, id: &str) -> Place {
        Place { server: lock.server, key: format!("{}{BROKEN}{id}", self.prefix) }
    }

    /// Whether a key that a server listed may be that of a lock.
    pub(super) fn is_lock(&self, key: &str) -> bool {
        let marked = |rest: &str| [SEQUENCE, RECORD, BROKEN].iter().any(|m| rest.starts_with(m));
        key.strip_prefix(&self.prefix).is_some_and(|rest| !marked(rest))
    }

    fn coded(&self, mark: &str, name: &Name) -> String {
        let coded = match name.as_str().chars().all(is_plain) {
            true => Cow::Borrowed(name.as_str()),
            false => Cow::Owned(percent::encode(name.as_str(), |_, c| is_plain(c))),
        };
        let key = [&self.prefix, mark, &coded].concat();
        if key.len() <= LONGEST {
            return key;
        }
        let hash = digest(&SHA256, name.as_str().as_bytes());
        let digits: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        // All of it is ASCII, so that it can be cut anywhere.
        format!("{}%#{digits}", &key[..LONGEST - HASH])
    }

    /// The server with the highest score for this key has it (rendezvous hashing): the order of the
    /// servers does not matter, and a server that is added or taken away moves only its own names.
    fn place(&self, key: String) -> Place {
        let score = |server: &String| {
            mixed(fnv(fnv(OFFSET, server.as_bytes()).wrapping_mul(PRIME), key.as_bytes()))
        };
        let best = (0..self.servers.len()).max_by_key(|index| score(&self.servers[*index]));
        Place { server: best.unwrap_or_default(), key }
    }
}

/// A host and port, as a URL has them.
pub(super) fn address((host, port): &(String, u16)) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Characters that stand for themselves in a key.
fn is_plain(c: char) -> bool {
    c.is_ascii_graphic() && c != '%'
}

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a. Not the standard library's hasher, which may change from one release to the next.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// Spreads what FNV leaves in the low bits over all of them, as MurmurHash3 ends.
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn keys(prefix: &str, servers: u16) -> Keys {
        let hosts: Vec<_> = (1..=servers).map(|number| (format!("h{number}"), 11211)).collect();
        Keys::new(prefix, &hosts).unwrap()
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn the_layout_is_pinned() {
        let bare = keys("", 1);
        let keys = keys("lockkeeper:", 3);
        let pinned = [("orders/42", 0), ("nightly report", 0), ("100%", 0), ("ü", 2), ("a", 0)];
        let shown: Vec<_> = pinned.map(|(text, _)| keys.of(&name(text)).key).to_vec();
        assert_eq!(
            shown,
            [
                "lockkeeper:orders/42",
                "lockkeeper:nightly%20report",
                "lockkeeper:100%25",
                "lockkeeper:%C3%BC",
                "lockkeeper:a"
            ]
        );
        let servers: Vec<_> = pinned.map(|(text, _)| keys.of(&name(text)).server).to_vec();
        assert_eq!(servers, pinned.map(|(_, server)| server));
        assert_eq!(keys.sequence(&name("a b")).key, "lockkeeper:%=a%20b");
        assert_eq!(keys.record(&name("a b")).key, "lockkeeper:%@a%20b");
        assert_eq!(keys.clock(), 1);
        let long = keys.of(&name(&"🔒".repeat(50))).key;
        assert_eq!(long.len(), LONGEST);
        assert!(long.starts_with("lockkeeper:%F0%9F%94%92"), "{long}");
        let hash = "%#810eaba3e36976b761aeb821eb6db0fe37c871495fab1f2340c94be37b603fc6";
        assert!(long.ends_with(hash), "{long}");
        assert_eq!(bare.of(&name("a")).key, "a");
    }

    #[test]
    fn a_server_that_is_taken_away_moves_its_own_names_only() {
        let (three, two) = (keys("", 3), keys("", 2));
        let mut spread: HashMap<usize, usize> = HashMap::new();
        for number in 0..3000 {
            let name = name(&format!("orders/{number}"));
            let (before, after) = (three.of(&name).server, two.of(&name).server);
            *spread.entry(before).or_default() += 1;
            assert!(before == 2 || before == after, "{name} moved from {before} to {after}");
        }
        assert!(spread.values().all(|names| (800..1200).contains(names)), "{spread:?}");
    }

    proptest! {
        /// Whatever a name holds, its keys are what memcached takes for one word.
        #[test]
        fn no_name_reaches_the_protocol_as_it_is(
            text in "\\PC{1,60}|[ %\\r\\n]{1,8}|.{180,200}",
            prefix in "[a-z:]{0,100}",
        ) {
            let Ok(name) = Name::new(&text) else { return Ok(()) };
            let keys = Keys::new(&prefix, &[("h".to_owned(), 1)]).unwrap();
            for key in [keys.of(&name).key, keys.sequence(&name).key, keys.record(&name).key] {
                prop_assert!(key.len() <= LONGEST && !key.is_empty(), "{key}");
                prop_assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
            }
            prop_assert!(keys.is_lock(&keys.of(&name).key));
            prop_assert!(!keys.is_lock(&keys.sequence(&name).key));
            prop_assert!(!keys.is_lock(&keys.record(&name).key));
            prop_assert!(keys.is_record(&keys.record(&name).key));
            prop_assert!(!keys.is_record(&keys.of(&name).key));
            prop_assert!(!keys.is_record(&keys.sequence(&name).key));
        }

        #[test]
        fn no_two_names_are_one(one in "[ab%# ]{1,200}", two in "[ab%# ]{1,200}") {
            let keys = keys("p:", 1);
            let (first, second) = (keys.of(&name(&one)).key, keys.of(&name(&two)).key);
            prop_assert_eq!(one == two, first == second);
        }
    }
}
