//! The name of a lock.

use crate::error::{Error, ErrorKind, Result};
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A validated lock name: 1 to 200 bytes of UTF-8 without control characters.
///
/// Names are compared byte by byte: `Order` and `order` are two locks, and so are two spellings
/// of an accented letter. By convention a name is a path, `orders/42`.
///
/// ```
/// use lockkeeper::Name;
///
/// assert_eq!(Name::new("orders/42")?.as_str(), "orders/42");
/// assert_eq!("orders/42".parse::<Name>()?, Name::try_from(format!("orders/{}", 42))?);
/// assert!(Name::new("").is_err());
/// assert!(Name::new("two\nlines").is_err());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// Checks `name`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], saying which rule it breaks.
    pub fn new(name: &str) -> Result<Self> {
        let refuse = |why: String| Err(Error::new(ErrorKind::InvalidName, why));
        if name.is_empty() {
            return refuse("a lock name cannot be empty".into());
        }
        if name.len() > Self::MAX_BYTES {
            let most = Self::MAX_BYTES;
            return refuse(format!(
                "a lock name has at most {most} bytes, this one has {}: {:?}…",
                name.len(),
                name.chars().take(24).collect::<String>()
            ));
        }
        if let Some(bad) = name.chars().find(|c| c.is_control()) {
            return refuse(format!(
                "the lock name {name:?} contains the control character {bad:?}"
            ));
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<&str> for Name {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(&name)
    }
}

impl TryFrom<&String> for Name {
    type Error = Error;

    fn try_from(name: &String) -> Result<Self> {
        Self::new(name)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == text
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_in_bytes() {
        assert!(Name::new(&"a".repeat(200)).is_ok());
        assert!(Name::new(&"a".repeat(201)).is_err());
        assert!(Name::new(&"é".repeat(100)).is_ok());
        assert!(Name::new(&"é".repeat(101)).is_err());
    }

    #[test]
    fn control_characters_are_refused_and_everything_else_is_not() {
        for bad in ["\0", "a\nb", "a\rb", "\u{7f}", "\u{85}", "\u{1b}[31m"] {
            let error = Name::new(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{bad:?}");
        }
        for good in [" ", ".", "..", "/", "a b", "{x}", "%2F", "ü", "🔒", "\u{202e}x", "'--"] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
    }
}
