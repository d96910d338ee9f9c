//! How the digits of a dated id are used.
//!
//! The state behind such ids is one number, the tick: `unit × capacity + sequence`, where the unit is the
//! second or the day of the calendar. The id is a function of the tick, so that ids grow as ticks do.

use crate::error::{Error, ErrorKind, Result};
use crate::id::calendar::{self, Civil, SECONDS_PER_DAY};
use crate::id::check_digit;
use crate::id::value::Id;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest prefix.
const LONGEST_PREFIX: usize = 16;

/// The digits of a dated id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Digits {
    /// `yyyyMMddHHmmss` and five for the number within the second: 100,000 ids a second, 19 digits, fits
    /// a signed 64-bit column until the year 9223.
    Second19,
    /// `yyyyMMdd` and eight for the number within the day: a hundred million ids a day, 16 digits, below
    /// 2^53, which JavaScript keeps exact.
    Day16,
    /// `yyMMddHHmmss` and four for the number within the second: 10,000 ids a second, 16 digits, below
    /// 2^53 until the end of 2089.
    Second16,
    /// `yyMMddHHmmss`, three for the worker and four for the number within the second: 1,000 workers of
    /// 10,000 ids a second each, 19 digits, until the end of 2091. Given without asking the store.
    Worker19,
}

impl Digits {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Second19, Self::Day16, Self::Second16, Self::Worker19];

    /// Its name on the command line and in the store's record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Second19 => "second19",
            Self::Day16 => "day16",
            Self::Second16 => "second16",
            Self::Worker19 => "worker19",
        }
    }

    /// How many ids there are in a unit, for each worker.
    #[inline]
    pub(crate) fn capacity(self) -> u64 {
        match self {
            Self::Second19 => 100_000,
            Self::Day16 => 100_000_000,
            Self::Second16 | Self::Worker19 => 10_000,
        }
    }

    /// Seconds in a unit.
    #[inline]
    pub(crate) fn unit(self) -> u64 {
        if self == Self::Day16 { SECONDS_PER_DAY } else { 1 }
    }

    /// The unit of a tick, and the number within it. Divisors are constants: a division by what is known
    /// only at run time takes as long as the rest of an id.
    #[inline]
    fn split(self, tick: u64) -> (u64, u64) {
        match self {
            Self::Second19 => (tick / 100_000, tick % 100_000),
            Self::Day16 => (tick / 100_000_000, tick % 100_000_000),
            Self::Second16 | Self::Worker19 => (tick / 10_000, tick % 10_000),
        }
    }

    /// How many workers share the ids of a unit.
    pub(crate) fn workers(self) -> u32 {
        if self == Self::Worker19 { 1_000 } else { 1 }
    }

    fn short_year(self) -> bool {
        matches!(self, Self::Second16 | Self::Worker19)
    }

    /// The first year of which there is no id.
    fn end(self) -> u64 {
        match self {
            Self::Second19 => 9_223,
            Self::Day16 => 9_007,
            Self::Second16 => 2_090,
            Self::Worker19 => 2_092,
        }
    }
}

impl std::str::FromStr for Digits {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|digits| digits.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            let message = format!("there are no digits {text:?}: the known ones are {known}");
            Error::new(ErrorKind::Config, message)
        })
    }
}

/// How dated ids of a key are written: digits, a fixed offset from UTC, a prefix, a check digit.
///
/// ```
/// use lockkeeper::id::{DateFormat, Digits};
///
/// let format = DateFormat::new(Digits::Second19).offset("+08:00")?.prefix("ORD")?.check_digit();
/// assert_eq!(format.to_string(), "second19 +08:00 ORD check");
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Debug)]
pub struct DateFormat {
    digits: Digits,
    offset: i32,
    prefix: String,
    check: bool,
    /// The day that was written last, and its digits: `day << 32 | yyyyMMdd`.
    today: AtomicU64,
    /// The minute that was written last of ids with a short year, and its digits:
    /// `minute << MINUTE_DIGITS | yyMMddHHmm`.
    minute: AtomicU64,
}

/// How many bits the digits of a minute take. The minutes since 1970 have the other 30, which are enough
/// until the year 4011.
const MINUTE_DIGITS: u32 = 34;

