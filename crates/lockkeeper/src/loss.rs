//! How a claim that was held comes to be lost.

use crate::broken;
use crate::error::{Error, ErrorKind};
use std::fmt;

/// Why a claim that was held is no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal was answered before the claim ran out by our own clock.
    Expired,
    /// The store does not have the claim any more: it expired there, or its data is gone.
    Gone,
    /// Someone took it away, for this reason.
    Broken {
        /// Why, in their words; and, where a keeper broke it, by whom and when:
        /// `it hung (by alice@web-1 pid 4242, 2026-11-18T08:10:57Z)`.
        reason: String,
    },
    /// Too few of the nodes that vote on it have the claim still.
    NoMajority {
        /// What became of it at which node.
        reason: String,
    },
    /// It was held for as long as `max_hold` allows.
    HeldTooLong,
}

impl LossReason {
    /// Who broke the lock, `user@host pid 4242`, where it was broken by a keeper.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let guard = keeper.lock("orders/42").acquire().await?;
    /// keeper.break_hold("orders/42", guard.require_token()?, "it hung").await?;
    /// let loss = guard.lost_reason().unwrap();
    /// assert!(loss.to_string().starts_with("it was broken: it hung (by "));
    /// assert!(loss.broken_by().unwrap().ends_with(&format!("pid {}", std::process::id())));
    /// # Ok(()) }
    /// ```
    pub fn broken_by(&self) -> Option<&str> {
        match self {
            Self::Broken { reason } => broken::breaker(reason),
            _ => None,
        }
    }

    /// What a [`Lease`](crate::backend::Lease) says that gives back what it no longer has.
    pub fn to_error(&self) -> Error {
        Error::new(ErrorKind::Lost, self.to_string())
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("no renewal was answered in time"),
            Self::Gone => f.write_str("the store no longer has the claim"),
            Self::Broken { reason } => write!(f, "it was broken: {reason}"),
            Self::NoMajority { reason } => {
                write!(f, "a majority of the nodes no longer has the claim ({reason})")
            }
            Self::HeldTooLong => f.write_str("it was held as long as max_hold allows"),
        }
    }
}
