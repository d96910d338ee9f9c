//! What a failed command means: to the client, which may try again, and to the caller.
//!
//! | what happened | the client | the caller gets |
//! |---|---|---|
//! | connection refused, closed, reset | connects again, once | `Unavailable` |
//! | no answer in time | drops the connection, does not repeat | `Unavailable` |
//! | `READONLY`, `MASTERDOWN`, `UNBLOCKED`: demoted | connects again, once | `Unavailable` |
//! | `LOADING`, `CLUSTERDOWN`, `TRYAGAIN`, a slot that moves | in a cluster, tries for a while | `Unavailable` |
//! | `NOSCRIPT` | sends the script itself | – |
//! | `NOAUTH`, `WRONGPASS`, `NOPERM` | – | `Denied` |
//! | `WRONGTYPE`, or our own `FOREIGN` | – | `Store`: the key holds something else |
//! | our own `LATER` | – | `Store`: the key is of a later version of lockkeeper |
//! | `OOM`, `MISCONF` | – | `Store`: what to do about it |
//! | a certificate that is not trusted, or none shown | – | `Unavailable` or `Denied`, with the option to set |
//!
//! `Unavailable` is what may pass by itself: those that wait go on waiting, and a renewal is repeated.
//! A command that got no answer in time is not repeated, because it may be carried out yet: its
//! caller decides what that means for the claim.

use crate::error::{Error, ErrorKind};
use redis::{ErrorKind as Cause, RedisError, ServerErrorKind, Value};
use std::fmt;

/// What the client does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The connection is of no use any more; the next one may be. The command can be repeated there.
    Reconnect,
    /// The connection may be stuck: drop it. The command is not repeated, it may be carried out yet.
    Abandon,
    /// The server answered: there is nothing to recover from.
    None,
}

/// What an error calls for.
pub(super) fn recovery(error: &RedisError) -> Recovery {
    match error.kind() {
        Cause::Io if error.is_timeout() => Recovery::Abandon,
        Cause::Io | Cause::Parse | Cause::ClusterConnectionNotFound => Recovery::Reconnect,
        // A primary that was demoted: somewhere else is another.
        Cause::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
            Recovery::Reconnect
        }
        _ if was_demoted(error) => Recovery::Reconnect,
        _ => Recovery::None,
    }
}

/// Whether a key of the lock holds something else: another type, or a value that is no record of ours.
pub(super) fn is_foreign(error: &RedisError) -> bool {
    // The second is from our own scripts, which can raise no other code.
    error.code() == Some("WRONGTYPE") || error.to_string().contains("FOREIGN")
}

/// Whether a later version of lockkeeper wrote what is stored of the lock; said by our own scripts.
pub(super) fn is_later(error: &RedisError) -> bool {
    error.to_string().contains("LATER")
}

/// Whether a primary was demoted while it waited for its replicas. The command before the `WAIT` was
/// carried out, and may be lost with the demotion.
fn was_demoted(error: &RedisError) -> bool {
    error.code() == Some("UNBLOCKED")
}

/// Whether a command inside a script is none of this user's. Redis says so in words only.
fn is_forbidden_in_script(error: &RedisError) -> bool {
    error.detail().is_some_and(|said| {
        said.contains("user executing the script can't") || said.contains("ACL failure in script")
    })
}

/// Whether a slot is on its way from one node of a cluster to another, with some of the keys: a script
/// that uses all of them can run on neither node until the rest has moved.
pub(super) fn is_moving(error: &RedisError) -> bool {
    // The second is what a script is told that uses a key which is not there, or there already.
    error.kind() == ServerErrorKind::TryAgain.into()
        || error.detail().is_some_and(|said| said.contains("access a non local key"))
}

