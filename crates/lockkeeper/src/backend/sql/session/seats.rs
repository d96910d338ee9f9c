//! The sessions of a keeper: those in which a claim is held, those kept for the next one, and the
//! look-out for sessions that end.

use super::super::error::Failure;
use super::{Native, Session, Shared, Taken};
use crate::backend::support::sync::lock;
use crate::backend::{Alarm, Background, Claim, ClaimId, FencingToken, LossReason, Moment, Name};
use crate::error::{Error, ErrorKind, Result};
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// For how long a session without a claim is kept for the next one.
pub(in crate::backend::sql) const KEPT: Duration = Duration::from_secs(5);
/// How long the look for the reason of a loss may take, before the holder is told without it.
const REASON: Duration = Duration::from_secs(1);
/// How long a claim waits for the session of one that is being given back, where all are in use.
const RETURNING: Duration = Duration::from_secs(1);

/// A session that is nobody's but the caller's.
pub(in crate::backend::sql) struct Seat<N: Native> {
    pub(super) session: N::Session,
    /// What is held in it, for its look-out.
    occupant: Arc<Mutex<Weak<Held<N>>>>,
    /// Counts it as one of the most there may be.
    _place: OwnedSemaphorePermit,
}

/// Whether a session that was last used at `since` can be used again.
fn is_fresh(session: &impl Session, since: Moment) -> bool {
    let kept = session.kept().map_or(KEPT, |server| KEPT.min(server / 2));
    !session.end().is_cancelled() && Moment::now().since(since) < kept
}

/// A claim that is held.
pub(super) struct Held<N: Native> {
    pub(super) claim: Claim,
    pub(super) token: FencingToken,
    /// What the database calls its session.
    session: u64,
    end: CancellationToken,
    /// See [`Session::farewell`].
    farewell: Arc<AtomicBool>,
    /// `None` once it is given back, or known to have ended.
    pub(super) seat: tokio::sync::Mutex<Option<Seat<N>>>,
    state: Mutex<State>,
}

struct State {
    /// When the lease is over unless it is renewed before.
    over: Moment,
    alarm: Option<Alarm>,
    /// Why the claim is gone, if it is.
    gone: Option<LossReason>,
    /// It is being given back.
    returned: bool,
}

/// All of them.
pub(in crate::backend::sql) struct Seats<N: Native> {
    places: Arc<Semaphore>,
    most: usize,
    background: Background,
    unused: Mutex<Vec<(Seat<N>, Moment)>>,
    /// One more of those is there.
    parked: Notify,
    /// One more, for questions.
    extra: Mutex<Option<(N::Session, Moment)>>,
    /// Also those whose lease was dropped without giving back: their sessions run out.
    held: Mutex<HashMap<ClaimId, Arc<Held<N>>>>,
    /// Those for which the server was asked to write down a holder, and whose answer did not come.
    in_doubt: Mutex<HashSet<ClaimId>>,
    /// A claim is held whose lease may be over before the next look.
    news: Arc<Notify>,
    /// When the sessions of held claims are looked at next.
    next_look: Mutex<Moment>,
    /// Whether the sessions of held claims are being looked after.
    looked_after: AtomicBool,
}

impl<N: Native> Seats<N> {
    pub(super) fn new(most: usize, background: Background) -> Self {
        let places = Arc::new(Semaphore::new(most));
        Self {
            places,
            most,
            background,
            unused: Mutex::default(),
            parked: Notify::new(),
            extra: Mutex::default(),
            held: Mutex::default(),
            in_doubt: Mutex::default(),
            news: Arc::default(),
            next_look: Mutex::new(Moment::now()),
            looked_after: AtomicBool::new(false),
        }
    }

