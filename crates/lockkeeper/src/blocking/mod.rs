//! The same for threads, with no runtime around it.
//!
//! A thread is its own owner: locking a name twice in one thread enters again instead of waiting
//! for itself. That is the thread that acquires, whichever thread made the lock, and it stays so should
//! the guard be given to another. Permits of a semaphore are the exception: each is its own, so
//! that one thread can take several.
//!
//! ```
//! let keeper = lockkeeper::blocking::connect("memory:")?;
//! let guard = keeper.lock("orders/42").acquire()?;
//! let again = keeper.lock("orders/42").acquire()?; // the same thread: does not wait
//! assert_eq!(guard.token(), again.token());
//! # Ok::<(), lockkeeper::Error>(())
//! ```
//!
//! Dropping the last handle waits, for five seconds at most, until the releases of dropped
//! guards have reached the store. These functions block: inside async functions use
//! [`Keeper`](crate::Keeper).

mod guards;
mod ids;
mod runtime;
mod tickets;

pub use guards::{Guard, Leadership, MultiGuard};
pub use ids::IdKey;

use crate::backend::{Capability, Finding, LockView, OpenStore, Page};
use crate::background::Background;
use crate::claim::{ClaimId, FencingToken, Owner};
use crate::clock::Moment;
use crate::connect::{connect_in, connect_with_in};
use crate::election::Again;
use crate::error::{Error, Result};
use crate::keeper::Health;
use crate::patience::OUTAGE;
use futures_util::StreamExt;
use runtime::Runtime;
pub(crate) use runtime::block_on_within;
use std::sync::Arc;
use std::time::Duration;

/// Opens the store that `url` names; see [`connect`](crate::connect()).
///
/// # Errors
/// As [`connect`](crate::connect()).
pub fn connect(url: &str) -> Result<Keeper> {
    let runtime = Arc::new(Runtime::default());
    let inner = runtime.block_on(connect_in(url, Background::aloof()))?;
    Ok(Keeper::over(inner, runtime))
}

/// Opens a store by its options; see [`connect_with`](crate::connect_with).
///
/// # Errors
/// As [`connect`](crate::connect()).
pub fn connect_with(options: impl OpenStore) -> Result<Keeper> {
    let runtime = Arc::new(Runtime::default());
    let inner = runtime.block_on(connect_with_in(options, Background::aloof()))?;
    Ok(Keeper::over(inner, runtime))
}

/// A connection to one store; see [`Keeper`](crate::Keeper). Clones share it.
#[derive(Clone)]
pub struct Keeper {
    inner: crate::Keeper,
    /// What the ids of its threads begin with.
    threads: Owner,
    runtime: Arc<Runtime>,
}

impl Keeper {
    /// A keeper over a backend of one's own; see [`Keeper::new`](crate::Keeper::new).
    ///
    /// # Errors
    /// When the system gives no thread or no random numbers.
    pub fn new(backend: Arc<dyn crate::backend::Backend>) -> Result<Self> {
        let inner = crate::Keeper::over(backend, Background::aloof(), OUTAGE)?;
        Ok(Self::over(inner, Arc::new(Runtime::default())))
    }

    fn over(inner: crate::Keeper, runtime: Arc<Runtime>) -> Self {
        runtime.serve(&inner);
        Self { threads: inner.owner("thread"), inner, runtime }
    }

    /// Measures as `metrics` says; see [`Keeper::with_metrics`](crate::Keeper::with_metrics).
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn with_metrics(self, metrics: crate::metrics::Metrics) -> Result<Self> {
        let inner = self.inner.clone().with_metrics(metrics)?;
        Ok(Self { inner, ..self })
    }

