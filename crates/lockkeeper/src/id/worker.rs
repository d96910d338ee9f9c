//! A worker number that is nobody else's: leased, with a mark of time that is on record before it is used.
//!
//! An expiry says who may have a number, but cannot stop a holder that was paused. So a lease is good for
//! ids of certain times only: above the mark of the holder before, up to its own mark. The mark is moved
//! on in the store before ids of later times are given, by compare-and-set, and never goes back. Times of
//! two holders of one number never meet, whatever clocks and pauses do.
//!
//! A record is `held 1794700830000 0123456789abcdef 1794700800000 me@host pid 7`: state, mark and time of
//! taking in milliseconds since 1970, nonce, holder.

use super::registry::KeyRecord;
use super::store::{self, Store};
use crate::backend::{Name, Reach};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a number is looked for that others take at the same time.
const TRIES: u32 = 32;

/// By how much the clocks of two processes that follow the store's may differ, in milliseconds.
pub(crate) const APART: u64 = 1_000;

/// One number, held.
#[derive(Debug)]
pub(crate) struct WorkerLease {
    name: Name,
    record: WorkerRecord,
    /// Ids are given of times above this only, in milliseconds since 1970.
    pub(crate) floor: u64,
}

/// What became of an extension.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// Good for ids up to this time.
    Until(u64),
    /// Another has the number, or may have it soon.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WorkerRecord {
    held: bool,
    mark: u64,
    nonce: String,
    since: u64,
    holder: String,
}

/// A worker number that is or was in use.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerView {
    /// Of which ids.
    pub key: String,
    /// The number.
    pub number: u32,
    /// Whether it is held; else it was given back.
    pub held: bool,
    /// Who took it last.
    pub identity: String,
    /// When it was taken, by the store's clock.
    pub since: SystemTime,
    /// Ids of times up to this may have been given.
    pub mark: SystemTime,
}

impl WorkerLease {
    /// Takes one of `workers` numbers of the key, at `now`.
    pub(crate) async fn take(
        store: &Store,
        key: &KeyRecord,
        workers: u32,
        window: Duration,
        now: u64,
    ) -> Result<Self> {
        let (window, asked, begun) = (millis(window), now, Moment::now());
        for _ in 0..TRIES {
            // In a crowd each try takes its time, and a mark that is past when it is written is no use.
            let now = asked + millis(Moment::now().since(begun));
            // A store that lost everything has another key by now, or none: the moment of its making
            // tells what holders of before may still give.
            let key = &key.again(store).await?;
            let known = known(store, &key.key).await?;
            let choice = choose(&known, workers, ripe(store, key, window), window, now, random());
            let Some(choice) = choice else { return Err(none_free(key, &known, window, now)) };
            let name = store::worker_name(&key.key, choice.number)?;
            let record = WorkerRecord {
                held: true,
                // Never further ahead of now than a window, but for a floor: a key that was lost and made
                // anew counts on that.
                mark: choice.floor.max(now.saturating_add(window)),
                nonce: store::nonce(store),
                since: now,
                holder: store.engine().identity.to_string(),
            };
            let expected = choice.record.map(WorkerRecord::text);
            let written = match store.write(&name, &record.text(), expected.as_deref()).await {
                // The answer was lost. Unless the record says so, a number that was taken all the same
                // is nobody's until its mark is past.
                Err(error) if error.is_outage() => {
                    store.read(&name).await?.as_deref() == Some(&record.text())
                }
                outcome => outcome?,
            };
            if written {
                let taken = Self { name, record, floor: choice.floor };
                // The floor is by the birth of the key: one that was lost since it was read does not count.
                if key.is_there(store).await? {
                    return Ok(taken);
                }
                taken.release(store, taken.record.mark).await?;
            }
        }
        let message = format!("too many take worker numbers of {:?} at once: try again", key.key);
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    pub(crate) fn number(&self) -> u32 {
        number_of(&self.name).unwrap_or(0)
    }

    /// The last time of which ids may be given.
    pub(crate) fn mark(&self) -> u64 {
        self.record.mark
    }

    /// Moves the mark on to a window beyond `now`.
    ///
    /// A lease whose mark is past is not extended, though it may still be on record: a store that
    /// forgot its latest changes may have granted the number meanwhile.
    pub(crate) async fn extend(
        &mut self,
        store: &Store,
        window: Duration,
        now: u64,
    ) -> Result<Extended> {
        for _ in 0..2 {
            if now > self.record.mark {
                return Ok(Extended::Lost);
            }
            let mark = self.record.mark.max(now + millis(window));
            let next = WorkerRecord { mark, ..self.record.clone() };
            if store.write(&self.name, &next.text(), Some(&self.record.text())).await? {
                self.record = next;
                return Ok(Extended::Until(mark));
            }
            // An earlier extension whose answer was lost may have been made.
            let there = store.read(&self.name).await?;
            match there.as_deref().and_then(WorkerRecord::read) {
                Some(there) if there.nonce == self.record.nonce && there.held => {
                    self.record = there
                }
                _ => return Ok(Extended::Lost),
            }
        }
        Ok(Extended::Lost)
    }

    /// Gives the number back: ids up to `last` were given.
    pub(crate) async fn release(&self, store: &Store, last: u64) -> Result<()> {
        let mark = last.min(self.record.mark).max(self.floor);
        let free = WorkerRecord { held: false, mark, ..self.record.clone() };
        store.write(&self.name, &free.text(), Some(&self.record.text())).await.map(drop)
    }
}

/// From when on numbers that nobody had are good, in milliseconds since 1970: when the key is a window old.
/// It may have been lost by its server and made anew while holders of before go on up to their marks.
///
/// What is no server's is not lost by a restart: a file goes only by somebody who deletes it, and the memory of
/// a process with its holders. To wait there would be paid by every test that begins with a new file.
pub(crate) fn ripe(store: &Store, key: &KeyRecord, window: u64) -> u64 {
    match store.engine().backend.capability().reach {
        Reach::Process | Reach::Machine => 0,
        _ => key.born.saturating_add(window + APART),
    }
}

/// A number to take.
struct Choice<'a> {
    number: u32,
    floor: u64,
    record: Option<&'a WorkerRecord>,
}

