//! A held claim.

use super::client::BREAKS;
use super::context::Context;
use super::driver;
use super::error::Failure;
use super::queue::Queue;
use super::record::{Granted, micros};
use crate::backend::support::alarms::OwnAlarm;
use crate::backend::{
    Alarm, Claim, FencingToken, Grant, Lease, LossReason, Name, Release, Standing, Ticket,
};
use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// One held claim: that of a grant, or of a ticket from anywhere. Every request names the claim's
/// id, so a lease whose claim is over can do nothing to its successor.
#[derive(Debug)]
pub(super) struct SqlLease {
    context: Arc<Context>,
    name: Name,
    id: String,
    /// Of the grant, where it is known: an id may be asked for again after its claim was lost.
    token: Option<FencingToken>,
    ttl: Duration,
    /// Whether the name had several claims when it was last looked at: then the quick requests,
    /// which are for a claim that is alone, would be in vain.
    crowded: bool,
    /// Whether a release was sent before: then the claim's absence means nothing.
    tried: bool,
    alarm: OwnAlarm,
}

impl SqlLease {
    /// The grant of a claim.
    pub(super) fn grant(context: &Arc<Context>, claim: &Claim, granted: Granted) -> Grant {
        let lease = Self {
            context: context.clone(),
            name: claim.name.clone(),
            id: claim.id.to_string(),
            token: Some(granted.token),
            ttl: claim.ttl,
            crowded: granted.crowded,
            tried: false,
            alarm: OwnAlarm::default(),
        };
        Grant::new(Box::new(lease), Some(granted.token), granted.sent, claim.ttl)
    }

    /// The lease of a claim that any process may have made. Whether it is held is not known here;
    /// the first request tells.
    pub(super) fn of_ticket(context: &Arc<Context>, ticket: &Ticket) -> Self {
        Self {
            context: context.clone(),
            name: ticket.name.clone(),
            id: ticket.id.to_string(),
            token: ticket.token,
            ttl: ticket.ttl,
            crowded: false,
            tried: false,
            alarm: OwnAlarm::default(),
        }
    }

    /// Decides on the whole queue, and remembers whether there is one. `None` for a name without a
    /// row.
    async fn change<T>(&mut self, decide: impl Fn(&mut Queue) -> T) -> Result<Option<T>, Failure> {
        let changed = self.context.change(self.name.as_str(), "", false, decide).await?;
        Ok(changed.map(|changed| {
            self.crowded = changed.crowded;
            changed.outcome
        }))
    }

    /// Takes the alarm of this lease away, if there is one.
    fn unwatch(&mut self) {
        self.context.waiters.unwatch_own(&mut self.alarm, &self.id);
    }

    async fn try_renew(&mut self) -> Result<Standing, Failure> {
        let (requests, name) = (&self.context.requests, self.name.as_str());
        if !self.crowded && requests.extend(name, &self.id, micros(self.ttl)).await? {
            return Ok(Standing::Held);
        }
        let (id, token, ttl) = (self.id.clone(), self.token, self.ttl);
        let standing = self.change(|queue| queue.of(token).renew(&id, ttl)).await?;
        Ok(standing.unwrap_or(Standing::Lost(LossReason::Gone)))
    }

    async fn try_release(&mut self, stay: Duration) -> Result<Option<LossReason>, Failure> {
        let (requests, name) = (&self.context.requests, self.name.as_str());
        // One request for each of the two that are common; what is not one of them is decided.
        if stay.is_zero() {
            let freed = !self.crowded && requests.free(name, &self.id).await?;
            // Others may have stepped in since it was granted.
            if freed || self.context.hand_on(name, &self.id).await? {
                return Ok(None);
            }
        }
        let (id, token) = (self.id.clone(), self.token);
        let release = |queue: &mut Queue| queue.of(token).release(&id, stay);
        let Some(changed) = self.context.change(name, "", false, release).await? else {
            return Ok(Some(LossReason::Gone));
        };
        self.crowded = changed.crowded;
        // What was carried out, and not answered, leaves nothing to be found.
        Ok(changed.outcome.filter(|lost| !changed.doubted || *lost != LossReason::Gone))
    }
}

#[async_trait]
impl Lease for SqlLease {
    /// Extends the claim by the whole ttl, by the database's clock, if it is still held. A claim
    /// that has expired stays lost, even if nobody else has come.
    async fn renew(&mut self) -> Result<Standing> {
        self.try_renew().await.map_err(|failure| self.context.explain(failure))
    }

    /// Not by the quick request, which changes nothing but the expiry.
    async fn take_over(&mut self) -> Result<Standing> {
        let (id, token, ttl) = (self.id.clone(), self.token, self.ttl);
        let standing = self.change(|queue| queue.of(token).take_over(&id, ttl)).await;
        let standing = standing.map_err(|failure| self.context.explain(failure))?;
        Ok(standing.unwrap_or(Standing::Lost(LossReason::Gone)))
    }

    /// Gives the claim back, and in the same change lets the next ones in. The alarm goes first: a
    /// break that is found from here on is reported by the answer of the release, and not twice.
    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        self.unwatch();
        let mut released = self.try_release(how.stay()).await;
        let mut tried = std::mem::replace(&mut self.tried, true);
        let mut breaks = 0;
        while breaks < BREAKS && released.as_ref().is_err_and(Failure::allows_second_try) {
            (tried, breaks) = (true, breaks + 1);
            released = self.try_release(how.stay()).await;
        }
        match released.map_err(|failure| self.context.explain(failure))? {
            None => Ok(()),
            Some(LossReason::Gone) if tried => Ok(()),
            Some(lost) => Err(lost.to_error()),
        }
    }

    fn watch(&mut self, alarm: Alarm) {
        self.context.waiters.watch(&mut self.alarm, &self.id, alarm);
        driver::start(&self.context);
    }
}

impl Drop for SqlLease {
    fn drop(&mut self) {
        // A detached claim has nobody left to alarm. The claim stays, for the ticket's new owner
        // or until it expires; `Drop` does no I/O.
        self.unwatch();
    }
}
