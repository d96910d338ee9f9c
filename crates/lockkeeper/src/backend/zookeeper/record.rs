//! The record of a claim: the data of its node, for people and for [`inspect`](super::inspect).
//!
//! ```text
//! deploy@web-1 pid 4242
//! claim 658e40f9714a46678607f50059b5ee9d
//! owner web-1#7
//! ttl 30000
//! count 2
//! note release 1.2
//! ```
//!
//! The first line is the identity, because that is where Curator and kazoo write theirs. `ttl` is
//! in milliseconds; `count` is there while several guards share the claim; the note comes last, since
//! it may have lines of its own.
//!
//! It has no version: who holds is decided by the nodes' names alone ([`layout`](super::layout)), and a
//! record that cannot be read is taken for another library's, whose claim counts all the same.

use crate::backend::{Claim, Owner};
use std::time::Duration;

/// What a node says of its claim. Other libraries write what they like, which is taken for
/// `identity`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) identity: String,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
    pub(super) count: usize,
    pub(super) note: String,
}

/// The record of a claim that is valid for this long at a time, with one guard.
pub(super) fn write(claim: &Claim, valid_for: Duration) -> String {
    // The record is read line by line, so the identity must be one line.
    let identity = claim.identity.replace(['\n', '\r'], " ");
    let (id, owner, ttl, note) = (claim.id, &claim.owner, valid_for.as_millis(), &claim.note);
    format!("{identity}\nclaim {id}\nowner {owner}\nttl {ttl}\nnote {note}")
}

/// The record of a claim that this many guards share, where `alone` is its record with one.
pub(super) fn with_count(alone: &str, count: usize) -> String {
    // Before the note, which is the fifth line of a record without a count.
    match alone.match_indices('\n').nth(3) {
        Some((end, _)) if count > 1 => {
            let (head, note) = alone.split_at(end);
            format!("{head}\ncount {count}{note}")
        }
        _ => alone.to_owned(),
    }
}

/// Whether this was written by the claim with this id.
pub(super) fn is_of(data: &[u8], id: &str) -> bool {
    let text = String::from_utf8_lossy(data);
    text.lines().nth(1).and_then(|line| line.strip_prefix("claim ")) == Some(id)
}

impl Record {
    /// Reads the data of `node`. A claim of another library is its own owner: the node's name stands
    /// for the owner.
    pub(super) fn read(data: &[u8], node: &str) -> Self {
        let text = String::from_utf8_lossy(data);
        Self::ours(&text).unwrap_or_else(|| Self {
            identity: text
                .lines()
                .next()
                .filter(|line| !line.is_empty())
                .unwrap_or(node)
                .to_owned(),
            owner: Owner::from_id(node.to_owned()),
            ttl: Duration::ZERO,
            count: 1,
            note: String::new(),
        })
    }

    /// Reads a record that [`write()`] wrote; `None` for anything else.
    fn ours(text: &str) -> Option<Self> {
        let mut lines = text.splitn(5, '\n');
        let identity = lines.next()?.to_owned();
        // From here on each line must be what it says, or the record is another library's.
        lines.next()?.strip_prefix("claim ")?;
        let owner = Owner::new(lines.next()?.strip_prefix("owner ")?).ok()?;
        let ttl = lines.next()?.strip_prefix("ttl ")?.parse().ok()?;
        let mut rest = lines.next()?;
        let mut count = 1;
        if let Some((line, note)) = rest.strip_prefix("count ").and_then(|r| r.split_once('\n')) {
            (count, rest) = (line.parse().ok()?, note);
        }
        let note = rest.strip_prefix("note ")?.to_owned();
        Some(Self { identity, owner, ttl: Duration::from_millis(ttl), count, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Mode, Name};
    use crate::claim::{ClaimIds, Primitive};

    #[test]
    fn what_is_written_can_be_read() {
        let claim = Claim {
            id: ClaimIds::new().unwrap().next(),
            name: Name::new("n").unwrap(),
            mode: Mode::Exclusive,
            primitive: Primitive::Lock,
            owner: Owner::new("me #1").unwrap(),
            ttl: Duration::from_secs(9),
            identity: "user@host pid 4".into(),
            note: "two\nlines".into(),
            by_id: false,
        };
        let text = write(&claim, Duration::from_secs(3));
        let record = Record::read(text.as_bytes(), "node");
        assert_eq!(record.identity, "user@host pid 4");
        assert_eq!((record.owner.id(), record.ttl.as_secs()), ("me #1", 3));
        assert_eq!((record.count, record.note.as_str()), (1, "two\nlines"));
        for count in [1, 2, 30] {
            let (alone, text) = (&text, with_count(&text, count));
            let shared = Record::read(text.as_bytes(), "node");
            let alone = Record::read(alone.as_bytes(), "node");
            assert_eq!(shared, Record { count, ..alone });
            assert!(is_of(text.as_bytes(), &claim.id.to_string()));
        }
        assert!(is_of(text.as_bytes(), &claim.id.to_string()));
        assert!(!is_of(text.as_bytes(), "0"));
    }

    #[test]
    fn others_write_as_they_like() {
        assert_eq!(Record::read(b"127.0.0.1", "_c_1-lock-0").identity, "127.0.0.1");
        assert_eq!(Record::read(b"", "_c_1-lock-0").identity, "_c_1-lock-0");
        assert_eq!(Record::read(b"\xff\n\n", "x").owner.id(), "x");
    }
}
