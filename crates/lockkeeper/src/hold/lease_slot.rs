//! Where the lease of a hold is while it lives: at rest, with a renewal, or given back.

use crate::backend::Lease;
use crate::error::Result;
use tokio::sync::oneshot;

/// Where the lease is.
pub(crate) enum Slot {
    Here(Box<dyn Lease>),
    /// A renewal has it and, when it is back, does this with it.
    Renewing(Afterwards),
    /// It was given back, or is being.
    Given,
}

/// What a renewal does with the lease when it is through.
pub(crate) enum Afterwards {
    Return,
    Release { told: Option<Teller> },
    Forget,
}

pub(crate) type Teller = oneshot::Sender<Result<()>>;

impl Slot {
    /// Takes the lease if it is here, leaving `instead`; otherwise changes nothing.
    pub(crate) fn take(&mut self, instead: Slot) -> Option<Box<dyn Lease>> {
        match std::mem::replace(self, Slot::Given) {
            Slot::Here(lease) => {
                *self = instead;
                Some(lease)
            }
            other => {
                *self = other;
                None
            }
        }
    }
}
