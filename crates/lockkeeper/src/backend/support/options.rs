//! Names of options that several stores have, and the error for a bad one.

use crate::error::{Error, ErrorKind};

/// TLS; see [`tls`](super::tls).
pub(crate) const TLS: &[&str] = &["tls", "ca", "cert", "key"];

/// The error for options that make no sense.
pub(crate) fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}
