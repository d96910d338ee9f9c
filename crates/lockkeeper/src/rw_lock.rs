//! A lock that many may read or one may write.

use crate::claim::{Mode, Primitive};
use crate::engine::Engine;
use crate::lock::Lock;
use crate::terms::{Terms, terms_setters};
use std::sync::Arc;

/// A read-write lock: any number of readers, or one writer.
///
/// # Fairness
/// Where the backend is fair, a reader that comes after a waiting writer waits behind it, so
/// that neither side starves.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let catalogue = keeper.rw_lock("catalogue");
/// let one = catalogue.read().acquire().await?;
/// let two = catalogue.read().acquire().await?;
/// assert!(catalogue.write().try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "does nothing until it is acquired"]
pub struct RwLock {
    engine: Arc<Engine>,
    name: String,
    terms: Terms,
}

impl RwLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        let terms = Terms { primitive: Primitive::RwLock, ..Terms::default() };
        Self { engine: engine.clone(), name: name.to_owned(), terms }
    }

    terms_setters!();

    /// The side that shares with other readers.
    pub fn read(&self) -> Lock {
        self.side(Mode::Shared)
    }

    /// The side that shares with nobody: the same as [`Keeper::lock`](crate::Keeper::lock).
    pub fn write(&self) -> Lock {
        self.side(Mode::Exclusive)
    }

    fn side(&self, mode: Mode) -> Lock {
        Lock::new(&self.engine, &self.name, mode, self.terms.clone())
    }
}
