//! The one home of a keeper's background work: a thread of its own with a small runtime.
//!
//! A keeper is used on runtimes that are the caller's: they end, they stand still between two
//! `block_on`s, their only thread is blocked by the caller itself. Work that must be finished
//! whatever happens there (renewals, releases, withdrawals, the schedule) runs here instead, and
//! so do all timers of a backend's futures, which tokio lets nobody poll once their runtime is
//! over.
//!
//! ```text
//!   caller's runtime, any executor           this thread
//!   ───────────────────────────────          ─────────────────────────────
//!   acquire().await  ── polls ──►  Completing ── timers, spawns ──► runtime
//!        │ dropped half-way                   └─ the rest ────────► spawn
//!        ▼
//!   connections: on the caller's runtime while that is a multi-thread one, else here
//! ```
//!
//! Connections are the exception: a request that crosses to another thread and back takes half
//! as long again, so they live where the keeper is used, as long as that drives itself. A
//! multi-thread runtime does; a current-thread one only inside a `block_on`, which may be over.
//! A connection that ends with its runtime is made anew as after any other break. Several that are
//! asked together are better off here ([`Background::at_home`]).

use crate::backend::support::sync::lock;
use crate::backend::{Backend, Grant};
use crate::claim::Claim;
use crate::clock::Moment;
use crate::completing::Completing;
use crate::error::{Error, ErrorKind, Result};
use crate::patience::{Patience, RetryUntilExpiry};
use crate::release::Release;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// How long a caller's runtime may take to begin with a connection before that is made here.
const PROMPT: Duration = Duration::from_millis(200);

/// Where the background work of a keeper and its backend runs. Clones share it.
///
/// A backend gets it with [`Backend::attach`]. Its drivers and
/// connections live here: callers' runtimes may end at any time.
///
/// The thread starts when it is first needed, and ends when the last clone is gone and the last
/// task is done.
#[derive(Clone)]
pub struct Background {
    shared: Arc<Shared>,
    /// Whether what settles by this clone lives here, whatever the others do.
    at_home: bool,
}

struct Shared {
    own: OnceLock<Handle>,
    starting: Mutex<()>,
    /// The multi-thread runtime that the keeper was last used on.
    caller: Mutex<Option<Handle>>,
    /// Whether connections may live on a caller's runtime.
    welcomes_callers: bool,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Background {
    /// One whose connections may live on the runtimes of its callers.
    pub fn new() -> Self {
        Self::welcoming(true)
    }

    /// One that puts nothing on the runtimes of its callers: they may be blocked by the very call.
    pub(crate) fn aloof() -> Self {
        Self::welcoming(false)
    }

    fn welcoming(callers: bool) -> Self {
        let tasks = TaskTracker::new();
        // Closed from the start, which keeps no task out and lets anyone wait for the last one.
        tasks.close();
        let shared = Shared {
            own: OnceLock::new(),
            starting: Mutex::default(),
            caller: Mutex::default(),
            welcomes_callers: callers,
            tasks,
            ended: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared), at_home: false }
    }

    /// The same one, by which everything settles here: for several connections that work together. To ask
    /// all of them from here and to return one outcome is one hop between threads each way; on a caller's
    /// runtime its threads wake each other for every question and every answer.
    #[must_use]
    pub fn at_home(&self) -> Self {
        Self { at_home: true, ..self.clone() }
    }

    /// Remembers the caller's runtime as a place for connections.
    pub(crate) fn notice_caller(&self) {
        if !self.shared.welcomes_callers {
            return;
        }
        let Ok(current) = Handle::try_current() else { return };
        let mut caller = lock(&self.shared.caller);
        if caller.as_ref().is_some_and(|caller| caller.id() == current.id()) {
            return;
        }
        if current.runtime_flavor() == RuntimeFlavor::MultiThread {
            *caller = Some(current);
        }
    }

    /// The runtime of the thread, which is started if it is not there yet.
    pub(crate) fn handle(&self) -> Result<Handle> {
        if let Some(handle) = self.shared.own.get() {
            return Ok(handle.clone());
        }
        let _one = lock(&self.shared.starting);
        if let Some(handle) = self.shared.own.get() {
            return Ok(handle.clone());
        }
        let started = self.start()?;
        Ok(self.shared.own.get_or_init(|| started).clone())
    }

