//! What is written in a lock's key.
//!
//! ```text
//! lockkeeper 1                 what our values begin with, and the version of the layout
//! 5f0c…                        the claim's id: what a renewal or a release is checked against
//! 1794810896000057             the token, once it was renewed; before that it follows from the CAS
//! 5f0c…                        the owner
//! ann@build7 pid 4242          who that is, for people
//! 1760000000000                when it was asked for: milliseconds since 1970, by that machine
//! orders/42                    the lock's name, since its key may hold a hash
//! nightly report               the note; may have several lines
//! ```
//!
//! Any other value is another program's, and keeps us out all the same.

use super::client::Version;
use crate::backend::{Claim, FencingToken, Name, Owner};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What our values begin with.
const OURS: &str = "lockkeeper 1\n";
/// In the place of a token that is not written down yet.
const UNWRITTEN: &str = "-";
/// Room for what a value has beside the texts of its claim: two numbers, line ends, and the beginning.
const MOST_BESIDE: usize = 64;
/// What stands in the key of a claim that was given back and stays for its `min_hold`.
pub(super) const RELEASED: &[u8] = b"lockkeeper 1 released";

/// What a value says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: String,
    token: Option<u64>,
    pub(super) owner: Owner,
    pub(super) identity: String,
    asked: Option<Duration>,
    pub(super) name: Name,
    pub(super) note: String,
}

impl Record {
    /// That of a claim that is being made.
    pub(super) fn of(claim: &Claim) -> Self {
        // Line breaks would shift the lines below; the note comes last and may have them.
        let in_a_line = |text: &str| text.replace('\n', "");
        Self {
            id: claim.id.to_string(),
            token: None,
            owner: claim.owner.clone(),
            identity: in_a_line(&claim.identity),
            asked: Some(now()),
            name: claim.name.clone(),
            note: claim.note.to_string(),
        }
    }

    /// As it is stored.
    pub(super) fn write(&self) -> Vec<u8> {
        let Self { id, token, owner, identity, asked, name, note } = self;
        let (owner, name) = (owner.id(), name.as_str());
        let length = id.len() + owner.len() + identity.len() + name.len() + note.len();
        // In one buffer, without `format!`: every lock writes one.
        let mut value = Vec::with_capacity(length + MOST_BESIDE);
        value.extend_from_slice(OURS.as_bytes());
        push_line(&mut value, id);
        match token {
            Some(token) => value.extend_from_slice(itoa::Buffer::new().format(*token).as_bytes()),
            None => value.extend_from_slice(UNWRITTEN.as_bytes()),
        }
        value.push(b'\n');
        push_line(&mut value, owner);
        push_line(&mut value, identity);
        let asked = asked.unwrap_or_default().as_millis();
        let asked = u64::try_from(asked).unwrap_or(u64::MAX);
        value.extend_from_slice(itoa::Buffer::new().format(asked).as_bytes());
        value.push(b'\n');
        push_line(&mut value, name);
        value.extend_from_slice(note.as_bytes());
        value
    }

    /// What a value says; `None` for another program's.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.strip_prefix(OURS)?;
        let mut lines = text.splitn(7, '\n');
        Some(Self {
            id: lines.next()?.to_owned(),
            token: match lines.next()? {
                UNWRITTEN => None,
                token => Some(token.parse().ok()?),
            },
            owner: Owner::from_id(lines.next()?.to_owned()),
            identity: lines.next()?.to_owned(),
            asked: lines.next()?.parse().ok().map(Duration::from_millis),
            name: Name::new(lines.next()?).ok()?,
            note: lines.next()?.to_owned(),
        })
    }

    /// The token of the grant: as written, or that of the item's first version.
    pub(super) fn token(&self, version: &Version) -> Option<FencingToken> {
        self.token.map_or_else(|| version.token(), FencingToken::new)
    }

    /// Writes the token down. A renewal gives the item another CAS, from which it could no longer be
    /// told.
    pub(super) fn with_token(mut self, token: Option<FencingToken>) -> Self {
        self.token = token.map(FencingToken::get);
        self
    }

    /// For how long it has been asked for, as far as two clocks agree.
    pub(super) fn age(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| now().saturating_sub(asked))
    }
}

fn push_line(value: &mut Vec<u8>, line: &str) {
    value.extend_from_slice(line.as_bytes());
    value.push(b'\n');
}

/// Since 1970. For people to read; nothing is decided by it.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> Record {
        Record {
            id: "5f".into(),
            token: None,
            owner: Owner::from_id("me".into()),
            identity: "ann@build7 pid 4242".into(),
            asked: Some(Duration::from_millis(1_760_000_000_000)),
            name: Name::new("orders/42").unwrap(),
            note: "two\nlines".into(),
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let written = record().write();
        let pinned =
            "lockkeeper 1\n5f\n-\nme\nann@build7 pid 4242\n1760000000000\norders/42\ntwo\nlines";
        assert_eq!(String::from_utf8(written.clone()).unwrap(), pinned);
        assert_eq!(Record::read(&written), Some(record()));
        let renewed = record().with_token(FencingToken::new(7)).write();
        assert!(String::from_utf8(renewed.clone()).unwrap().contains("\n7\nme\n"));
        let version = Version::for_tests(3, 5);
        assert_eq!(Record::read(&renewed).unwrap().token(&version), FencingToken::new(7));
        assert_eq!(record().token(&version), FencingToken::new(3_000_005));
    }

    proptest! {
        #[test]
        fn what_others_wrote_is_no_claim_of_ours(value in any::<Vec<u8>>()) {
            prop_assert_eq!(Record::read(&value), None);
        }
    }

    #[test]
    fn a_claim_that_only_stays_is_nobodys() {
        assert_eq!(Record::read(RELEASED), None);
        assert_eq!(Record::read(b"lockkeeper 1\n5f\n-\nme"), None);
    }
}
