//! What a store is told of a break: why, by whom and when, in one text that every store can carry.

use crate::id::calendar::Civil;
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest reason that a caller may give, in bytes. Stores keep 1000: the rest is for who and when.
pub(crate) const LONGEST_REASON: usize = 700;
/// What is kept of the identity of the one who breaks, in bytes.
const LONGEST_BREAKER: usize = 200;

/// `it hung (by alice@web-1 pid 4242, 2026-11-18T08:10:57Z)`.
pub(crate) fn note(reason: &str, identity: &str, at: SystemTime) -> String {
    let reason = if reason.is_empty() { "no reason was given" } else { reason };
    let mut end = identity.len().min(LONGEST_BREAKER);
    while !identity.is_char_boundary(end) {
        end -= 1;
    }
    let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Civil { year, month, day, hour, minute, second } = Civil::of(since_epoch.as_secs());
    let when = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
    format!("{reason} (by {}, {when})", &identity[..end])
}

/// Who broke a lock, of a text that [`note`] made.
pub(crate) fn breaker(text: &str) -> Option<&str> {
    let (_, by) = text.strip_suffix("Z)")?.rsplit_once(" (by ")?;
    let (identity, when) = by.rsplit_once(", ")?;
    let is_time =
        when.len() == 19 && when.bytes().all(|c| c.is_ascii_digit() || b"-T:".contains(&c));
    is_time.then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_says_why_by_whom_and_when() {
        let at = UNIX_EPOCH + Duration::from_secs(1_794_989_457);
        let text = note("it hung", "alice@web-1 pid 4242", at);
        assert_eq!(text, "it hung (by alice@web-1 pid 4242, 2026-11-18T08:10:57Z)");
        assert_eq!(breaker(&text), Some("alice@web-1 pid 4242"));
        let text = note("", "a, b (by c", at);
        assert!(text.starts_with("no reason was given (by a, b (by c, "), "{text}");
    }

    #[test]
    fn it_fits_every_store_and_cuts_no_letter() {
        let text = note(&"r".repeat(LONGEST_REASON), &"é".repeat(300), SystemTime::now());
        assert!(text.len() <= 1000, "{}", text.len());
        assert_eq!(breaker(&text), Some(&*"é".repeat(100)));
    }

    #[test]
    fn what_others_wrote_names_nobody() {
        for text in ["", "it hung", "it hung (by alice)", "x (by a, Z)", "the keeper moved to b"] {
            assert_eq!(breaker(text), None, "{text}");
        }
    }
}
