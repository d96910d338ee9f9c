//! Why a case did not pass.

use std::fmt;

/// A broken promise, or a situation that did not occur.
///
/// Not an `Error` itself, so that every error converts into it with `?`.
pub(crate) struct Failure(String);

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn broken(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// The case proved nothing: the situation it tests did not occur.
    pub(crate) fn unknown(why: impl fmt::Display) -> Self {
        Self(format!("unknown: {why}"))
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(format!("{error:?}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::verdict::Failure::broken(format!($($why)+)));
        }
    };
}

/// Ends the case as proving nothing.
macro_rules! unknown {
    ($($why:tt)+) => {
        return Err($crate::verdict::Failure::unknown(format_args!($($why)+)))
    };
}

pub(crate) use {ensure, unknown};
