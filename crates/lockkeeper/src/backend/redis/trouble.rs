//! What a failed command means.

use crate::error::{Error, ErrorKind};
use redis::{ErrorKind as Cause, RedisError, ServerErrorKind};

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The connection is of no use any more; the next one may be.
    Reconnect,
    /// The connection may be stuck: let go of it, but whatever was asked may have been done.
    LetGo,
    None,
}

pub(super) fn remedy(error: &RedisError) -> Remedy {
    match error.kind() {
        Cause::Io if error.is_timeout() => Remedy::LetGo,
        Cause::Io | Cause::Parse | Cause::ClusterConnectionNotFound => Remedy::Reconnect,
        // A primary that was demoted: somewhere else is another.
        Cause::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => Remedy::Reconnect,
        _ => Remedy::None,
    }
}

/// The library's error for one of Redis, at a server shown as `at`.
pub(super) fn explain(error: RedisError, at: &str) -> Error {
    let (kind, message) = match (error.kind(), error.code()) {
        (_, Some("OOM")) => (
            ErrorKind::Store,
            format!(
                "{at} is full: raise its maxmemory or free some; locks held can still be renewed and released"
            ),
        ),
        (_, Some("MISCONF")) => (
            ErrorKind::Store,
            format!(
                "{at} takes no writes because it cannot save to disk: free its disk, or look at its log"
            ),
        ),
        (_, Some("NOREPLICAS")) => (
            ErrorKind::Unavailable,
            format!("{at} has fewer replicas than its min-replicas-to-write asks for"),
        ),
        // From our own scripts, which can raise no other code.
        (_, code) if code == Some("WRONGTYPE") || error.to_string().contains("FOREIGN") => (
            ErrorKind::Store,
            format!(
                "a key of {at} that the lock needs holds something else: choose another name, or a prefix in the URL"
            ),
        ),
        (Cause::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS")) => (
            ErrorKind::Denied,
            format!("{at} refused the user or the password: check those in the URL"),
        ),
        (Cause::Server(ServerErrorKind::NoPerm), _) => (
            ErrorKind::Denied,
            format!(
                "{at} does not let this user do that: see the access list in the documentation of lockkeeper::backend::redis"
            ),
        ),
        (Cause::RESP3NotSupported, _) => {
            (ErrorKind::Config, format!("{at} is too old: Redis 6.2 or later is needed"))
        }
        (Cause::InvalidClientConfig, _) => {
            (ErrorKind::Config, format!("the URL of {at} cannot be used"))
        }
        (Cause::Io, _) if error.is_connection_refusal() => {
            (ErrorKind::Unavailable, format!("nothing answers at {at}: is Redis running there?"))
        }
        (Cause::Io, _) if error.is_timeout() => {
            (ErrorKind::Unavailable, format!("{at} did not answer in time"))
        }
        (
            Cause::Server(
                ServerErrorKind::ReadOnly
                | ServerErrorKind::BusyLoading
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::TryAgain
                // To a node that is gone, and not yet replaced.
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask,
            )
            | Cause::Io
            | Cause::Parse
            | Cause::ClusterConnectionNotFound
            | Cause::MasterNameNotFoundBySentinel,
            _,
        ) => (ErrorKind::Unavailable, format!("{at} cannot serve us now: {error}")),
        _ => (ErrorKind::Store, format!("{at} said: {error}")),
    };
    Error::new(kind, message).caused_by(error)
}
