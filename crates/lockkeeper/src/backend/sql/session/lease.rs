//! A claim that is held in a session.

use super::seats::Held;
use super::{Native, Session, Shared};
use crate::backend::{Alarm, Lease, LossReason, Moment, Release, Standing};
use crate::error::Result;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Keeps the session, and ends the lock in it.
pub(super) struct SessionLease<N: Native> {
    shared: Arc<Shared<N>>,
    held: Arc<Held<N>>,
    /// How long the server keeps the session after each request.
    lease: Duration,
    /// A request to give it back may have been carried out.
    returned: bool,
}

impl<N: Native> SessionLease<N> {
    pub(super) fn new(shared: Arc<Shared<N>>, held: Arc<Held<N>>, lease: Duration) -> Self {
        Self { shared, held, lease, returned: false }
    }
}

#[async_trait]
impl<N: Native> Lease for SessionLease<N> {
    async fn renew(&mut self) -> Result<Standing> {
        let ended = {
            let mut seat = self.held.seat.lock().await;
            let sent = Moment::now();
            match seat.as_mut() {
                None => true,
                Some(there) => match self
                    .shared
                    .native
                    .keep(&mut there.session, &self.held.claim, self.lease)
                    .await
                {
                    Ok(()) => {
                        self.held.renewed(sent + self.lease);
                        return Ok(Standing::HeldFor(self.lease));
                    }
                    Err(_) if there.session.end().is_cancelled() => {
                        *seat = None;
                        true
                    }
                    // It may have been heard all the same.
                    Err(failure) => return Err(self.shared.native.explain(failure)),
                },
            }
        };
        debug_assert!(ended, "an answer returns");
        let reason = match self.held.gone() {
            Some(reason) => reason,
            None => self.shared.why_gone(&self.held).await,
        };
        Ok(Standing::Lost(reason))
    }

    async fn release(&mut self, _: &Release<'_>) -> Result<()> {
        let again = std::mem::replace(&mut self.returned, true);
        match give_back(&self.shared, &self.held, again).await? {
            true => Ok(()),
            false => Err(self.held.gone().unwrap_or(LossReason::Gone).to_error()),
        }
    }

    fn watch(&mut self, alarm: Alarm) {
        self.held.watch(alarm);
    }
}

impl<N: Native> Drop for SessionLease<N> {
    fn drop(&mut self) {
        // Nothing is sent: a drop must need no runtime. The session was given back before, or runs
        // out, since nobody renews it.
        self.held.unwatch();
    }
}

/// Frees the lock; whether the session still had it, as far as that is known. When it is not known
/// whether the request arrived, the session is ended: that frees the lock in any case, but for the
/// debt. Asked `again`, a session that is gone went by the first time, and the debt is erased in
/// another one.
pub(super) async fn give_back<N: Native>(
    shared: &Arc<Shared<N>>,
    held: &Held<N>,
    again: bool,
) -> Result<bool> {
    let mut seat = held.seat.lock().await;
    held.returning();
    let Some(mut taken) = seat.take() else {
        shared.seats.forget(held.claim.id);
        if !again || held.gone().is_some() {
            return Ok(false);
        }
        shared.forgive(&held.claim).await?;
        return Ok(true);
    };
    if taken.session.end().is_cancelled() && !again {
        shared.seats.forget(held.claim.id);
        // Its holder has stopped, so nobody need wait for it. If that cannot be said now, they do.
        let _ = shared.forgive(&held.claim).await;
        return Ok(false);
    }
    let freed = shared.native.free(&mut taken.session, &held.claim).await;
    // The session first: until the claim is forgotten, others wait for it where there is no other.
    match freed {
        Ok(true) => shared.park(taken),
        _ => drop(taken),
    }
    shared.seats.forget(held.claim.id);
    match freed {
        Ok(freed) => Ok(freed),
        // The session ended before the request.
        Err(_) if held.gone().is_some() => Ok(false),
        Err(failure) => Err(shared.native.explain(failure)),
    }
}

impl<N: Native> fmt::Debug for SessionLease<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = &self.held.claim;
        f.debug_struct("SessionLease").field("name", &claim.name).field("id", &claim.id).finish()
    }
}
