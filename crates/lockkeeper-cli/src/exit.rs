//! The exit codes.

use crate::text::visible;
use lockkeeper::{Error, ErrorKind};

pub(crate) const FINE: u8 = 0;
/// `show` and `break`: nothing is held as it was asked for. An empty `ls` is none of that.
pub(crate) const NOTHING: u8 = 1;
pub(crate) const USAGE: u8 = 64;
pub(crate) const NO_STORE: u8 = 69;
pub(crate) const NO_OUTPUT: u8 = 74;
pub(crate) const NOT_ACQUIRED: u8 = 75;
pub(crate) const DENIED: u8 = 77;
pub(crate) const LOST: u8 = 79;
pub(crate) const CANNOT_EXECUTE: u8 = 126;
pub(crate) const NO_COMMAND: u8 = 127;

/// The exit code for an end by this signal, as in shells.
pub(crate) fn by_signal(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// Why the program ends: one line for people, one number for scripts.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // Without the causes: the library's message says what to do, the causes only how it was
        // found.
        Self::new(code_of(error.kind()), visible(&error.to_string()))
    }
}

fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidName
        | ErrorKind::Config
        | ErrorKind::Unsupported
        | ErrorKind::WouldDeadlock => USAGE,
        ErrorKind::Denied => DENIED,
        ErrorKind::Lost => LOST,
        ErrorKind::NotHeld => NOTHING,
        ErrorKind::TimedOut => NOT_ACQUIRED,
        // Unavailable, Store, and any kind that a later library adds: the store is at fault.
        _ => NO_STORE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_code_that_is_documented() {
        for (kind, code) in [
            (ErrorKind::InvalidName, 64),
            (ErrorKind::Config, 64),
            (ErrorKind::Unsupported, 64),
            (ErrorKind::WouldDeadlock, 64),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Store, 69),
            (ErrorKind::TimedOut, 75),
            (ErrorKind::Denied, 77),
            (ErrorKind::Lost, 79),
            (ErrorKind::NotHeld, 1),
        ] {
            assert_eq!(code_of(kind), code, "{kind}");
        }
    }

    #[test]
    fn a_failure_is_one_line_and_prints_no_escape_sequence() {
        let error = Error::new(ErrorKind::Unavailable, "no answer")
            .with("holder", "\u{1b}[31mred")
            .caused_by(std::io::Error::other("broken pipe"));
        let failure = Failure::from(error);
        assert_eq!(failure.message, "no answer (holder: \\u{1b}[31mred)");
    }

    #[test]
    fn signals_are_counted_from_128() {
        assert_eq!(by_signal(15), 143);
        assert_eq!(by_signal(64), 192);
    }
}
