//! The runtime behind [`blocking`](super), on one thread of its own.

use crate::error::{Error, ErrorKind, Result};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long the last handle waits, when dropped, for releases under way.
const FAREWELL: Duration = Duration::from_secs(5);

/// Renews and releases in the background while callers poll on their own threads.
#[derive(Debug)]
pub(super) struct Engine {
    /// `None` only while being dropped.
    runtime: Option<Runtime>,
    keeper: OnceLock<crate::Keeper>,
}

impl Engine {
    pub(super) fn start() -> Result<Arc<Self>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lockkeeper")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start a background thread")
                    .caused_by(error)
            })?;
        Ok(Arc::new(Self { runtime: Some(runtime), keeper: OnceLock::new() }))
    }

    /// Sets the keeper whose releases are waited for at the end.
    pub(super) fn serve(&self, keeper: &crate::Keeper) {
        let _ = self.keeper.set(keeper.clone());
    }

    /// Polls `work` on this thread until it is done.
    ///
    /// Tokio's own `block_on` panics inside an async function. This one only blocks there, which
    /// is bad manners but no crash.
    pub(super) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        let _entered = self.runtime.as_ref().map(|runtime| runtime.enter());
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut work = pin!(work);
        loop {
            match work.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            self.block_on(keeper.close(FAREWELL));
        }
        if let Some(runtime) = self.runtime.take() {
            // A plain drop would panic inside an async function.
            runtime.shutdown_background();
        }
    }
}
