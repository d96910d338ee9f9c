//! What a failed request means.

use crate::error::{Error, ErrorKind};
use std::sync::Arc;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server said no, with this number: nothing was done.
    Refused(i32),
    /// No answer, for this reason: whether it was done is not known.
    Unanswered(Arc<str>),
    /// The session is over, and every node with it.
    Over,
}

/// The numbers that mean something to us.
pub(super) mod refusal {
    pub(in super::super) const NO_NODE: i32 = -101;
    pub(in super::super) const NO_AUTH: i32 = -102;
    pub(in super::super) const BAD_VERSION: i32 = -103;
    pub(in super::super) const NODE_EXISTS: i32 = -110;
    pub(in super::super) const NOT_EMPTY: i32 = -111;
    pub(in super::super) const SESSION_EXPIRED: i32 = -112;
    pub(in super::super) const INVALID_ACL: i32 = -114;
    pub(in super::super) const AUTH_FAILED: i32 = -115;
    pub(in super::super) const SESSION_MOVED: i32 = -118;
}

impl Fault {
    /// What an answer with this number means.
    pub(super) fn of(code: i32) -> Self {
        match code {
            refusal::SESSION_EXPIRED => Self::Over,
            // It goes on elsewhere, and a request sent there may have been done.
            refusal::SESSION_MOVED => Self::Unanswered("the session moved to another".into()),
            code => Self::Refused(code),
        }
    }

    pub(super) fn is(&self, code: i32) -> bool {
        *self == Self::Refused(code)
    }

    /// The library's error, for a server shown as `at`.
    pub(super) fn explain(&self, at: &str) -> Error {
        let (kind, message) = match self {
            Self::Refused(refusal::NO_AUTH | refusal::INVALID_ACL) => (
                ErrorKind::Denied,
                format!(
                    "{at} does not let us do that: check the user and the password in the URL, and who may write to its path"
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
                    "{at} asks for a certificate it trusts ({why}): name it with ?cert=FILE&key=FILE"
                ),
            ),
            Self::Unanswered(why) if why.contains("invalid peer certificate") => (
                ErrorKind::Unavailable,
                format!(
                    "{at} could not prove itself: {why}; name who signed its certificate with ?ca=FILE"
                ),
            ),
            Self::Unanswered(why) => {
                (ErrorKind::Unavailable, format!("no answer from {at}: {why}"))
            }
            Self::Over => (
                ErrorKind::Unavailable,
                format!("the session with {at} ended, as it was not heard of for too long"),
            ),
        };
        Error::new(kind, message)
    }
}

/// Whether the other side ended the connection over what we showed, or did not show.
fn is_about_our_certificate(why: &str) -> bool {
    why.contains("fatal alert") && why.to_lowercase().contains("certificate")
}
