//! Mutexes that no panic can spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a thread panicked with the lock held. Only for values that are whole whenever
/// code runs that can panic: that is the rule in this crate.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
