//! What is written in a claim's key.
//!
//! ```text
//! lockkeeper 1                 what our values begin with, and the version of the layout
//! permit 3                     exclusive, shared, or permit and how many
//! 5f0c…                        the owner
//! ann@build7 pid 4242          who that is, for people
//! 1760000000000 001122… 30     when it was asked for: milliseconds since 1970, by that machine;
//!                              the claim's id; for how many seconds its own lease was asked for,
//!                              if it has one
//! nightly report               the note; may have several lines
//! ```
//!
//! Who holds is decided by the mode alone; whose claim it is by the id, which one that was given back
//! and only stays for its `min_hold` has no more. Everything else is for people. A value that we
//! cannot read counts as an exclusive claim: taking a reader for a writer costs time, the reverse a
//! lock.

use super::keys::KeyRange;
use super::protocol::KeyValue;
use crate::backend::{Claim, ClaimId, Mode, Owner};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What our values begin with. Any other value is another program's: Go's are empty, or what a
/// candidate of an election proposed.
const OURS: &str = "lockkeeper 1";
/// What is written over a claim that was taken from its holder, in the moment before it goes.
const BROKEN: &str = "broken";

/// What a value says. Other programs on the same keys write what they like; see [`read_any`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) mode: Mode,
    pub(super) owner: Owner,
    pub(super) identity: String,
    /// When it was asked for, since 1970 and by the clock of the machine that asked: etcd has none
    /// that it would tell. For people to read; nothing is decided by it.
    asked: Option<Duration>,
    /// Of which claim; of none that only stays.
    pub(super) id: Option<ClaimId>,
    /// For how many seconds the lease that it lives on was asked for, if that is its own.
    pub(super) length: Option<u64>,
    pub(super) note: String,
}

impl Record {
    fn to_value(&self) -> Vec<u8> {
        let mode = match self.mode {
            Mode::Exclusive => "exclusive".to_owned(),
            Mode::Shared => "shared".to_owned(),
            Mode::Permit { of } => format!("permit {of}"),
        };
        let Self { owner, identity, note, .. } = self;
        let asked = self.asked.unwrap_or_default().as_millis();
        let id = self.id.map(|id| format!(" {id}")).unwrap_or_default();
        let length = self.length.map(|length| format!(" {length}")).unwrap_or_default();
        format!("{OURS}\n{mode}\n{owner}\n{identity}\n{asked}{id}{length}\n{note}").into_bytes()
    }

    /// For how long it has been asked for, as far as two clocks agree.
    pub(super) fn age(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| now().saturating_sub(asked))
    }
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The value of a claim's key, which lives on a lease of its own that was asked for so many seconds,
/// or on its keeper's session. Line breaks are taken out of the identity, which would otherwise shift
/// the lines below it; the note comes last and may have them.
pub(super) fn write(claim: &Claim, length: Option<u64>) -> Vec<u8> {
    let record = Record {
        mode: claim.mode,
        owner: claim.owner.clone(),
        identity: claim.identity.chars().filter(|c| *c != '\n').collect(),
        asked: Some(now()),
        id: Some(claim.id),
        length,
        note: claim.note.as_ref().to_owned(),
    };
    record.to_value()
}

/// The same claim on a lease of its own that was asked for so many seconds; `None` of a value that is
/// no claim of ours.
pub(super) fn relocated(value: &[u8], length: u64) -> Option<Vec<u8>> {
    Some(Record { length: Some(length), ..read(value)? }.to_value())
}

/// The same claim, given back: nobody's any more.
pub(super) fn staying(value: &[u8]) -> Option<Vec<u8>> {
    Some(Record { id: None, length: None, ..read(value)? }.to_value())
}

/// The value that is written over a claim that is broken, in the moment before its key goes.
pub(super) fn write_broken(reason: &str) -> Vec<u8> {
    format!("{OURS} {BROKEN}\n{reason}").into_bytes()
}

/// The reason, if the claim was broken.
pub(super) fn broken(value: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(value);
    Some(text.strip_prefix(OURS)?.strip_prefix(' ')?.strip_prefix(BROKEN)?.get(1..)?.to_owned())
}

/// The claims of a name in the order of their queue, and the mode of each. What is in the range
/// but belongs to a longer name is left out.
pub(super) fn in_order<'a>(
    range: &KeyRange,
    kvs: &'a [KeyValue],
) -> (Vec<&'a KeyValue>, Vec<Mode>) {
    let mut claims: Vec<_> = kvs.iter().filter(|kv| range.has(&kv.key)).collect();
    claims.sort_by_key(|kv| kv.create_revision);
    let modes = claims.iter().map(|kv| mode_of(&kv.value)).collect();
    (claims, modes)
}

