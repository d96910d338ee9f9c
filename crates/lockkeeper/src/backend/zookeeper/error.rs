//! Why an attempt at a claim ended without an outcome.

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
