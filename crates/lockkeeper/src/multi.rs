//! Several names at once.

use crate::claim::{FencingToken, Mode};
use crate::clock::Moment;
use crate::engine::{AllAtOnce, Engine};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{Guard, lost_error};
use crate::lock::timed_out;
use crate::loss::LossReason;
use crate::lost::Lost;
use crate::name::Name;
use crate::patience::Patience;
use crate::terms::{Terms, terms_setters};
use crate::ticket::Ticket;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Several locks, acquired all or none.
///
/// They are taken in one step where the store has one and all are free; else in one global order,
/// that of their names' bytes, whatever order they are given in: so no two callers wait for each
/// other in a circle. A name given twice counts once.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let both = keeper.multi(["accounts/7", "accounts/3"]).acquire().await?;
/// assert_eq!(both.names().map(|name| name.as_str()).collect::<Vec<_>>(), [
///     "accounts/3",
///     "accounts/7"
/// ]);
/// both.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "does nothing until it is acquired"]
pub struct Multi {
    engine: Arc<Engine>,
    names: Vec<String>,
    terms: Terms,
}

impl Multi {
    pub(crate) fn new(engine: &Arc<Engine>, names: Vec<String>) -> Self {
        Self { engine: engine.clone(), names, terms: Terms::default() }
    }

    terms_setters!();

    /// Waits for as long as it takes.
    ///
    /// # Errors
    /// As [`Lock::acquire`](crate::Lock::acquire), and [`ErrorKind::Lost`] when one was lost
    /// while the others were waited for; what was taken so far is given back.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped at any point, it gives back what it took.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        match self.contend(None).await? {
            Ok(guard) => Ok(guard),
            Err(missing) => Err(timed_out(&self.engine, &missing.name, Duration::MAX, None).await),
        }
    }

    /// Takes all of them now or none: `None` when someone else has one.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        Ok(self.contend(Some(Moment::now())).await?.ok())
    }

    /// Waits for at most `limit` in all.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] names the lock that was not free, its holder and our place.
    /// Otherwise as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, limit: Duration) -> Result<MultiGuard> {
        match self.contend(Some(Moment::now() + limit)).await? {
            Ok(guard) => Ok(guard),
            Err(missing) => Err(timed_out(&self.engine, &missing.name, limit, missing.place).await),
        }
    }

    async fn contend(&self, until: Option<Moment>) -> Result<Result<MultiGuard, Missing>> {
        let mut names =
            self.names.iter().map(|name| Name::new(name)).collect::<Result<Vec<_>>>()?;
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err(Error::new(ErrorKind::InvalidName, "no names were given to lock"));
        }
        let attempt = |name: &Name| self.terms.part(&self.engine, name.clone(), Mode::Exclusive);
        let attempts = names.iter().map(attempt).collect::<Result<Vec<_>>>()?;
        let in_a_hurry = until.is_some_and(|until| until.remaining().is_zero());
        match self.engine.acquire_together(attempts, until).await? {
            AllAtOnce::Held(guards) => return MultiGuard::of(guards).map(Ok),
            AllAtOnce::Busy(index) if in_a_hurry => {
                let name = names.swap_remove(index.min(names.len() - 1));
                return Ok(Err(Missing { name, place: None }));
            }
            // One after another they wait their turn, which the store could not do for all.
            AllAtOnce::Busy(_) | AllAtOnce::OneByOne => {}
        }
        let mut guards = Vec::with_capacity(names.len());
        for name in names {
            let attempt = self.terms.part(&self.engine, name.clone(), Mode::Exclusive)?;
            let mut place = None;
            match self.engine.acquire(attempt, Patience::until(until), &mut place).await? {
                Some(guard) => guards.push(guard),
                None => return Ok(Err(Missing { name, place })),
            }
        }
        MultiGuard::of(guards).map(Ok)
    }
}

/// The name that was not free.
struct Missing {
    name: Name,
    place: Option<usize>,
}

/// Several held locks.
#[derive(Debug)]
#[must_use = "if unused the claims are released at once"]
pub struct MultiGuard {
    guards: Vec<Guard>,
    signal: Arc<CancellationToken>,
}

