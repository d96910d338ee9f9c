//! Someone who reads along what clients say, and decides on it.

use std::fmt;
use std::sync::Arc;

/// What becomes of something that a client said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Step {
    /// It passes.
    #[default]
    Pass,
    /// It, and what the client says after it, is kept until
    /// [`let_go`](super::Control::let_go).
    Hold,
    /// It passes, and the connection ends instead of the answer.
    EndInstead,
}

/// Reads along on one connection, in the pieces that come.
pub type Reader = Box<dyn FnMut(&[u8]) -> Step + Send>;

/// Makes a reader for every connection.
#[derive(Clone)]
pub(super) struct Readers(pub(super) Arc<dyn Fn() -> Reader + Send + Sync>);

impl Readers {
    /// Those who let everything pass.
    pub(super) fn none() -> Self {
        Self(Arc::new(|| Box::new(|_| Step::Pass)))
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readers")
    }
}
