//! A future that is finished whether or not its caller stays.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

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
    tasks: TaskTracker,
    /// Called when the caller goes away, before the rest is handed over.
    abandoned: Option<Box<dyn FnOnce() + Send>>,
}

impl<T: Send + 'static> Completing<T> {
    pub(crate) fn new(
        work: impl Future<Output = T> + Send + 'static,
        runtime: Handle,
        tasks: TaskTracker,
    ) -> Self {
        Self { work: Some(Box::pin(work)), runtime, tasks, abandoned: None }
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
        // Timers and sockets inside belong to the keeper's runtime, whoever polls.
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
        self.tasks.spawn_on(
            async move {
                work.await;
            },
            &self.runtime,
        );
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
        let tasks = TaskTracker::new();
        let work = Completing::new(
            async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                finish.store(true, Ordering::SeqCst);
            },
            Handle::current(),
            tasks.clone(),
        )
        .or_if_abandoned(move || tell.store(true, Ordering::SeqCst));
        assert!(tokio::time::timeout(Duration::from_secs(1), work).await.is_err());
        assert!(told.load(Ordering::SeqCst) && !done.load(Ordering::SeqCst));
        tasks.close();
        tasks.wait().await;
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_finished_one_hands_nothing_over() {
        let tasks = TaskTracker::new();
        let work = Completing::new(async { 7 }, Handle::current(), tasks.clone())
            .or_if_abandoned(|| panic!("was not abandoned"));
        assert_eq!(work.await, 7);
        assert!(tasks.is_empty());
    }
}
