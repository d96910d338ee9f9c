//! What is written in a claim's key.

use super::proto::RangeResponse;
use crate::backend::{Claim, LossReason, Mode, Owner};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What our values begin with. Any other value is another program's: Go's are empty, or what a
/// candidate of an election proposed.
const OURS: &str = "lockkeeper 1";
/// What is written over a claim that was taken from its holder, in the moment before it goes.
const BROKEN: &str = "broken";

/// `lockkeeper 1, mode, owner, identity, asked, note`, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) mode: Mode,
    pub(super) owner: Owner,
    pub(super) identity: String,
    /// When it was asked for, since 1970 and by the clock of whoever asked: etcd has none that it
    /// would tell. For people to read; nothing is decided by it.
    asked: Option<Duration>,
    pub(super) note: String,
}

impl Record {
    /// For how long it has been asked for, as far as two clocks agree.
    pub(super) fn age(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| now().saturating_sub(asked))
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(super) fn write(claim: &Claim) -> Vec<u8> {
    let mode = match claim.mode {
        Mode::Exclusive => "exclusive".to_owned(),
        Mode::Shared => "shared".to_owned(),
        Mode::Permit { of } => format!("permit {of}"),
    };
    let (owner, note) = (&claim.owner, &claim.note);
    let identity: String = claim.identity.chars().filter(|c| *c != '\n').collect();
    let asked = now().as_millis();
    format!("{OURS}\n{mode}\n{owner}\n{identity}\n{asked}\n{note}").into_bytes()
}

pub(super) fn write_broken(reason: &str) -> Vec<u8> {
    format!("{OURS} {BROKEN}\n{reason}").into_bytes()
}

/// The reason, if the claim was broken.
pub(super) fn broken(value: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(value);
    Some(text.strip_prefix(OURS)?.strip_prefix(' ')?.strip_prefix(BROKEN)?.get(1..)?.to_owned())
}

/// Why the claim whose key was created then is lost, if what was found in its place says so.
pub(super) fn loss(found: &RangeResponse, created: i64) -> Option<LossReason> {
    match found.kvs.first().filter(|kv| kv.create_revision == created) {
        Some(kv) => broken(&kv.value).map(|reason| LossReason::Broken { reason }),
        None => Some(LossReason::Gone),
    }
}

/// How a claim is meant. One that does not say so wants the name for itself.
pub(super) fn mode_of(value: &[u8]) -> Mode {
    read(value).map_or(Mode::Exclusive, |record| record.mode)
}

fn read(value: &[u8]) -> Option<Record> {
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
    let asked = lines.next()?.parse().ok().map(Duration::from_millis);
    Some(Record { mode, owner, identity, asked, note: lines.next()?.to_owned() })
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
            };
            let value = write(&claim);
            let record = read(&value).unwrap();
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