/// The library's error for one of Redis, at a server shown as `at`.
pub(super) fn explain(error: RedisError, at: &str) -> Error {
    let said = brief(&error);
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
        _ if is_foreign(&error) => (
            ErrorKind::Store,
            format!(
                "a key of {at} that the lock needs holds something else: choose another name, or a prefix in the URL"
            ),
        ),
        _ if is_later(&error) => (
            ErrorKind::Store,
            format!(
                "a lock of {at} was stored by a later lockkeeper: upgrade this program, or choose a \
                 prefix in the URL"
            ),
        ),
        (Cause::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS")) => (
            ErrorKind::Denied,
            format!("{at} refused the user or the password: check those in the URL"),
        ),
        _ if error.kind() == ServerErrorKind::NoPerm.into() || is_forbidden_in_script(&error) => (
            ErrorKind::Denied,
            format!(
                "{at} does not let this user do that: see the access list in the documentation of \
                 lockkeeper::backend::redis (to connect anew tells which right is missing)"
            ),
        ),
        (Cause::Server(ServerErrorKind::ReadOnly), _) => (
            ErrorKind::Unavailable,
            format!(
                "{at} is a replica, which takes no writes: name the primary, or have it found with \
                 redis+sentinel://"
            ),
        ),
        _ if said.contains("DB index is out of range") => (
            ErrorKind::Store,
            format!(
                "{at} has no database of that number: choose a smaller one, or raise `databases` in \
                 the configuration of Redis"
            ),
        ),
        _ if said.contains("failed to lookup address") => (
            ErrorKind::Unavailable,
            format!("there is no host of that name: {at} ({said})"),
        ),
        _ if was_demoted(&error) => (
            ErrorKind::Unavailable,
            format!("{at} was demoted while its replicas were waited for"),
        ),
        _ if is_moving(&error) => (
            ErrorKind::Unavailable,
            format!("{at} is moving the lock from one node to another: try again"),
        ),
        (Cause::RESP3NotSupported, _) => {
            (ErrorKind::Config, format!("{at} is too old: Redis 6.2 or later is needed"))
        }
        (Cause::InvalidClientConfig, _) => {
            (ErrorKind::Config, format!("the URL of {at} cannot be used"))
        }
        _ if said.contains("invalid peer certificate") => (
            ErrorKind::Unavailable,
            format!(
                "{at} could not prove itself ({said}): name who signed its certificate with \
                 ?ca=FILE"
            ),
        ),
        _ if said.contains("fatal alert") => (
            ErrorKind::Denied,
            format!(
                "{at} greeted us and hung up ({said}): if it asks for a certificate, name one that \
                 it trusts with ?cert=FILE&key=FILE"
            ),
        ),
        _ if said.contains("corrupt message") || said.contains("InvalidContentType") => (
            ErrorKind::Unavailable,
            format!("{at} does not speak TLS ({said}): leave out tls=true, or write redis://"),
        ),
        (Cause::Io, _) if error.is_connection_refusal() => {
            (ErrorKind::Unavailable, format!("nothing answers at {at}: is Redis running there?"))
        }
        (Cause::Io, _) if error.is_timeout() && at.starts_with("rediss:") => (
            ErrorKind::Unavailable,
            format!("{at} did not answer in time: if it does not speak TLS, write redis://"),
        ),
        (Cause::Io, _) if error.is_timeout() => {
            (ErrorKind::Unavailable, format!("{at} did not answer in time"))
        }
        (Cause::Io, _) if error.is_connection_dropped() => (
            ErrorKind::Unavailable,
            format!(
                "{at} hung up ({said}): it was restarted, or it is not Redis, or it speaks TLS and \
                 wants rediss://"
            ),
        ),
        (
            Cause::Server(
                ServerErrorKind::BusyLoading
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
        ) => (ErrorKind::Unavailable, format!("{at} cannot serve us now: {said}")),
        _ => (ErrorKind::Store, format!("{at} said: {said}")),
    };
    // The error itself may quote what it was about, however long that is.
    Error::new(kind, message).caused_by(said)
}

