//! A reader that inspects what clients send, and decides what happens to it.

use std::fmt;
use std::sync::Arc;

/// What happens to bytes that a client sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Step {
    /// It passes.
    #[default]
    Pass,
    /// It is kept, with everything the client sends after it, until
    /// [`let_go`](super::Control::let_go).
    Hold,
    /// It passes, and the connection ends in place of the answer.
    EndInstead,
}

/// Inspects one connection, in the pieces that arrive.
pub type Reader = Box<dyn FnMut(&[u8]) -> Step + Send>;

/// Makes a reader for every connection.
#[derive(Clone)]
pub(super) struct Readers(pub(super) Arc<dyn Fn() -> Reader + Send + Sync>);

impl Readers {
    /// Readers that let everything pass.
    pub(super) fn none() -> Self {
        Self(Arc::new(|| Box::new(|_| Step::Pass)))
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readers")
    }
}
