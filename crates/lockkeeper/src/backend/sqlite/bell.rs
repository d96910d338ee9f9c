//! How the clerk is woken.

use super::desk::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes the clerk.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    sound: Condvar,
    /// Whether the clerk sleeps for long, or is about to, and so must be woken for small things.
    pub(super) fast_asleep: AtomicBool,
}

impl Bell {
    pub(super) fn ring(&self) {
        *lock(&self.rung) = true;
        self.sound.notify_one();
    }

    /// Sleeps until rung, or for at most `limit`; whether it was rung.
    pub(super) fn wait(&self, limit: Option<Duration>) -> bool {
        let rung = lock(&self.rung);
        let mut rung = match limit {
            None => {
                let woken = self.sound.wait_while(rung, |rung| !*rung);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
            Some(limit) => {
                let woken = self.sound.wait_timeout_while(rung, limit, |rung| !*rung);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        self.fast_asleep.store(false, Ordering::SeqCst);
        std::mem::take(&mut *rung)
    }
}
