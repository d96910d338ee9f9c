//! Why an attempt at a claim ended without an outcome.
//!
//! An attempt that is stopped by a failure may have left a node, which is then deleted by the
//! driver. An attempt that is stopped by an error of our own, such as claims of another library at
//! the same lock, has the session and the time to delete its node before it reports.

use super::client::Failure;
use crate::error::Error;

/// Why an attempt stopped. What the server or the connection said is told apart from what we
/// concluded ourselves: only the latter leaves no doubt about what exists in the store.
#[derive(Debug)]
pub(super) enum Stop {
    Failure(Failure),
    Error(Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
