//! The keys that a store has ids of: what kind each is, compared whenever it is opened.
//!
//! A record is `1 made 0123456789abcdef 1794700800000 window=30000 snowflake 41/10/12 1735689600000`:
//! version of the format, state, nonce, the store's time when the key was made, the window of worker
//! numbers where there are any, kind. A key is `making` until its count was begun; from then on a count
//! that is not there is a loss, and is not begun again.

use super::store::{self, Store};
use super::terms::Kind;
use super::worker;
use crate::backend::Name;
use crate::error::{Error, ErrorKind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a key is read again that others make at the same time.
const TRIES: u32 = 8;

/// The window of worker numbers of those who name none.
const DEFAULT_WINDOW: Duration = Duration::from_secs(30);
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
const LONGEST_WINDOW: Duration = Duration::from_secs(86_400);

/// Before the window in a record, whose kinds begin otherwise.
const WINDOW: &str = "window=";

/// What the store has on record of a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyRecord {
    pub(crate) key: String,
    pub(crate) kind: Kind,
    /// Tells this key from another of the same name that was lost and made anew.
    pub(crate) nonce: String,
    /// The store's time when the key was made, in milliseconds since 1970.
    pub(crate) born: u64,
    /// Whether its count was begun.
    pub(crate) made: bool,
    /// For how long a worker number is leased, in milliseconds. Holders with different windows would not
    /// wait long enough for each other.
    window: Option<u64>,
    /// Whether it was to be there already.
    existing: bool,
}

/// A key that the store has ids of.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyView {
    /// The key.
    pub key: String,
    /// What its ids are.
    pub kind: Kind,
    /// When it was made, by the store's clock.
    pub made: SystemTime,
}