/// The mode of a claim. One that does not say wants the name for itself, as Go's do.
fn mode_of(value: &[u8]) -> Mode {
    read(value).map_or(Mode::Exclusive, |record| record.mode)
}

/// What a value of ours says; `None` for another program's, or of a later version.
pub(super) fn read(value: &[u8]) -> Option<Record> {
    let mut lines = std::str::from_utf8(value).ok()?.splitn(6, '\n');
    if lines.next()? != OURS {
        return None;
    }
    let mode = match lines.next()? {
        "exclusive" => Mode::Exclusive,
        "shared" => Mode::Shared,
        permit => Mode::Permit { of: permit.strip_prefix("permit ")?.parse().ok()? },
    };
    let owner = Owner::from_id(lines.next()?.to_owned());
    let identity = lines.next()?.to_owned();
    let mut words = lines.next()?.split(' ');
    let asked = words.next().and_then(|word| word.parse().ok()).map(Duration::from_millis);
    let id = words.next().and_then(|word| word.parse().ok());
    let length = words.next().and_then(|word| word.parse().ok());
    let note = lines.next()?.to_owned();
    Some(Record { mode, owner, identity, asked, id, length, note })
}

/// What the key says, as far as another program's says anything.
pub(super) fn read_any(key: &[u8], value: &[u8]) -> Record {
    read(value).unwrap_or_else(|| {
        let key = String::from_utf8_lossy(key);
        let lease = key.rsplit('/').next().unwrap_or_default();
        Record {
            mode: Mode::Exclusive,
            owner: Owner::from_id(lease.to_owned()),
            identity: format!("another program, lease {lease}"),
            asked: None,
            id: None,
            length: None,
            note: String::from_utf8_lossy(value).into_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Name;
    use crate::claim::{ClaimIds, Primitive};
    use std::time::Duration;

    #[test]
    fn what_is_written_comes_back() {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { of: 3 }] {
            let claim = Claim {
                id: ClaimIds::new().unwrap().next(),
                name: Name::new("a").unwrap(),
                mode,
                primitive: Primitive::Lock,
                owner: Owner::from_id("me".into()),
                ttl: Duration::from_secs(1),
                identity: "me@here pid 1".into(),
                note: "two\nlines".into(),
                by_id: false,
            };
            let value = write(&claim, None);
            let record = read(&value).unwrap();
            assert_eq!((record.id, record.length), (Some(claim.id), None));
            let moved = read(&relocated(&value, 30).unwrap()).unwrap();
            assert_eq!(moved, Record { length: Some(30), ..record.clone() });
            let stays = read(&staying(&moved.to_value()).unwrap()).unwrap();
            assert_eq!(stays, Record { id: None, ..record.clone() });
            assert_eq!((record.mode, record.owner.id()), (mode, "me"));
            assert_eq!(
                (record.identity.as_str(), record.note.as_str()),
                ("me@here pid 1", "two\nlines")
            );
            assert!(record.asked.is_some_and(|asked| asked <= now()), "{record:?}");
            assert_eq!(broken(&value), None);
        }
        assert_eq!(broken(&write_broken("it\nhung")).as_deref(), Some("it\nhung"));
    }

    #[test]
    fn what_others_write_is_exclusive() {
        for value in ["", "10.0.0.1:80", "lockkeeper 2\nshared", "lockkeeper 1\npermit x\n\n\n"] {
            assert_eq!(mode_of(value.as_bytes()), Mode::Exclusive, "{value:?}");
        }
        let record = read_any(b"locks/a/694d7a", b"10.0.0.1:80");
        assert_eq!((record.owner.id(), record.note.as_str()), ("694d7a", "10.0.0.1:80"));
        assert_eq!(record.age(), Duration::ZERO, "it does not say since when");
    }

    #[test]
    fn a_clock_that_is_ahead_of_ours_makes_no_age() {
        let value = |asked: u128| format!("{OURS}\nshared\nme\nme\n{asked}\n").into_bytes();
        let hour = Duration::from_secs(3600);
        let ahead = value((now() + hour).as_millis());
        assert_eq!(read_any(b"a/1", &ahead).age(), Duration::ZERO);
        let before = value((now() - hour).as_millis());
        assert!(read_any(b"a/1", &before).age() >= hour);
        // What cannot be understood is no reason to take a reader for a writer.
        let record = read_any(b"a/1", format!("{OURS}\nshared\nme\nme\nnoon\n").as_bytes());
        assert_eq!((record.mode, record.age()), (Mode::Shared, Duration::ZERO));
    }
}
