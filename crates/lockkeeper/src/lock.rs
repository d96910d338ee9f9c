//! A claim about to be made, and the three ways of waiting for it.

use crate::backend::line_of;
use crate::claim::Mode;
use crate::clock::Moment;
use crate::engine::{Engine, GRACE};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::meter::Operation;
use crate::name::Name;
use crate::patience::Patience;
use crate::terms::{Terms, terms_setters};
use std::sync::Arc;
use std::time::Duration;

/// A lock, one side of a read-write lock, or one permit of a semaphore: about to be acquired.
///
/// Made by [`Keeper::lock`](crate::Keeper::lock), [`RwLock::read`](crate::RwLock::read),
/// [`RwLock::write`](crate::RwLock::write) and [`Keeper::semaphore`](crate::Keeper::semaphore).
/// It costs nothing until acquired, and can be acquired any number of times.
///
/// # Fairness
/// Where the backend is fair, claims are granted in the order they were made, and
/// [`try_acquire`](Self::try_acquire) does not overtake those who wait.
#[derive(Debug, Clone)]
#[must_use = "does nothing until it is acquired"]
pub struct Lock {
    engine: Arc<Engine>,
    name: String,
    mode: Mode,
    terms: Terms,
}

impl Lock {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, mode: Mode, terms: Terms) -> Self {
        Self { engine: engine.clone(), name: name.to_owned(), mode, terms }
    }

    terms_setters!();

    /// Waits for as long as it takes.
    ///
    /// A store that does not answer is waited for too: for half a minute, or what the option
    /// `outage` of its URL says, since it was last heard.
    ///
    /// # Errors
    /// When the store was silent for longer than that, refuses, or lacks what is asked of it.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped at any point, it leaves the queue and keeps nothing. It loses its
    /// place.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let guard = keeper.lock("orders/42").acquire().await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Guard> {
        loop {
            if let Some(guard) = self.contend(Patience::endless()).await? {
                return Ok(guard);
            }
        }
    }

    /// Takes it now or not at all: `None` when someone else has it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Cancel safe: dropped at any point, it keeps nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let first = keeper.lock("orders/42").try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(keeper.lock("orders/42").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.contend(Patience::none()).await
    }

    /// Waits for at most `limit`, and a tenth of a second more at most for the store to say
    /// who was in the way. A claim that the store has not confirmed to be out of the queue by then
    /// leaves in the background, which [`Keeper::close`](crate::Keeper::close) waits for.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`], never early, saying who holds it (`holder`) and which place in
    /// the queue was reached (`place`), where the store can tell; [`ErrorKind::Unavailable`] when
    /// the store said nothing in all that time. Otherwise as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use lockkeeper::ErrorKind;
    /// use std::time::Duration;
    ///
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let _held = keeper.lock("orders/42").note("billing").acquire().await?;
    /// let late = keeper.lock("orders/42").acquire_within(Duration::from_millis(50)).await;
    /// let error = late.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// assert!(error.detail("holder").unwrap().contains("billing"));
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        let patience = Patience::until(Some(Moment::now() + limit));
        let name = Name::new(&self.name)?;
        let attempt = self.terms.attempt(&self.engine, name.clone(), self.mode)?;
        let mut place = None;
        match self.engine.acquire(attempt, patience, &mut place).await? {
            Some(guard) => Ok(guard.reach_caller()),
            None => Err(timed_out(&self.engine, &name, limit, place).await),
        }
    }

    async fn contend(&self, patience: Patience) -> Result<Option<Guard>> {
        let attempt = self.terms.attempt(&self.engine, Name::new(&self.name)?, self.mode)?;
        Ok(self.engine.acquire(attempt, patience, &mut None).await?.map(Guard::reach_caller))
    }
}

/// The error that says whom we waited for in vain.
pub(crate) async fn timed_out(
    engine: &Arc<Engine>,
    name: &Name,
    limit: Duration,
    place: Option<usize>,
) -> Error {
    let mut error =
        Error::new(ErrorKind::TimedOut, format!("{name:?} was not free within {limit:?}"));
    if let Some(line) = holders_line(engine, name).await {
        error = error.with("holder", line);
    }
    match place {
        Some(place) => error.with("place", place),
        None => error,
    }
}

/// Who holds `name`, if the store says so in a moment.
async fn holders_line(engine: &Arc<Engine>, name: &Name) -> Option<String> {
    engine.backend.inspector()?;
    let (asked, name) = (engine.clone(), name.clone());
    let work = engine.completing(async move {
        let holders = asked.backend.inspector()?.holders(&name);
        line_of(&asked.counted(Operation::Inspect, holders).await.ok()?)
    });
    engine.by(Some(Moment::now() + GRACE), work.ok()?).await.ok()??
}
