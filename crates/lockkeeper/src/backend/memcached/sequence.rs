//! Numbers that nobody else gets, and small records.
//!
//! One key per sequence with the last number reserved, and one per record. None of them expires, but
//! each can be evicted, and ends with the server: then a count begins again at the caller's floor,
//! which should therefore be above every number that is known to have been used, or is missing, if it
//! was to be there; and a record is absent.
//!
//! An answer that is lost takes its numbers with it, so there may be gaps and never a number twice.
//! Nothing that writes is sent a second time.

use super::client::{Item, Stored};
use super::error::Failure;
use super::inspect;
use super::keys::{Keys, Place};
use super::requests::Locks;
use crate::backend::support::contended::{TRIES, pause, restless};
use crate::backend::{LAST_NUMBER, Name, Reserve, Reserved, check_record};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// As [`Sequencer::reserve`](crate::backend::Sequencer::reserve).
///
/// The server counts by itself (`ma`) where nothing has to be known of the count before: it would
/// count past a ceiling, and begin a sequence that is to be there.
pub(super) async fn reserve(locks: &Locks, name: &Name, wish: &Reserve) -> Result<Reserved> {
    let counted = Counted { locks, place: locks.keys.sequence(name), name };
    match wish.least() {
        Some(least) if wish.ceiling >= LAST_NUMBER && !wish.existing => {
            counted.count(u64::from(wish.count.max(1)), least).await
        }
        _ => counted.compare_and_set(wish).await,
    }
}

/// One sequence.
struct Counted<'a> {
    locks: &'a Locks,
    place: Place,
    name: &'a Name,
}

impl Counted<'_> {
    fn explain(&self, failure: &Failure) -> Error {
        self.locks.explain(failure, &self.place)
    }

    fn foreign(&self) -> Error {
        let key = &self.place.key;
        Error::new(ErrorKind::Store, format!("{key:?} is no count: is the key used otherwise?"))
    }

    /// The item, and the count in it.
    async fn look(&self) -> Result<Option<(Item, u64)>> {
        let read = self.locks.read(&self.place).await;
        let Some(item) = read.map_err(|failure| self.explain(&failure))? else { return Ok(None) };
        let shown = std::str::from_utf8(&item.value).ok();
        let shown = shown.and_then(|shown| shown.trim().parse().ok());
        Ok(Some((item, shown.ok_or_else(|| self.foreign())?)))
    }

    /// Has the server count up by `count`, up to `least` at least.
    async fn count(&self, count: u64, least: u64) -> Result<Reserved> {
        let Self { locks, place, .. } = self;
        for _ in 0..TRIES {
            let counted = locks.client.count(place, count, least).await;
            let last = counted.map_err(|failure| self.explain(&failure))?;
            let last = last.ok_or_else(|| self.foreign())?;
            if last > LAST_NUMBER {
                let before = last.saturating_sub(count).min(LAST_NUMBER);
                self.take_back(last, before).await?;
                return Ok(Reserved::Beyond(before));
            }
            if last >= least {
                return Ok(Reserved::From(last + 1 - count));
            }
            // The count is behind the floor: move it to just before, and count again.
            let before = least - count;
            let Some((item, shown)) = self.look().await? else { continue };
            if shown < before {
                let text = before.to_string();
                let moved = locks.client.replace(place, text.as_bytes(), item.version, 0).await;
                let _: Stored = moved.map_err(|failure| self.explain(&failure))?;
            }
        }
        Err(restless(self.name.as_str()))
    }

    /// Takes back what was counted past the end, which nobody was given: the server would begin again
    /// from zero behind 2^64. To where the count was, or to the end if others counted since. While
    /// none of them gets through, the count is too far from there to matter.
    async fn take_back(&self, last: u64, before: u64) -> Result<()> {
        if let Some((item, shown)) = self.look().await?
            && shown > LAST_NUMBER
        {
            let text = if shown == last { before } else { LAST_NUMBER }.to_string();
            let place = &self.place;
            let moved = self.locks.client.replace(place, text.as_bytes(), item.version, 0).await;
            let _: Stored = moved.map_err(|failure| self.explain(&failure))?;
        }
        Ok(())
    }

    /// Counts here, and writes that if nobody else did meanwhile.
    async fn compare_and_set(&self, wish: &Reserve) -> Result<Reserved> {
        for tries in 0..TRIES {
            let found = self.look().await?;
            let reserved = Reserved::of(found.as_ref().map(|(_, last)| *last), wish);
            let Reserved::From(first) = reserved else { return Ok(reserved) };
            let last = (first + u64::from(wish.count.max(1)) - 1).to_string();
            let item = found.map(|(item, _)| item);
            let stored = put(self.locks, &self.place, last.as_bytes(), item.as_ref()).await;
            if stored.map_err(|failure| self.explain(&failure))? {
                return Ok(reserved);
            }
            pause(tries).await;
        }
        Err(restless(self.name.as_str()))
    }
}

