//! What a failed request means.

use crate::error::{Error, ErrorKind};
use std::error::Error as _;
use tonic::{Code, Status};

/// A request that brought no answer, or a refusal.
#[derive(Debug)]
pub(super) enum Trouble {
    TimedOut,
    Unreachable(tonic::transport::Error),
    Refused(Status),
}

/// What to do about it. Whatever was asked may have been done: every request of ours does the
/// same when it is sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Ask again, on a new connection.
    Reconnect,
    /// Ask another member, if there is one: this one is stuck, or has lost its leader.
    Elsewhere,
    None,
}

impl Trouble {
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::Unreachable(_) => Remedy::Reconnect,
            Self::TimedOut => Remedy::Elsewhere,
            // A status that etcd sent has no source; one made up here for a broken connection
            // has.
            Self::Refused(status) if status.source().is_some() => Remedy::Reconnect,
            Self::Refused(status) => match status.code() {
                Code::Unavailable => Remedy::Elsewhere,
                // The token ran out, or the server that knew it is gone.
                Code::Unauthenticated => Remedy::Reconnect,
                _ => Remedy::None,
            },
        }
    }

    /// Whether etcd says that there is no such lease.
    pub(super) fn is_lease_gone(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code() == Code::NotFound)
    }

    /// Whether etcd says that the lease exists already.
    pub(super) fn is_lease_there(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code() == Code::FailedPrecondition)
    }

    /// The library's error for it, at a store shown as `at`.
    pub(super) fn explain(self, at: &str) -> Error {
        match self {
            Self::TimedOut => {
                Error::new(ErrorKind::Unavailable, format!("{at} did not answer in time"))
            }
            Self::Unreachable(error) => Error::new(
                ErrorKind::Unavailable,
                format!("nothing answers at {at}: is etcd running there?"),
            )
            .caused_by(error),
            Self::Refused(status) => explain_status(status, at),
        }
    }
}

fn explain_status(status: Status, at: &str) -> Error {
    let said = status.message().to_owned();
    let (kind, message) = match status.code() {
        Code::Unauthenticated => (ErrorKind::Denied, refused_user(at)),
        Code::InvalidArgument if said.contains("authentication failed") => {
            (ErrorKind::Denied, refused_user(at))
        }
        Code::InvalidArgument if said.contains("user name is empty") => (
            ErrorKind::Denied,
            format!("{at} asks for a user and a password: write etcd://user:password@host"),
        ),
        Code::FailedPrecondition if said.contains("authentication is not enabled") => (
            ErrorKind::Config,
            format!("{at} knows no users: leave user and password out of the URL"),
        ),
        Code::PermissionDenied => (
            ErrorKind::Denied,
            format!(
                "{at} does not let this user do that: it needs to read and write all keys that \
                 start with the URL's prefix"
            ),
        ),
        Code::ResourceExhausted => (
            ErrorKind::Store,
            format!("{at} takes no more: {said}; free its space, or raise its quota"),
        ),
        _ if status.source().is_some() => {
            (ErrorKind::Unavailable, format!("the connection to {at} broke"))
        }
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => {
            (ErrorKind::Unavailable, format!("{at} cannot serve us now: {said}"))
        }
        _ => (ErrorKind::Store, format!("{at} said: {said}")),
    };
    Error::new(kind, message).caused_by(status)
}

fn refused_user(at: &str) -> String {
    format!("{at} refused the user or the password: check those in the URL")
}