/// The error for an answer that is none of those a script gives.
pub(super) fn unexpected(value: &Value) -> Error {
    let said = brief(&Shown(value));
    Error::new(ErrorKind::Store, format!("Redis gave an answer that makes no sense: {said}"))
}

/// How many bytes of an answer are shown, at most: a record can be as large as a note.
const BRIEF: usize = 300;

/// The beginning of what `text` displays; stops the display as soon as that is enough.
pub(super) fn brief(text: &dyn fmt::Display) -> String {
    /// Takes what is written until it is full, and then fails, which ends the display.
    struct Beginning(String);
    impl fmt::Write for Beginning {
        fn write_str(&mut self, more: &str) -> fmt::Result {
            let room = BRIEF - self.0.len();
            let fits = more.len() <= room;
            self.0.push_str(beginning(more, room));
            if fits { Ok(()) } else { Err(fmt::Error) }
        }
    }
    let mut beginning = Beginning(String::new());
    if fmt::write(&mut beginning, format_args!("{text}")).is_err() {
        beginning.0.push('…');
    }
    beginning.0
}

/// As much of the text as fits into `length` bytes.
pub(super) fn beginning(text: &str, length: usize) -> &str {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A value as it is, but for bytes that would each be shown as a number.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::BulkString(bytes) => {
                let start = &bytes[..bytes.len().min(BRIEF)];
                write!(f, "{:?} of {} bytes", String::from_utf8_lossy(start), bytes.len())
            }
            Value::Array(parts) => {
                f.write_str("[")?;
                for part in parts {
                    write!(f, "{}, ", Shown(part))?;
                }
                f.write_str("]")
            }
            other => write!(f, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer can be a whole queue, and errors end up in logs.
    #[test]
    fn what_is_shown_of_an_answer_is_short_whatever_it_is() {
        let large = Value::BulkString(vec![0xff; 10_000_000]);
        for value in
            [large.clone(), Value::Array(vec![large; 3]), Value::Array(vec![Value::Nil; 1 << 20])]
        {
            let said = unexpected(&value).to_string();
            assert!(said.len() < 2 * BRIEF, "{} letters", said.len());
        }
        assert_eq!(brief(&"ä".repeat(BRIEF)).chars().count(), BRIEF / 2 + 1);
        assert_eq!(brief(&"short"), "short");
    }

    /// What to do next is said for what users meet at their first try.
    #[test]
    fn a_failure_says_what_to_do_about_it() {
        let io = |kind: std::io::ErrorKind, said: &str| {
            RedisError::from(std::io::Error::new(kind, said.to_owned()))
        };
        let lookup = "failed to lookup address information: Name or service not known";
        let server =
            |kind, said: &str| RedisError::from((Cause::Server(kind), "", said.to_owned()));
        for (error, at, hint) in [
            (io(std::io::ErrorKind::Other, lookup), "redis://x", "there is no host of that name"),
            (io(std::io::ErrorKind::ConnectionReset, "reset"), "redis://x", "it is not Redis"),
            (io(std::io::ErrorKind::TimedOut, "late"), "rediss://x", "write redis://"),
            (
                server(ServerErrorKind::ReadOnly, "You can't write. script: 9896"),
                "redis://x",
                "primary",
            ),
            (
                server(ServerErrorKind::ResponseError, "DB index is out of range"),
                "redis://x/99",
                "`databases`",
            ),
        ] {
            let said = explain(error, at).to_string();
            assert!(said.contains(hint) && !said.contains("script"), "{said}");
        }
    }

    /// Redis quotes the arguments of a command that it refuses.
    #[test]
    fn an_error_that_quotes_a_record_is_short() {
        let quoted = "x".repeat(10_000_000);
        let error = RedisError::from((Cause::Client, "no good", quoted));
        assert!(format!("{:?}", explain(error, "redis://here")).len() < 1500);
    }
}