impl KeyRecord {
    /// Opens the key: compares its kind and the window of its worker numbers with what is wanted, or makes
    /// it with that. `None` accepts whatever there is.
    pub(crate) async fn open(
        store: &Store,
        key: &str,
        wanted: Option<&Kind>,
        window: Option<Duration>,
        existing: bool,
    ) -> Result<Self> {
        check_window(window)?;
        store::check_key(key)?;
        let name = store::key_name(key)?;
        for _ in 0..TRIES {
            if let Some(text) = store.read(&name).await? {
                let record = Self { existing, ..Self::read(key, &text)? };
                return match (wanted, window.map(worker::millis)) {
                    (Some(wanted), _) if record.kind != *wanted => {
                        Err(mismatch(key, &record.kind, wanted))
                    }
                    (_, Some(window)) if record.window.is_some_and(|there| there != window) => {
                        Err(other_window(key, record.window(None), window))
                    }
                    _ => Ok(record),
                };
            }
            let kind = match wanted {
                Some(kind) if !existing => kind.clone(),
                _ => return Err(absent(store, key, existing)),
            };
            let born = store.time().await?.nanos / 1_000_000;
            let nonce = store::nonce(store);
            let key = key.to_owned();
            let leased = kind.has_workers();
            let window = leased.then(|| worker::millis(window.unwrap_or(DEFAULT_WINDOW)));
            let record = Self { key, kind, nonce, born, made: false, window, existing };
            // Where another was faster, or the answer was lost, the next look tells.
            match store.write(&name, &record.text(), None).await {
                Ok(true) => return Ok(record),
                Ok(false) => {}
                Err(error) if error.is_outage() => {
                    let text = store.read(&name).await?;
                    if text.as_deref() == Some(&record.text()) {
                        return Ok(record);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let message = format!("the record of the ids {key:?} changes all the time: try again");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// What is on record now: the store may have lost the key, and then it is another one.
    pub(crate) async fn again(&self, store: &Store) -> Result<Self> {
        let window = self.window.map(Duration::from_millis);
        Self::open(store, &self.key, Some(&self.kind), window, self.existing).await
    }

    /// For how long a worker number is leased: what is on record, else what is asked for.
    pub(crate) fn window(&self, asked: Option<Duration>) -> Duration {
        self.window.map(Duration::from_millis).or(asked).unwrap_or(DEFAULT_WINDOW)
    }

    /// Says on record that the count was begun. Returns whether the key is on record: it may have been lost
    /// since it was opened, with a count that others had begun.
    pub(crate) async fn set_made(&self, store: &Store) -> Result<bool> {
        let made = Self { made: true, ..self.clone() };
        if store.write(&self.name()?, &made.text(), Some(&self.text())).await? {
            return Ok(true);
        }
        // Another did so, or the key is another one by now.
        self.is_there(store).await
    }

    /// Whether this very key is on record.
    pub(crate) async fn is_there(&self, store: &Store) -> Result<bool> {
        let text = store.read(&self.name()?).await?;
        let there = text.map(|text| Self::read(&self.key, &text)).transpose()?;
        Ok(there.is_some_and(|there| there.nonce == self.nonce))
    }

    pub(crate) fn counter(&self) -> Result<Name> {
        store::counter_name(&self.key, &self.nonce)
    }

    fn name(&self) -> Result<Name> {
        store::key_name(&self.key)
    }

    fn text(&self) -> String {
        let state = if self.made { "made" } else { "making" };
        let window = self.window.map(|window| format!("{WINDOW}{window} ")).unwrap_or_default();
        format!("1 {state} {} {} {window}{}", self.nonce, self.born, self.kind)
    }

    fn read(key: &str, text: &str) -> Result<Self> {
        let bad = || {
            let message = format!(
                "what the store has on record of the ids {key:?} was written by another version, or by \
                 another program (upgrade this one, or use another key): {:?}",
                text.chars().take(60).collect::<String>()
            );
            Error::new(ErrorKind::Store, message)
        };
        let mut words = text.splitn(5, ' ');
        let mut next = || words.next().ok_or_else(bad);
        let (version, state, nonce, born, kind) = (next()?, next()?, next()?, next()?, next()?);
        let made = match state {
            "made" => true,
            "making" => false,
            _ => return Err(bad()),
        };
        let (Ok(born), "1") = (born.parse(), version) else { return Err(bad()) };
        let (window, kind) = match kind.strip_prefix(WINDOW) {
            Some(rest) => {
                let (window, kind) = rest.split_once(' ').ok_or_else(bad)?;
                (Some(window.parse().map_err(|_| bad())?), kind)
            }
            None => (None, kind),
        };
        let kind = kind.parse().map_err(|_| bad())?;
        let (key, nonce) = (key.to_owned(), nonce.to_owned());
        Ok(Self { key, kind, nonce, born, made, window, existing: false })
    }
}

/// Every key that the store has ids of, in order.
pub(crate) async fn list(store: &Store) -> Result<Vec<KeyView>> {
    let records = store.list(store::KEYS).await?;
    let views = records.into_iter().map(|(name, text)| {
        let key = name.as_str().trim_start_matches(store::KEYS);
        let record = KeyRecord::read(key, &text)?;
        let made = UNIX_EPOCH + Duration::from_millis(record.born);
        Ok(KeyView { key: record.key, kind: record.kind, made })
    });
    views.collect()
}

fn check_window(window: Option<Duration>) -> Result<()> {
    match window {
        Some(window) if !(SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&window) => {
            let message = format!("a window is between 1 s and 24 hours, not {window:?}");
            Err(Error::new(ErrorKind::Config, message))
        }
        _ => Ok(()),
    }
}

fn other_window(key: &str, there: Duration, wanted: u64) -> Error {
    let wanted = Duration::from_millis(wanted);
    let message = format!(
        "the worker numbers of the ids {key:?} have a window of {there:?} in this store, not {wanted:?}: \
         processes with different windows could give the same ids; leave the window to the store, or take \
         another key"
    );
    Error::new(ErrorKind::Config, message)
}

fn mismatch(key: &str, there: &Kind, wanted: &Kind) -> Error {
    let message = format!(
        "the ids {key:?} are {there} in this store, not {wanted}: ids of two kinds under one key could \
         be the same; take another key, or what is there"
    );
    Error::new(ErrorKind::Config, message)
}

fn absent(store: &Store, key: &str, existing: bool) -> Error {
    let backend = &store.engine().backend;
    let what = match existing {
        true => "they were never made there, or the store was lost",
        false => "say of what kind they are to be",
    };
    let message = format!("{backend} has no ids {key:?}: {what}");
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_pinned() {
        for (window, milliseconds) in [("", None), ("window=2000 ", Some(2_000))] {
            let text = format!(
                "1 made 0123456789abcdef 1794700800000 {window}snowflake 41/10/12 1735689600000"
            );
            let record = KeyRecord::read("orders", &text).unwrap();
            assert_eq!(record.text(), text);
            assert_eq!((record.made, record.born), (true, 1_794_700_800_000));
            assert_eq!(record.window, milliseconds);
        }
        for bad in [
            "",
            "2 made 0 1 sequence",
            "1 made 0 x sequence",
            "1 lost 0 1 sequence",
            "1 made 0 1 guess",
            "1 made 0 1 window=2000",
            "1 made 0 1 window=2s sequence",
        ] {
            assert!(KeyRecord::read("orders", bad).is_err(), "{bad}");
        }
    }
}
