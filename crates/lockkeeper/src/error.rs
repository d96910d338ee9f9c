//! One opaque error for the whole library.

use std::error::Error as StdError;
use std::fmt;

/// The result of nearly everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as a program may want to branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The name is empty, too long or contains a control character.
    InvalidName,
    /// A URL, an option or a duration makes no sense.
    Config,
    /// This recipe does not have what was asked of it. The message names one that has.
    Unsupported,
    /// The store did not answer. Whether it did what was asked is not known.
    Unavailable,
    /// The store refused us: credentials, or the permissions of a file.
    Denied,
    /// The claim was held once and is no longer.
    Lost,
    /// There is no such claim to act on.
    NotHeld,
    /// The time limit passed before the claim was granted.
    TimedOut,
    /// The owner already holds the name in a weaker mode, and would wait for itself.
    WouldDeadlock,
    /// There is none left: as many claims are held or made as the recipe has connections for, all worker
    /// numbers of a key are held, or the ids of a key are used up.
    Exhausted,
    /// The store answered with an error of its own.
    Store,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::InvalidName => "invalid name",
            Self::Config => "bad configuration",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "store unavailable",
            Self::Denied => "denied",
            Self::Lost => "lock lost",
            Self::NotHeld => "not held",
            Self::TimedOut => "timed out",
            Self::WouldDeadlock => "would deadlock",
            Self::Exhausted => "exhausted",
            Self::Store => "store error",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// An error with its [`ErrorKind`], what to do next, and where it came from.
///
/// `Display` is one line for people; `{:?}` shows the same with every source.
/// No message ever contains a password.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    lasting: bool,
}

impl Error {
    /// An error of `kind`; `message` says what happened and, where possible, what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            context: Vec::new(),
            source: None,
            lasting: false,
        }))
    }

    /// Adds a named detail, shown behind the message.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((key, value.to_string()));
        self
    }

    /// Records the error that caused this one.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Says that waiting does not help: someone has to do something first. A claim that waits is
    /// not retried after it.
    #[must_use]
    pub fn lasting(mut self) -> Self {
        self.0.lasting = true;
        self
    }

    /// What went wrong, to branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// A named detail, such as `holder` or `place` of a [`ErrorKind::TimedOut`].
    pub fn detail(&self, key: &str) -> Option<&str> {
        self.0.context.iter().find(|(name, _)| *name == key).map(|(_, value)| value.as_str())
    }

    /// Whether the same call may well succeed later without anything being changed.
    ///
    /// ```
    /// use lockkeeper::{Error, ErrorKind};
    ///
    /// assert!(Error::new(ErrorKind::Unavailable, "no answer").is_retryable());
    /// assert!(!Error::new(ErrorKind::Unsupported, "no shared mode").is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        let passing = matches!(
            self.kind(),
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Lost | ErrorKind::Exhausted
        );
        passing && !self.0.lasting
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn is_lasting(&self) -> bool {
        self.0.lasting
    }

    /// Whether it may be over in a moment: a store that does not answer just now.
    pub(crate) fn is_outage(&self) -> bool {
        self.kind() == ErrorKind::Unavailable && !self.0.lasting
    }

    /// Whether the store may have done what was asked although we do not know it.
    pub(crate) fn leaves_doubt(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unavailable | ErrorKind::Store)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.message)?;
        for (index, (key, value)) in self.0.context.iter().enumerate() {
            write!(f, "{}{key}: {value}", if index == 0 { " (" } else { ", " })?;
        }
        if !self.0.context.is_empty() {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.kind())?;
        let mut source = self.source();
        while let Some(cause) = source {
            write!(f, "\n  caused by: {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_one_line_and_debug_tells_the_causes() {
        let error = Error::new(ErrorKind::Unavailable, "the store did not answer")
            .with("store", "sqlite:locks.db")
            .with("after", "5s")
            .caused_by(std::io::Error::other("broken pipe"));
        assert_eq!(
            error.to_string(),
            "the store did not answer (store: sqlite:locks.db, after: 5s)"
        );
        assert_eq!(
            format!("{error:?}"),
            "store unavailable: the store did not answer (store: sqlite:locks.db, after: 5s)\n  \
             caused by: broken pipe"
        );
        assert_eq!(error.detail("after"), Some("5s"));
    }
}
