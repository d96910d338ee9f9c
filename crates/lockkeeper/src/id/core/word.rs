//! The atomic word that the lock-free parts are made of.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is asked of an atomic word of 64 bits. A model of every order of steps brings its own.
pub(crate) trait Word: Send + Sync {
    fn new(value: u64) -> Self;
    /// Sees everything that came before the [`store`](Self::store) whose value it returns.
    fn load(&self) -> u64;
    fn store(&self, value: u64);
    /// Returns the value of before.
    fn fetch_add(&self, by: u64) -> u64;
    /// Whether it was `before`, and is `after` now.
    fn replace(&self, before: u64, after: u64) -> bool;
}

impl Word for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    #[inline]
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    #[inline]
    fn fetch_add(&self, by: u64) -> u64 {
        self.fetch_add(by, Ordering::AcqRel)
    }

    #[inline]
    fn replace(&self, before: u64, after: u64) -> bool {
        self.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A word on cache lines of its own: what many threads write must not slow down what they read.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Apart<W>(pub(crate) W);
