//! What one case works with: names that no other case uses, keepers, and timeouts.

use crate::faulty::Faulty;
#[cfg(unix)]
use crate::process::Process;
use crate::subject::Subject;
use crate::verdict::{Failure, Outcome};
#[cfg(unix)]
use crate::witness::Room;
use lockkeeper::backend::{Backend, Capability, LockView};
use lockkeeper::{ErrorKind, Keeper};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a case waits for what must happen. Generous: only a broken promise takes this long.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

/// A ttl that no case waits out: a name that is free before its end was released.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// The least that remains of a ttl of [`LONG`] just after the grant. A session may be shorter than
/// the ttl, but some of it remains.
pub(crate) fn most_of_long(capability: &Capability) -> Duration {
    if capability.session { ms(200) } else { PATIENT }
}

/// A ttl short enough to wait out; see [`Stage::ttl`].
pub(crate) const SHORT: Duration = Duration::from_millis(500);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) struct Stage {
    subject: Subject,
    shortest_ttl: Duration,
    prefix: String,
    props: Mutex<Props>,
}

/// What the case created and must end.
#[derive(Default)]
struct Props {
    names: Vec<String>,
    keepers: Vec<Keeper>,
    faulties: Vec<Arc<Faulty>>,
}

impl Stage {
    pub(crate) fn new(subject: Subject, shortest_ttl: Duration) -> Self {
        let prefix = subject.prefix();
        Self { subject, shortest_ttl, prefix, props: Mutex::default() }
    }

    /// A short ttl, as long as the store's clock needs it to be.
    pub(crate) fn ttl(&self, wanted: Duration) -> Duration {
        wanted.max(self.shortest_ttl)
    }

    /// As [`ttl`](Self::ttl), for an order to a process.
    #[cfg(unix)]
    pub(crate) fn ttl_ms(&self, wanted: u64) -> u128 {
        self.ttl(ms(wanted)).as_millis()
    }

    /// How often something is done that waits for an expiry: fewer times where that takes long.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        if self.shortest_ttl > SHORT { usual.min(2) } else { usual }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A name that only this case uses.
    pub(crate) fn name(&self, tail: &str) -> String {
        let name = format!("{}{tail}", self.prefix);
        self.with(|props| props.names.push(name.clone()));
        name
    }

    pub(crate) async fn backend(&self) -> Outcome<Arc<dyn Backend>> {
        Ok(self.subject.open().await?)
    }

    /// A keeper with its own handle to the store.
    pub(crate) async fn keeper(&self) -> Outcome<Keeper> {
        let keeper = Keeper::new(self.backend().await?)?;
        self.with(|props| props.keepers.push(keeper.clone()));
        Ok(keeper)
    }

    /// A keeper, and the handle to the store that it has.
    pub(crate) async fn opened(&self) -> Outcome<(Keeper, Arc<dyn Backend>)> {
        let backend = self.backend().await?;
        let keeper = Keeper::new(backend.clone())?;
        self.with(|props| props.keepers.push(keeper.clone()));
        Ok((keeper, backend))
    }

    /// A keeper whose connection to the store can be made to fail.
    pub(crate) async fn faulty(&self) -> Outcome<(Keeper, Arc<Faulty>)> {
        let faulty = Arc::new(Faulty::new(self.backend().await?));
        let keeper = Keeper::new(faulty.clone())?;
        self.with(|props| {
            props.keepers.push(keeper.clone());
            props.faulties.push(faulty.clone());
        });
        Ok((keeper, faulty))
    }

    /// A separate process, which opens the store by its URL.
    #[cfg(unix)]
    pub(crate) fn process(&self) -> Outcome<Process> {
        let Some(crossing) = self.subject.crossing() else {
            return Err(Failure::unknown("there is no program to start"));
        };
        Process::start(&crossing.taker, &crossing.url)
    }

