//! What a failed request means: whether to send it again, and what the user is told.
//!
//! | what happened | sent again | what the user is told |
//! |---|---|---|
//! | no connection | no | `Unavailable`, with the likely cause |
//! | the connection broke | once, on a new connection | `Unavailable` |
//! | no answer in time | no: it may be carried out yet | `Unavailable` |
//! | an answer that is none of memcached's | no | `Unavailable`: check host and port |
//! | the login was refused, or is missing | no | `Denied` |
//! | no meta commands, no CAS, too old | no | `Config`: what is needed |
//! | no memory, a value too large | no | `Store`: what to do about it |

use crate::error::{Error, ErrorKind};
use std::io;

/// A request that brought no answer, or a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection could be made.
    Unreachable { why: String, encrypted: bool },
    /// The connection ended before the answer: what was asked may have been done.
    Broken,
    /// No answer within the time limit of one request.
    TimedOut,
    /// What answers there is no memcached.
    NotMemcached(String),
    /// The server wants a login, or another one.
    Denied(String),
    /// The server cannot do what locks need.
    Unfit(String),
    /// The server understood, and refused.
    Refused(String),
    /// The background thread could not be started.
    NoThread,
}

impl Failure {
    /// That of a connection which could not be made.
    pub(super) fn unreachable(error: &io::Error, encrypted: bool) -> Self {
        Self::Unreachable { why: error.to_string(), encrypted }
    }

    /// Whether the same request may do better on a new connection. Not after a timeout: the request
    /// may be carried out yet, and its sender decides what that means.
    pub(super) fn is_broken(&self) -> bool {
        *self == Self::Broken
    }

    /// The library's error for it, at a server shown as `at`.
    pub(super) fn explain(&self, at: &str) -> Error {
        let unavailable = |message: String| Error::new(ErrorKind::Unavailable, message);
        match self {
            Self::Unreachable { why, encrypted } => {
                let hint = match encrypted {
                    true if why.contains("peer certificate") => {
                        ": name who signed its certificate with ?ca=FILE"
                    }
                    true if why.contains("alert") => {
                        ": if it asks for a certificate, name one that it trusts with \
                         ?cert=FILE&key=FILE"
                    }
                    // It may end the connection or reset it, as it happens to come.
                    true if ["corrupt message", "handshake eof", "reset"]
                        .iter()
                        .any(|sign| why.contains(sign)) =>
                    {
                        ": does it speak TLS on this port?"
                    }
                    _ => "",
                };
                unavailable(format!("{at} cannot be reached ({why}){hint}"))
            }
            Self::Broken => unavailable(format!("the connection to {at} broke")),
            Self::TimedOut => unavailable(format!("{at} did not answer in time")),
            Self::NotMemcached(said) => unavailable(format!(
                "what answers at {at} is no memcached, or speaks TLS: it said {said:?}; check the \
                 host and the port"
            ))
            .lasting(),
            Self::Denied(said) => Error::new(
                ErrorKind::Denied,
                format!(
                    "{at} refused the login ({said}): name a user and a password of its \
                     authentication file (-Y) in the URL, memcached://user:password@host"
                ),
            ),
            Self::Unfit(why) => {
                Error::new(ErrorKind::Config, format!("{at} cannot keep locks: {why}"))
            }
            Self::Refused(said) if said.contains("too large") => Error::new(
                ErrorKind::Store,
                format!(
                    "the claim is too large for an item of {at}: shorten its note, or start \
                     memcached with a larger -I"
                ),
            ),
            Self::Refused(said) if said.contains("out of memory") => Error::new(
                ErrorKind::Store,
                format!(
                    "{at} is full and may not evict (-M): give it more memory with -m, or free some"
                ),
            ),
            Self::Refused(said) => {
                Error::new(ErrorKind::Store, format!("{at} refused the request: {said}"))
            }
            Self::NoThread => unavailable("the background thread ended".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_what_to_do_next() {
        let io = io::Error::other("invalid peer certificate: UnknownIssuer");
        let refused = |said: &str| Failure::Refused(format!("SERVER_ERROR {said}"));
        for (failure, kind, says) in [
            (Failure::unreachable(&io, true), ErrorKind::Unavailable, "?ca=FILE"),
            (
                Failure::unreachable(&io::Error::other("received fatal alert"), true),
                ErrorKind::Unavailable,
                "cert=FILE",
            ),
            (Failure::NotMemcached("HTTP/1.1 400".into()), ErrorKind::Unavailable, "the port"),
            (Failure::Denied("unauthenticated".into()), ErrorKind::Denied, "-Y"),
            (Failure::Unfit("it is too old".into()), ErrorKind::Config, "too old"),
            (refused("object too large for cache"), ErrorKind::Store, "-I"),
            (refused("out of memory storing object"), ErrorKind::Store, "-m"),
        ] {
            let error = failure.explain("memcached://h");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        assert!(!Failure::NotMemcached("x".into()).explain("h").is_retryable());
        assert!(Failure::TimedOut.explain("h").is_retryable() && !Failure::TimedOut.is_broken());
    }
}
