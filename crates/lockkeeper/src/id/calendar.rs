//! Days and seconds of the calendar, without time zones: an id has a fixed offset from UTC.

use crate::error::{Error, ErrorKind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const SECONDS_PER_DAY: u64 = 86_400;

/// A moment as a person reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: u64,
    pub(crate) month: u64,
    pub(crate) day: u64,
    pub(crate) hour: u64,
    pub(crate) minute: u64,
    pub(crate) second: u64,
}

impl Civil {
    /// That of so many seconds since the beginning of 1970.
    pub(crate) fn of(seconds: u64) -> Self {
        let (days, rest) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
        // Years are counted from March, so that the leap day is the last of its year; eras have 400 years.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let years = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * years + years / 4 - years / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + years + u64::from(month <= 2);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        Self { year, month, day, hour, minute, second }
    }

    /// Seconds since the beginning of 1970; `None` for what is no moment, or before that.
    pub(crate) fn seconds(&self) -> Option<u64> {
        let Self { year, month, day, hour, minute, second } = *self;
        let fits = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !fits {
            return None;
        }
        let (years, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, of_era) = (years / 400, years % 400);
        let of_year = (153 * from_march + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
        // The 31st of a month with 30 days would be the 1st of the next.
        Some(seconds).filter(|seconds| Self::of(*seconds) == *self)
    }
}

/// A moment as it is written in logs and JSON: `2026-11-15T07:30:00.042Z`. What is before 1970 is shown as
/// its beginning.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// let moment = UNIX_EPOCH + Duration::from_millis(1_794_727_800_042);
/// assert_eq!(lockkeeper::id::utc(moment), "2026-11-15T07:30:00.042Z");
/// ```
pub fn utc(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Civil { year, month, day, hour, minute, second } = Civil::of(since.as_secs());
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The beginning of a day that is written as `2026-11-15`, in UTC: for [`Layout::since`](super::Layout).
///
/// # Errors
/// [`ErrorKind::Config`] for what is no day.
///
/// ```
/// use lockkeeper::id::{Layout, beginning_of};
///
/// let layout = Layout::default().since(beginning_of("2024-01-01")?)?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
pub fn beginning_of(day: &str) -> Result<SystemTime> {
    Ok(UNIX_EPOCH + Duration::from_secs(self::day(day)?))
}

/// The first second of a day that is written as `2026-11-15`.
pub(crate) fn day(text: &str) -> Result<u64> {
    let bad = || {
        let message = format!("{text:?} is no day: write it as 2026-11-15");
        Error::new(ErrorKind::Config, message)
    };
    let mut parts = text.split('-').map(|part| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u64>().ok().filter(|_| digits)
    });
    let mut next = || parts.next().flatten().ok_or_else(bad);
    let (year, month, day) = (next()?, next()?, next()?);
    let moment = Civil { year, month, day, hour: 0, minute: 0, second: 0 };
    match parts.next() {
        None => moment.seconds().ok_or_else(bad),
        Some(_) => Err(bad()),
    }
}

/// `+08:00`, `-03:30` or `Z` in seconds.
pub(crate) fn offset(text: &str) -> Result<i32> {
    let bad = || {
        let message = format!("{text:?} is no offset from UTC: write it as +08:00");
        Error::new(ErrorKind::Config, message)
    };
    if matches!(text, "Z" | "z" | "UTC") {
        return Ok(0);
    }
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => return Err(bad()),
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
    let number = |text: &str| {
        let digits = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<i32>().ok().filter(|_| digits)
    };
    match (number(hours), number(minutes)) {
        (Some(hours @ 0..=14), Some(minutes @ 0..=59)) => Ok(sign * (hours * 3600 + minutes * 60)),
        _ => Err(bad()),
    }
}

/// An offset as [`offset`] reads it.
pub(crate) fn show_offset(seconds: i32) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(day("1970-01-01").unwrap(), 0);
        assert_eq!(day("2000-03-01").unwrap(), 951_868_800);
        assert_eq!(day("2026-11-15").unwrap(), 1_794_700_800);
        let leap = Civil::of(1_709_164_800 + 3600 * 7 + 61);
        assert_eq!((leap.year, leap.month, leap.day), (2024, 2, 29));
        assert_eq!((leap.hour, leap.minute, leap.second), (7, 1, 1));
        for bad in [
            "2026-02-29",
            "2026-13-01",
            "2026-1",
            "2026-11-15-1",
            "x",
            "",
            "1969-12-31",
            "+2026-1-1",
        ] {
            assert_eq!(day(bad).unwrap_err().kind(), ErrorKind::Config, "{bad}");
        }
    }

    #[test]
    fn offsets_are_read_as_they_are_shown() {
        for text in ["+08:00", "-03:30", "+00:00", "+14:00"] {
            assert_eq!(show_offset(offset(text).unwrap()), text);
        }
        assert_eq!(offset("Z").unwrap(), 0);
        assert_eq!(offset("+8").unwrap(), 28_800);
        for bad in ["8", "+15:00", "+08:60", "Europe/Berlin", "", "+", "+-8"] {
            assert!(offset(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn seconds_survive_the_calendar(seconds in 0u64..253_402_300_800) {
            prop_assert_eq!(Civil::of(seconds).seconds(), Some(seconds));
        }
    }
}