/// A number that may be taken: one that was given back, one that was never used, or one whose holder
/// has not been heard of for so long that nothing it still believes can matter.
fn choose<'a>(
    known: &'a BTreeMap<u32, WorkerRecord>,
    workers: u32,
    ripe: u64,
    window: u64,
    now: u64,
    dice: u64,
) -> Option<Choice<'a>> {
    let given_back = |record: &WorkerRecord| !record.held && record.mark < now;
    let silent = |record: &WorkerRecord| record.mark.saturating_add(window) < now;
    let pick = |fits: &dyn Fn(&WorkerRecord) -> bool| {
        let fitting: Vec<_> =
            known.iter().filter(|(number, it)| **number < workers && fits(it)).collect();
        let at = usize::try_from(dice % fitting.len().max(1) as u64).unwrap_or(0);
        let (number, record) = fitting.get(at)?;
        Some(Choice { number: **number, floor: record.mark, record: Some(record) })
    };
    let unused = || {
        let count = u64::from(workers) - known.range(..workers).count() as u64;
        let at = usize::try_from(dice.checked_rem(count)?).ok()?;
        let number = (0..workers).filter(|number| !known.contains_key(number)).nth(at)?;
        Some(Choice { number, floor: ripe, record: None })
    };
    // Numbers that were used before keep the list short; each kind without waiting first.
    pick(&given_back).or_else(unused).or_else(|| pick(&silent)).or_else(|| pick(&|it| !it.held))
}

async fn known(store: &Store, key: &str) -> Result<BTreeMap<u32, WorkerRecord>> {
    let records = store.list(&store::workers_of(key)).await?;
    let of_key = records.into_iter().filter_map(|(name, text)| {
        let tail = name.as_str().strip_prefix(&store::workers_of(key))?;
        // The workers of a key whose name goes on behind a slash.
        let number = Some(tail).filter(|tail| !tail.contains('/'))?.parse().ok()?;
        Some((number, text))
    });
    let parsed = of_key.map(|(number, text)| match WorkerRecord::read(&text) {
        Some(record) => Ok((number, record)),
        None => {
            let message = format!("the record of worker {number} of {key:?} is of another version");
            Err(Error::new(ErrorKind::Store, message))
        }
    });
    parsed.collect()
}

/// Every worker number that is or was in use, of one key or of all.
pub(crate) async fn list(store: &Store, key: Option<&str>) -> Result<Vec<WorkerView>> {
    let records = store.list(store::WORKERS).await?;
    let views = records.iter().filter_map(|(name, text)| {
        let (of, _) = name.as_str().strip_prefix(store::WORKERS)?.rsplit_once('/')?;
        let record = WorkerRecord::read(text)?;
        let time = |millis: u64| UNIX_EPOCH + Duration::from_millis(millis);
        let view = WorkerView {
            key: of.to_owned(),
            number: number_of(name)?,
            held: record.held,
            identity: record.holder,
            since: time(record.since),
            mark: time(record.mark),
        };
        key.is_none_or(|key| key == of).then_some(view)
    });
    let mut views: Vec<_> = views.collect();
    views.sort_by(|one, two| (&one.key, one.number).cmp(&(&two.key, two.number)));
    Ok(views)
}

fn number_of(name: &Name) -> Option<u32> {
    name.as_str().rsplit_once('/')?.1.parse().ok()
}

fn none_free(key: &KeyRecord, known: &BTreeMap<u32, WorkerRecord>, window: u64, now: u64) -> Error {
    let first =
        known.values().map(|record| record.mark.saturating_add(window)).min().unwrap_or(now);
    let wait = Duration::from_millis(first.saturating_sub(now));
    let message = format!(
        "all {} worker numbers of the ids {:?} are held: the first that is not extended is free in \
         {wait:.0?}; `lockkeeper id workers` lists them",
        known.len(),
        key.key
    );
    Error::new(ErrorKind::Exhausted, message)
}

impl WorkerRecord {
    fn text(&self) -> String {
        let Self { held, mark, nonce, since, holder } = self;
        let state = if *held { "held" } else { "free" };
        format!("{state} {mark} {nonce} {since} {holder}")
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let held = match words.next()? {
            "held" => true,
            "free" => false,
            _ => return None,
        };
        let mark = words.next()?.parse().ok()?;
        let nonce = words.next()?.to_owned();
        let since = words.next()?.parse().ok()?;
        Some(Self { held, mark, nonce, since, holder: words.next()?.to_owned() })
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}
