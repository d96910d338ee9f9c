//! The clock of ids: it follows the store's and does not jump.
//!
//! Between two looks at the store's clock, time is counted by a clock of this machine that nobody can set.
//! So neither a step of this machine's wall clock nor its drift moves ids. A look that finds a difference
//! is followed gently: forward at once, backward by a little each time, since ids do not go back.

use super::store::Reading;
use crate::clock::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// By how much a look at the store's clock sets this one back at the most.
const BACK: u64 = 2_000_000;

/// A difference that drift does not explain.
const SUSPICIOUS: u64 = 10_000_000_000;

/// Nanoseconds since 1970 by the store's clock.
#[derive(Debug)]
pub(crate) struct IdClock {
    origin: Moment,
    /// What the store's clock said at the origin, as far as is known.
    base: AtomicU64,
    /// The millisecond that a ticking task wrote last, where there is such a task.
    cached: AtomicU64,
}

impl IdClock {
    pub(crate) fn new(reading: Reading) -> Self {
        let clock = Self {
            origin: reading.at,
            base: AtomicU64::new(reading.nanos),
            cached: AtomicU64::new(0),
        };
        clock.tick();
        clock
    }

    /// Milliseconds since 1970.
    #[inline]
    pub(crate) fn millis(&self) -> u64 {
        self.nanos() / 1_000_000
    }

    /// The millisecond of the last [`tick`](Self::tick).
    #[inline]
    pub(crate) fn cached_millis(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Brings [`cached_millis`](Self::cached_millis) up to date.
    pub(crate) fn tick(&self) {
        self.cached.store(self.millis(), Ordering::Relaxed);
    }

    #[inline]
    fn nanos(&self) -> u64 {
        let since = Moment::now().since(self.origin);
        self.base.load(Ordering::Relaxed)
            + since.as_secs() * 1_000_000_000
            + u64::from(since.subsec_nanos())
    }

    /// Follows the store's clock. `usable` is the last millisecond of which ids may be given: a clock
    /// that is beyond it was set, and giving nothing is worse than a step back. Zero where ids are kept
    /// from going back by other means.
    pub(crate) fn follow(&self, reading: Reading, usable: u64) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.follow_as(reading, usable, u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX));
    }

    fn follow_as(&self, reading: Reading, usable: u64, wall: u64) {
        let told = reading.nanos.saturating_add(nanos_of(Moment::now().since(reading.at)));
        let own = self.nanos();
        if told >= own {
            let ahead = told - own;
            // The store alone is ahead: its clock was set, and may be set back.
            if ahead > SUSPICIOUS && told.abs_diff(wall) > SUSPICIOUS {
                let seconds = ahead / 1_000_000_000;
                tracing::warn!(seconds, "the store's clock is ahead, and ids do not follow");
                return;
            }
            self.base.fetch_add(ahead, Ordering::Relaxed);
        } else {
            let behind = own - told;
            let back = if own / 1_000_000 > usable { behind } else { behind.min(BACK) };
            self.base.fetch_sub(back, Ordering::Relaxed);
        }
    }
}

fn nanos_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_800_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn reading(nanos: u64) -> Reading {
        Reading { nanos, at: Moment::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn time_goes_on_by_itself_and_follows_the_store() {
        let clock = IdClock::new(reading(START));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(clock.millis(), (START + 5 * SECOND) / 1_000_000);
        clock.follow_as(reading(START + 6 * SECOND), u64::MAX, START);
        assert_eq!(clock.millis(), (START + 6 * SECOND) / 1_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_back_is_followed_slowly_unless_the_clock_is_of_no_use() {
        let clock = IdClock::new(reading(START));
        clock.follow_as(reading(START - 60 * SECOND), u64::MAX, START);
        assert_eq!(clock.millis(), (START - BACK) / 1_000_000);
        clock.follow_as(reading(START - 60 * SECOND), START / 1_000_000 - 1_000, START);
        assert_eq!(clock.millis(), (START - 60 * SECOND) / 1_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_alone_is_ahead_is_not_followed() {
        let clock = IdClock::new(reading(START));
        let ahead = START + 3_600 * SECOND;
        clock.follow_as(reading(ahead), u64::MAX, START);
        assert_eq!(clock.millis(), START / 1_000_000);
        clock.follow_as(reading(ahead), u64::MAX, ahead + SECOND);
        assert_eq!(clock.millis(), ahead / 1_000_000);
    }
}
