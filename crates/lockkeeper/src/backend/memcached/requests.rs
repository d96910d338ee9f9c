//! Every atomic step on a lock's key, one function each.
//!
//! ```text
//!   add       ms ME         there is none: it is ours          one request
//!   keep      ms C          it is the version we know: renewed one request
//!   remove    md C          it is the version we know: gone    one request
//!   find      mg            which version is ours, if any      before the two above, when a ticket is all
//!                                                              we have, or an answer was lost
//! ```
//!
//! memcached compares a CAS, not a value. That is as safe: a CAS names one version of one item in one
//! life of the server. A keeper that reads the item, finds its own claim's id in it and then sends that
//! version's CAS, changes that very version or nothing. Between the two the claim may be renewed,
//! released or lost; then the CAS is another and the step is refused, and the item is read again.

use super::client::{Client, Code, Item, Stored, Version};
use super::error::Failure;
use super::keys::{Keys, Place};
use super::record::{RELEASED, Record};
use super::waiters::Waiters;
use crate::backend::support::alarms::Alarms;
use crate::backend::support::options::config;
use crate::backend::{FencingToken, Moment};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// The shortest ttl: below this, a clock that counts whole seconds says nothing.
pub(super) const SHORTEST_TTL: Duration = Duration::from_secs(2);
/// What memcached takes for a span; anything longer is a date to it.
const LONGEST_SPAN: u64 = 30 * 24 * 3600;
/// What is sent beyond the ttl. The server's clock moves once a second, so that an item lives up to
/// a second shorter than was asked for; and when its seconds and its timer run apart, it moves by two
/// at once now and then.
const BEYOND: u64 = 2;
/// How often a step is made again that a renewal of the same claim came in between of.
const TRIES: u32 = 8;
/// The pause before an expiry is set again that was set while the server's clock stood still.
const CATCH_UP: Duration = Duration::from_millis(5);

/// What the parts of a backend share.
#[derive(Debug)]
pub(super) struct Locks {
    pub(super) client: Client,
    pub(super) keys: Keys,
    pub(super) waiters: Waiters,
    /// Of the claims that are held, for when the connection breaks. Nobody tells of a loss here.
    pub(super) alarms: Arc<Alarms>,
    /// The store for people, without secrets.
    pub(super) shown: String,
}

/// One claim that is, or may be, in the store.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) place: Place,
    pub(super) id: String,
    pub(super) seconds: u64,
    /// What is written in the key; `None` when a ticket is all we have.
    record: Option<Record>,
    /// The version that is ours, when no answer since was lost.
    version: Option<Version>,
    token: Option<FencingToken>,
    /// Until when it was kept when it was last read, perhaps by another.
    until: Option<Moment>,
}

/// What a step on a claim found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is ours, and kept for its whole time from this moment on.
    Ours(Moment),
    /// Another's is there, or something that is no claim.
    Others,
    /// There is nothing.
    Nothing,
}

/// How many seconds to ask for, so that a claim is kept for its `ttl` in any case.
///
/// # Errors
/// [`ErrorKind::Config`] for a ttl that memcached has no way to keep.
pub(super) fn seconds(ttl: Duration) -> Result<u64> {
    let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0) + BEYOND);
    if ttl < SHORTEST_TTL {
        return Err(config(format!(
            "a ttl on memcached is at least {SHORTEST_TTL:?}, not {ttl:?}: its clock moves once a \
             second, so that a ttl of n lives between n - 1 and n seconds"
        )));
    }
    if whole > LONGEST_SPAN {
        return Err(config(format!(
            "a ttl on memcached is below 30 days, not {ttl:?}: what is longer is a date to it"
        )));
    }
    Ok(whole)
}

impl Locks {
    /// The library's error for a failure at the server of `place`.
    pub(super) fn explain(&self, failure: &Failure, place: &Place) -> Error {
        failure.explain(&self.client.shown(place.server))
    }

    /// Reads what is in a key.
    pub(super) async fn read(&self, place: &Place) -> Result<Option<Item>, Failure> {
        match self.client.read(place).await {
            Err(failure) if failure.is_broken() => self.client.read(place).await,
            outcome => outcome,
        }
    }

    /// Why a claim that is gone was broken, if it was.
    pub(super) async fn broken(&self, held: &Held) -> Result<Option<String>> {
        let note = self.keys.broken(&held.place, &held.id);
        let read = self.read(&note).await.map_err(|failure| self.explain(&failure, &note))?;
        Ok(read.map(|item| String::from_utf8_lossy(&item.value).into_owned()))
    }
}

impl Held {
    /// A claim that is being made.
    pub(super) fn new(place: Place, record: Record, seconds: u64) -> Self {
        let id = record.id.clone();
        let (version, token, until) = (None, None, None);
        Self { place, id, seconds, record: Some(record), version, token, until }
    }

    /// A claim of which the id is all that is known, and perhaps the token.
    pub(super) fn by_id(
        place: Place,
        id: String,
        seconds: u64,
        token: Option<FencingToken>,
    ) -> Self {
        Self { place, id, seconds, record: None, version: None, token, until: None }
    }

    /// How many seconds to ask for: never less than another that has the claim was told.
    fn span(&self) -> u64 {
        let left = self.until.map(Moment::remaining).unwrap_or_default();
        let left = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        self.seconds.max(left).min(LONGEST_SPAN)
    }

