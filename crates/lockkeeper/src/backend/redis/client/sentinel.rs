//! Whom the sentinels take for the primary.
//!
//! A sentinel that is cut off from the others goes on naming the primary of before, which may be
//! alive. So no answer counts alone:
//!
//! - More than half of the sentinels in the URL must answer. A failover takes a majority of them, so
//!   any majority has one that has heard of it, or is about to.
//! - Of what they say, the latest failover counts: the highest config epoch, if only one primary is
//!   named with it.
//! - Where epochs do not decide (two primaries with the same, or a sentinel that does not tell), more
//!   than half of those in the URL must name the same primary.
//!
//! With fewer answers nothing is known: a connection that is there is kept, a new one is not made.
//! More than half of those that answer was rejected: it may be one, and that the wrong one.

use super::route::Host;

/// What one of them says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) primary: Host,
    /// The number of the failover that it knows of; zero also where it does not tell.
    pub(super) epoch: u64,
}

/// What their words come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    Primary(&'a Host),
    /// Those that have not answered yet may decide it.
    Open,
}

/// What is known after these words, of so many who were asked.
pub(super) fn judge(words: &[Word], asked: usize) -> Verdict<'_> {
    let majority = asked / 2 + 1;
    if words.len() < majority {
        return Verdict::Open;
    }
    let latest = words.iter().map(|word| word.epoch).max().unwrap_or_default();
    let mut named = words.iter().filter(|word| word.epoch == latest).map(|word| &word.primary);
    let Some(first) = named.next() else { return Verdict::Open };
    if latest > 0 && named.all(|other| other == first) {
        return Verdict::Primary(first);
    }
    let voters = |host: &Host| words.iter().filter(|word| word.primary == *host).count();
    let chosen = words.iter().map(|word| &word.primary).find(|host| voters(host) >= majority);
    chosen.map_or(Verdict::Open, Verdict::Primary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[(&str, u64)]) -> Vec<Word> {
        let word = |(host, epoch): &(&str, u64)| Word {
            primary: ((*host).to_owned(), 6379),
            epoch: *epoch,
        };
        words.iter().map(word).collect()
    }

    fn named(words: &[(&str, u64)], asked: usize) -> Option<String> {
        match judge(&said(words), asked) {
            Verdict::Primary((host, _)) => Some(host.clone()),
            Verdict::Open => None,
        }
    }

    #[test]
    fn the_latest_failover_counts_whoever_tells_of_it_first() {
        assert_eq!(named(&[("old", 3), ("new", 4)], 3).as_deref(), Some("new"));
        assert_eq!(named(&[("new", 4), ("old", 3), ("old", 3)], 3).as_deref(), Some("new"));
        assert_eq!(named(&[("one", 1)], 1).as_deref(), Some("one"));
    }

    #[test]
    fn fewer_than_a_majority_of_those_asked_decide_nothing() {
        assert_eq!(named(&[("old", 3)], 3), None);
        assert_eq!(named(&[("old", 3)], 2), None);
        assert_eq!(named(&[("a", 3), ("a", 3)], 5), None);
        assert_eq!(named(&[], 1), None);
    }

    #[test]
    fn where_epochs_do_not_decide_a_majority_of_those_asked_does() {
        assert_eq!(named(&[("old", 0), ("new", 0)], 3), None);
        assert_eq!(named(&[("old", 0), ("new", 0), ("new", 0)], 3).as_deref(), Some("new"));
        assert_eq!(named(&[("old", 2), ("new", 2)], 3), None);
        assert_eq!(named(&[("a", 2), ("b", 2), ("b", 1)], 3).as_deref(), Some("b"));
        assert_eq!(named(&[("a", 0), ("a", 0), ("b", 0), ("b", 0)], 4), None);
    }
}
