//! The number that a resource tells holders apart by.

use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// A number that grows with every grant of a name.
///
/// A resource that remembers the largest token it has seen, and refuses smaller ones, is safe
/// from a holder that was paused past its lease; see [`fence`](crate::fence).
///
/// It is 1 to 2⁶³ − 1, so that it fits a column `BIGINT`, and is written as that number.
///
/// ```
/// use lockkeeper::FencingToken;
///
/// let token: FencingToken = "1024".parse()?;
/// assert_eq!((token.get(), token.as_i64(), token.to_string()), (1024, 1024, "1024".into()));
/// assert_eq!(FencingToken::try_from(1024_i64)?, token);
/// assert!(FencingToken::try_from(0_u64).is_err());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

/// The largest number that a signed column takes.
const MOST: u64 = i64::MAX as u64;

impl FencingToken {
    /// How far apart the tokens of two grants are in a store that counts changes instead of time:
    /// see [`from_revision`](Self::from_revision).
    pub const STEP: u64 = 1024;

    /// The token with this number; `None` for zero, and for 2⁶³ and more.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).filter(|_| number <= MOST).map(Self)
    }

    /// The number. Those that stores give are below 2⁵³, so that they survive JSON and JavaScript.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The number for a database, whose integers have a sign. The same as [`get`](Self::get): a token
    /// is never too large for it.
    pub fn as_i64(self) -> i64 {
        self.get().cast_signed()
    }

    /// The token after `last`, in a store whose wall clock reads `now_us` microseconds.
    ///
    /// The clock makes tokens grow even when the store forgot `last`; `last` makes them grow
    /// even when the clock goes back. Every store that has a clock of its own counts in this unit,
    /// so that tokens go on growing when one moves from one to another.
    pub fn after(last: u64, now_us: u64) -> Self {
        let number = last.saturating_add(1).max(now_us).min(MOST);
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }

    /// The token of a grant made by the change with this number, in a store that counts changes:
    /// etcd's revision, ZooKeeper's transaction. The numbers between two tokens are left free for
    /// a client that has to put one above another without asking the store.
    ///
    /// `None` for a number that is not positive, or so large that the token would not be exact in
    /// JSON.
    pub fn from_revision(revision: i64) -> Option<Self> {
        let number = u64::try_from(revision).ok()?.checked_mul(Self::STEP)?;
        Self::new(number).filter(|_| number < 1 << 53)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn refused(what: impl fmt::Display) -> Error {
    let what = what.to_string();
    let message =
        format!("{what:?} is not a fencing token: those are the numbers from 1 to {MOST}");
    Error::new(ErrorKind::Config, message)
}

/// As [`Display`](fmt::Display) writes it: digits and nothing else.
impl FromStr for FencingToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_plain);
        number.and_then(Self::new).ok_or_else(|| refused(text))
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self> {
        Self::new(number).ok_or_else(|| refused(number))
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = Error;

    fn try_from(number: i64) -> Result<Self> {
        u64::try_from(number).ok().and_then(Self::new).ok_or_else(|| refused(number))
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.as_i64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_grow_by_counter_and_by_clock_and_stay_exact_in_javascript() {
        assert_eq!(FencingToken::after(5000, 0).get(), 5001);
        assert_eq!(FencingToken::after(0, 7).get(), 7);
        let year_2200_us = 7_258_118_400_000_000;
        assert!(FencingToken::after(0, year_2200_us).get() < 1 << 53);
        assert_eq!(FencingToken::from_revision(3), FencingToken::new(3072));
        assert_eq!(FencingToken::from_revision(0), None);
        assert_eq!(FencingToken::from_revision(-1), None);
        assert_eq!(FencingToken::from_revision(i64::MAX), None);
    }

    #[test]
    fn every_token_fits_a_signed_column_and_comes_back_from_it() {
        for number in [1, 1024, (1 << 53) + 1, MOST] {
            let token = FencingToken::new(number).unwrap();
            assert!(token.as_i64() > 0);
            assert_eq!(FencingToken::try_from(i64::from(token)).unwrap(), token);
            assert_eq!(FencingToken::try_from(u64::from(token)).unwrap(), token);
            assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
        }
        assert_eq!(FencingToken::new(MOST + 1), None);
        assert_eq!(FencingToken::after(u64::MAX, u64::MAX).get(), MOST);
        assert!(FencingToken::try_from(-1_i64).is_err());
    }

    #[test]
    fn what_is_no_number_is_refused_by_name() {
        for wrong in ["", "0", "-1", "+1", " 1", "1.0", "9223372036854775808", "many"] {
            let error = wrong.parse::<FencingToken>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{wrong:?}");
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
