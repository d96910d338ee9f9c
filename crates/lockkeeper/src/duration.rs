//! Durations as people write them: in URLs and on the command line.

use crate::error::{Error, ErrorKind, Result};
use std::time::Duration;

/// Largest first, the order they are written in.
const UNITS: [(&str, u128); 5] = [
    ("d", 86_400 * NANOS_PER_SECOND),
    ("h", 3600 * NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("s", NANOS_PER_SECOND),
    ("ms", NANOS_PER_SECOND / 1000),
];
const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Reads a duration as people write it: `30s`, `5m`, `250ms`, `1h30m`, `1.5s`, with the units `d`,
/// `h`, `m`, `s` and `ms`.
///
/// # Errors
/// [`ErrorKind::Config`] for anything else. A number without a unit is refused too, for seconds
/// and milliseconds are mixed up too easily; only `0` needs none.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(lockkeeper::parse_duration("1.5s")?, Duration::from_millis(1500));
/// assert!(lockkeeper::parse_duration("30").is_err());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration> {
    parse(text).map_err(|message| Error::new(ErrorKind::Config, message))
}

fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err("a duration is missing: write 30s, 5m or 1h30m".into());
    }
    let mut rest = text;
    let mut units = &UNITS[..];
    let mut nanos = 0u128;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| c.is_ascii_alphabetic());
        if number.is_empty() {
            return Err(nonsense(text));
        }
        if unit.is_empty() && after.is_empty() {
            return Err(format!("{text:?} has no unit: write {number}s, {number}m or {number}ms"));
        }
        let Some(index) = units.iter().position(|(name, _)| *name == unit) else {
            return Err(nonsense(text));
        };
        let part = scaled(number, units[index].1).ok_or_else(|| nonsense(text))?;
        nanos = nanos.checked_add(part).ok_or_else(|| too_long(text))?;
        units = &units[index + 1..];
        rest = after;
    }
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).map_err(|_| too_long(text))?;
    let below = u32::try_from(nanos % NANOS_PER_SECOND).unwrap_or_default();
    Ok(Duration::new(seconds, below))
}

/// The leading characters of `text` that are `wanted`, and the rest.
fn split(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !wanted(c)).unwrap_or(text.len()))
}

/// `number` times `unit` in whole nanoseconds. Not by way of `f64`, so that `0.1s` is exact.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = whole.parse::<u64>().ok()?;
    // More digits than a nanosecond of a day can show.
    if fraction.len() > 14 {
        return None;
    }
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = u128::from(fraction.parse::<u64>().ok()?);
    Some(u128::from(whole) * unit + fraction * unit / scale)
}

fn nonsense(text: &str) -> String {
    format!("{text:?} is not a duration: write 250ms, 30s, 5m, 1h30m or 1.5s")
}

fn too_long(text: &str) -> String {
    format!("{text:?} is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood() {
        for (text, millis) in [
            ("30s", 30_000),
            ("5m", 300_000),
            ("250ms", 250),
            ("1h30m", 5_400_000),
            ("1.5s", 1500),
            ("0.1s", 100),
            ("1m0.25s", 60_250),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
            ("0", 0),
            ("007s", 7000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_refused_with_a_hint() {
        assert!(parse("30").unwrap_err().contains("30s, 30m or 30ms"));
        assert!(parse("1h30").unwrap_err().contains("no unit"));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", " ", "s", "-5s", "+5s", "5 s", " 5s", "5s ", "5sec", "NaN", "nan", "inf", "1e3s",
            ".s", ".5s", "5.s", "1.2.3s", "1m1h", "1s1s", "5µs", "٣s", "0x5s", "--", "1_000s",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn too_much_is_refused_and_does_not_wrap() {
        assert_eq!(parse(&format!("{}s", u64::MAX)), Ok(Duration::from_secs(u64::MAX)));
        for text in
            [format!("{}m", u64::MAX), format!("{}s", u128::MAX), format!("1.{}s", "1".repeat(99))]
        {
            assert!(parse(&text).is_err(), "{text}");
        }
    }
}
