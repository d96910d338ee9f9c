//! A held claim: its note beside the lock, by which any keeper can renew it and give it back.

use super::Shared;
use super::keys::Keys;
use crate::backend::support::alarms::OwnAlarm;
use crate::backend::{Alarm, Lease, Release, Standing};
use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// What keeps a claim and gives it back.
#[derive(Debug)]
pub(super) struct ReentrantLease {
    pub(super) shared: Arc<Shared>,
    pub(super) keys: Keys,
    pub(super) id: String,
    pub(super) ttl: Duration,
    /// Others may have the claim, too.
    pub(super) by_ticket: bool,
    pub(super) alarm: OwnAlarm,
}

impl ReentrantLease {
    /// Takes the alarm of this lease away, if there is one.
    fn unwatch(&mut self) {
        self.alarm.unwatch(&self.shared.alarms, &self.id);
    }
}

#[async_trait]
impl Lease for ReentrantLease {
    async fn renew(&mut self) -> Result<Standing> {
        let requests = &self.shared.requests;
        let standing = requests.renew(&self.keys, &self.id, self.ttl, self.by_ticket).await?;
        // So that a broken lock is heard of at once, not at the next renewal.
        self.shared.subscriber.try_for(self.ttl / 10).await;
        Ok(standing)
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        self.unwatch();
        self.shared.requests.release(&self.keys, &self.id, how.stay(), false).await
    }

    fn watch(&mut self, alarm: Alarm) {
        self.alarm.watch(&self.shared.alarms, &self.id, alarm);
    }
}

impl Drop for ReentrantLease {
    fn drop(&mut self) {
        // A detached claim has no holder to alarm.
        self.unwatch();
    }
}
