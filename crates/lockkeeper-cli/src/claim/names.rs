//! Several names in one word: `a,b` is two, and a comma that is part of a name is written `\,`.
//!
//! In front of a comma two backslashes are one, so that a name that ends in a backslash can be given, too.
//! Elsewhere a backslash is what it is.

use crate::exit::Failure;
use lockkeeper::Name;

/// The names in `word`.
pub(crate) fn split(word: &str) -> Result<Vec<Name>, Failure> {
    let mut parts = vec![String::new()];
    let mut backslashes = 0;
    for c in word.chars() {
        match c {
            '\\' => {
                backslashes += 1;
                continue;
            }
            ',' => {
                add(&mut parts, &"\\".repeat(backslashes / 2));
                match backslashes % 2 {
                    0 => parts.push(String::new()),
                    _ => add(&mut parts, ","),
                }
            }
            c => add(&mut parts, &format!("{}{c}", "\\".repeat(backslashes))),
        }
        backslashes = 0;
    }
    add(&mut parts, &"\\".repeat(backslashes));
    let names: Vec<_> = parts.iter().map(|part| Name::new(part)).collect::<Result<_, _>>()?;
    refuse_blanks_at_commas(&parts)?;
    Ok(names)
}

fn add(parts: &mut [String], text: &str) {
    if let Some(last) = parts.last_mut() {
        last.push_str(text);
    }
}

/// As [`split`] reads them again.
pub(crate) fn join<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    let mut word = String::new();
    for (index, name) in names.enumerate() {
        if index > 0 {
            word += &trailing_backslashes(&word);
            word.push(',');
        }
        for (index, part) in name.as_str().split(',').enumerate() {
            if index > 0 {
                word += &trailing_backslashes(&word);
                word += "\\,";
            }
            word += part;
        }
    }
    word
}

fn trailing_backslashes(word: &str) -> String {
    word[word.trim_end_matches('\\').len()..].to_owned()
}

/// What somebody may not have meant: a full-width comma separates nothing.
pub(crate) fn warning(name: &Name) -> Option<String> {
    name.as_str().contains('，').then(|| {
        format!(
            "warning: {name:?} is one name with a full-width comma in it: several names are separated \
             by \",\""
        )
    })
}

/// `run 'a, b'` would lock a name that begins with a blank, and exclude nobody.
fn refuse_blanks_at_commas(names: &[String]) -> Result<(), Failure> {
    match names.iter().find(|name| name.trim() != *name) {
        Some(name) if names.len() > 1 => Err(Failure::usage(format!(
            "the name {name:?} begins or ends with a blank: write names with commas only"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(word: &str) -> Vec<String> {
        split(word).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_comma_behind_a_backslash_is_part_of_the_name() {
        assert_eq!(names("a,b"), ["a", "b"]);
        assert_eq!(names(r"a\,b"), ["a,b"]);
        assert_eq!(names(r"a\,b,c\d"), ["a,b", r"c\d"]);
        assert_eq!(names("库存，订单"), ["库存，订单"]);
        for word in ["", "a,,b", "a,", ","] {
            assert_eq!(split(word).unwrap_err().code, 64, "{word:?}");
        }
    }

    #[test]
    fn what_is_joined_is_split_again() {
        for names in
            [&["a"][..], &["a", "b"], &["a,b", "c"], &[","], &[r"a\", "b"], &[r"a\,b\,", r"\", "c"]]
        {
            let names: Vec<_> = names.iter().map(|name| Name::new(name).unwrap()).collect();
            let word = join(names.iter());
            assert_eq!(split(&word).unwrap(), names, "{word}");
        }
    }

    #[test]
    fn a_full_width_comma_is_warned_of() {
        assert!(warning(&Name::new("库存，订单").unwrap()).is_some());
        assert_eq!(warning(&Name::new("库存,订单").unwrap()), None);
    }

    #[test]
    fn blanks_at_commas_are_refused() {
        assert!(split("a, b").is_err());
        assert!(split("a,b").is_ok());
        assert!(split("a b").is_ok());
    }
}