    /// The token of the grant, once it is known.
    pub(super) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Adds the claim, if there is nothing. `Others` means: not added; perhaps because an earlier try
    /// whose answer was lost did so.
    pub(super) async fn add(&mut self, locks: &Locks) -> Result<Found, Failure> {
        let value = self.record.as_ref().map(Record::write).unwrap_or_default();
        match locks.client.add(&self.place, &value, self.seconds).await? {
            Stored::Done { version, since } => {
                (self.version, self.token) = (Some(version), version.token());
                match since {
                    Some(since) => Ok(Found::Ours(since)),
                    // It may end early: set its time once the server's clock runs.
                    None => self.keep(locks).await,
                }
            }
            Stored::Other | Stored::Absent => Ok(Found::Others),
        }
    }

    /// Gives the claim its whole time, if it is there. Idempotent.
    pub(super) async fn keep(&mut self, locks: &Locks) -> Result<Found, Failure> {
        for _ in 0..TRIES {
            let version = match self.found(locks).await? {
                Ok(version) => version,
                Err(found) => return Ok(found),
            };
            let record = self.record.clone().map(|record| record.with_token(self.token));
            let value = record.as_ref().map(Record::write).unwrap_or_default();
            match locks.client.replace(&self.place, &value, version, self.span()).await {
                Ok(Stored::Done { version, since }) => {
                    self.version = Some(version);
                    match since {
                        Some(since) => return Ok(Found::Ours(since)),
                        None => tokio::time::sleep(CATCH_UP).await,
                    }
                }
                // Gone, or of another version: look which.
                Ok(Stored::Absent | Stored::Other) => {}
                Err(failure) if failure.is_broken() => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::TimedOut)
    }

    /// Removes the claim, at once or after `stay`, if it is there. Idempotent.
    pub(super) async fn remove(&mut self, locks: &Locks, stay: Duration) -> Result<Found, Failure> {
        let mut is_doubtful = false;
        for _ in 0..TRIES {
            let version = match self.found(locks).await? {
                Ok(version) => version,
                // A try whose answer was lost did it.
                Err(_) if is_doubtful => return Ok(Found::Ours(Moment::now())),
                Err(found) => return Ok(found),
            };
            let removed = match stay.is_zero() {
                true => locks.client.delete(&self.place, version).await,
                false => self.leave(locks, version, stay).await,
            };
            match removed {
                Ok(Code::Done) => return Ok(Found::Ours(Moment::now())),
                Ok(_) => {}
                Err(failure) if failure.is_broken() => is_doubtful = true,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::TimedOut)
    }

    /// Writes over the claim what nobody can renew or release. It stays no shorter than it was asked
    /// to, also if the server's clock stands still: then it is written again.
    async fn leave(
        &mut self,
        locks: &Locks,
        mut version: Version,
        stay: Duration,
    ) -> Result<Code, Failure> {
        let whole = stay.as_secs() + u64::from(stay.subsec_nanos() > 0) + BEYOND;
        let seconds = match whole <= LONGEST_SPAN {
            true => whole,
            false => locks.client.date(&self.place, whole).await?,
        };
        loop {
            match locks.client.replace(&self.place, RELEASED, version, seconds).await? {
                Stored::Done { since: Some(_), .. } => return Ok(Code::Done),
                Stored::Done { version: next, since: None } => version = next,
                Stored::Other => return Ok(Code::Changed),
                Stored::Absent => return Ok(Code::Absent),
            }
            tokio::time::sleep(CATCH_UP).await;
        }
    }

    /// The version that is ours: the one we know, or the one that is there. What we know is used once:
    /// until the next answer nobody knows what became of it.
    async fn found(&mut self, locks: &Locks) -> Result<Result<Version, Found>, Failure> {
        if let Some(version) = self.version.take() {
            return Ok(Ok(version));
        }
        let Some(item) = locks.read(&self.place).await? else { return Ok(Err(Found::Nothing)) };
        match Record::read(&item.value).filter(|record| record.id == self.id) {
            // With another token it was asked for again, by the same id, after it was lost.
            Some(record)
                if self.token.is_none_or(|token| Some(token) == record.token(&item.version)) =>
            {
                self.token = record.token(&item.version);
                self.record = Some(record);
                let left = Duration::from_secs(u64::try_from(item.ttl).unwrap_or_default());
                self.until = Some(Moment::now() + left);
                Ok(Ok(item.version))
            }
            _ => Ok(Err(Found::Others)),
        }
    }
}

/// The error for a step that brings no end.
pub(super) fn restless(name: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{name:?} changes faster than it can be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_kept_in_any_case_or_refused() {
        let asked = |ms: u64| seconds(Duration::from_millis(ms));
        assert_eq!(
            (asked(2000).unwrap(), asked(2001).unwrap(), asked(30_000).unwrap()),
            (4, 5, 32)
        );
        for refused in [0, 1, 1999] {
            let error = asked(refused).unwrap_err();
            assert!(error.to_string().contains("once a second"), "{error}");
        }
        let day = 24 * 3600 * 1000;
        assert_eq!(asked(30 * day - 2000).unwrap(), LONGEST_SPAN);
        assert_eq!(asked(30 * day - 1999).unwrap_err().kind(), ErrorKind::Config);
        assert!(seconds(Duration::MAX).is_err());
    }
}
