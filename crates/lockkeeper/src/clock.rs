//! The clock that validity is counted on.
//!
//! A lease must end for its holder before it ends in the store, also when the machine was
//! asleep in between. `std::time::Instant` stops during sleep on Linux, so a laptop that wakes
//! up would believe a lease that ran out hours ago. This clock does not stop:
//!
//! | system | source | counts sleep |
//! |---|---|---|
//! | Linux, Android | `CLOCK_BOOTTIME` | yes |
//! | macOS, iOS | `CLOCK_MONOTONIC`, which there goes on during sleep | yes |
//! | Windows | `std::time::Instant` (the performance counter) | yes |
//! | elsewhere | `std::time::Instant` | as the system decides |
//!
//! Compiled with `--cfg lockkeeper_portable`, every system counts as "elsewhere": how the
//! fallback is checked on a machine that has better.
//!
//! The unit tests of this crate read tokio's clock instead, so that they can pause it.

use std::ops::Add;
use std::time::Duration;

#[cfg(not(any(test, lockkeeper_portable)))]
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
use awake::Reading;
#[cfg(not(test))]
#[cfg(any(
    lockkeeper_portable,
    not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))
))]
use std::time::Instant as Reading;
#[cfg(test)]
use tokio::time::Instant as Reading;

/// How often a sleeper looks at the clock again. Timers do not advance while a machine sleeps,
/// so a single long one would fire late by the whole sleep.
const GLANCE: Duration = Duration::from_secs(1);

/// What is asked of a reading beside what `std::time::Instant` has.
trait Nanos {
    fn nanos_since(self, earlier: Self) -> u64;
}

#[cfg(any(
    test,
    lockkeeper_portable,
    not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))
))]
impl Nanos for Reading {
    #[inline]
    fn nanos_since(self, earlier: Self) -> u64 {
        u64::try_from(self.saturating_duration_since(earlier).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A point in time on the clock of validity.
///
/// Only differences mean anything, and only within one boot of one machine.
///
/// ```
/// use lockkeeper::backend::Moment;
/// use std::time::Duration;
///
/// let sent = Moment::now();
/// let deadline = sent + Duration::from_secs(30);
/// assert!(deadline.since(sent) == Duration::from_secs(30));
/// assert!(sent.since(deadline).is_zero());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Reading);

impl Moment {
    /// The present moment.
    #[inline]
    pub fn now() -> Self {
        Self(Reading::now())
    }

    /// The time from `earlier` to `self`; zero when `earlier` is the later one.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// [`since`](Self::since) in nanoseconds, for those who read the clock millions of times in a second.
    #[inline]
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        self.0.nanos_since(earlier.0)
    }

    /// The time from now until `self`; zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// Sleeps until this moment, however long the machine itself slept meanwhile. Never early.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn reached(self) {
        loop {
            let left = self.remaining();
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(GLANCE)).await;
        }
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// A span too large for the clock gives a moment a century away, not a panic.
    fn add(self, span: Duration) -> Self {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        Self(self.0.checked_add(span.min(CENTURY)).unwrap_or(self.0))
    }
}

#[cfg(not(lockkeeper_portable))]
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
pub(crate) mod awake {
    use nix::time::{ClockId, clock_gettime};
    use std::time::Duration;

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    #[cfg(target_vendor = "apple")]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

    /// Time since the machine started, time asleep included, in nanoseconds: enough for five centuries.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub(crate) struct Reading(u64);

    #[cfg_attr(test, allow(dead_code, reason = "unit tests read tokio's clock"))]
    impl Reading {
        #[inline]
        pub(crate) fn now() -> Self {
            // The call fails only for a clock the kernel does not know; this one is older than
            // any kernel Rust supports. Neither part of its answer is negative.
            let Ok(time) = clock_gettime(CLOCK) else { return Self(0) };
            #[allow(clippy::unnecessary_cast, reason = "narrower on some systems")]
            let (seconds, nanos) = (time.tv_sec() as i64, time.tv_nsec() as i64);
            Self(seconds.unsigned_abs() * 1_000_000_000 + nanos.unsigned_abs())
        }

        #[inline]
        pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
            Duration::from_nanos(self.0.saturating_sub(earlier.0))
        }

        pub(crate) fn checked_add(self, span: Duration) -> Option<Self> {
            self.0.checked_add(u64::try_from(span.as_nanos()).ok()?).map(Self)
        }

        /// Time since the machine started.
        #[cfg_attr(not(all(feature = "sqlite", target_os = "linux")), allow(dead_code))]
        pub(crate) fn since_boot(self) -> Duration {
            Duration::from_nanos(self.0)
        }
    }

    #[cfg(not(test))]
    impl super::Nanos for Reading {
        #[inline]
        fn nanos_since(self, earlier: Self) -> u64 {
            self.0.saturating_sub(earlier.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_beyond_the_clock_does_not_panic() {
        let now = Moment::now();
        assert!(now + Duration::MAX > now);
    }

    #[tokio::test(start_paused = true)]
    async fn reached_is_never_early() {
        let target = Moment::now() + Duration::from_millis(3700);
        target.reached().await;
        assert!(Moment::now() >= target);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_of_validity_counts_sleep() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let reading = awake::Reading::now().since_boot().as_secs_f64();
        assert!((0.0..5.0).contains(&(reading - seconds)), "{reading} is not uptime {seconds}");
    }
}