    fn start(&self) -> Result<Handle> {
        // So that unit tests can pause the clock.
        #[cfg(test)]
        if let Ok(current) = Handle::try_current() {
            return Ok(current);
        }
        let no_thread = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "cannot start a background thread").caused_by(error)
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let (tasks, ended) = (self.shared.tasks.clone(), self.shared.ended.clone());
        let live = async move {
            ended.cancelled().await;
            tasks.wait().await;
        };
        std::thread::Builder::new()
            .name("lockkeeper".into())
            .spawn(move || runtime.block_on(live))
            .map_err(no_thread)?;
        Ok(handle)
    }

    /// Runs `work` to its end; [`Keeper::close`](crate::Keeper::close) waits for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.handle() {
            Ok(handle) => drop(self.shared.tasks.spawn_on(work, &handle)),
            Err(error) => tracing::error!(%error, "work in the background was left undone"),
        }
    }

    /// Runs `work` for as long as the thread is there; nobody waits for it.
    pub fn drive(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.handle() {
            Ok(handle) => drop(handle.spawn(work)),
            Err(error) => tracing::error!(%error, "work in the background was left undone"),
        }
    }

    /// A future that any executor may poll and that is finished even when its caller drops it.
    pub(crate) fn completing<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Completing<T>> {
        self.notice_caller();
        Ok(Completing::new(work, self.handle()?, self.clone()))
    }

    /// Makes something that has tasks or sockets of its own, such as a connection, where it is
    /// best off: on the caller's runtime, or here. `make` is called again if that runtime ends
    /// before it is through.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the system gives no thread.
    pub async fn settle<T, F>(&self, make: impl Fn() -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let caller = lock(&self.shared.caller).clone();
        if let Some(caller) = caller.filter(|_| !self.at_home) {
            if let Some(made) = promptly(&caller, make()).await {
                return Ok(made);
            }
            let mut known = lock(&self.shared.caller);
            known.take_if(|known| known.id() == caller.id());
        }
        let made = AbortOnDropHandle::new(self.handle()?.spawn(make())).await;
        made.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the background thread ended").caused_by(error)
        })
    }

    /// Makes `claim` at `backend` and waits for the outcome until `limit`. What takes longer is
    /// finished here, and whatever it wins is given back: how a wrapper goes on without a member
    /// that is slow.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when it took longer; else what the backend said, and then what
    /// the claim may have left in the store is withdrawn.
    ///
    /// # Cancel safety
    /// Cancel safe: what is under way is finished, and given back.
    pub async fn acquire_within(
        &self,
        backend: Arc<dyn Backend>,
        claim: Claim,
        patience: &Patience,
        limit: Duration,
    ) -> Result<Option<Grant>> {
        let part = Arc::new(patience.within(limit));
        let (answer, answered) = oneshot::channel();
        let (asked, asking) = (backend.clone(), part.clone());
        let home = self.clone();
        self.spawn(async move {
            let outcome = asked.acquire(&claim, &asking).await;
            if outcome.as_ref().is_err_and(Error::leaves_doubt) {
                home.withdraw(asked.clone(), claim.clone());
            }
            // Nobody waits for it any more: what it won is given back.
            if let Err(Ok(Some(grant))) = answer.send(outcome) {
                give_back(grant, &claim).await;
            }
        });
        let too_late = (Moment::now() + limit).reached();
        let outcome = tokio::select! {
            biased;
            outcome = answered => outcome.ok(),
            () = too_late => None,
        };
        outcome.unwrap_or_else(|| {
            let message = format!("{backend} did not answer within {limit:.1?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    /// Takes back what a claim may have left whose answer was lost, for as long as the store may
    /// keep it.
    pub fn withdraw(&self, backend: Arc<dyn Backend>, claim: Claim) {
        self.spawn(async move {
            let mut retry = RetryUntilExpiry::of(&claim);
            while backend.withdraw(&claim).await.is_err() && retry.again().await {}
        });
    }

    /// Waits for the work under way, until `limit`; whether all of it is through.
    pub(crate) async fn idle(&self, limit: Duration) -> bool {
        let until = Moment::now() + limit;
        tokio::select! {
            biased;
            () = self.shared.tasks.wait() => true,
            () = until.reached() => false,
        }
    }

    /// Whether the thread was ever needed.
    pub(crate) fn is_started(&self) -> bool {
        self.shared.own.get().is_some()
    }

    /// Whether no work is under way.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.tasks.is_empty()
    }
}

/// Gives back what nobody waits for.
async fn give_back(mut grant: Grant, claim: &Claim) {
    let mut retry = RetryUntilExpiry::of(claim);
    while let Err(error) = grant.lease.release(&Release::now()).await {
        if error.kind() == ErrorKind::Lost || !retry.again().await {
            return;
        }
    }
}

/// What became of `work` on `runtime`; `None` if that is over, or does not begin in time.
async fn promptly<T, F>(runtime: &Handle, work: F) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (begin, begun) = oneshot::channel();
    let task = AbortOnDropHandle::new(runtime.spawn(async move {
        let _ = begin.send(());
        work.await
    }));
    let limit = Moment::now() + PROMPT;
    tokio::select! {
        begun = begun => begun.ok()?,
        () = limit.reached() => return None,
    }
    task.await.ok()
}

impl Default for Background {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background")
            .field("tasks", &self.shared.tasks.len())
            .finish_non_exhaustive()
    }
}
