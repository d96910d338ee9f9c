//! Which node of a cluster has which keys.
//!
//! The slot of a key is a checksum of it; if the key has braces, of what is between the first ones. So
//! keys with the same text in braces are on one node, which is what a script with several keys needs.
//!
//! Nodes tell of slots in two ways: all of them at once (`CLUSTER SLOTS`), and one by one in
//! redirections (`MOVED`). A redirection is newer than the list before it, and goes before it until the
//! next list.

use super::topology::Host;
use redis::Value;
use std::collections::HashMap;

/// Which node serves which slots, as a node said.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// First, last, primary.
    ranges: Vec<(u16, u16, Host)>,
    replicas: Vec<Host>,
    /// What was said since of single slots.
    moved: HashMap<u16, Host>,
}

impl Slots {
    /// From an answer to CLUSTER SLOTS of the node at `asked`; `None` where no slot is served.
    pub(super) fn read(answer: &Value, asked: &Host) -> Option<Self> {
        let mut slots = Self::default();
        let Value::Array(ranges) = answer else { return None };
        for range in ranges {
            let Value::Array(range) = range else { continue };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &range[..] else { continue };
            let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(*last)) else {
                continue;
            };
            let mut hosts = nodes.iter().filter_map(|node| host_of(node, asked));
            if let Some(primary) = hosts.next() {
                slots.ranges.push((first, last, primary));
                slots.replicas.extend(hosts);
            }
        }
        (!slots.ranges.is_empty()).then_some(slots)
    }

    /// Where a slot is, if any node serves it.
    pub(super) fn host_of(&self, slot: u16) -> Option<&Host> {
        let within = |(first, last, _): &&(u16, u16, Host)| *first <= slot && slot <= *last;
        self.moved.get(&slot).or_else(|| self.ranges.iter().find(within).map(|(_, _, host)| host))
    }

    /// A redirection says where a slot is.
    pub(super) fn moved(&mut self, slot: u16, host: Host) {
        self.moved.insert(slot, host);
    }

    /// Each once.
    pub(super) fn primaries(&self) -> Vec<Host> {
        unique(self.ranges.iter().map(|(_, _, host)| host).chain(self.moved.values()))
    }

    /// The primaries first.
    pub(super) fn nodes(&self) -> Vec<Host> {
        unique(self.primaries().iter().chain(&self.replicas))
    }
}

/// Each host once, in the order given.
fn unique<'a>(hosts: impl Iterator<Item = &'a Host>) -> Vec<Host> {
    let mut found: Vec<Host> = Vec::new();
    for host in hosts {
        if !found.contains(host) {
            found.push(host.clone());
        }
    }
    found
}

/// `host, port, …` of a node. A node that does not know its own name answers with an empty one: it is
/// where it was asked.
fn host_of(node: &Value, (asked, _): &Host) -> Option<Host> {
    let Value::Array(node) = node else { return None };
    let [host, Value::Int(port), ..] = &node[..] else { return None };
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        Value::Nil => String::new(),
        _ => return None,
    };
    match host.as_str() {
        "?" => None,
        "" => Some((asked.clone(), u16::try_from(*port).ok()?)),
        _ => Some((host, u16::try_from(*port).ok()?)),
    }
}

/// The `host:port` of a redirection by the node at `asked`, which may leave out its own host.
pub(super) fn redirected(text: &str, (asked, _): &Host) -> Option<Host> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { asked } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

/// The slot of a key: of what is in its first braces, if there is something.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    // CRC-16 with the polynomial of XMODEM, as the cluster's specification has it.
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        (name.to_owned(), port)
    }

    /// From the cluster specification; a wrong slot costs a redirection for every command.
    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        // An empty tag is none, and so is one that does not end.
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
        assert_ne!(slot_of(b"foo{bar"), slot_of(b"bar"));
    }

    /// And a node without a name is where it was asked; one that nobody knows (`?`) is left out.
    #[test]
    fn what_is_said_of_single_slots_goes_before_what_was_said_of_all() {
        let node = |name: &str, port| {
            Value::Array(vec![Value::BulkString(name.into()), Value::Int(port), Value::Nil])
        };
        let ranges = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(99), node("a", 1), node("b", 2)]),
            Value::Array(vec![Value::Int(100), Value::Int(199), node("", 3), node("?", 4)]),
        ]);
        let asked = host("here", 7);
        let mut slots = Slots::read(&ranges, &asked).unwrap();
        assert_eq!(slots.host_of(99), Some(&host("a", 1)));
        assert_eq!(slots.host_of(100), Some(&host("here", 3)));
        assert_eq!(slots.host_of(200), None);
        slots.moved(99, host("b", 2));
        assert_eq!(slots.host_of(99), Some(&host("b", 2)));
        assert_eq!(slots.nodes(), [host("a", 1), host("here", 3), host("b", 2)]);
        assert!(Slots::read(&Value::Array(Vec::new()), &asked).is_none());
    }

    #[test]
    fn redirections_lead_to_the_host_that_was_asked_if_they_name_none() {
        let asked = host("here", 7);
        assert_eq!(redirected("10.0.0.1:6379", &asked), Some(host("10.0.0.1", 6379)));
        assert_eq!(redirected(":6380", &asked), Some(host("here", 6380)));
        assert_eq!(redirected("[::1]:6380", &asked), Some(host("::1", 6380)));
        assert_eq!(redirected("nonsense", &asked), None);
    }
}
