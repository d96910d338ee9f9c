//! What a generator gives: numbers that are shown, read and serialised as people need them.

use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// A number of at most 63 bits that nobody else has.
///
/// With the feature `serde` it is written as a string, since JSON numbers lose their last digits in many
/// readers, and read from a string or a number.
///
/// ```
/// use lockkeeper::id::Id;
///
/// let id: Id = "2026111507300000042".parse()?;
/// assert_eq!(id.get(), 2026111507300000042);
/// assert_eq!(id.as_i64(), 2026111507300000042);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

impl Id {
    /// Of a number below 2^63.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as databases have it.
    #[allow(clippy::cast_possible_wrap, reason = "ids are below 2^63")]
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Id> for u64 {
    fn from(id: Id) -> Self {
        id.0
    }
}

impl From<Id> for i64 {
    fn from(id: Id) -> Self {
        id.as_i64()
    }
}

impl TryFrom<u64> for Id {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self> {
        match i64::try_from(number) {
            Ok(_) => Ok(Self(number)),
            Err(_) => {
                let message = format!("{number} is no id: ids are below 2^63");
                Err(Error::new(ErrorKind::Config, message))
            }
        }
    }
}

impl FromStr for Id {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.and_then(|text| text.parse::<u64>().ok());
        let number = number.ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                format!("{text:?} is no id: an id is a number below 2^63"),
            )
        })?;
        Self::try_from(number)
    }
}

#[cfg(feature = "serde")]
mod json {
    use super::Id;
    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::{Serialize, Serializer};
    use std::fmt;

    impl Serialize for Id {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Id {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(Either)
        }
    }

    struct Either;

    impl Visitor<'_> for Either {
        type Value = Id;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an id, as a string or a number")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Id, E> {
            Id::try_from(number).map_err(E::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_id_is_refused() {
        for bad in ["", "-1", "+1", "x", "9223372036854775808", "99999999999999999999", "1 "] {
            assert_eq!(bad.parse::<Id>().unwrap_err().kind(), ErrorKind::Config, "{bad}");
        }
        assert_eq!("9223372036854775807".parse::<Id>().unwrap().as_i64(), i64::MAX);
    }
}
