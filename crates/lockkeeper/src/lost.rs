//! Waiting for the loss of a claim.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Resolves when a claim is lost; see [`Guard::lost`](crate::Guard::lost). Never, once the claim
/// was given back.
///
/// It borrows nothing, so that it can be waited for in another task. Polled again after it
/// resolved, it resolves again.
///
/// # Cancel safety
/// Cancel safe.
#[must_use = "does nothing unless awaited"]
pub struct Lost {
    signal: CancellationToken,
    signalled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Lost {
    pub(crate) fn new(signal: CancellationToken) -> Self {
        let signalled = Box::pin(signal.clone().cancelled_owned());
        Self { signal, signalled }
    }

    /// Whether it resolved, or would at once.
    pub fn is_signalled(&self) -> bool {
        self.signal.is_cancelled()
    }
}

impl Future for Lost {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.signal.is_cancelled() {
            return Poll::Ready(());
        }
        self.signalled.as_mut().poll(context)
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self::new(self.signal.clone())
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lost").field(&self.is_signalled()).finish()
    }
}