    /// From now on the claim is held in this session.
    pub(super) fn occupy(
        &self,
        seat: Seat<N>,
        claim: &Claim,
        taken: Taken,
        over: Moment,
    ) -> Arc<Held<N>> {
        let occupant = seat.occupant.clone();
        let held = Arc::new(Held {
            claim: claim.clone(),
            token: taken.token,
            session: seat.session.number(),
            end: seat.session.end(),
            farewell: seat.session.farewell(),
            seat: tokio::sync::Mutex::new(Some(seat)),
            state: Mutex::new(State { over, alarm: None, gone: None, returned: false }),
        });
        *lock(&occupant) = Arc::downgrade(&held);
        lock(&self.held).insert(claim.id, held.clone());
        // Every other lease is found when it looks by itself.
        if N::LOOK.is_some() && over < *lock(&self.next_look) {
            self.news.notify_one();
        }
        held
    }

    /// Notes that the server is asked to write this claim down.
    pub(super) fn in_doubt(&self, id: ClaimId) -> Doubt<'_> {
        lock(&self.in_doubt).insert(id);
        Doubt { claims: &self.in_doubt, id }
    }

    /// Whether it may be written down although no answer came.
    pub(super) fn is_in_doubt(&self, id: ClaimId) -> bool {
        lock(&self.in_doubt).contains(&id)
    }

    /// It is not any more.
    pub(super) fn know(&self, id: ClaimId) {
        lock(&self.in_doubt).remove(&id);
    }

    pub(super) fn held(&self, id: ClaimId) -> Option<Arc<Held<N>>> {
        lock(&self.held).get(&id).cloned()
    }

    /// Whether a claim of this keeper has the lock of that name, as far as is known.
    pub(super) fn holds(&self, name: &Name) -> bool {
        lock(&self.held).values().any(|held| held.claim.name == *name)
    }

    /// Whether a claim is being given back, and its session is about to be another's.
    fn is_any_returning(&self) -> bool {
        lock(&self.held).values().any(|held| lock(&held.state).returned)
    }

    pub(super) fn forget(&self, id: ClaimId) {
        lock(&self.held).remove(&id);
    }

    /// Ends the sessions in which nothing is held.
    pub(super) fn end_unused(&self) {
        drop(std::mem::take(&mut *lock(&self.unused)));
        drop(lock(&self.extra).take());
    }

    /// Ends those that were not used for a while.
    fn end_old(&self) {
        let mut unused = lock(&self.unused);
        unused.retain(|(seat, since)| is_fresh(&seat.session, *since));
        drop(unused);
        lock(&self.extra).take_if(|(session, since)| !is_fresh(session, *since));
    }
}

/// A claim of which it is not known whether the server wrote it down. Dropped without an answer, it
/// stays in doubt until it is withdrawn.
pub(super) struct Doubt<'a> {
    claims: &'a Mutex<HashSet<ClaimId>>,
    id: ClaimId,
}

impl Doubt<'_> {
    /// The answer that came; without one, the claim stays in doubt.
    pub(super) fn answered<A>(self, answer: Result<A, Failure>) -> Result<A, Failure> {
        if !answer.as_ref().is_err_and(Failure::ends_connection) {
            lock(self.claims).remove(&self.id);
        }
        answer
    }
}

impl<N: Native> Shared<N> {
    /// A session of the caller's own: one that is there, or a new one.
    pub(super) async fn seat(self: Arc<Self>) -> Result<Seat<N>> {
        let mut patience = pin!(tokio::time::sleep(RETURNING));
        let place = loop {
            // Before the look, so that a session which is parked after it is not missed.
            let returning = self.seats.is_any_returning();
            if let Some(seat) = self.unused() {
                return Ok(seat);
            }
            if let Ok(place) = self.seats.places.clone().try_acquire_owned() {
                break place;
            }
            if !returning {
                return Err(exhausted(&self.native, self.seats.most));
            }
            tokio::select! {
                () = self.seats.parked.notified() => {}
                Ok(place) = self.seats.places.clone().acquire_owned() => break place,
                () = &mut patience => return Err(exhausted(&self.native, self.seats.most)),
            }
        };
        let session = self.native.open().await?;
        let occupant = Arc::new(Mutex::new(Weak::new()));
        let look_out = look_out(Arc::downgrade(&self), session.end(), Arc::downgrade(&occupant));
        self.seats.background.drive(look_out);
        if let Some(every) = N::LOOK
            && !self.seats.looked_after.swap(true, Ordering::Relaxed)
        {
            self.seats.background.drive(look_after(Arc::downgrade(&self), every));
        }
        Ok(Seat { session, occupant, _place: place })
    }

