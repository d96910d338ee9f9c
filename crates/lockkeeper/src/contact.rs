//! Whether the store answers, as the requests of a keeper's claims find out.

use crate::backend::support::sync::lock;
use crate::clock::Moment;
use crate::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// When the store was last heard, and since when it has not been.
#[derive(Debug)]
pub(crate) struct Contact {
    begun: Moment,
    /// When it last answered, in nanoseconds after `begun` and one more; zero before the first time.
    answered: AtomicU64,
    /// Whether the last request was not answered: spares those that are the lock.
    silent: AtomicBool,
    silent_since: Mutex<Option<Moment>>,
    reconnects: AtomicU64,
}

impl Contact {
    pub(crate) fn new() -> Self {
        Self {
            begun: Moment::now(),
            answered: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            silent_since: Mutex::default(),
            reconnects: AtomicU64::new(0),
        }
    }

    /// The store answered at `now`. For how long it had not, if it had not: told once.
    pub(crate) fn answered(&self, now: Moment) -> Option<Duration> {
        let after = u64::try_from(now.since(self.begun).as_nanos()).unwrap_or(u64::MAX);
        self.answered.store(after.saturating_add(1), Ordering::Relaxed);
        if !self.silent.load(Ordering::Acquire) {
            return None;
        }
        let since = lock(&self.silent_since).take()?;
        self.silent.store(false, Ordering::Release);
        self.reconnects.fetch_add(1, Ordering::Relaxed);
        Some(now.since(since))
    }

    /// The store could not be reached.
    pub(crate) fn failed(&self) {
        lock(&self.silent_since).get_or_insert_with(Moment::now);
        self.silent.store(true, Ordering::Release);
    }

    /// What `answer` says: an error may be an answer too. As [`answered`](Self::answered).
    pub(crate) fn note<T>(&self, answer: &Result<T, Error>) -> Option<Duration> {
        match answer {
            Err(error) if error.is_outage() => {
                self.failed();
                None
            }
            _ => self.answered(Moment::now()),
        }
    }

    /// How long ago the store last answered a request of a claim; `None` before the first answer.
    pub(crate) fn last_answer(&self) -> Option<Duration> {
        let after = self.answered.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Moment::now().since(self.begun).saturating_sub(Duration::from_nanos(after)))
    }

    /// Whether the last request was not answered.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// How often it answered again after it had not.
    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test(start_paused = true)]
    async fn a_silence_is_told_once_and_in_full() {
        let contact = Contact::new();
        assert_eq!((contact.last_answer(), contact.reconnects()), (None, 0));
        assert_eq!(contact.answered(Moment::now()), None);
        let refused: Result<(), _> = Err(Error::new(ErrorKind::Denied, "an answer all the same"));
        assert_eq!(contact.note(&refused), None);
        let silent: Result<(), _> = Err(Error::new(ErrorKind::Unavailable, "nothing"));
        for _ in 0..3 {
            assert_eq!(contact.note(&silent), None);
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert_eq!(contact.last_answer(), Some(Duration::from_secs(6)));
        assert_eq!(contact.answered(Moment::now()), Some(Duration::from_secs(6)));
        assert_eq!(contact.answered(Moment::now()), None);
        assert_eq!((contact.last_answer(), contact.reconnects()), (Some(Duration::ZERO), 1));
    }
}
