//! Moments as the clock on the wall shows them.

use jiff::Zoned;
use std::time::SystemTime;

/// `2026-11-18 08:30:11`.
pub(crate) fn of(moment: SystemTime) -> String {
    written(moment, "%Y-%m-%d %H:%M:%S")
}

/// `08:30:11`.
pub(crate) fn of_day(moment: SystemTime) -> String {
    written(moment, "%H:%M:%S")
}

/// `2026-11-18T08:30:11.042+01:00`, for programs.
pub(crate) fn for_programs(moment: SystemTime) -> String {
    written(moment, "%Y-%m-%dT%H:%M:%S%.3f%:z")
}

fn written(moment: SystemTime, form: &str) -> String {
    match Zoned::try_from(moment) {
        Ok(moment) => moment.strftime(form).to_string(),
        // Only for years that no clock has.
        Err(_) => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_moment_has_its_day_its_time_and_its_offset() {
        let moment = UNIX_EPOCH + Duration::from_millis(86_400_000 * 400 + 5_042);
        let (all, day) = (of(moment), of_day(moment));
        assert!(all.ends_with(&day) && all.starts_with("1971-02-0"), "{all}");
        assert!(day.ends_with(":05") && day.len() == 8, "{day}");
        let full = for_programs(moment);
        assert!(full.contains(":05.042") && full.len() == 29, "{full}");
    }
}
