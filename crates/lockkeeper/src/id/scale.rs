//! What a tick means: how time, worker and sequence make an id.

use super::dated::DateFormat;
use super::layout::Layout;
use super::value::Id;
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far ids may run ahead of the clock, in milliseconds.
const AHEAD_OF_MILLIS: u64 = 5;
/// The same in seconds, where the second is the unit.
const AHEAD_OF_SECONDS: u64 = 2;

/// How the ticks of a clock and a worker number make ids: [`Layout`] and [`DateFormat`].
///
/// Milliseconds are counted from 1970. Not to be implemented elsewhere.
pub trait Scale: fmt::Debug + Send + Sync + 'static {
    #[doc(hidden)]
    fn tick(&self, millis: u64) -> u64;
    /// The last tick of which the whole time is not after `millis`: both what a lease may give and where
    /// the next one begins.
    #[doc(hidden)]
    fn up_to(&self, millis: u64) -> u64;
    /// The first moment for which [`up_to`](Self::up_to) has this tick.
    #[doc(hidden)]
    fn millis(&self, tick: u64) -> u64;
    #[doc(hidden)]
    fn ahead(&self) -> u64;
    #[doc(hidden)]
    fn id(&self, tick: u64, worker: u64) -> Id;
    #[doc(hidden)]
    fn workers(&self) -> u32;
    #[doc(hidden)]
    fn worker_bits(&self) -> u32;
    #[doc(hidden)]
    fn end(&self) -> SystemTime;

    /// Refuses a moment of which there are no ids.
    #[doc(hidden)]
    fn check(&self, millis: u64) -> Result<()> {
        let now = UNIX_EPOCH + Duration::from_millis(millis);
        if now >= self.end() {
            let message = "there are no ids of this layout any more: its time is used up";
            return Err(Error::new(ErrorKind::Exhausted, message).lasting());
        }
        if self.tick(millis) == 0 {
            let message = "the store's clock is before the epoch of these ids: set it";
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(())
    }
}

impl Scale for Layout {
    #[inline]
    fn tick(&self, millis: u64) -> u64 {
        Layout::tick(self, millis.saturating_sub(self.epoch_ms()))
    }

    fn up_to(&self, millis: u64) -> u64 {
        self.last_tick(millis.saturating_sub(self.epoch_ms()))
    }

    fn millis(&self, tick: u64) -> u64 {
        (tick >> self.sequence_bits()) + self.epoch_ms()
    }

    fn ahead(&self) -> u64 {
        AHEAD_OF_MILLIS << self.sequence_bits()
    }

    #[inline]
    fn id(&self, tick: u64, worker: u64) -> Id {
        Layout::id(self, tick, worker)
    }

    fn workers(&self) -> u32 {
        Layout::workers(self)
    }

    fn worker_bits(&self) -> u32 {
        Layout::worker_bits(self)
    }

    fn end(&self) -> SystemTime {
        Layout::end(self)
    }
}

impl Scale for DateFormat {
    #[inline]
    fn tick(&self, millis: u64) -> u64 {
        self.first_tick(self.unit_of(millis / 1000))
    }

    fn up_to(&self, millis: u64) -> u64 {
        // The second of the mark itself is the next lease's.
        self.last_tick(self.unit_of(millis / 1000).saturating_sub(1)).min(self.last())
    }

    fn millis(&self, tick: u64) -> u64 {
        self.seconds_of(self.unit_of_tick(tick) + 1) * 1000
    }

    fn ahead(&self) -> u64 {
        AHEAD_OF_SECONDS * self.digits().capacity()
    }

    #[inline]
    fn id(&self, tick: u64, worker: u64) -> Id {
        DateFormat::id(self, tick, worker)
    }

    fn workers(&self) -> u32 {
        self.digits().workers()
    }

    fn worker_bits(&self) -> u32 {
        10
    }

    fn end(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(Scale::millis(self, self.last()))
    }
}
