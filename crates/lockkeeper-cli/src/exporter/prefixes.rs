//! By which locks are told apart.

use crate::exit::Failure;
use lockkeeper::Name;

/// So many can be given: each is a line for each metric.
const MOST: usize = 50;
/// What stands for all other names.
const OTHER: &str = "other";

#[derive(Debug)]
pub(super) struct Prefixes {
    /// The longest first.
    given: Vec<String>,
}

impl Prefixes {
    pub(super) fn new(given: &[String]) -> Result<Self, Failure> {
        if given.len() > MOST {
            return Err(Failure::usage(format!("at most {MOST} prefixes can be given")));
        }
        let mut checked: Vec<String> = Vec::with_capacity(given.len());
        for prefix in given {
            if let Err(error) = Name::new(prefix) {
                return Err(Failure::usage(format!("no lock has the prefix {prefix:?}: {error}")));
            }
            if prefix == OTHER {
                return Err(Failure::usage(format!(
                    "{OTHER:?} stands for all locks without a prefix of those given: give another prefix"
                )));
            }
            if checked.contains(prefix) {
                return Err(Failure::usage(format!("--prefix {prefix:?} is given twice")));
            }
            checked.push(prefix.clone());
        }
        checked.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        Ok(Self { given: checked })
    }

    /// How many kinds of names there are.
    pub(super) fn len(&self) -> usize {
        self.given.len() + 1
    }

    /// Which of them `name` is.
    pub(super) fn of(&self, name: &str) -> usize {
        let fits = |prefix: &String| name.starts_with(prefix.as_str());
        self.given.iter().position(fits).unwrap_or(self.given.len())
    }

    /// What each is called.
    pub(super) fn labels(&self) -> impl Iterator<Item = &str> {
        self.given.iter().map(String::as_str).chain([OTHER])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(given: &[&str]) -> Result<Prefixes, Failure> {
        Prefixes::new(&given.iter().map(|&prefix| prefix.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_longest_that_fits_counts() {
        let prefixes = made(&["cron/", "cron/night/"]).unwrap();
        let labels: Vec<_> = prefixes.labels().collect();
        let of = |name| labels[prefixes.of(name)];
        assert_eq!(of("cron/night/backup"), "cron/night/");
        assert_eq!((of("cron/1"), of("cron"), of("x")), ("cron/", "other", "other"));
        assert_eq!(made(&[]).unwrap().len(), 1);
    }

    #[test]
    fn what_no_name_has_is_refused() {
        let many: Vec<String> = (0..=MOST).map(|number| number.to_string()).collect();
        assert_eq!(Prefixes::new(&many).unwrap_err().code, 64);
        for bad in [&[""][..], &["a\nb"], &["a", "a"], &["other"]] {
            assert_eq!(made(bad).unwrap_err().code, 64, "{bad:?}");
        }
    }
}
