//! What a failed statement means: whether it was carried out, whether to send it again, and what
//! the user is told.
//!
//! | what happened | carried out | sent again | what the user is told |
//! |---|---|---|---|
//! | no connection | no | by the caller | `Unavailable` |
//! | the connection broke, or no answer in time | not known | only if idempotent | `Unavailable` |
//! | a deadlock, or a conflict of transactions | no | yes, after a moment | `Unavailable` |
//! | a statement that is not prepared where it should be | no | unprepared | – |
//! | anything else that the server refuses | no | no | `Denied`, `Config` or `Store` |

use crate::error::{Error, ErrorKind};

/// A statement that brought no answer, or a refusal.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection could be made; nothing was sent.
    Unreachable(String),
    /// The connection ended before the answer: it is not known whether the statement was run.
    Broken(String),
    /// No answer within the time limit: it is not known whether the statement was run.
    TimedOut,
    /// The runtime that the connection was on ended.
    RuntimeEnded,
    /// The server undid the statement because of another one; to be sent again.
    Conflict(String),
    /// The server does not know a statement that was prepared on this very connection, or the session
    /// is another one: there is a pooler or proxy in between, which has several connections to the
    /// server.
    Pooled(String),
    /// The server said no.
    Refused(Refusal),
}

/// What a server said, in words that both kinds have in common.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) why: Why,
    /// The server's own code and words.
    pub(super) said: String,
}

/// Why a server said no, as far as we do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The user or the password.
    Login,
    /// There is no such database.
    NoDatabase,
    /// The user may not do this.
    Privilege,
    /// There is no such table.
    NoTable,
    /// A table of that name has other columns.
    OtherColumns,
    /// The column that was to be added is there.
    #[cfg(feature = "mysql")]
    ColumnThere,
    /// It is a replica, or was made read-only.
    ReadOnly,
    /// The disk is full.
    Full,
    /// It takes no more connections, starts or stops.
    NotNow,
    /// Anything else.
    Other,
}

impl Failure {
    /// Whether the connection is of no use any more.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Broken(_) | Self::TimedOut | Self::RuntimeEnded => true,
            Self::Conflict(_) | Self::Pooled(_) => false,
            Self::Refused(refusal) => refusal.why == Why::NotNow,
        }
    }

    /// Whether the same statement may be sent once more, on a new connection, if it is idempotent.
    /// Not after the time limit: the caller has waited long enough.
    pub(super) fn allows_second_try(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::RuntimeEnded)
    }

    /// Why the server said no, if it did.
    pub(super) fn why(&self) -> Option<Why> {
        match self {
            Self::Refused(refusal) => Some(refusal.why),
            _ => None,
        }
    }

    /// The library's error for it, at a store shown as `at`.
    pub(super) fn explain(self, at: &str) -> Error {
        let unavailable = |message| Error::new(ErrorKind::Unavailable, message);
        match self {
            Self::Unreachable(why) => unreachable(&why, at),
            Self::Broken(why) => unavailable(format!("the connection to {at} broke: {why}")),
            Self::TimedOut => unavailable(format!("{at} did not answer in time")),
            Self::RuntimeEnded => {
                unavailable(format!("the runtime that the connection to {at} was on ended"))
            }
            Self::Conflict(said) => unavailable(format!(
                "{at} kept undoing a statement because of others ({said}): try again"
            )),
            Self::Pooled(said) => Error::new(
                ErrorKind::Config,
                format!(
                    "{at} forgot a prepared statement ({said}): a pooler is in between; add \
                     ?pooler=true"
                ),
            ),
            Self::Refused(refusal) => refusal.explain(at),
        }
    }
}

impl Refusal {
    fn explain(self, at: &str) -> Error {
        let said = &self.said;
        let (kind, message) = match self.why {
            Why::Login => (
                ErrorKind::Denied,
                format!(
                    "{at} refused the user or the password ({said}): check those in the URL, and \
                     show a certificate with ?cert=FILE&key=FILE where the server asks for one"
                ),
            ),
            Why::NoDatabase => (
                ErrorKind::Config,
                format!(
                    "{at} has no such database ({said}): create it, or name another in the URL"
                ),
            ),
            Why::Privilege => (
                ErrorKind::Denied,
                format!(
                    "{at} does not let this user do that ({said}): `lockkeeper schema URL` prints \
                     the tables to create and the rights to grant"
                ),
            ),
            Why::NoTable => (
                ErrorKind::Store,
                format!(
                    "{at} has no lock tables any more ({said}): connect again, or create them as \
                     `lockkeeper schema URL` prints"
                ),
            ),
            Why::OtherColumns => (
                ErrorKind::Config,
                format!(
                    "{at} has a table of our name with other columns ({said}): name another with \
                     ?table=NAME"
                ),
            ),
            Why::ReadOnly => (
                ErrorKind::Config,
                format!(
                    "{at} can only be read ({said}): it is a replica, or was made read-only; name \
                     the primary in the URL"
                ),
            ),
            Why::Full => {
                // The same code for a disk and for a table in memory.
                let memory = if said.contains("1114") {
                    ", or raise max_heap_table_size if that table is in memory"
                } else {
                    ""
                };
                (
                    ErrorKind::Store,
                    format!(
                        "the disk of {at} is full ({said}): free some space{memory}. Nothing was \
                         changed, and locks already held run out unless there is space before \
                         they need renewing"
                    ),
                )
            }
            Why::NotNow => (ErrorKind::Unavailable, format!("{at} takes no requests now: {said}")),
            #[cfg(feature = "mysql")]
            Why::ColumnThere => (ErrorKind::Store, format!("{at} said: {said}")),
            Why::Other => (ErrorKind::Store, format!("{at} said: {said}")),
        };
        Error::new(kind, message)
    }
}