impl MultiGuard {
    /// All of them as one; an error if any is lost already.
    fn of(guards: Vec<Guard>) -> Result<Self> {
        let signal = Arc::new(CancellationToken::new());
        // One signal for all: losing any of them is losing the whole.
        guards.iter().for_each(|guard| guard.signal_loss_to(&signal));
        if let Some((guard, reason)) = first_lost(&guards) {
            // While we waited for the others.
            return Err(lost_error(guard.name(), Some(reason)));
        }
        let guards = guards.into_iter().map(Guard::reach_caller).collect();
        Ok(Self { guards, signal })
    }

    /// The names, in the order they were taken.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.guards.iter().map(Guard::name)
    }

    /// The guards, in the order they were taken.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The fencing token of `name`.
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)?.token()
    }

    /// Resolves when any of them is lost.
    pub fn lost(&self) -> Lost {
        Lost::new(self.signal.as_ref().clone())
    }

    /// Why the first of those that are lost was; `None` while all are held.
    pub fn lost_reason(&self) -> Option<LossReason> {
        first_lost(&self.guards).map(|(_, reason)| reason)
    }

    /// Whether all are held at this moment.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// How long all are valid if no renewal succeeds from now on.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Whether any of them is in jeopardy; see [`Guard::is_in_jeopardy`].
    pub fn is_in_jeopardy(&self) -> bool {
        self.guards.iter().any(Guard::is_in_jeopardy)
    }

    /// How long nobody else can be granted any of them; see [`Guard::until_others`].
    pub fn until_others(&self) -> Duration {
        self.guards.iter().map(Guard::until_others).min().unwrap_or_default()
    }

    /// Runs `work`, and drops it half-way if any of the locks is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when one was lost before `work` was done.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the locks stay held.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        if self.is_held() {
            tokio::select! {
                biased;
                () = self.signal.cancelled() => {}
                output = work => if self.is_held() {
                    return Ok(output);
                },
            }
        }
        Err(self.loss())
    }

    /// `Ok` while all of them are held.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_held() { Ok(()) } else { Err(self.loss()) }
    }

    fn loss(&self) -> Error {
        let first = first_lost(&self.guards);
        let (guard, reason) = first.map_or((&self.guards[0], None), |(g, why)| (g, Some(why)));
        lost_error(guard.name(), reason)
    }

    /// Says that no work was done under them; see [`Guard::cancel_min_hold`].
    pub fn cancel_min_hold(&mut self) {
        self.guards.iter_mut().for_each(Guard::cancel_min_hold);
    }

    /// Gives all of them back, the last one taken first.
    ///
    /// # Errors
    /// The first error met; the others are released all the same.
    ///
    /// # Cancel safety
    /// Cancel safe: those not yet released are released in the background.
    pub async fn release(self) -> Result<()> {
        let mut outcome = Ok(());
        for guard in self.guards.into_iter().rev() {
            let result = guard.release().await;
            if outcome.is_ok() {
                outcome = result;
            }
        }
        outcome
    }

    /// Hands out all of them, in the order of their names; see [`Guard::hand_out`]. None is handed out
    /// unless all are: where one cannot be, they are given back as if this guard had been dropped.
    ///
    /// # Errors
    /// As [`Guard::hand_out`].
    ///
    /// # Cancel safety
    /// Cancel safe: dropped at any point, it gives all of them back.
    pub async fn hand_out(self) -> Result<Vec<Ticket>> {
        // Each is confirmed through a guard that shares it, and handed out when all are.
        for guard in &self.guards {
            guard.confirm().await?;
        }
        self.check()?;
        Ok(self.guards.into_iter().map(Guard::into_ticket).collect())
    }

    /// Stops renewing without giving them back; see [`Guard::detach`].
    pub fn detach(self) {
        self.guards.into_iter().for_each(Guard::detach);
    }
}

fn first_lost(guards: &[Guard]) -> Option<(&Guard, LossReason)> {
    guards.iter().find_map(|guard| Some((guard, guard.lost_reason()?)))
}
