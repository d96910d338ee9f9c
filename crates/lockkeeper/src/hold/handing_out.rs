//! Before a claim is handed out, the store is asked once more.

use super::{Hold, Phase};
use crate::backend::Standing;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::lost_error;
use crate::hold::lease_slot::{Afterwards, Slot};
use crate::terms::unsupported;
use std::sync::Arc;
use std::time::Duration;

/// How often to look whether a renewal that is under way is through.
const GLANCE: Duration = Duration::from_millis(2);

impl Hold {
    /// # Errors
    /// When no ticket could stand for this claim.
    pub(crate) fn may_be_handed_out(&self) -> Result<()> {
        if !self.engine.backend.capability().portable {
            return Err(unsupported(&self.engine, "tickets", |capability| capability.portable));
        }
        if self.bounds.min_hold.is_some() || self.bounds.max_hold.is_some() {
            let message = "a claim with min_hold or max_hold cannot be handed out: its ticket would \
                           not keep to them";
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(())
    }

    /// Has the store confirm the claim, so that it is kept for a whole ttl and by its ticket alone.
    pub(crate) async fn confirm(self: &Arc<Self>) -> Result<()> {
        let lease = loop {
            let lost = || lost_error(&self.claim.name, self.lost_reason());
            let lease = {
                let mut state = self.state();
                let is_held = state.phase == Phase::Held;
                is_held.then(|| state.lease.take(Slot::Renewing(Afterwards::Return)))
            };
            match lease.ok_or_else(lost)? {
                Some(lease) => break lease,
                // A renewal has it: rare, and over in a round trip.
                None => tokio::time::sleep(GLANCE).await,
            }
        };
        match self.clone().ask(lease, true).await {
            Ok(Standing::Lost(reason)) => Err(lost_error(&self.claim.name, Some(reason))),
            // An answer that came after the deadline is not believed.
            Ok(_) if self.remaining().is_zero() => {
                Err(lost_error(&self.claim.name, self.lost_reason()))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
