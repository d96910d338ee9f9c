//! How a store says, unasked, that a claim is gone or in jeopardy.

use crate::loss::LossReason;
use std::fmt;
use std::sync::Arc;

/// What a store has to say of a held claim without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// The claim is gone.
    Lost(LossReason),
    /// The store cannot be reached, so that it is not known how the claim stands. It is renewed at
    /// once, and in jeopardy until that is answered.
    InJeopardy,
}

/// Called by a backend whose store says that a claim is gone, or cannot be reached.
///
/// Cheap, callable from any thread, without effect once the claim is released or lost. Call it
/// outside of locks of your own: a claim that is lost may be released in the same breath.
///
/// A backend made of others hands them alarms of its own:
///
/// ```
/// use lockkeeper::backend::{Alarm, LossReason, Signal};
///
/// let outer = Alarm::new(|signal| println!("the whole is told: {signal:?}"));
/// let inner = Alarm::new(move |signal| match signal {
///     Signal::Lost(_) => outer.ring(LossReason::Gone),
///     other => outer.signal(other),
/// });
/// inner.endanger();
/// ```
#[derive(Clone)]
pub struct Alarm(Arc<dyn Fn(Signal) + Send + Sync>);

impl Alarm {
    /// One that calls `hear`.
    pub fn new(hear: impl Fn(Signal) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    /// Passes on what another alarm was told.
    pub fn signal(&self, signal: Signal) {
        (self.0)(signal);
    }

    /// Says that the claim is gone.
    pub fn ring(&self, reason: LossReason) {
        self.signal(Signal::Lost(reason));
    }

    /// Says that the store cannot be reached: [`Signal::InJeopardy`].
    pub fn endanger(&self) {
        self.signal(Signal::InJeopardy);
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarm")
    }
}
