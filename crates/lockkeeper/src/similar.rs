//! What somebody may have meant who wrote something else.

/// The one of `known` that is nearest to `word`, if it is near: `recipe` for `recpie`.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|known| (distance(word, known), known));
    // Of a short word two other letters leave nothing.
    let near = near.filter(|(distance, known)| *distance <= 2 && distance * 3 <= known.len());
    near.min().map(|(_, known)| known)
}

/// `: did you mean "recipe"?`, or nothing.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, known) {
        Some(known) => format!("did you mean {known:?}? "),
        None => String::new(),
    }
}

/// How many letters were left out, added, changed, or changed places with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least =
                (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_meant() {
        let known = ["recipe", "prefix", "tls", "timeout"];
        for (word, meant) in [
            ("recpie", Some("recipe")),
            ("recip", Some("recipe")),
            ("Prefix", Some("prefix")),
            ("tsl", Some("tls")),
            ("timeouts", Some("timeout")),
            ("colour", None),
            ("", None),
            ("t", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
