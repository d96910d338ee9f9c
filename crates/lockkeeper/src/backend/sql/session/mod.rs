//! Locks that live in a session of the database: `advisory`, `get-lock` and `for-update`.
//!
//! A claim has a session of its own, on a connection of its own, for as long as it is held. The
//! database frees the lock when that session ends, whatever the reason. Two things keep a second
//! holder out until the first one has stopped believing:
//!
//! - A session that says nothing is ended by the server no earlier than its holder stops believing.
//! - A session that is **cut** ends at once, and its holder may not hear of it. So the row of each
//!   holder says until when it may believe ("its debt"), and giving back erases that. Who takes a
//!   lock and finds a debt keeps the lock to itself and waits until the debt is over.
//!
//! ```text
//!   holder                                   server
//!   ──────                                   ──────
//!   sent ──── a request ───────────────────► runs it, answers, and starts to count the silence
//!    │  ◄──── the answer ─────────────────── │
//!    │                                       │
//!    │ valid until sent + lease - margin     │ ends the session after `lease` of silence
//!    ▼                                       ▼
//!   stops believing             first        frees the lock        later
//! ```
//!
//! The server counts from its answer, the holder from before its request, so the holder is always
//! the first, also behind a black hole, and also when its process is paused. The lease of the
//! session is the claim's ttl, at most the option `session`; the engine's renewals are the requests
//! that keep it. Rejected: keepalives of TCP as the lease, which go on for a process that is paused,
//! and which a proxy answers in its place.
//!
//! | what if | then |
//! |---|---|
//! | the holder's process dies | its connection ends; the next one waits until its lease is over, since a cut connection looks the same. With `free_on_disconnect` it does not wait |
//! | the holder is paused, or behind a black hole | the server ends the session after `lease` |
//! | somebody ends the session (`pg_terminate_backend`, `KILL`) | the holder is told: by the end of the connection, or by the next look at it ([`Native::LOOK`]) |
//! | the server dies, restarts, or a standby takes its place | its memory of locks is gone, so it grants nothing until every lease of before is over: [`servers`] |
//! | something in between ends the connection | the server frees the lock at once, and the next one waits until the holder's lease is over, or the holder gives back. With `free_on_disconnect` two may hold until the first hears of the end: only a token helps then |
//!
//! Waiting is the database's own. Of the claims of one keeper that wait for one name, one waits in
//! the server, and the others behind it in this process, in their order ([`lanes`]).

#[cfg(feature = "mysql")]
pub(super) mod holders;
pub(super) mod lanes;
pub(super) mod lease;
#[cfg(feature = "mysql")]
pub(super) mod mysql;
#[cfg(feature = "postgres")]
pub(super) mod postgres;
pub(super) mod seats;
pub(super) mod servers;

use super::checkup::Examined;
use super::error::Failure;
use crate::backend::{
    Backend, Background, Capability, Claim, FencingToken, Finding, Grant, Inspector, LockView,
    LossReason, Mode, Moment, Name, Patience,
};
use crate::error::Result;
use async_trait::async_trait;
use lease::SessionLease;
use seats::{Seat, Seats};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest that a claim waits in the server before it looks whether its caller is still there.
const SLICE: Duration = Duration::from_secs(1);
/// The shortest that it makes sense to wait there.
const SHORTEST: Duration = Duration::from_millis(2);
/// How long the server keeps a session in which nothing is held.
pub(super) const UNUSED: Duration = Duration::from_secs(60);

