//! Stands in for `sockets.rs` where processes cannot wake one another: the driver polls the file.
//!
//! The same names and signatures, so that no caller needs to know. [`Socket`] cannot be made here,
//! and so its functions need no body.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::Duration;

/// No sockets: nobody is woken, and there is nothing to clean up.
#[derive(Debug)]
pub(super) struct Sockets;

impl Sockets {
    pub(super) fn beside(_: &Path) -> Self {
        Self
    }

    #[allow(clippy::unused_self, reason = "as where there are sockets")]
    pub(super) fn wake(&self, _: &str) {}

    /// Always fails; the driver then polls while a claim waits.
    pub(super) fn open(&self, _: &str) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn remove_stale(&self) {}
}

/// A type without values, which lets the compiler check that none is ever used.
#[derive(Debug)]
pub(super) struct Socket(Infallible);

impl Socket {
    pub(super) fn wake(&self) {
        match self.0 {}
    }

    pub(super) fn wait(&self, _: Option<Duration>) -> io::Result<bool> {
        match self.0 {}
    }

    pub(super) fn is_there(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn remove(&self) {
        match self.0 {}
    }
}
