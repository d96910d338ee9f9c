//! Why a request failed, and the library's error for it.
//!
//! The texts are for the person who runs the program: they say what happened and what to do next, and
//! name the server by its URL without secrets.

use crate::error::{Error, ErrorKind};
use std::sync::Arc;

/// Why a request failed. The three cases are kept apart everywhere, because they leave different
/// things to do: nothing was done, it is not known what was done, or everything is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server refused the request with this error code: nothing was done.
    Refused(i32),
    /// There was no answer, for this reason: whether the request was carried out is not known.
    Unanswered(Arc<str>),
    /// The session is over, and its ephemeral nodes with it.
    SessionEnded,
}

/// The server's error codes that callers tell apart.
pub(crate) mod refusal {
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const NOT_EMPTY: i32 = -111;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const SESSION_MOVED: i32 = -118;
}

impl Failure {
    /// What an answer with this error code means.
    pub(super) fn of(code: i32) -> Self {
        match code {
            refusal::SESSION_EXPIRED => Self::SessionEnded,
            // The session continues on another server, and a request sent to that server may have
            // been carried out there.
            refusal::SESSION_MOVED => Self::Unanswered("the session moved to another".into()),
            code => Self::Refused(code),
        }
    }

    /// Whether the server refused with exactly this code.
    pub(crate) fn is(&self, code: i32) -> bool {
        *self == Self::Refused(code)
    }

    /// The library's error, for a server whose URL without secrets is `at`.
    pub(crate) fn explain(&self, at: &str) -> Error {
        let (kind, message) = match self {
            Self::Refused(refusal::NO_AUTH | refusal::INVALID_ACL) => (
                ErrorKind::Denied,
                format!(
                    "{at} does not let us do that: check the user and the password in the URL, \
                     and who may write to its path"
                ),
            ),
            Self::Refused(refusal::AUTH_FAILED) => (
                ErrorKind::Denied,
                format!("{at} refused the user or the password: check those in the URL"),
            ),
            Self::Refused(refusal::NO_NODE) => {
                (ErrorKind::Store, format!("a node that {at} had a moment ago is gone: try again"))
            }
            Self::Refused(code) => (ErrorKind::Store, format!("{at} said no, number {code}")),
            Self::Unanswered(why) if is_about_our_certificate(why) => (
                ErrorKind::Denied,
                format!(
                    "{at} asks for a certificate it trusts ({why}): \
                     name it with ?cert=FILE&key=FILE"
                ),
            ),
            Self::Unanswered(why) if why.contains("invalid peer certificate") => (
                ErrorKind::Unavailable,
                format!(
                    "{at} could not prove itself: {why}; \
                     name who signed its certificate with ?ca=FILE"
                ),
            ),
            Self::Unanswered(why) if why.contains("Connection refused") => (
                ErrorKind::Unavailable,
                format!("nothing answers at {at} ({why}): is ZooKeeper running there?"),
            ),
            Self::Unanswered(why) if why.contains("failed to lookup address") => {
                (ErrorKind::Unavailable, format!("there is no host of that name: {at} ({why})"))
            }
            Self::Unanswered(why) => {
                (ErrorKind::Unavailable, format!("no answer from {at}: {why}"))
            }
            Self::SessionEnded => (
                ErrorKind::Unavailable,
                format!("the session with {at} ended, as it was not heard of for too long"),
            ),
        };
        Error::new(kind, message)
    }
}

/// Whether the server ended the TLS handshake over the certificate that we sent, or did not send.
/// rustls reports the server's alert only as text.
fn is_about_our_certificate(why: &str) -> bool {
    why.contains("fatal alert") && why.to_lowercase().contains("certificate")
}
