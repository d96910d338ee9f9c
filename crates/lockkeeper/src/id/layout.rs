//! How the bits of a snowflake id are used.

use super::value::Id;
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of 2025, in milliseconds since 1970.
const EPOCH_2025: u64 = 1_735_689_600_000;

/// How the bits of a snowflake id are used: time in milliseconds since `epoch`, then the worker number,
/// then the number within the millisecond.
///
/// ```
/// use lockkeeper::id::Layout;
///
/// assert_eq!(Layout::default().to_string(), "41/10/12");
/// // Ids that JavaScript keeps exact, below 2^53.
/// assert_eq!(Layout::javascript().to_string(), "41/6/6");
/// assert!(Layout::new(50, 10, 12).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    time: u32,
    worker: u32,
    sequence: u32,
    /// In milliseconds since 1970.
    epoch: u64,
}

impl Default for Layout {
    /// 41 bits of time, 1,024 workers, 4,096 ids in a millisecond, until the year 2094.
    fn default() -> Self {
        Self { time: 41, worker: 10, sequence: 12, epoch: EPOCH_2025 }
    }
}

impl Layout {
    /// So many bits for time, worker and sequence, 63 at the most in all, from the beginning of 2025.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for bits that make no layout.
    pub fn new(time: u32, worker: u32, sequence: u32) -> Result<Self> {
        let fits = (32..=48).contains(&time)
            && (1..=20).contains(&worker)
            && (1..=22).contains(&sequence)
            && time + worker + sequence <= 63;
        if !fits {
            let message = format!(
                "a layout has 32 to 48 bits of time, 1 to 20 of worker and 1 to 22 of sequence, \
                 63 at the most in all, not {time}/{worker}/{sequence}"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(Self { time, worker, sequence, epoch: EPOCH_2025 })
    }

    /// 53 bits in all, which a number of JavaScript keeps exact: 64 workers, 64 ids in a millisecond.
    pub fn javascript() -> Self {
        Self { time: 41, worker: 6, sequence: 6, epoch: EPOCH_2025 }
    }

    /// Counts time from `epoch`, which is not in the future.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an epoch before 1970 or after now.
    pub fn since(self, epoch: SystemTime) -> Result<Self> {
        let since_1970 = epoch.duration_since(UNIX_EPOCH).ok();
        let past = since_1970.filter(|_| epoch <= SystemTime::now());
        let epoch = past.and_then(|it| u64::try_from(it.as_millis()).ok()).ok_or_else(|| {
            Error::new(ErrorKind::Config, "an epoch is a moment between 1970 and now")
        })?;
        Ok(Self { epoch, ..self })
    }

    /// How many workers there are.
    pub fn workers(&self) -> u32 {
        1 << self.worker
    }

    /// Time zero.
    pub fn epoch(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.epoch)
    }

    /// The last moment of which there can be an id.
    pub fn end(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.epoch + self.last_time())
    }

    pub(crate) fn epoch_ms(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn last_time(&self) -> u64 {
        (1 << self.time) - 1
    }

    pub(crate) fn worker_bits(&self) -> u32 {
        self.worker
    }

    pub(crate) fn sequence_bits(&self) -> u32 {
        self.sequence
    }

    /// The first tick of a millisecond since the epoch.
    #[inline]
    pub(crate) fn tick(&self, time: u64) -> u64 {
        time << self.sequence
    }

    /// The last tick of a millisecond since the epoch.
    pub(crate) fn last_tick(&self, time: u64) -> u64 {
        (time.min(self.last_time()) << self.sequence) | ((1 << self.sequence) - 1)
    }

    /// The id of a tick: the worker number goes between time and sequence.
    #[inline]
    pub(crate) fn id(&self, tick: u64, worker: u64) -> Id {
        let sequence = tick & ((1 << self.sequence) - 1);
        let time = tick >> self.sequence;
        Id::new(((time << self.worker | worker) << self.sequence) | sequence)
    }

    /// Time in milliseconds since the epoch, worker and sequence of an id.
    pub(crate) fn parts(&self, id: Id) -> Option<(u64, u32, u64)> {
        let id = id.get();
        let sequence = id & ((1 << self.sequence) - 1);
        let worker = (id >> self.sequence) & ((1 << self.worker) - 1);
        let time = id >> (self.sequence + self.worker);
        let worker = u32::try_from(worker).ok()?;
        (time <= self.last_time()).then_some((time, worker, sequence))
    }

    /// The smallest and the largest id of the milliseconds from `from` to before `until`.
    pub(crate) fn range(&self, from: SystemTime, until: SystemTime) -> Option<(Id, Id)> {
        let millis = |time: SystemTime| {
            let since = time.duration_since(self.epoch()).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        };
        let (first, behind) = (millis(from), millis(until).min(self.last_time() + 1));
        let bits = self.sequence + self.worker;
        (first < behind).then(|| (Id::new(first << bits), Id::new((behind << bits) - 1)))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.time, self.worker, self.sequence)
    }
}

impl std::str::FromStr for Layout {
    type Err = Error;

    /// `41/10/12`.
    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('/').map(|part| part.parse().ok());
        match (parts.next().flatten(), parts.next().flatten(), parts.next().flatten(), parts.next())
        {
            (Some(time), Some(worker), Some(sequence), None) => Self::new(time, worker, sequence),
            _ => {
                let message = format!("{text:?} is no layout: write it as 41/10/12");
                Err(Error::new(ErrorKind::Config, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_is_the_usual_one() {
        let layout = Layout::default();
        let tick = layout.tick(1) + 3;
        assert_eq!(layout.id(tick, 5).get(), 1 << 22 | 5 << 12 | 3);
        assert_eq!(layout.last_tick(1), layout.tick(2) - 1);
        assert_eq!(layout.workers(), 1024);
        assert_eq!("41/6/6".parse::<Layout>().unwrap(), Layout::javascript());
        assert!(
            Layout::javascript().range(UNIX_EPOCH, Layout::javascript().end()).unwrap().1.get()
                < 1 << 53
        );
        for bad in ["", "41/10", "41/10/12/1", "41/10/13", "x/1/1", "31/10/12", "41/0/12"] {
            assert!(bad.parse::<Layout>().is_err(), "{bad}");
        }
        assert!(layout.since(SystemTime::now() + Duration::from_secs(60)).is_err());
    }

    proptest! {
        #[test]
        fn parts_survive(
            time in 0u64..1 << 41, worker in 0u64..1 << 10, sequence in 0u64..1 << 12,
        ) {
            let layout = Layout::default();
            let id = layout.id(layout.tick(time) + sequence, worker);
            let worker = u32::try_from(worker).unwrap();
            prop_assert_eq!(layout.parts(id), Some((time, worker, sequence)));
            let moment = layout.epoch() + Duration::from_millis(time);
            let (low, high) = layout.range(moment, moment + Duration::from_millis(1)).unwrap();
            prop_assert!(low <= id && id <= high);
        }
    }
}
