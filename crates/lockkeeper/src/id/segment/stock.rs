//! The range behind the one that is given out, and when the next is fetched.

use super::copy;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::id::core::cursor::Cursor;
use std::time::Duration;

/// How long a range should last.
const LASTS: Duration = Duration::from_secs(5);

/// The sizes of a range.
const SMALLEST: u32 = 10;
const LARGEST: u32 = 64_000_000;

/// By how much a range is larger than the one before at the most.
const GROWTH: u32 = 10;

/// What is known of the ranges to come.
#[derive(Debug)]
pub(super) struct Stock {
    /// From the first to behind the last.
    next: Option<(u64, u64)>,
    fetching: bool,
    /// What the store said to the last request.
    failed: Option<Error>,
    /// The size of the next range.
    size: u32,
    /// When the range that is given out was begun.
    since: Moment,
}

/// A range to be fetched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) count: u32,
}

/// What there is when a range is used up.
#[derive(Debug)]
pub(super) enum Refill {
    /// There are numbers in the cursor.
    Filled,
    /// A range is on its way, once the fetch was begun.
    Wait(Option<Fetch>),
    Failed(Error),
}

impl Default for Stock {
    fn default() -> Self {
        let since = Moment::now();
        Self { next: None, fetching: false, failed: None, size: SMALLEST, since }
    }
}

impl Stock {
    /// A good part of the range is used: whether the next is to be fetched.
    pub(super) fn ebb(&mut self, cursor: &Cursor) -> Option<Fetch> {
        // Told once: what is left of the range is given without another look here.
        cursor.remind(None);
        if self.next.is_some() || self.fetching {
            return None;
        }
        self.fetching = true;
        Some(Fetch { count: self.size })
    }

    /// The range is used up, and somebody wants so many.
    pub(super) fn refill(&mut self, cursor: &Cursor, wanted: u64) -> Refill {
        if !cursor.is_empty() {
            return Refill::Filled;
        }
        if let Some((first, end)) = self.next.take() {
            self.adapt();
            // Where a fifth is used the next is fetched.
            cursor.fill(first, end, first + (end - first) / 5);
            return Refill::Filled;
        }
        if let Some(error) = self.failed.take_if(|_| !self.fetching) {
            // Told once; the next caller asks again.
            return Refill::Failed(error);
        }
        let wanted = u32::try_from(wanted).unwrap_or(LARGEST).min(LARGEST);
        self.size = self.size.max(wanted);
        Refill::Wait(self.ebb(cursor))
    }

    /// What became of a fetch. After a failure the store is asked again when half of what is left is
    /// used: often enough, and not once for each number.
    pub(super) fn arrived(&mut self, cursor: &Cursor, range: Result<(u64, u64)>) {
        self.fetching = false;
        match range {
            Ok(range) => (self.next, self.failed) = (Some(range), None),
            Err(error) => {
                self.failed = Some(error);
                cursor.remind(Some(cursor.middle()));
            }
        }
    }

    /// The size of the next range, by how long the last one lasted.
    fn adapt(&mut self) {
        let now = Moment::now();
        let lasted = now.since(std::mem::replace(&mut self.since, now));
        let factor = LASTS.as_secs_f64() / lasted.as_secs_f64().max(1e-6);
        let factor = factor.clamp(0.5, f64::from(GROWTH));
        // At most 640 million, so exact.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let size = (f64::from(self.size) * factor) as u32;
        self.size = size.clamp(SMALLEST, LARGEST);
    }

    /// How many are ready behind those that are given out.
    pub(super) fn ready(&self) -> u64 {
        self.next.map_or(0, |(first, end)| end - first)
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.failed.as_ref().map(|error| copy(error).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test(start_paused = true)]
    async fn one_range_is_fetched_at_a_time_and_sizes_follow_the_rate() {
        let (mut stock, cursor) = (Stock::default(), Cursor::new());
        let Refill::Wait(Some(fetch)) = stock.refill(&cursor, 1) else {
            panic!("nothing to fetch")
        };
        assert_eq!(fetch, Fetch { count: SMALLEST });
        assert!(matches!(stock.refill(&cursor, 1), Refill::Wait(None)));
        stock.arrived(&cursor, Ok((1, 11)));
        assert!(matches!(stock.refill(&cursor, 1), Refill::Filled));
        // Used up in no time: ten times as many.
        assert_eq!(stock.ebb(&cursor), Some(Fetch { count: SMALLEST * GROWTH }));
        assert_eq!(stock.ebb(&cursor), None);
        stock.arrived(&cursor, Ok((11, 111)));
        while cursor.take(7).is_some() {}
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(matches!(stock.refill(&cursor, 1), Refill::Filled));
        // Lasted long: half as many.
        assert_eq!(stock.ebb(&cursor), Some(Fetch { count: SMALLEST * GROWTH / 2 }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_the_next_caller_asks_again() {
        let (mut stock, cursor) = (Stock::default(), Cursor::new());
        assert!(matches!(stock.refill(&cursor, 500), Refill::Wait(Some(Fetch { count: 500 }))));
        stock.arrived(&cursor, Err(Error::new(ErrorKind::Unavailable, "no answer")));
        assert!(stock.trouble().is_some());
        assert!(matches!(stock.refill(&cursor, 1), Refill::Failed(_)));
        assert!(matches!(stock.refill(&cursor, 1), Refill::Wait(Some(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_is_asked_a_few_times_in_a_range() {
        let (mut stock, cursor) = (Stock::default(), Cursor::new());
        cursor.fill(0, 1_000_000, 200_000);
        let (mut reminders, mut asked) = (0, 0);
        while let Some(piece) = cursor.take(1) {
            if piece.ebb {
                reminders += 1;
                if stock.ebb(&cursor).is_some() {
                    asked += 1;
                    let error = Error::new(ErrorKind::Unavailable, "no answer");
                    stock.arrived(&cursor, Err(error));
                }
            }
        }
        assert!(reminders == asked && (10..=25).contains(&asked), "{reminders} and {asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_reminds_of_the_next_one_once() {
        let (mut stock, cursor) = (Stock::default(), Cursor::new());
        cursor.fill(0, 1_000, 200);
        let mut reminders = 0;
        while let Some(piece) = cursor.take(1) {
            if piece.ebb {
                reminders += 1;
                assert!(stock.ebb(&cursor).is_some());
            }
        }
        assert_eq!(reminders, 1);
    }
}
