//! A future that is finished whether or not its caller stays.

use crate::background::Background;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs `work` inside the caller's own task and, should the caller drop it half-way, hands the
/// rest to a task of its own.
///
/// This is what makes every public future cancel safe while a backend's need not be. Spawning
/// the work from the start would do that too, but costs two hops between threads for each call:
/// on the thread of `block_on` that is more than the rest of an uncontended acquire and release.
pub(crate) struct Completing<T: Send + 'static> {
    work: Option<Work<T>>,
    runtime: Handle,
    background: Background,
    /// Called when the caller goes away, before the rest is handed over.
    abandoned: Option<Box<dyn FnOnce() + Send>>,
    /// Whether the rest counts as work under way.
    counts: bool,
}

impl<T: Send + 'static> Completing<T> {
    pub(crate) fn new(
        work: impl Future<Output = T> + Send + 'static,
        runtime: Handle,
        background: Background,
    ) -> Self {
        Self { work: Some(Box::pin(work)), runtime, background, abandoned: None, counts: true }
    }

    /// For work that waits until nothing else is under way: should the caller leave, the rest is not
    /// counted, or it would wait for itself.
    pub(crate) fn uncounted(mut self) -> Self {
        self.counts = false;
        self
    }

    pub(crate) fn or_if_abandoned(mut self, then: impl FnOnce() + Send + 'static) -> Self {
        self.abandoned = Some(Box::new(then));
        self
    }
}

impl<T: Send + 'static> Future for Completing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        // Timers inside belong to the keeper's own runtime, whatever executor polls: those of a
        // runtime that ended cannot be polled any more.
        let _entered = this.runtime.enter();
        let Some(work) = this.work.as_mut() else { return Poll::Pending };
        let poll = work.as_mut().poll(context);
        if poll.is_ready() {
            this.work = None;
        }
        poll
    }
}

impl<T: Send + 'static> Drop for Completing<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if let Some(abandoned) = self.abandoned.take() {
            abandoned();
        }
        let rest = async move {
            work.await;
        };
        match self.counts {
            true => self.background.spawn(rest),
            false => self.background.drive(rest),
        }
    }
}

/// Polls a future with a runtime entered, so that its timers are that runtime's.
pub(crate) struct Entered<'a, T> {
    work: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    runtime: Handle,
}

impl<'a, T> Entered<'a, T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'a, runtime: Handle) -> Self {
        Self { work: Box::pin(work), runtime }
    }
}

impl<T> Future for Entered<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let _entered = this.runtime.enter();
        this.work.as_mut().poll(context)
    }
}

impl<T: Send + 'static> fmt::Debug for Completing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completing").field("done", &self.work.is_none()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_rest_is_done_after_the_caller_left() {
        let (done, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (finish, tell) = (done.clone(), told.clone());
        let background = Background::new();
        let work = background
            .completing(async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                finish.store(true, Ordering::SeqCst);
            })
            .unwrap()
            .or_if_abandoned(move || tell.store(true, Ordering::SeqCst));
        assert!(tokio::time::timeout(Duration::from_secs(1), work).await.is_err());
        assert!(told.load(Ordering::SeqCst) && !done.load(Ordering::SeqCst));
        assert!(background.idle(Duration::from_secs(5)).await);
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_finished_one_hands_nothing_over() {
        let background = Background::new();
        let work = background.completing(async { 7 }).unwrap();
        let work = work.or_if_abandoned(|| panic!("was not abandoned"));
        assert_eq!(work.await, 7);
        assert!(background.is_idle());
    }
}