    /// A session in which nothing is held, the one used last.
    fn unused(&self) -> Option<Seat<N>> {
        loop {
            let (seat, since) = lock(&self.seats.unused).pop()?;
            if is_fresh(&seat.session, since) {
                return Some(seat);
            }
        }
    }

    /// Keeps a session in which nothing is held for the next claim.
    pub(super) fn park(&self, seat: Seat<N>) {
        *lock(&seat.occupant) = Weak::new();
        if !seat.session.end().is_cancelled() {
            lock(&self.seats.unused).push((seat, Moment::now()));
            self.seats.parked.notify_one();
        }
    }

    /// A session for a question that is none of a claim's, beside those that may be. Never one that
    /// is kept for a claim: the claim would be refused although there is a session for it.
    pub(super) async fn aside(&self) -> Result<N::Session> {
        let extra = lock(&self.seats.extra).take();
        match extra.filter(|(session, since)| is_fresh(session, *since)) {
            Some((session, _)) => Ok(session),
            None => self.native.open().await,
        }
    }

    /// Erases the debt of a claim in which nobody believes, and whose session is gone.
    pub(super) async fn forgive(&self, claim: &Claim) -> Result<()> {
        let mut session = self.aside().await?;
        let forgiven = self.native.forgive(&mut session, claim).await;
        forgiven.map_err(|failure| self.native.explain(failure))?;
        self.put_back(session);
        Ok(())
    }

    /// Keeps the session of a question that was answered.
    pub(super) fn put_back(&self, session: N::Session) {
        *lock(&self.seats.extra) = Some((session, Moment::now()));
    }

    /// Tells the holder of a claim that its session ended, and why.
    async fn lost(self: &Arc<Self>, held: &Held<N>) {
        // With a request under way, the server's word went to that.
        let may_be_told = held.farewell.load(Ordering::Relaxed) || held.seat.try_lock().is_err();
        let reason = if may_be_told { self.why_gone(held).await } else { LossReason::Gone };
        held.lose(reason);
        self.seats.forget(held.claim.id);
    }

    /// Why a claim is gone whose session ended; asked of the database, in another session.
    pub(super) async fn why_gone(self: &Arc<Self>, held: &Held<N>) -> LossReason {
        let asked = async {
            let mut session = self.aside().await.ok()?;
            let (name, token) = (&held.claim.name, held.token);
            let reason = self.native.why_gone(&mut session, name, token).await;
            self.put_back(session);
            Some(reason)
        };
        let reason = tokio::time::timeout(REASON, asked).await;
        reason.ok().flatten().unwrap_or(LossReason::Gone)
    }
}

/// The refusal of a claim for which there is no session: better than to wait for one which only
/// another claim's end would give.
fn exhausted<N: Native>(native: &N, most: usize) -> Error {
    Error::new(
        ErrorKind::Exhausted,
        format!(
            "all {most} sessions that this keeper may have at {native} are in use, one for each \
             lock held or asked for: hold fewer at once, raise ?sessions=, or use recipe=table, \
             which needs none"
        ),
    )
}

impl<N: Native> Held<N> {
    /// Keeps the alarm, or rings it at once if the claim is gone already.
    pub(super) fn watch(&self, alarm: Alarm) {
        let gone = {
            let mut state = lock(&self.state);
            match &state.gone {
                Some(reason) => Some(reason.clone()),
                None => {
                    state.alarm = Some(alarm.clone());
                    None
                }
            }
        };
        if let Some(reason) = gone {
            alarm.ring(reason);
        }
    }

    /// Nobody is to be told of its end any more.
    pub(super) fn unwatch(&self) {
        lock(&self.state).alarm = None;
    }

    pub(super) fn gone(&self) -> Option<LossReason> {
        lock(&self.state).gone.clone()
    }

    /// Notes that it is being given back: the end of its session is no loss any more.
    pub(super) fn returning(&self) {
        lock(&self.state).returned = true;
    }

