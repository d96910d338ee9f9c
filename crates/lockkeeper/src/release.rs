//! How a claim is to be given back.

use std::fmt;
use std::time::Duration;

/// How a claim is to be given back, told to a [`Lease`](crate::backend::Lease).
pub struct Release<'a> {
    stay: Duration,
    over: Option<&'a (dyn Fn() + Send + Sync)>,
}

impl<'a> Release<'a> {
    /// At once.
    pub fn now() -> Self {
        Self::after(Duration::ZERO)
    }

    /// Once `stay` has passed.
    pub fn after(stay: Duration) -> Self {
        Self { stay, over: None }
    }

    /// Has `over` called when the claim is over for its holder before the store has said so.
    pub fn or_over(mut self, over: &'a (dyn Fn() + Send + Sync)) -> Self {
        self.over = Some(over);
        self
    }

    /// For how long nobody else may have the name yet, although the work is done: what is left of
    /// `min_hold`. Zero unless [`Capability::min_hold`](crate::backend::Capability::min_hold).
    pub fn stay(&self) -> Duration {
        self.stay
    }

    /// Says that the name passes, right now, to another claim of the same keeper. This one is over
    /// with that, whatever the store answers. For leases whose keeper may say so before the store
    /// knows; called at most once, before the first request is sent, and only without a
    /// [`stay`](Self::stay).
    pub fn over(&self) {
        if let Some(over) = self.over {
            over();
        }
    }
}

impl fmt::Debug for Release<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Release").field("stay", &self.stay).finish_non_exhaustive()
    }
}
