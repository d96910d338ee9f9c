//! The handle a program opens once.

mod health;
mod tickets;

pub use health::Health;

use crate::backend::{Backend, Capability, Finding, Inspector, LockView, Page, Reserve};
use crate::background::Background;
use crate::broken::{self, LONGEST_REASON};
use crate::claim::{FencingToken, Mode, Owner, Primitive};
use crate::clock::Moment;
use crate::election::Election;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Events;
use crate::id::store::Store;
use crate::id::{IdKey, KeyView, WorkerView, registry, worker};
use crate::identity::identity;
use crate::lock::Lock;
use crate::meter::Operation;
use crate::multi::Multi;
use crate::name::Name;
use crate::patience::OUTAGE;
use crate::rw_lock::RwLock;
use crate::terms::{Terms, unsupported};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A connection to one store, from which every lock is made. Clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let guard = keeper.lock("orders/42").acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Keeper {
    engine: Arc<Engine>,
}

impl Keeper {
    /// A keeper over a backend of one's own; [`connect`](crate::connect()) makes one from a URL.
    ///
    /// It can be used on any runtime, on several, and on other executors: background work runs on a
    /// thread of the keeper's own.
    ///
    /// # Errors
    /// Only when the system gives no random numbers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use lockkeeper::{Keeper, backend::memory::Memory};
    /// use std::sync::Arc;
    ///
    /// let store = Arc::new(Memory::new());
    /// let (one, two) = (Keeper::new(store.clone())?, Keeper::new(store)?);
    /// let _held = one.lock("orders/42").acquire().await?;
    /// assert!(two.lock("orders/42").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn new(backend: Arc<dyn Backend>) -> Result<Self> {
        Self::over(backend, Background::new(), OUTAGE)
    }

    pub(crate) fn over(
        backend: Arc<dyn Backend>,
        background: Background,
        outage: Duration,
    ) -> Result<Self> {
        backend.attach(&background);
        Ok(Self { engine: Arc::new(Engine::new(backend, identity(), background, outage)?) })
    }

    /// Measures as `metrics` says, from now on; see [`metrics`](crate::metrics). To be called right after
    /// the keeper was opened: one that has measured anything keeps to its way.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for what makes no sense, and for a keeper that measures already.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn with_metrics(self, metrics: crate::metrics::Metrics) -> Result<Self> {
        self.engine.meter.set(metrics)?;
        Ok(self)
    }

    /// A lock that one holds at a time.
    ///
    /// A bad name is reported when the lock is acquired.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(&self.engine, name.as_ref(), Mode::Exclusive, Terms::default())
    }

    /// A lock that many may read or one may write.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(&self.engine, name.as_ref())
    }

    /// A lock that `permits` may hold at a time. Should callers disagree on the number, the
    /// smallest counts; an [`Owner`] that holds a permit may therefore not enter again
    /// with a smaller number.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let gate = keeper.semaphore("downloads", 2);
    /// let (_one, _two) = (gate.acquire().await?, gate.acquire().await?);
    /// assert!(gate.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Lock {
        let terms = Terms { primitive: Primitive::Semaphore, ..Terms::default() };
        Lock::new(&self.engine, name.as_ref(), Mode::Permit { of: permits }, terms)
    }

    /// Several locks, taken all or none, always in one order.
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Multi {
        let names = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        Multi::new(&self.engine, names)
    }

    /// An election of one leader at a time.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(&self.engine, name.as_ref())
    }

    /// A new owner, different from every other even if of the same label. See [`Owner`].
    pub fn owner(&self, label: &str) -> Owner {
        let label: String = label.chars().filter(|c| !c.is_control()).take(40).collect();
        Owner::from_id(format!("{label}-{}", self.engine.ids.next()))
    }

    /// What the store behind this keeper promises.
    pub fn capability(&self) -> Capability {
        self.engine.backend.capability()
    }

    /// What happens to the claims of this keeper from now on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use lockkeeper::event::EventKind;
    ///
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let mut events = keeper.events();
    /// keeper.lock("orders/42").acquire().await?.release().await?;
    /// assert_eq!(events.next().await.unwrap().kind, EventKind::Acquired);
    /// assert_eq!(events.next().await.unwrap().kind, EventKind::Released);
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> Events {
        self.engine.events.subscribe()
    }

    /// Every name that is held or waited for and starts with `prefix`.
    ///
    /// # Errors
    /// `Unsupported` where the store cannot tell; else what the store said.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let prefix = prefix.to_owned();
        self.ask(|engine| async move {
            engine.counted(Operation::Inspect, inspector(&engine)?.list(&prefix)).await
        })
        .await
    }

    /// A part of what [`list`](Self::list) tells: some `limit` of the names, after those of the page
    /// whose [`next`](Page::next) is `after`. For stores with more locks than one wants to hold in
    /// memory.
    ///
    /// Pages are looked up one by one: a lock that is taken or freed between two of them may be
    /// missing or not. A page may have fewer names than asked for, also none, and not be the last.
    /// Whether names come in order, and whether one can come twice, is the store's affair: Redis
    /// goes through its keys in an order of its own. ZooKeeper and memcached can only tell all their
    /// names, so every page costs that; who is at a name is asked for the page's own.
    ///
    /// # Errors
    /// As [`list`](Self::list); [`ErrorKind::Config`] for an `after` that no page gave.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let _held = keeper.multi(["a", "b", "c"]).acquire().await?;
    /// let (mut names, mut after) = (Vec::new(), None);
    /// loop {
    ///     let page = keeper.list_page("", after.as_deref(), 2).await?;
    ///     names.extend(page.locks.into_iter().map(|lock| lock.name.to_string()));
    ///     after = page.next;
    ///     if after.is_none() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(names, ["a", "b", "c"]);
    /// # Ok(()) }
    /// ```
    pub async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let limit = limit.clamp(1, Page::MOST);
        self.ask(|engine| async move {
            let page = inspector(&engine)?.list_page(&prefix, after.as_deref(), limit);
            engine.counted(Operation::Inspect, page).await
        })
        .await
    }

    /// Who holds `name` and who waits for it.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn show(&self, name: &str) -> Result<LockView> {
        let name = Name::new(name)?;
        self.ask(|engine| async move {
            engine.counted(Operation::Inspect, inspector(&engine)?.show(&name)).await
        })
        .await
    }

    /// The very keys, nodes or rows in which the store keeps `name`, as the store's own tools would
    /// ask for them: to compare with what another library uses. Empty for a store that has none.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a bad name.
    pub fn keys(&self, name: &str) -> Result<Vec<String>> {
        Ok(self.engine.backend.keys(&Name::new(name)?))
    }

    /// What an operator should know of the store: version, persistence, eviction, replication, clock,
    /// each with what to do about it. Empty for a store that is not asked anything. Takes no lock and
    /// writes nothing; `lockkeeper doctor` prints it.
    ///
    /// # Errors
    /// What the store said. A user that may not ask gets a [`Finding`] that says so.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    pub async fn checkup(&self) -> Result<Vec<Finding>> {
        self.ask(|engine| async move {
            engine.counted(Operation::Check, engine.backend.checkup()).await
        })
        .await
    }

    /// How long each of `count` round trips to the store took, one after the other, each with the least
    /// request that the store knows: to compare with what a lock takes. Empty where nothing is asked of
    /// anyone, as in `memory:`.
    ///
    /// # Errors
    /// What the store said.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// assert!(keeper.round_trips(20).await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        self.ask(|engine| async move {
            engine.counted(Operation::Check, engine.backend.round_trips(count)).await
        })
        .await
    }

    /// Takes `name` from the holder with `token`, and lets the next one in at once.
    ///
    /// The holder is told and its guard counts as lost, but its work may go on for a moment:
    /// only a resource that checks tokens is safe from it. It is told why, by whom
    /// (`user@host pid 4242`, as this process is shown to others) and when: the store keeps these with
    /// the claim that was broken, and they are in the text of its
    /// [`LossReason::Broken`](crate::LossReason::Broken).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a reason of more than 700 bytes;
    /// [`ErrorKind::NotHeld`] when no one holds it with that token any more; else as
    /// [`list`](Self::list).
    pub async fn break_hold(&self, name: &str, token: FencingToken, reason: &str) -> Result<()> {
        let name = Name::new(name)?;
        if reason.len() > LONGEST_REASON {
            let message =
                format!("a reason has at most {LONGEST_REASON} bytes: give a shorter one");
            return Err(Error::new(ErrorKind::Config, message));
        }
        let reason = broken::note(reason, &self.engine.identity, SystemTime::now());
        self.ask(|engine| async move {
            let broken = inspector(&engine)?.break_hold(&name, token, &reason);
            match engine.counted(Operation::Break, broken).await? {
                true => Ok(()),
                false => Err(Error::new(
                    ErrorKind::NotHeld,
                    format!("{name:?} is not held with token {token}: look again who holds it now"),
                )),
            }
        })
        .await
    }

    /// Reserves `count` numbers in a row that nobody else gets under `name`, and returns the
    /// first; see [`Sequencer`](crate::backend::Sequencer::reserve).
    ///
    /// # Errors
    /// `Unsupported` where the store keeps no count; else what the store said.
    ///
    /// # Cancel safety
    /// Cancel safe: numbers reserved for no one are a gap.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let first = keeper.reserve("invoices", 10, 1000).await?;
    /// assert_eq!(first, 1000);
    /// assert_eq!(keeper.reserve("invoices", 1, 0).await?, 1010);
    /// # Ok(()) }
    /// ```
    pub async fn reserve(&self, name: &str, count: u32, floor: u64) -> Result<u64> {
        let name = Name::new(name)?;
        if count == 0 {
            return Err(Error::new(ErrorKind::Config, "at least one number is reserved"));
        }
        self.ask(|engine| async move {
            let sequencer = engine.backend.sequencer();
            let sequencer = sequencer.ok_or_else(|| {
                let why = engine.backend.no_sequencer();
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                unsupported(&engine, &format!("count of numbers{why}"), |c| c.sequences)
            })?;
            let wish = Reserve::new(count).from(floor);
            engine.counted(Operation::Number, sequencer.reserve(&name, &wish)).await?.first()
        })
        .await
    }

    /// The ids of `key`, to be opened with the kind that they are to be; see [`id`](crate::id).
    ///
    /// A bad key is reported when they are opened.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use lockkeeper::id::Generator;
    ///
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let invoices = keeper.ids("invoices").sequence().await?;
    /// assert!(invoices.next().await? < invoices.next().await?);
    /// # Ok(()) }
    /// ```
    pub fn ids(&self, key: &str) -> IdKey {
        IdKey::new(&self.engine, key)
    }

    /// Every key that the store has ids of.
    ///
    /// # Errors
    /// `Unsupported` where the store keeps no count; else what the store said.
    pub async fn id_keys(&self) -> Result<Vec<KeyView>> {
        registry::list(&Store::new(&self.engine)?).await
    }

    /// Every worker number that is or was in use, for the ids of `key` or of all.
    ///
    /// # Errors
    /// As [`id_keys`](Self::id_keys).
    pub async fn id_workers(&self, key: Option<&str>) -> Result<Vec<WorkerView>> {
        worker::list(&Store::new(&self.engine)?, key).await
    }

    /// Asks the store something, on whatever executor.
    async fn ask<T, F>(&self, question: impl FnOnce(Arc<Engine>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.engine.completing(question(self.engine.clone()))?.await
    }

    /// Waits until every release and withdrawal under way in the background is through, and then,
    /// unless a guard is still held or a claim waits, ends the session, the connection and the
    /// driver that the keeper has with the store; for at most `limit` in all. Call it before the
    /// process ends, or dropped guards may be left to run out. Returns whether all of it was done.
    ///
    /// The keeper can be used again afterwards: it connects again.
    ///
    /// # Cancel safety
    /// Cancel safe: the work goes on.
    pub async fn close(&self, limit: Duration) -> bool {
        if !self.engine.background.is_started() {
            // Never used, so nothing is under way.
            return true;
        }
        let engine = self.engine.clone();
        let until = Moment::now() + limit;
        let closing = self.engine.completing(async move {
            let idle = engine.background.idle(limit).await;
            idle && (!engine.is_unused() || engine.backend.close().await.is_ok())
        });
        match closing {
            // Not counted among the work that it waits for, also if the caller leaves.
            Ok(closing) => {
                let closing = self.engine.by(Some(until), closing.uncounted());
                closing.await.ok().flatten().unwrap_or(false)
            }
            Err(_) => false,
        }
    }
}

fn inspector(engine: &Engine) -> Result<&dyn Inspector> {
    let inspector = engine.backend.inspector();
    inspector.ok_or_else(|| unsupported(engine, "way to list holders", |c| c.inspects))
}

/// One line: the store, without secrets.
impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keeper({self})")
    }
}

impl std::fmt::Display for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.engine.backend.fmt(f)
    }
}
