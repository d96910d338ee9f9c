//! Whether a command printed what its page shows.

/// Compares line by line: `…` is any text, alone in its line any lines; `<word>` is one word; runs of
/// spaces count as one.
pub(crate) fn fits(expected: &[String], printed: &str) -> bool {
    let printed: Vec<&str> = printed.lines().collect();
    lines_fit(expected, &printed)
}

fn lines_fit(expected: &[String], printed: &[&str]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return printed.is_empty() };
    if first.trim() == "…" {
        return (0..=printed.len()).any(|skipped| lines_fit(rest, &printed[skipped..]));
    }
    let Some((line, others)) = printed.split_first() else { return false };
    line_fits(&plain(first), &plain(line)) && lines_fit(rest, others)
}

fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn line_fits(expected: &str, printed: &str) -> bool {
    let mut letters = expected.chars();
    match letters.next() {
        None => printed.is_empty(),
        Some('…') => {
            let rest = letters.as_str();
            let ends = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
            ends.into_iter().any(|at| line_fits(rest, &printed[at..]))
        }
        Some('<') if let Some(rest) = after_placeholder(letters.as_str()) => {
            let word = printed.find(' ').unwrap_or(printed.len());
            let ends = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
            ends.filter(|at| (1..=word).contains(at)).any(|at| line_fits(rest, &printed[at..]))
        }
        Some(letter) => {
            printed.strip_prefix(letter).is_some_and(|printed| line_fits(letters.as_str(), printed))
        }
    }
}

/// What follows `word>`, where the text is a placeholder.
fn after_placeholder(text: &str) -> Option<&str> {
    let (word, rest) = text.split_once('>')?;
    let is_one = !word.is_empty() && word.chars().all(|letter| letter.is_alphanumeric());
    is_one.then_some(rest)
}

/// The comparison itself is tried.
pub(crate) const CASES: &[(&str, fn())] = &[("expected::what_fits_and_what_does_not", cases)];

fn cases() {
    let says = |expected: &str, printed: &str| {
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        fits(&expected, printed)
    };
    for (expected, printed) in [
        ("I hold the lock", "I hold the lock\n"),
        ("NAME  TOKEN\na  <token>", "NAME TOKEN\na    17"),
        ("held by <who> for …; place 1", "held by a@b for 3 s; place 1"),
        ("a\n…\nz", "a\nb\nc\nz\n"),
        ("a\n…", "a"),
        ("\"<token>\",", "\"17\","),
        ("a < b > c", "a < b > c"),
    ] {
        assert!(says(expected, printed), "{expected:?} is {printed:?}");
    }
    for (expected, printed) in [
        ("I hold the lock", "I held the lock"),
        ("a", ""),
        ("a", "a\nb"),
        ("a <word> c", "a b b c"),
        ("a <word> c", "a  c"),
        ("a\n…\nz", "a\nb"),
        ("a < b > c", "a < x > c"),
    ] {
        assert!(!says(expected, printed), "{expected:?} is not {printed:?}");
    }
}