/// Stores a value that does not expire in the place of this item, or where there is none; whether it
/// did.
async fn put(
    locks: &Locks,
    place: &Place,
    value: &[u8],
    item: Option<&Item>,
) -> Result<bool, Failure> {
    let stored = match item {
        Some(item) => locks.client.replace(place, value, item.version, 0).await?,
        None => locks.client.add(place, value, 0).await?,
    };
    Ok(matches!(stored, Stored::Done { .. }))
}

/// What a record says.
pub(super) async fn read(locks: &Locks, name: &Name) -> Result<Option<String>> {
    Ok(look(locks, name).await?.map(|(_, value)| value))
}

/// As [`Sequencer::write`](crate::backend::Sequencer::write).
pub(super) async fn write(
    locks: &Locks,
    name: &Name,
    value: &str,
    expected: Option<&str>,
) -> Result<bool> {
    check_record(value)?;
    let (place, written) = (locks.keys.record(name), stored(name, value));
    for tries in 0..TRIES {
        let found = look(locks, name).await?;
        if found.as_ref().map(|(_, value)| value.as_str()) != expected {
            return Ok(false);
        }
        let item = found.map(|(item, _)| item);
        let put = put(locks, &place, written.as_bytes(), item.as_ref()).await;
        if put.map_err(|failure| locks.explain(&failure, &place))? {
            return Ok(true);
        }
        // Written by another meanwhile, who may have written the same: look again.
        pause(tries).await;
    }
    Err(restless(name.as_str()))
}

/// All records whose names begin with `prefix`. Asks each server for its keys.
pub(super) async fn list(locks: &Arc<Locks>, prefix: &str) -> Result<Vec<(Name, String)>> {
    let mut records = Vec::new();
    for server in 0..locks.client.servers() {
        for key in inspect::keys(locks, server, Keys::is_record).await? {
            let place = Place { server, key };
            let item = locks.read(&place).await;
            let item = item.map_err(|failure| locks.explain(&failure, &place))?;
            let Some((name, value)) = item.and_then(|item| parted(&item.value)) else { continue };
            // A key that a later list of servers has elsewhere is no record of this one.
            if name.as_str().starts_with(prefix) && locks.keys.record(&name) == place {
                records.push((name, value));
            }
        }
    }
    records.sort();
    // A server that moves items about while it lists them may list one twice.
    records.dedup();
    Ok(records)
}

/// What the clock of one of the servers says, which counts whole seconds.
pub(super) async fn time(locks: &Locks) -> Result<Option<SystemTime>> {
    let server = locks.keys.clock();
    let seconds = locks.client.time(server).await;
    let seconds = seconds.map_err(|failure| failure.explain(&locks.client.shown(server)))?;
    Ok(UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
}

/// The item of a record, and what it says.
async fn look(locks: &Locks, name: &Name) -> Result<Option<(Item, String)>> {
    let place = locks.keys.record(name);
    let read = locks.read(&place).await.map_err(|failure| locks.explain(&failure, &place))?;
    let Some(item) = read else { return Ok(None) };
    match parted(&item.value) {
        Some((found, value)) if found == *name => Ok(Some((item, value))),
        _ => {
            let message = format!("{:?} is no record: is the key used otherwise?", place.key);
            Err(Error::new(ErrorKind::Store, message))
        }
    }
}

/// What is stored of a record: its name, since a key need not tell, and behind a line break, which
/// neither has in it, what it says.
fn stored(name: &Name, value: &str) -> String {
    format!("{name}\n{value}")
}

/// The way back.
fn parted(stored: &[u8]) -> Option<(Name, String)> {
    let (name, value) = std::str::from_utf8(stored).ok()?.split_once('\n')?;
    Some((Name::new(name).ok()?, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In users' caches: it must not change.
    #[test]
    fn what_is_stored_is_pinned() {
        let name = Name::new("workers/7").unwrap();
        assert_eq!(stored(&name, "a b"), "workers/7\na b");
        assert_eq!(parted(b"workers/7\na b"), Some((name, "a b".to_owned())));
        assert_eq!(parted(b"workers/7"), None);
        assert_eq!(parted(b"\xff\n"), None);
    }
}