    /// Pauses `process` between two of its requests, not during one: a store that is a file is
    /// blocked for everyone while a paused process has the file locked. No lock can repair that
    /// property of the store, and it would only disturb the case.
    #[cfg(unix)]
    pub(crate) async fn pause(&self, process: &Process) -> Outcome {
        let probe = self.keeper().await?.lock(self.name("probe"));
        for _ in 0..20 {
            process.pause()?;
            let answered = tokio::time::timeout(ms(700), probe.try_acquire()).await;
            if matches!(answered, Ok(Ok(Some(_)))) {
                return Ok(());
            }
            process.go_on()?;
            tokio::time::sleep(ms(20)).await;
        }
        Err(Failure::unknown("it was never paused while the store was at rest"))
    }

    /// A room guarded by nothing but the lock, reachable from other processes.
    #[cfg(unix)]
    pub(crate) fn room(&self) -> Outcome<Room> {
        Ok(Room::at(&self.room_path())?)
    }

    fn room_path(&self) -> PathBuf {
        std::env::temp_dir().join(self.prefix.replace('/', "-"))
    }

    /// Ends what the case began and checks that it left nothing in the store.
    pub(crate) async fn cleared(&self) -> Outcome {
        let props = self.with(std::mem::take);
        props.faulties.iter().for_each(|faulty| faulty.heal());
        for keeper in &props.keepers {
            keeper.close(PATIENT).await;
        }
        let keeper = Keeper::new(self.backend().await?)?;
        if keeper.list(&self.prefix).await.is_err_and(|e| e.kind() == ErrorKind::Unsupported) {
            for name in &props.names {
                // An exclusive lock can be taken only if the name is free, whatever mode the case
                // used.
                let lock = keeper.lock(name);
                let taken = eventually("a name of the case is free again", async || {
                    Ok(lock.try_acquire().await?)
                });
                taken.await?.release().await?;
            }
            return Ok(());
        }
        let mut left = Vec::new();
        let deadline = Instant::now() + PATIENT;
        while Instant::now() < deadline {
            left = keeper.list(&self.prefix).await?;
            if left.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(ms(20)).await;
        }
        Err(Failure::broken(format!("left behind in the store: {left:?}")))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Props) -> T) -> T {
        act(&mut self.props.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Fails for most cases, which have no room.
        let _ = std::fs::remove_dir_all(self.room_path());
    }
}

/// Retries until there is a result; fails with `what` if none ever comes.
pub(crate) async fn eventually<T>(
    what: &str,
    mut probe: impl AsyncFnMut() -> Outcome<Option<T>>,
) -> Outcome<T> {
    let deadline = Instant::now() + PATIENT;
    loop {
        if let Some(answer) = probe().await? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            return Err(Failure::broken(format!("in {PATIENT:?} it did not happen that {what}")));
        }
        tokio::time::sleep(ms(5)).await;
    }
}

/// Waits until the view of `name` satisfies `wanted`.
pub(crate) async fn seen(
    keeper: &Keeper,
    name: &str,
    what: &str,
    wanted: impl Fn(&LockView) -> bool + Send + Sync,
) -> Outcome<LockView> {
    eventually(what, async || Ok(Some(keeper.show(name).await?).filter(&wanted))).await
}

/// Waits until `length` claims wait for `name`.
pub(crate) async fn queue_of(keeper: &Keeper, name: &str, length: usize) -> Outcome<LockView> {
    let what = format!("{length} wait in the queue");
    seen(keeper, name, &what, |view| view.waiters.len() == length).await
}

/// Fails if `name` is free.
pub(crate) async fn taken(keeper: &Keeper, name: &str) -> Outcome {
    match keeper.lock(name).try_acquire().await? {
        None => Ok(()),
        Some(_) => Err(Failure::broken(format!("{name:?} could be taken a second time"))),
    }
}

/// Fails unless `name` can be taken within [`PATIENT`]; releases it again.
pub(crate) async fn free(keeper: &Keeper, name: &str) -> Outcome {
    keeper.lock(name).acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

/// Whether the backend has what the cases of the queue need.
pub(crate) fn queues(capability: &Capability, inspects: bool) -> bool {
    capability.fair && inspects
}
