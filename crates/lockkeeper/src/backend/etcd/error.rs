//! What a failed request means: whether to send it again and where, and what the user is told.
//!
//! | what happened | sent again | what the user is told |
//! |---|---|---|
//! | no connection, or it broke | on a new connection | `Unavailable`, with the likely cause |
//! | no answer in time | at another member | `Unavailable` |
//! | this member has no leader | at another member | `Unavailable` |
//! | the token ran out | on a new connection, after a login | `Denied` |
//! | anything else that etcd refuses | no | `Denied`, `Config` or `Store` |

use crate::error::{Error, ErrorKind};
use std::error::Error as _;
use std::io;
use tonic::{Code, Status};

/// A request that brought no answer, or a refusal.
///
/// Kept apart from the library's [`Error`] until nobody decides by it any more: what is retried
/// depends on details that the user is not told.
#[derive(Debug)]
pub(super) enum Failure {
    /// No answer within the time limit of one request.
    TimedOut,
    /// The runtime that the connection was on ended: nobody reads what etcd answers.
    RuntimeEnded,
    /// No connection could be made, or it broke before the request was sent.
    Unreachable(tonic::transport::Error),
    /// A status: sent by etcd, or made up by the gRPC library for a connection that broke.
    Refused(Status),
    /// The connection ended, for this reason, before etcd said anything.
    HungUp { why: String, when: HungUp },
}

/// How far a connection was that ended before etcd said anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HungUp {
    /// It was not to be encrypted.
    Plain,
    /// In the middle of the TLS handshake.
    InHandshake,
    /// After the TLS handshake.
    Encrypted,
}

/// Whether and where to send the request again. It may have been carried out all the same: every
/// request of ours is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// On a new connection, to whichever member.
    Reconnect,
    /// At another member, if there is one: this one is stuck, or has lost its leader.
    OtherMember,
    /// Nowhere: the answer would be the same.
    No,
}

impl Failure {
    /// Whether and where a retry can help.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Unreachable(_) | Self::HungUp { .. } | Self::RuntimeEnded => Retry::Reconnect,
            Self::TimedOut => Retry::OtherMember,
            // A status that etcd sent has no source; one made up here for a broken connection
            // has.
            Self::Refused(status) if status.source().is_some() => Retry::Reconnect,
            Self::Refused(status) => match status.code() {
                Code::Unavailable => Retry::OtherMember,
                // The token ran out, or the server that knew it is gone.
                Code::Unauthenticated => Retry::Reconnect,
                _ => Retry::No,
            },
        }
    }

    /// Whether the connection ended instead of an answer.
    pub(super) fn is_broken_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(status) => status.source().is_some(),
            Self::TimedOut | Self::RuntimeEnded | Self::HungUp { .. } => false,
        }
    }

    /// Whether there was a connection that the other side ended while it was being set up.
    pub(super) fn is_hang_up(&self) -> bool {
        let Self::Unreachable(error) = self else { return false };
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        let mut kind = None;
        while let Some(error) = cause {
            kind = error.downcast_ref::<io::Error>().map(io::Error::kind).or(kind);
            cause = error.source();
        }
        matches!(
            kind,
            Some(
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
            )
        )
    }

    /// The same failure, where no answer ever came from this address: then the address or the
    /// choice of TLS is the likely cause, and the message says so.
    pub(super) fn before_any_answer(self, when: HungUp) -> Self {
        let why = match self {
            Self::Unreachable(error) => root(&error),
            Self::Refused(status) => root(&status),
            other => return other,
        };
        Self::HungUp { why, when }
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
            Self::RuntimeEnded => Error::new(
                ErrorKind::Unavailable,
                format!("the runtime that the connection to {at} was on ended"),
            ),
            Self::Unreachable(error) => unreachable(&root(&error), at).caused_by(error),
            Self::Refused(status) => explain_status(status, at),
            Self::HungUp { why, when: HungUp::Encrypted } => hung_up(&why, at),
            Self::HungUp { why, when: HungUp::InHandshake } => no_tls(&why, at),
            Self::HungUp { why, when: HungUp::Plain } => Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{at} hung up before it said anything ({why}): is that etcd? If it speaks \
                     TLS, add ?tls=true"
                ),
            ),
        }
    }
}

/// The library's error for a status, with what to do about it where that is known.
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
            let why = root(&status);
            (ErrorKind::Unavailable, format!("the connection to {at} broke: {why}"))
        }
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => {
            (ErrorKind::Unavailable, format!("{at} cannot serve us now: {said}"))
        }
        _ => (ErrorKind::Store, format!("{at} said: {said}")),
    };
    Error::new(kind, message).caused_by(status)
}

/// The root cause of an error: the layers above it only say that something went wrong.
fn root(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// No connection: nothing listens there, or the TLS handshake failed for one of three reasons.
fn unreachable(why: &str, at: &str) -> Error {
    if why.contains("fatal alert") {
        return hung_up(why, at);
    }
    if why.contains("handshake") {
        return no_tls(why, at);
    }
    let message = if why.contains("invalid peer certificate") {
        format!("{at} could not prove itself: {why}; name who signed its certificate with ?ca=FILE")
    } else {
        format!("nothing answers at {at} ({why}): is etcd running there?")
    };
    Error::new(ErrorKind::Unavailable, message)
}

/// The server ended the connection instead of its part of the TLS handshake. Whether that shows as
/// an end or as a reset is a matter of microseconds.
fn no_tls(why: &str, at: &str) -> Error {
    let message = format!("{at} does not speak TLS ({why}): leave out tls=true");
    Error::new(ErrorKind::Unavailable, message)
}

/// The server ended an encrypted connection right after the handshake, which is how a missing or
/// untrusted client certificate shows.
fn hung_up(why: &str, at: &str) -> Error {
    let kind = if why.contains("fatal alert") { ErrorKind::Denied } else { ErrorKind::Unavailable };
    let message = format!(
        "{at} greeted us and hung up ({why}): if it asks for a certificate, name one that it \
         trusts with ?cert=FILE&key=FILE"
    );
    Error::new(kind, message)
}

/// The same words wherever etcd says that it does not know the user.
fn refused_user(at: &str) -> String {
    format!("{at} refused the user or the password: check those in the URL")
}
