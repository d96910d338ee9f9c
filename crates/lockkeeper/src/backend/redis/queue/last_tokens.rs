//! The largest tokens that this keeper was given, sent along with every request for the name.
//!
//! Tokens carry the time of Redis' clock, and Redis keeps the last one of a name for a minute. Should
//! it have forgotten the name and its clock have gone back, at least this keeper sees no token twice.

use crate::backend::support::sync::lock;
use std::collections::HashMap;
use std::sync::Mutex;

/// How many names are remembered, at least; twice as many at most.
const NAMES: usize = 1024;

/// By name, for those that were held most recently.
#[derive(Debug, Default)]
pub(super) struct LastTokens {
    tokens: Mutex<Tokens>,
}

/// Two generations, so that old names are forgotten without keeping an order.
#[derive(Debug, Default)]
struct Tokens {
    recent: HashMap<String, u64>,
    /// Those before; dropped when there are enough that are more recent.
    earlier: HashMap<String, u64>,
}

impl LastTokens {
    /// The largest token known of the name; 0 where none is.
    pub(super) fn of(&self, name: &str) -> u64 {
        let Tokens { recent, earlier } = &*lock(&self.tokens);
        recent.get(name).or_else(|| earlier.get(name)).copied().unwrap_or_default()
    }

    /// Notes a token that was granted.
    pub(super) fn granted(&self, name: &str, token: u64) {
        let mut tokens = lock(&self.tokens);
        if let Some(known) = tokens.recent.get_mut(name) {
            *known = token.max(*known);
            return;
        }
        if tokens.recent.len() >= NAMES {
            tokens.earlier = std::mem::take(&mut tokens.recent);
        }
        let before = tokens.earlier.remove(name).unwrap_or_default();
        tokens.recent.insert(name.to_owned(), token.max(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounded memory, and never a smaller token than was noted while the name is remembered.
    #[test]
    fn tokens_are_known_by_name_and_not_for_ever() {
        let known = LastTokens::default();
        known.granted("a", 7);
        known.granted("a", 5);
        assert_eq!((known.of("a"), known.of("b")), (7, 0));
        for number in 0..NAMES {
            known.granted(&number.to_string(), 1);
        }
        assert_eq!(known.of("a"), 7, "among the recent ones still");
        known.granted("a", 6);
        assert_eq!(known.of("a"), 7, "it does not shrink");
        for number in 0..4 * NAMES {
            known.granted(&number.to_string(), 1);
            let Tokens { recent, earlier } = &*lock(&known.tokens);
            assert!(recent.len() + earlier.len() <= 2 * NAMES);
        }
        assert_eq!(known.of("a"), 0);
    }
}