/// No connection: nothing listens there, or the TLS handshake failed.
fn unreachable(why: &str, at: &str) -> Error {
    let message = if why.contains("invalid peer certificate") {
        format!("{at} could not prove itself: {why}; name who signed its certificate with ?ca=FILE")
    } else if why.contains("does not support TLS") || why.contains("does not have this capability")
    {
        format!("{at} does not speak TLS ({why}): leave out tls=true, or switch it on there")
    } else if why.contains("fatal alert") {
        let message = format!(
            "{at} greeted us and hung up ({why}): if it asks for a certificate, name one that it \
             trusts with ?cert=FILE&key=FILE"
        );
        return Error::new(ErrorKind::Denied, message);
    } else {
        format!("no connection to {at} ({why}): is the server running there?")
    };
    Error::new(ErrorKind::Unavailable, message)
}

/// What PostgreSQL or its driver said.
#[cfg(feature = "postgres")]
pub(super) fn of_postgres(error: &tokio_postgres::Error) -> Failure {
    use tokio_postgres::error::SqlState as S;
    let Some(said) = error.as_db_error() else {
        return Failure::Broken(root(error));
    };
    let code = said.code();
    let text = format!("{}: {}", code.code(), said.message());
    let why = match code {
        c if *c == S::T_R_SERIALIZATION_FAILURE || *c == S::T_R_DEADLOCK_DETECTED => {
            return Failure::Conflict(text);
        }
        c if *c == S::INVALID_SQL_STATEMENT_NAME || *c == S::DUPLICATE_PSTATEMENT => {
            return Failure::Pooled(text);
        }
        // Undone by the server because of a time limit of the session.
        c if *c == S::QUERY_CANCELED || *c == S::LOCK_NOT_AVAILABLE => return Failure::TimedOut,
        // The server ends this session, whether or not the statement was through.
        c if *c == S::ADMIN_SHUTDOWN || *c == S::CRASH_SHUTDOWN => return Failure::Broken(text),
        // It ended the session because its lease was over: in a transaction, or outside of one.
        c if ["25P03", "57P05"].contains(&c.code()) => return Failure::Broken(text),
        c if *c == S::INVALID_PASSWORD || *c == S::INVALID_AUTHORIZATION_SPECIFICATION => {
            Why::Login
        }
        c if *c == S::INVALID_CATALOG_NAME => Why::NoDatabase,
        c if *c == S::INSUFFICIENT_PRIVILEGE => Why::Privilege,
        c if *c == S::UNDEFINED_TABLE || *c == S::INVALID_SCHEMA_NAME => Why::NoTable,
        c if *c == S::UNDEFINED_COLUMN || *c == S::DATATYPE_MISMATCH => Why::OtherColumns,
        c if *c == S::READ_ONLY_SQL_TRANSACTION => Why::ReadOnly,
        c if *c == S::DISK_FULL => Why::Full,
        c if *c == S::TOO_MANY_CONNECTIONS || *c == S::CANNOT_CONNECT_NOW => Why::NotNow,
        _ => Why::Other,
    };
    Failure::Refused(Refusal { why, said: text })
}

/// What MariaDB, MySQL or their driver said.
#[cfg(feature = "mysql")]
pub(super) fn of_mysql(error: &mysql_async::Error) -> Failure {
    let said = match error {
        mysql_async::Error::Server(said) => said,
        other => return Failure::Broken(root(other)),
    };
    let text = format!("{} ({}): {}", said.code, said.state, said.message);
    let why = match said.code {
        // A deadlock; a row lock that was not free in time, or not at once.
        1213 | 1205 | 3572 => return Failure::Conflict(text),
        // Shutdown in progress; the session or the statement was killed.
        1053 | 1317 | 1927 | 3169 => return Failure::Broken(text),
        // The statement took longer than the server allows.
        1969 | 3024 => return Failure::TimedOut,
        1045 | 1698 | 1251 => Why::Login,
        1049 => Why::NoDatabase,
        1044 | 1142 | 1143 | 1227 | 1370 => Why::Privilege,
        1146 => Why::NoTable,
        1054 | 1136 | 1364 => Why::OtherColumns,
        1060 => Why::ColumnThere,
        1290 | 1792 | 1836 => Why::ReadOnly,
        1021 | 1114 | 3 => Why::Full,
        1040 | 1203 | 1226 => Why::NotNow,
        _ => Why::Other,
    };
    Failure::Refused(Refusal { why, said: text })
}

/// The innermost cause, which is the one that says something.
fn root(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
