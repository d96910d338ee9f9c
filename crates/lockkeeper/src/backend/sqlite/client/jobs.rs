//! The jobs that wait for a transaction.

use super::super::error::copy_of;
use super::transaction::Job;
use crate::backend::support::sync::lock;
use crate::error::Error;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Jobs that no transaction has taken yet.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// In the order in which they came. A job that was rolled back with others is put back at the
    /// front.
    queue: Mutex<VecDeque<Box<dyn Job>>>,
    /// How many of the next jobs are to have a transaction to themselves: not zero after a shared
    /// transaction failed.
    alone: AtomicUsize,
}

impl Jobs {
    pub(super) fn push(&self, job: Box<dyn Job>) {
        lock(&self.queue).push_back(job);
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty()
    }

    /// All jobs in the queue, or only the first while they are to be run one by one. May be empty:
    /// another caller may have run the job that this one came for.
    pub(super) fn take(&self) -> VecDeque<Box<dyn Job>> {
        let mut queue = lock(&self.queue);
        match self.alone.load(Ordering::Relaxed) {
            0 => std::mem::take(&mut *queue),
            left => {
                self.alone.store(left - 1, Ordering::Relaxed);
                queue.pop_front().into_iter().collect()
            }
        }
    }

    /// Puts jobs back to be run one by one.
    pub(super) fn put_back(&self, jobs: VecDeque<Box<dyn Job>>) {
        let mut queue = lock(&self.queue);
        self.alone.store(jobs.len(), Ordering::Relaxed);
        jobs.into_iter().rev().for_each(|job| queue.push_front(job));
    }

    /// Tells every caller that the file cannot be used.
    pub(super) fn fail(&self, error: &Error) {
        let jobs = std::mem::take(&mut *lock(&self.queue));
        self.alone.store(0, Ordering::Relaxed);
        jobs.into_iter().for_each(|job| job.finish(Err(copy_of(error))));
    }
}
