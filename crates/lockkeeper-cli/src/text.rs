//! Text for people.

use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `text` with everything escaped that a terminal would interpret instead of showing.
///
/// Names, notes and reasons can come from anyone who can reach the store.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || changes_direction(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether `c` is invisible itself but moves, reverses or breaks the text that follows.
fn changes_direction(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// At most `limit` bytes of `text`, ending in `…` if that is not all.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let most = limit.saturating_sub('…'.len_utf8());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// How many columns of a screen `text` takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// As much of `text` as fits into `most` columns of a screen, ending in `…` if that is not all.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut left = most.saturating_sub(1);
    for c in text.chars() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or(0)) else { break };
        left = rest;
        kept.push(c);
    }
    // A character of two columns may have left one empty.
    if most > 0 {
        kept.push('…');
    }
    kept
}

/// A command line for display: arguments that need quotes have them.
#[cfg(unix)]
pub(crate) fn command_line(words: &[std::ffi::OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    words.join(" ")
}

#[cfg(unix)]
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A span in at most two units: `350ms`, `42s`, `3m 5s`, `2h`, `4d 3h`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (large, small, unit) = match seconds {
        0 => return format!("{}ms", time.as_millis()),
        1..60 => return format!("{seconds}s"),
        60..3600 => (seconds / 60, seconds % 60, ("m", "s")),
        3600..86_400 => (seconds / 3600, seconds / 60 % 60, ("h", "m")),
        _ => (seconds / 86_400, seconds / 3600 % 24, ("d", "h")),
    };
    match small {
        0 => format!("{large}{}", unit.0),
        _ => format!("{large}{} {small}{}", unit.0, unit.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_terminal_obeys_is_left() {
        assert_eq!(visible("\u{1b}]0;title\u{7}"), "\\u{1b}]0;title\\u{7}");
        assert_eq!(visible("a\r\nb\u{9b}2J"), "a\\r\\nb\\u{9b}2J");
        assert_eq!(visible("\u{202e}txt.exe"), "\\u{202e}txt.exe");
        assert_eq!(visible("Zürich 'a' \"b\" \\ 🔒 e\u{301}"), "Zürich 'a' \"b\" \\ 🔒 e\u{301}");
    }

    #[test]
    fn shortening_ends_between_characters() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("longer", 5), "lo…");
        for limit in 0..12 {
            let short = shortened("aéé🔒🔒", limit);
            assert!(short.len() <= limit.max('…'.len_utf8()), "{limit}: {short}");
        }
    }

    #[test]
    fn cutting_counts_columns_of_the_screen() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "long…");
        assert_eq!(cut("订单对账", 8), "订单对账");
        assert_eq!(cut("订单对账", 7), "订单对…");
        assert_eq!(cut("订单对账", 6), "订单…");
        for most in 0..12 {
            assert!(width(&cut("aé🔒订e\u{301}🔒bc", most)) <= most, "{most}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_arguments_that_need_quotes_have_them() {
        let words = ["sh", "-c", "echo \"$HOME\"", "", "a/b.c=d"].map(Into::into);
        assert_eq!(command_line(&words), r#"sh -c "echo \"$HOME\"" "" a/b.c=d"#);
    }

    #[test]
    fn spans_have_at_most_two_units() {
        for (seconds, shown) in [
            (1, "1s"),
            (59, "59s"),
            (60, "1m"),
            (185, "3m 5s"),
            (7200, "2h"),
            (7_260, "2h 1m"),
            (356_400, "4d 3h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), shown);
        }
        assert_eq!(span(Duration::from_millis(350)), "350ms");
    }
}