/// What a recipe of this kind asks of its database. Every request has a time limit of its own.
#[async_trait]
pub(super) trait Native: fmt::Debug + fmt::Display + Send + Sync + Sized + 'static {
    /// A connection with what we know of its session.
    type Session: Session;

    /// How often the sessions of held claims are looked after, where their driver does not say by
    /// itself that a connection ended.
    const LOOK: Option<Duration>;

    fn capability(&self) -> Capability;

    /// As the URL calls it.
    fn recipe(&self) -> &'static str;

    /// The longest lease.
    fn longest(&self) -> Duration;

    /// Connects, and makes sure that a lock in this session means something.
    async fn open(&self) -> Result<Self::Session>;

    /// Takes the lock if it is free and nobody may believe in it any more, and writes down who has
    /// it, in one round trip.
    async fn try_take(
        &self,
        session: &mut Self::Session,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure>;

    /// Waits in the server until the lock is ours, for `slice` at most; whether it is. It is not
    /// written down yet.
    async fn wait(
        &self,
        session: &mut Self::Session,
        claim: &Claim,
        slice: Duration,
    ) -> Result<bool, Failure>;

    /// Writes down who has the lock that this session took, and starts its lease anew.
    async fn record(
        &self,
        session: &mut Self::Session,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Failure>;

    /// Writes down that the holder believes for another lease. The session is there, and with it the
    /// lock, unless this fails.
    async fn keep(
        &self,
        session: &mut Self::Session,
        claim: &Claim,
        lease: Duration,
    ) -> Result<(), Failure>;

    /// Gives the lock back and erases its holder's debt; whether the session had it.
    async fn free(&self, session: &mut Self::Session, claim: &Claim) -> Result<bool, Failure>;

    /// Lets go of a lock that was never granted. The debt of the holder before stays.
    async fn leave(&self, session: &mut Self::Session, claim: &Claim) -> Result<(), Failure>;

    /// Erases the debt of a claim in which nobody believes, and whose session is gone.
    async fn forgive(&self, session: &mut Self::Session, claim: &Claim) -> Result<(), Failure>;

    /// Why the session of a claim ended, as far as the database knows.
    async fn why_gone(
        &self,
        session: &mut Self::Session,
        name: &Name,
        token: FencingToken,
    ) -> LossReason;

    /// Which of these names are not locked by these sessions any more, by their place in the list.
    async fn missing(
        &self,
        session: &mut Self::Session,
        held: &[(&Name, u64)],
    ) -> Result<Vec<usize>, Failure> {
        let _ = (session, held);
        Ok(Vec::new())
    }

    /// Every lock that is held or waited for whose name begins with `text`, or is it.
    async fn look(
        &self,
        session: &mut Self::Session,
        text: &str,
        whole: bool,
    ) -> Result<Vec<LockView>, Failure> {
        let _ = (session, text, whole);
        Ok(Vec::new())
    }

    /// Ends the session of the holder with this token; whether there was one.
    async fn break_hold(
        &self,
        session: &mut Self::Session,
        name: &Name,
        token: FencingToken,
        reason: &str,
    ) -> Result<bool, Failure> {
        let _ = (session, name, token, reason);
        Ok(false)
    }

    /// Lets go of connections beside the sessions, on which nothing is under way.
    fn disconnect(&self) {}

    /// What the database calls the lock.
    fn keys(&self, name: &Name) -> Vec<String>;

    /// The server, to be asked how it is.
    fn server(&self) -> &dyn Examined;

    /// The error for a failure of a request.
    fn explain(&self, failure: Failure) -> crate::Error;
}

/// What came of the attempt to take a lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attempt {
    /// Another session has it.
    Busy,
    Taken(Taken),
    /// This session has it, and an earlier holder that did not give back may believe in it for as
    /// long as this.
    Owed(Duration),
}

/// A lock that was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) token: FencingToken,
}

/// A connection with a session.
pub(super) trait Session: Send + Sync + 'static {
    /// Cancelled when it is known that the connection ended.
    fn end(&self) -> CancellationToken;

    /// True, once the connection ended, if somebody may have ended it who wrote down why. Else it
    /// broke, and its holder is told at once: every moment of looking for a reason is one in which
    /// two may hold.
    fn farewell(&self) -> Arc<AtomicBool>;

    /// What the database calls it.
    fn number(&self) -> u64;

    /// Nothing may be granted in it before.
    fn not_before(&self) -> Moment;

    /// How long the server keeps it now while nothing is asked of it, if that may be shorter than
    /// we would keep it.
    fn kept(&self) -> Option<Duration> {
        None
    }
}

/// The backend of a recipe whose locks live in sessions.
pub(super) struct SessionLocks<N: Native> {
    shared: Arc<Shared<N>>,
}

/// What the backend and its leases share.
pub(super) struct Shared<N: Native> {
    pub(super) native: N,
    pub(super) seats: Seats<N>,
    lanes: lanes::Lanes,
}

impl<N: Native> SessionLocks<N> {
    /// At most `most` sessions at once.
    pub(super) fn new(native: N, most: usize, background: &Background) -> Self {
        let (seats, lanes) = (Seats::new(most, background.clone()), lanes::Lanes::default());
        Self { shared: Arc::new(Shared { native, seats, lanes }) }
    }

    /// Connects once, so that what does not fit is told when the keeper is made, and the first claim
    /// need not connect.
    pub(super) async fn prepare(&self) -> Result<()> {
        let seat = self.shared.clone().seat().await?;
        self.shared.park(seat);
        Ok(())
    }

