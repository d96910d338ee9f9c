//! Polls the futures of the async keeper on the calling thread.

use crate::clock::Moment;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// How long the last handle waits, when dropped, for releases under way.
const FAREWELL: Duration = Duration::from_secs(5);

/// Lets callers poll on their own threads, and waits at the end for what they left behind.
#[derive(Debug, Default)]
pub(super) struct Runtime {
    keeper: OnceLock<crate::Keeper>,
}

impl Runtime {
    /// Sets the keeper whose releases are waited for at the end.
    pub(super) fn serve(&self, keeper: &crate::Keeper) {
        let _ = self.keeper.set(keeper.clone());
    }

    /// Polls `work` on this thread until it is done.
    ///
    /// Tokio's own `block_on` panics inside an async function. This one only blocks there, which
    /// is bad manners but no crash.
    pub(super) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        poll_here(work, thread::park)
    }
}

/// Polls `work` on this thread until it is done, or until `limit`: then `None`.
pub(crate) fn block_on_within<T>(work: impl Future<Output = T>, limit: Duration) -> Option<T> {
    let until = Moment::now() + limit;
    let over = std::cell::Cell::new(false);
    let work = pin!(work);
    let race = std::future::poll_fn({
        let (over, mut work) = (&over, work);
        move |context| match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if over.get() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    poll_here(race, || {
        thread::park_timeout(until.remaining());
        over.set(until.remaining().is_zero());
    })
}

fn poll_here<T>(work: impl Future<Output = T>, wait: impl Fn()) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut work = pin!(work);
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => wait(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            self.block_on(keeper.close(FAREWELL));
        }
    }
}
