//! The handle a program opens once.

use crate::backend::{Backend, Capability, Inspector, LockView, Reserve};
use crate::background::Background;
use crate::claim::{FencingToken, Mode, Owner, Primitive};
use crate::clock::Moment;
use crate::completing::Entered;
use crate::election::Election;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Events;
use crate::id::store::Store;
use crate::id::{IdKey, KeyView, WorkerView, registry, worker};
use crate::identity::identity;
use crate::lock::Lock;
use crate::multi::Multi;
use crate::name::Name;
use crate::patience::OUTAGE;
use crate::rw_lock::RwLock;
use crate::terms::{LONGEST_NOTE, Terms, unsupported};
use std::sync::Arc;
use std::time::Duration;

/// A connection to one store, from which every lock is made. Clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let guard = keeper.lock("orders/42").acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
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

    /// A lock that one holds at a time.
    ///
    /// A bad name is reported when the lock is acquired.
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(&self.engine, name, Mode::Exclusive, Terms::default())
    }

    /// A lock that many may read or one may write.
    pub fn rw_lock(&self, name: &str) -> RwLock {
        RwLock::new(&self.engine, name)
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
    pub fn semaphore(&self, name: &str, permits: u32) -> Lock {
        let terms = Terms { primitive: Primitive::Semaphore, ..Terms::default() };
        Lock::new(&self.engine, name, Mode::Permit { of: permits }, terms)
    }

    /// Several locks, taken all or none, always in one order.
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Multi {
        let names = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        Multi::new(&self.engine, names)
    }

    /// An election of one leader at a time.
    pub fn election(&self, name: &str) -> Election {
        Election::new(&self.engine, name)
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
        self.ask(|engine| async move { inspector(&engine)?.list(&prefix).await }).await
    }

    /// Who holds `name` and who waits for it.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn show(&self, name: &str) -> Result<LockView> {
        let name = Name::new(name)?;
        self.ask(|engine| async move { inspector(&engine)?.show(&name).await }).await
    }

    /// The very keys, nodes or rows in which the store keeps `name`, as the store's own tools would
    /// ask for them: to compare with what another library uses. Empty for a store that has none.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a bad name.
    pub fn keys(&self, name: &str) -> Result<Vec<String>> {
        Ok(self.engine.backend.keys(&Name::new(name)?))
    }

    /// Takes `name` from the holder with `token`, and lets the next one in at once.
    ///
    /// The holder is told and its guard counts as lost, but its work may go on for a moment:
    /// only a resource that checks tokens is safe from it.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] when no one holds it with that token any more; else as
    /// [`list`](Self::list).
    pub async fn break_hold(&self, name: &str, token: FencingToken, reason: &str) -> Result<()> {
        let name = Name::new(name)?;
        if reason.len() > LONGEST_NOTE {
            let message = format!("a reason has at most {LONGEST_NOTE} bytes");
            return Err(Error::new(ErrorKind::Config, message));
        }
        let reason = reason.to_owned();
        self.ask(|engine| async move {
            match inspector(&engine)?.break_hold(&name, token, &reason).await? {
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
            sequencer.reserve(&name, &Reserve::new(count).from(floor)).await?.first()
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

    /// What `work` comes to within `limit`, on whatever executor; `None` when it takes longer.
    pub(crate) async fn within<T: Send>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Result<Option<T>> {
        let until = Moment::now() + limit;
        let race = async move {
            tokio::select! {
                biased;
                output = work => Some(output),
                () = until.reached() => None,
            }
        };
        Ok(Entered::new(race, self.engine.background.handle()?).await)
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

impl std::fmt::Display for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.engine.backend.fmt(f)
    }
}