    /// A lock that one thread holds at a time.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.make(self.inner.lock(name))
    }

    /// A lock that many may read or one may write.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock { inner: self.inner.rw_lock(name), keeper: self.clone(), named: false }
    }

    /// A lock that `permits` may hold at a time.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Lock {
        Lock { named: true, ..self.make(self.inner.semaphore(name, permits)) }
    }

    /// Several locks, taken all or none; see [`Multi`](crate::Multi).
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Multi {
        Multi { inner: self.inner.multi(names), keeper: self.clone(), named: false }
    }

    /// An election of one leader at a time; see [`Election`](crate::Election).
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election { inner: self.inner.election(name), keeper: self.clone(), named: false }
    }

    /// A new owner, to name instead of the calling thread.
    pub fn owner(&self, label: &str) -> Owner {
        self.inner.owner(label)
    }

    /// What the store promises.
    pub fn capability(&self) -> Capability {
        self.inner.capability()
    }

    /// Every name that is held or waited for and starts with `prefix`.
    ///
    /// # Errors
    /// As [`Keeper::list`](crate::Keeper::list).
    pub fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.runtime.block_on(self.inner.list(prefix))
    }

    /// A part of what [`list`](Self::list) tells; see [`Keeper::list_page`](crate::Keeper::list_page).
    ///
    /// # Errors
    /// As there.
    pub fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        self.runtime.block_on(self.inner.list_page(prefix, after, limit))
    }

    /// Who holds `name` and who waits for it.
    ///
    /// # Errors
    /// As [`Keeper::show`](crate::Keeper::show).
    pub fn show(&self, name: &str) -> Result<LockView> {
        self.runtime.block_on(self.inner.show(name))
    }

    /// The very keys, nodes or rows in which the store keeps `name`; see
    /// [`Keeper::keys`](crate::Keeper::keys).
    ///
    /// # Errors
    /// As there.
    pub fn keys(&self, name: &str) -> Result<Vec<String>> {
        self.inner.keys(name)
    }

    /// What an operator should know of the store; see [`Keeper::checkup`](crate::Keeper::checkup).
    ///
    /// # Errors
    /// As there.
    pub fn checkup(&self) -> Result<Vec<Finding>> {
        self.runtime.block_on(self.inner.checkup())
    }

    /// How long bare round trips take; see [`Keeper::round_trips`](crate::Keeper::round_trips).
    ///
    /// # Errors
    /// As there.
    pub fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        self.runtime.block_on(self.inner.round_trips(count))
    }

    /// The ids of `key`; see [`Keeper::ids`](crate::Keeper::ids). A generator is used from threads by
    /// [`next_blocking`](crate::id::Generator::next_blocking).
    ///
    /// ```
    /// use lockkeeper::id::Generator;
    /// use std::time::Duration;
    ///
    /// let keeper = lockkeeper::blocking::connect("memory:")?;
    /// let invoices = keeper.ids("invoices").sequence()?;
    /// assert_eq!(invoices.next_blocking(Duration::from_secs(5))?.get(), 1);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn ids(&self, key: &str) -> IdKey {
        IdKey { inner: self.inner.ids(key), keeper: self.clone() }
    }

    /// Takes `name` from the holder with `token`.
    ///
    /// # Errors
    /// As [`Keeper::break_hold`](crate::Keeper::break_hold).
    pub fn break_hold(&self, name: &str, token: FencingToken, reason: &str) -> Result<()> {
        self.runtime.block_on(self.inner.break_hold(name, token, reason))
    }

    /// Reserves `count` numbers in a row that nobody else gets under `name`, and returns the first.
    ///
    /// # Errors
    /// As [`Keeper::reserve`](crate::Keeper::reserve).
    pub fn reserve(&self, name: &str, count: u32, floor: u64) -> Result<u64> {
        self.runtime.block_on(self.inner.reserve(name, count, floor))
    }

    /// How this keeper and its store are doing, within about a second; see
    /// [`Keeper::health`](crate::Keeper::health).
    pub fn health(&self) -> Health {
        self.runtime.block_on(self.inner.health())
    }

    /// Waits until every release under way is through, and closes the connection to the store; for
    /// at most `limit`. Returns whether all of it was done; see
    /// [`Keeper::close`](crate::Keeper::close).
    pub fn close(&self, limit: Duration) -> bool {
        self.runtime.block_on(self.inner.close(limit))
    }

    /// The async keeper behind it: for its events.
    pub fn as_async(&self) -> &crate::Keeper {
        &self.inner
    }

    fn make(&self, inner: crate::Lock) -> Lock {
        Lock { inner, keeper: self.clone(), named: false }
    }

    fn this_thread(&self) -> Owner {
        Owner::from_id(format!("{}-{:?}", self.threads, std::thread::current().id()))
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

/// The setters of a builder, passed on to the async one inside.
macro_rules! passed_on_setters {
    () => {
        /// How long the store keeps the claim without a renewal. Default 30 s.
        pub fn ttl(self, ttl: Duration) -> Self {
            Self { inner: self.inner.ttl(ttl), ..self }
        }

        /// Whose claims count as one, instead of the calling thread's.
        pub fn owner(self, owner: &Owner) -> Self {
            Self { inner: self.inner.owner(owner), named: true, ..self }
        }

        /// Asks under an id of the caller's, instead of as the calling thread; see
        /// [`Lock::claim`](crate::Lock::claim).
        pub fn claim(self, id: ClaimId) -> Self {
            Self { inner: self.inner.claim(id), named: true, ..self }
        }

        /// Whose name is shown, instead of this process's.
        pub fn on_behalf_of(self, identity: &str) -> Self {
            Self { inner: self.inner.on_behalf_of(identity), ..self }
        }

        /// Free text shown to those who wait.
        pub fn note(self, note: &str) -> Self {
            Self { inner: self.inner.note(note), ..self }
        }

        /// Refuses to be acquired where the store gives no fencing token.
        pub fn fenced(self) -> Self {
            Self { inner: self.inner.fenced(), ..self }
        }

        /// The longest time to hold: then the claim counts as lost.
        pub fn max_hold(self, most: Duration) -> Self {
            Self { inner: self.inner.max_hold(most), ..self }
        }

        /// The shortest time to hold, also when released earlier.
        pub fn min_hold(self, least: Duration) -> Self {
            Self { inner: self.inner.min_hold(least), ..self }
        }
    };
}

/// The three ways of waiting, each blocking until the async one inside is through.
macro_rules! blocking_verbs {
    ($lock:ident -> $guard:ident: $acquire:ident, $try_acquire:ident, $acquire_within:ident) => {
        passed_on_setters!();

        /// Waits for as long as it takes.
        ///
        /// # Errors
        /// As [`Lock::acquire`](crate::Lock::acquire).
        pub fn $acquire(&self) -> Result<$guard> {
            let inner = self.as_this_thread();
            self.keeper.runtime.block_on(inner.$acquire()).map(|inner| self.wrap(inner))
        }

        /// Takes it now or not at all: `None` when someone else has it.
        ///
        /// # Errors
        /// As [`Lock::acquire`](crate::Lock::acquire).
        pub fn $try_acquire(&self) -> Result<Option<$guard>> {
            let inner = self.as_this_thread();
            let taken = self.keeper.runtime.block_on(inner.$try_acquire())?;
            Ok(taken.map(|inner| self.wrap(inner)))
        }

        /// Waits for at most `limit`.
        ///
        /// # Errors
        /// As [`Lock::acquire_within`](crate::Lock::acquire_within).
        pub fn $acquire_within(&self, limit: Duration) -> Result<$guard> {
            let inner = self.as_this_thread();
            let taken = self.keeper.runtime.block_on(inner.$acquire_within(limit));
            taken.map(|inner| self.wrap(inner))
        }

        fn wrap(&self, inner: crate::$guard) -> $guard {
            $guard::over(inner, self.keeper.runtime.clone())
        }

        /// Owned by the calling thread, unless an owner was named.
        fn as_this_thread(&self) -> crate::$lock {
            match self.named {
                true => self.inner.clone(),
                false => self.inner.clone().owner(&self.keeper.this_thread()),
            }
        }
    };
}

/// A lock about to be acquired; see [`Lock`](crate::Lock).
#[derive(Debug, Clone)]
#[must_use = "does nothing until it is acquired"]
pub struct Lock {
    inner: crate::Lock,
    keeper: Keeper,
    /// Whether the owner is not the calling thread.
    named: bool,
}

impl Lock {
    blocking_verbs!(Lock -> Guard: acquire, try_acquire, acquire_within);
}

/// A read-write lock; see [`RwLock`](crate::RwLock).
#[derive(Debug, Clone)]
#[must_use = "does nothing until it is acquired"]
pub struct RwLock {
    inner: crate::RwLock,
    keeper: Keeper,
    /// Whether the owner is not the calling thread.
    named: bool,
}

impl RwLock {
    passed_on_setters!();

    /// The side that shares with other readers.
    pub fn read(&self) -> Lock {
        Lock { inner: self.inner.read(), keeper: self.keeper.clone(), named: self.named }
    }

    /// The side that shares with nobody.
    pub fn write(&self) -> Lock {
        Lock { inner: self.inner.write(), keeper: self.keeper.clone(), named: self.named }
    }
}

/// Several locks, all or none; see [`Multi`](crate::Multi).
#[derive(Debug, Clone)]
#[must_use = "does nothing until it is acquired"]
pub struct Multi {
    inner: crate::Multi,
    keeper: Keeper,
    /// Whether the owner is not the calling thread.
    named: bool,
}

impl Multi {
    blocking_verbs!(Multi -> MultiGuard: acquire, try_acquire, acquire_within);
}

/// An election; see [`Election`](crate::Election).
#[derive(Debug, Clone)]
#[must_use = "does nothing until it is acquired"]
pub struct Election {
    inner: crate::Election,
    keeper: Keeper,
    /// Whether the owner is not the calling thread.
    named: bool,
}

impl Election {
    blocking_verbs!(Election -> Leadership: campaign, try_campaign, campaign_within);

    /// Does `work` for as long as this process leads: campaigns, calls `work` with the office, and
    /// campaigns again when the office was lost meanwhile, until `work` returns while it is held. Then
    /// it resigns and returns what `work` did. `work` asks [`Leadership::check`] between its steps, and
    /// returns when that fails; see [`Election::lead`](crate::Election::lead) for the pauses between
    /// campaigns.
    ///
    /// # Errors
    /// What `work` returned, or that of a campaign that no waiting would help.
    ///
    /// ```
    /// let keeper = lockkeeper::blocking::connect("memory:")?;
    /// let rounds = keeper.election("scheduler").lead(|office| {
    ///     for _round in 0..3 {
    ///         office.check()?; // stops when the office is lost; the loop campaigns again
    ///         // … one round of work, with office.term() in every order …
    ///     }
    ///     Ok::<_, lockkeeper::Error>(3)
    /// })?;
    /// assert_eq!(rounds, 3);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn lead<T, E: From<Error>>(
        &self,
        mut work: impl FnMut(&Leadership) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut again = Again::default();
        loop {
            let pause = match self.campaign() {
                Ok(leadership) => {
                    let elected = Moment::now();
                    let outcome = work(&leadership);
                    if leadership.is_leader() {
                        // Not answered, it is tried again in the background; the work is done.
                        let _ = leadership.resign();
                        return outcome;
                    }
                    again.after(Moment::now().since(elected))
                }
                Err(error) if Again::may_help(&error) => again.after(Duration::ZERO),
                Err(error) => return Err(error.into()),
            };
            std::thread::sleep(pause);
        }
    }

    /// The leaders from now on, the present one first; see
    /// [`Election::observe`](crate::Election::observe).
    ///
    /// # Errors
    /// As there.
    pub fn observe(&self) -> Result<impl Iterator<Item = Result<Option<crate::Leader>>> + use<>> {
        let mut leaders = Box::pin(self.inner.observe()?);
        let runtime = self.keeper.runtime.clone();
        Ok(std::iter::from_fn(move || runtime.block_on(leaders.next())))
    }
}