    /// Notes that it is gone, and tells its holder, if there is one.
    pub(super) fn lose(&self, reason: LossReason) {
        let alarm = {
            let mut state = lock(&self.state);
            if state.returned || state.gone.is_some() {
                return;
            }
            state.gone = Some(reason.clone());
            state.alarm.take()
        };
        if let Some(alarm) = alarm {
            alarm.ring(reason);
        }
    }

    /// Notes until when the lease goes now.
    pub(super) fn renewed(&self, over: Moment) {
        lock(&self.state).over = over;
    }

    fn over(&self) -> Moment {
        lock(&self.state).over
    }

    fn is_watched(&self) -> bool {
        lock(&self.state).alarm.is_some()
    }
}

/// Tells the holder when the session ends, and ends sessions that nobody uses. Goes with the session.
async fn look_out<N: Native>(
    shared: Weak<Shared<N>>,
    end: CancellationToken,
    occupant: Weak<Mutex<Weak<Held<N>>>>,
) {
    loop {
        tokio::select! {
            () = end.cancelled() => break,
            () = tokio::time::sleep(KEPT) => {}
        }
        let (Some(shared), Some(_)) = (shared.upgrade(), occupant.upgrade()) else { return };
        shared.seats.end_old();
    }
    let (Some(shared), Some(occupant)) = (shared.upgrade(), occupant.upgrade()) else { return };
    let held = lock(&occupant).upgrade();
    if let Some(held) = held {
        shared.lost(&held).await;
    }
}

/// Looks after the sessions of all claims that somebody holds, where drivers do not say by
/// themselves that a connection ended. Goes with the backend.
///
/// It asks in a session of its own: a question in theirs would keep leases that nobody renews.
async fn look_after<N: Native>(shared: Weak<Shared<N>>, every: Duration) {
    let mut looked = Moment::now();
    loop {
        let (news, again) = {
            let Some(there) = shared.upgrade() else { return };
            (there.seats.news.clone(), there.end_overdue(every).min(looked + every))
        };
        // Asleep it keeps nothing: a keeper that is gone takes its sessions with it at once.
        tokio::select! {
            () = news.notified() => {}
            () = tokio::time::sleep(again.remaining()) => {}
        }
        if Moment::now().since(looked) >= every {
            looked = Moment::now();
            let Some(there) = shared.upgrade() else { return };
            there.look().await;
        }
    }
}

impl<N: Native> Shared<N> {
    /// Ends the sessions of claims whose leases are over. A server that counts whole seconds would
    /// keep them a little longer. Returns when to do so again.
    fn end_overdue(&self, every: Duration) -> Moment {
        let mut next = Moment::now() + every;
        // Set before the claims are read: one that comes in between is read, or gives news.
        *lock(&self.seats.next_look) = next;
        let held: Vec<Arc<Held<N>>> = lock(&self.seats.held).values().cloned().collect();
        for held in held {
            if !held.over().remaining().is_zero() {
                next = next.min(held.over());
            } else if let Ok(mut seat) = held.seat.try_lock() {
                // Dropping the connection ends the session, and with it the lock.
                drop(seat.take());
                held.lose(LossReason::Gone);
                self.seats.forget(held.claim.id);
            }
        }
        next
    }

    /// Asks whether the sessions of all claims that somebody holds are there.
    async fn look(&self) {
        let held: Vec<Arc<Held<N>>> = lock(&self.seats.held).values().cloned().collect();
        let held: Vec<_> = held.into_iter().filter(|held| held.is_watched()).collect();
        if held.is_empty() {
            return;
        }
        let asked: Vec<(&Name, u64)> =
            held.iter().map(|held| (&held.claim.name, held.session)).collect();
        let Ok(mut session) = self.aside().await else { return };
        // What is not known is not missing.
        let Ok(missing) = self.native.missing(&mut session, &asked).await else { return };
        self.put_back(session);
        for held in missing.into_iter().filter_map(|index| held.get(index)) {
            // A claim that was given back while we asked has no lock, and its session may be that of
            // another claim by now. One that is being given back or renewed finds out by itself.
            if held.seat.try_lock().is_ok_and(|seat| seat.is_some()) {
                held.end.cancel();
            }
        }
    }
}
