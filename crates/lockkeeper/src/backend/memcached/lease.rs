//! A held claim: all that is needed to keep it is the key and the id, so that any keeper can.

use super::requests::{Found, Held, Locks};
use crate::backend::support::alarms::OwnAlarm;
use crate::backend::{Alarm, Lease, LossReason, Moment, Release, Standing};
use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct MemcachedLease {
    locks: Arc<Locks>,
    held: Held,
    ttl: Duration,
    /// A release was tried, and may have been carried out.
    is_released: bool,
    alarm: OwnAlarm,
}

impl MemcachedLease {
    pub(super) fn new(locks: Arc<Locks>, held: Held, ttl: Duration) -> Self {
        Self { locks, held, ttl, is_released: false, alarm: OwnAlarm::default() }
    }

    /// Lets its own alarm go. A lease made by a ticket leaves the holder's alone.
    fn unwatch(&mut self) {
        self.alarm.unwatch(&self.locks.alarms, &self.held.id);
    }

    /// Why the claim is not there any more.
    async fn lost(&self) -> Result<LossReason> {
        Ok(match self.locks.broken(&self.held).await? {
            Some(reason) => LossReason::Broken { reason },
            None => LossReason::Gone,
        })
    }
}

#[async_trait]
impl Lease for MemcachedLease {
    /// One request, unless an answer was lost since the last one. Counts from the reading of the
    /// server's clock that vouches for it, which may be a little before the renewal was asked for.
    async fn renew(&mut self) -> Result<Standing> {
        let begun = Moment::now();
        let kept = self.held.keep(&self.locks).await;
        match kept.map_err(|failure| self.locks.explain(&failure, &self.held.place))? {
            Found::Ours(since) if since >= begun => Ok(Standing::Held),
            Found::Ours(since) => {
                Ok(Standing::HeldFor(self.ttl.saturating_sub(begun.since(since))))
            }
            Found::Others | Found::Nothing => Ok(Standing::Lost(self.lost().await?)),
        }
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        self.unwatch();
        let again = std::mem::replace(&mut self.is_released, true);
        let removed = self.held.remove(&self.locks, how.stay()).await;
        match removed {
            Ok(Found::Ours(_)) => {
                if how.stay().is_zero() {
                    self.locks.waiters.released(&self.held.place.key);
                }
                Ok(())
            }
            Ok(Found::Others | Found::Nothing) if again => Ok(()),
            Ok(Found::Others | Found::Nothing) => Err(self.lost().await?.to_error()),
            Err(failure) => Err(self.locks.explain(&failure, &self.held.place)),
        }
    }

    fn watch(&mut self, alarm: Alarm) {
        self.alarm.watch(&self.locks.alarms, &self.held.id, alarm);
    }
}

impl Drop for MemcachedLease {
    fn drop(&mut self) {
        // A detached claim has no holder to alarm.
        self.unwatch();
    }
}