impl DateFormat {
    /// These digits, in UTC.
    pub fn new(digits: Digits) -> Self {
        // No day and no minute that there are ids of.
        let (today, minute) = (AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX));
        Self { digits, offset: 0, prefix: String::new(), check: false, today, minute }
    }

    /// Reads the day and the second at this offset from UTC, such as `+08:00`. A time zone with summer
    /// time is refused: an hour would come twice.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for anything else.
    pub fn offset(mut self, offset: &str) -> Result<Self> {
        self.offset = calendar::offset(offset)?;
        Ok(self)
    }

    /// Writes `prefix` in front: letters, `-` and `_`, 16 at the most.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another prefix.
    pub fn prefix(mut self, prefix: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphabetic() || c == '-' || c == '_';
        // The word for the check digit in the record of a key.
        if prefix.len() > LONGEST_PREFIX || !prefix.chars().all(plain) || prefix == "check" {
            let message = format!(
                "the prefix of an id has letters, - and _, {LONGEST_PREFIX} at the most, not {prefix:?}"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        self.prefix = prefix.to_owned();
        Ok(self)
    }

    /// Writes a check digit behind, by which one wrong digit, or two that changed places, are noticed
    /// ([`parse`](Self::parse)).
    #[must_use]
    pub fn check_digit(mut self) -> Self {
        self.check = true;
        self
    }

    /// The digits.
    pub fn digits(&self) -> Digits {
        self.digits
    }

    /// An id as it is written: prefix, number, check digit.
    pub fn text(&self, id: Id) -> String {
        let number = id.to_string();
        let check = self.check.then(|| check_digit::of(&number).to_string());
        format!("{}{number}{}", self.prefix, check.unwrap_or_default())
    }

    /// The id that [`text`](Self::text) wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a wrong prefix, a wrong check digit, or digits that are no moment.
    pub fn parse(&self, text: &str) -> Result<Id> {
        let bad = |why: &str| {
            Error::new(ErrorKind::Config, format!("{text:?} is no id of this key: {why}"))
        };
        let prefix = &self.prefix;
        let number = text
            .strip_prefix(prefix.as_str())
            .ok_or_else(|| bad(&format!("it begins with {prefix:?}")))?;
        let number = match self.check {
            false => number,
            true => check_digit::checked(number).ok_or_else(|| bad("its check digit is wrong"))?,
        };
        let id: Id = number.parse()?;
        self.parts(id).map(|_| id).ok_or_else(|| bad("its digits are no moment"))
    }

    /// The unit of a moment, in seconds since 1970.
    #[inline]
    pub(crate) fn unit_of(&self, seconds: u64) -> u64 {
        let seconds = seconds.saturating_add_signed(i64::from(self.offset));
        if self.digits == Digits::Day16 { seconds / SECONDS_PER_DAY } else { seconds }
    }

    /// The first tick of the unit: number one. Ids end in no zero that a person might take for a round number.
    #[inline]
    pub(crate) fn first_tick(&self, unit: u64) -> u64 {
        unit * self.digits.capacity() + 1
    }

    /// The last tick of the unit.
    pub(crate) fn last_tick(&self, unit: u64) -> u64 {
        unit * self.digits.capacity() + (self.digits.capacity() - 1)
    }

    /// The unit of a tick.
    pub(crate) fn unit_of_tick(&self, tick: u64) -> u64 {
        self.digits.split(tick).0
    }

    /// The first second of a unit, since 1970.
    pub(crate) fn seconds_of(&self, unit: u64) -> u64 {
        (unit * self.digits.unit()).saturating_add_signed(-i64::from(self.offset))
    }

    /// The last tick of all.
    pub(crate) fn last(&self) -> u64 {
        let end =
            Civil { year: self.digits.end(), month: 1, day: 1, hour: 0, minute: 0, second: 0 };
        self.last_tick(end.seconds().unwrap_or(0) / self.digits.unit() - 1)
    }

    /// The id of a tick.
    #[inline]
    pub(crate) fn id(&self, tick: u64, worker: u64) -> Id {
        let digits = self.digits;
        let (unit, sequence) = digits.split(tick);
        match digits {
            // The factors are constants here, since these are the ids that cost no request.
            Digits::Worker19 => {
                let moment = self.short_minute(unit / 60) * 100 + unit % 60;
                Id::new((moment * 1_000 + worker) * 10_000 + sequence)
            }
            Digits::Second16 => {
                let moment = self.short_minute(unit / 60) * 100 + unit % 60;
                Id::new(moment * 10_000 + sequence)
            }
            Digits::Second19 => {
                let moment = self.date(unit / SECONDS_PER_DAY) * 1_000_000 + clock(unit);
                Id::new(moment * 100_000 + sequence)
            }
            Digits::Day16 => Id::new(self.date(unit) * 100_000_000 + sequence),
        }
    }

    /// `yyMMddHHmm` of a minute since 1970, which is mostly the one of before.
    #[inline]
    fn short_minute(&self, minute: u64) -> u64 {
        let last = self.minute.load(Ordering::Relaxed);
        if last >> MINUTE_DIGITS == minute {
            return last & ((1 << MINUTE_DIGITS) - 1);
        }
        let date = self.date(minute / (SECONDS_PER_DAY / 60)) % 1_000_000;
        let written = date * 10_000 + clock(minute * 60) / 100;
        self.minute.store(minute << MINUTE_DIGITS | written, Ordering::Relaxed);
        written
    }

    /// `yyyyMMdd` of a day since 1970, which is mostly the one of before.
    #[inline]
    fn date(&self, day: u64) -> u64 {
        let today = self.today.load(Ordering::Relaxed);
        if today >> 32 == day {
            return today & 0xffff_ffff;
        }
        let civil = Civil::of(day * SECONDS_PER_DAY);
        let date = civil.year * 10_000 + civil.month * 100 + civil.day;
        self.today.store(day << 32 | date, Ordering::Relaxed);
        date
    }

    /// The moment in seconds since 1970, the worker and the number within the unit; `None` for digits
    /// that are no moment.
    pub(crate) fn parts(&self, id: Id) -> Option<(u64, u32, u64)> {
        let digits = self.digits;
        let (rest, sequence) = (id.get() / digits.capacity(), id.get() % digits.capacity());
        let workers = u64::from(digits.workers());
        let (moment, worker) = (rest / workers, rest % workers);
        let (date, clock) = match digits {
            Digits::Day16 => (moment, 0),
            _ => (moment / 1_000_000, moment % 1_000_000),
        };
        let year = date / 10_000 + if digits.short_year() { 2_000 } else { 0 };
        let civil = Civil {
            year,
            month: date / 100 % 100,
            day: date % 100,
            hour: clock / 10_000,
            minute: clock / 100 % 100,
            second: clock % 100,
        };
        let local = civil.seconds().filter(|_| year < digits.end())?;
        let seconds = local.checked_add_signed(-i64::from(self.offset))?;
        Some((seconds, u32::try_from(worker).ok()?, sequence))
    }

    /// The smallest and the largest id of the day that begins at `day` seconds of the calendar, as it is
    /// at this offset.
    pub(crate) fn range(&self, day: u64) -> (Id, Id) {
        let unit = self.digits.unit();
        let last = (day + SECONDS_PER_DAY - 1) / unit;
        let most = u64::from(self.digits.workers()) - 1;
        (self.id(day / unit * self.digits.capacity(), 0), self.id(self.last_tick(last), most))
    }
}

/// `HHmmss` of a second since 1970.
fn clock(seconds: u64) -> u64 {
    let of_day = seconds % SECONDS_PER_DAY;
    of_day / 3600 * 10_000 + of_day / 60 % 60 * 100 + of_day % 60
}

impl Clone for DateFormat {
    fn clone(&self) -> Self {
        Self {
            offset: self.offset,
            prefix: self.prefix.clone(),
            check: self.check,
            ..Self::new(self.digits)
        }
    }
}

impl PartialEq for DateFormat {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Display for DateFormat {
    /// As the store has it on record.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.digits.name(), calendar::show_offset(self.offset))?;
        if !self.prefix.is_empty() {
            write!(f, " {}", self.prefix)?;
        }
        if self.check { f.write_str(" check") } else { Ok(()) }
    }
}