    /// Takes the lock, in the server's own order, or not.
    async fn contend(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let lease = claim.ttl.min(self.shared.native.longest());
        let waits = !patience.is_over();
        let _lane = if waits {
            let Some(lane) = self.shared.lanes.enter(&claim.name, patience).await else {
                return Ok(None);
            };
            Some(lane)
        } else {
            None
        };
        let mut seat = self.shared.clone().seat().await?;
        let young = seat.session.not_before();
        if !young.remaining().is_zero() {
            if waits {
                tokio::select! { () = young.reached() => {}, () = patience.over() => {} }
            }
            if !young.remaining().is_zero() {
                self.shared.park(seat);
                return Ok(None);
            }
        }
        let mut sent = Moment::now();
        let native = &self.shared.native;
        let fail = |failure: Failure| native.explain(failure);
        // Behind a claim of this keeper, a try would be in vain.
        let behind = claim.mode == Mode::Exclusive && self.shared.seats.holds(&claim.name);
        let mut attempt = if waits && behind {
            Attempt::Busy
        } else {
            let asked = self.shared.seats.in_doubt(claim.id);
            let tried = native.try_take(&mut seat.session, claim, lease).await;
            asked.answered(tried).map_err(fail)?
        };
        loop {
            match attempt {
                Attempt::Taken(taken) => {
                    return Ok(Some(self.grant(seat, claim, taken, sent, lease)));
                }
                Attempt::Owed(debt) if !debt.is_zero() && patience.is_over() => {
                    native.leave(&mut seat.session, claim).await.map_err(fail)?;
                    self.shared.park(seat);
                    return Ok(None);
                }
                // The lock stays with this session. It is asked again before the session runs out,
                // and because the debt may be erased, by its holder's retry or by an operator.
                Attempt::Owed(debt) => {
                    patience.heard();
                    patience.queued(0);
                    tokio::select! {
                        () = tokio::time::sleep(debt.min(lease / 3).min(SLICE)) => {}
                        () = patience.over() => {}
                    }
                }
                Attempt::Busy if patience.is_over() => {
                    self.shared.park(seat);
                    return Ok(None);
                }
                Attempt::Busy => {
                    patience.queued(0);
                    let slice = patience.remaining().unwrap_or(SLICE).clamp(SHORTEST, SLICE);
                    if !native.wait(&mut seat.session, claim, slice).await.map_err(fail)? {
                        patience.heard();
                        continue;
                    }
                }
            }
            // The lease that counts begins here, not when the wait began.
            sent = Moment::now();
            let asked = self.shared.seats.in_doubt(claim.id);
            let recorded = native.record(&mut seat.session, claim, lease).await;
            attempt = asked.answered(recorded).map_err(fail)?;
        }
    }

    fn grant(
        &self,
        seat: Seat<N>,
        claim: &Claim,
        taken: Taken,
        sent: Moment,
        lease: Duration,
    ) -> Grant {
        let held = self.shared.seats.occupy(seat, claim, taken, sent + lease);
        let lease_of = SessionLease::new(self.shared.clone(), held, lease);
        Grant::new(Box::new(lease_of), Some(taken.token), sent, lease)
    }
}

#[async_trait]
impl<N: Native> Backend for SessionLocks<N> {
    fn capability(&self) -> Capability {
        self.shared.native.capability()
    }

    fn recipe(&self) -> &'static str {
        self.shared.native.recipe()
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        // A failure drops the seat, and with it the session and whatever was taken in it.
        self.contend(claim, patience).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        match self.shared.seats.held(claim.id) {
            Some(held) => lease::give_back(&self.shared, &held, false).await.map(|_| ()),
            // Its session is gone, and it may be written down all the same.
            None if self.shared.seats.is_in_doubt(claim.id) => {
                self.shared.forgive(claim).await?;
                self.shared.seats.know(claim.id);
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn close(&self) -> Result<()> {
        self.shared.seats.end_unused();
        self.shared.native.disconnect();
        Ok(())
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.capability().inspects.then_some(self)
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        self.shared.native.keys(name)
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        self.shared.native.server().checkup().await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        self.shared.native.server().round_trips(count).await
    }
}

/// Looks in a session in which nothing is held.
#[async_trait]
impl<N: Native> Inspector for SessionLocks<N> {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let (shared, mut session) = (&self.shared, self.shared.aside().await?);
        let views = shared.native.look(&mut session, prefix, false).await;
        let views = views.map_err(|failure| shared.native.explain(failure))?;
        shared.put_back(session);
        Ok(views)
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        let (shared, mut session) = (&self.shared, self.shared.aside().await?);
        let views = shared.native.look(&mut session, name.as_str(), true).await;
        let views = views.map_err(|failure| shared.native.explain(failure))?;
        shared.put_back(session);
        Ok(views.into_iter().next().unwrap_or_else(|| LockView::new(name.clone())))
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let (shared, mut session) = (&self.shared, self.shared.aside().await?);
        let broken = shared.native.break_hold(&mut session, name, token, reason).await;
        let broken = broken.map_err(|failure| shared.native.explain(failure))?;
        shared.put_back(session);
        Ok(broken)
    }
}

impl<N: Native> fmt::Display for SessionLocks<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.shared.native, f)
    }
}

impl<N: Native> fmt::Debug for SessionLocks<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionLocks").field("native", &self.shared.native).finish_non_exhaustive()
    }
}
