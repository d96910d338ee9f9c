//! A node that does not answer, and how it is asked all the same.
//!
//! A node that hangs must cost nothing: not the time of those who ask, and not one more pending
//! request for each of them. So while a node is silent, at most one request at a time is sent there,
//! and not too often; everyone else counts the node as silent without asking.

use crate::backend::Moment;
use crate::backend::support::sync::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How long after one request to a silent node the next may be sent.
const SPACING: Duration = Duration::from_millis(100);

/// Whether a node answers.
#[derive(Debug)]
pub(super) struct Silence {
    silent: AtomicBool,
    probe: Arc<Semaphore>,
    probed: Mutex<Option<Moment>>,
    heard: Notify,
}

/// The right to ask a node; to be kept until the request is over.
#[derive(Debug)]
pub(super) struct Admission {
    _probe: Option<OwnedSemaphorePermit>,
}

impl Silence {
    pub(super) fn new() -> Self {
        let (silent, probe) = (AtomicBool::new(false), Arc::new(Semaphore::new(1)));
        Self { silent, probe, probed: Mutex::default(), heard: Notify::new() }
    }

    /// The right to ask now; `None` while another finds out whether the node is back. With `force`
    /// there is no such limit: for when there is no majority without the silent nodes.
    pub(super) fn admit(&self, force: bool) -> Option<Admission> {
        if force || !self.silent.load(Ordering::Acquire) {
            return Some(Admission { _probe: None });
        }
        let probe = self.probe.clone().try_acquire_owned().ok()?;
        let now = Moment::now();
        let mut probed = lock(&self.probed);
        if probed.is_some_and(|probed| now.since(probed) < SPACING) {
            return None;
        }
        *probed = Some(now);
        Some(Admission { _probe: Some(probe) })
    }

    /// The right to ask, as soon as the node answers others or nobody else is asking; `None` when
    /// that takes until `end`.
    pub(super) async fn admitted(&self, end: Moment) -> Option<Admission> {
        loop {
            let heard = self.heard.notified();
            if let Some(admission) = self.admit(false) {
                return Some(admission);
            }
            if end.remaining().is_zero() {
                return None;
            }
            tokio::select! {
                () = heard => {}
                () = tokio::time::sleep(SPACING.min(end.remaining())) => {}
            }
        }
    }

    /// It answered.
    pub(super) fn is_over(&self) {
        if self.silent.load(Ordering::Relaxed) && self.silent.swap(false, Ordering::AcqRel) {
            self.heard.notify_waiters();
        }
    }

    /// It did not answer.
    pub(super) fn begins(&self) {
        self.silent.store(true, Ordering::Release);
    }

    /// Whether it did not answer when it was asked last.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_node_is_asked_by_one_at_a_time() {
        let silence = Silence::new();
        assert!(silence.admit(false).is_some() && silence.admit(false).is_some());
        silence.begins();
        let probe = silence.admit(false);
        assert!(probe.is_some() && silence.admit(false).is_none());
        assert!(silence.admit(true).is_some(), "without it there is no majority");
        drop(probe);
        assert!(silence.admit(false).is_none(), "too soon");
        tokio::time::sleep(SPACING).await;
        assert!(silence.admit(false).is_some());
        silence.is_over();
        assert!(silence.admit(false).is_some() && silence.admit(false).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_go_on_when_it_answers() {
        let silence = Arc::new(Silence::new());
        silence.begins();
        let _probe = silence.admit(false);
        let waits = silence.clone();
        let end = Moment::now() + Duration::from_secs(60);
        let waiting = tokio::spawn(async move { waits.admitted(end).await.is_some() });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!waiting.is_finished());
        silence.is_over();
        assert!(waiting.await.unwrap());
        silence.begins();
        let soon = Moment::now() + Duration::from_millis(250);
        assert!(silence.admitted(soon).await.is_none());
    }
}
