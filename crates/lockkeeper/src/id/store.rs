//! The store behind ids: the names that they use there, and requests that any executor may await.

use crate::backend::{Name, Reserve, Reserved, Sequencer};
use crate::clock::Moment;
use crate::completing::Entered;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::meter::Operation;
use crate::terms::unsupported;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest key, in bytes: what stands before and behind it in the store must fit a name.
pub(crate) const LONGEST_KEY: usize = 150;

/// An answer within this says what the store's clock is.
const PRECISE: Duration = Duration::from_millis(200);

/// How often the clock of a store is read that answers slowly.
const LOOKS: u32 = 3;

/// A store that can keep count. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    engine: Arc<Engine>,
}

/// What the store's clock said, and when that was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// In nanoseconds since 1970.
    pub(crate) nanos: u64,
    pub(crate) at: Moment,
}

impl Store {
    pub(crate) fn new(engine: &Arc<Engine>) -> Result<Self> {
        match engine.backend.sequencer() {
            Some(_) => Ok(Self { engine: engine.clone() }),
            None => Err(unsupported(engine, "count of numbers", |c| c.sequences)),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) async fn reserve(&self, name: &Name, wish: Reserve) -> Result<Reserved> {
        let name = name.clone();
        self.ask(Operation::Number, |engine| async move {
            sequencer(&engine)?.reserve(&name, &wish).await
        })
        .await
    }

    pub(crate) async fn read(&self, name: &Name) -> Result<Option<String>> {
        let name = name.clone();
        self.ask(Operation::Record, |engine| async move { sequencer(&engine)?.read(&name).await })
            .await
    }

    pub(crate) async fn write(
        &self,
        name: &Name,
        value: &str,
        expected: Option<&str>,
    ) -> Result<bool> {
        let (name, value, expected) = (name.clone(), value.to_owned(), expected.map(str::to_owned));
        let write = |engine: Arc<Engine>| async move {
            sequencer(&engine)?.write(&name, &value, expected.as_deref()).await
        };
        self.ask(Operation::Record, write).await
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        let prefix = prefix.to_owned();
        self.ask(Operation::Record, |engine| async move { sequencer(&engine)?.list(&prefix).await })
            .await
    }

    pub(crate) async fn auto_increment(&self, count: u32) -> Result<Option<Vec<u64>>> {
        self.ask(Operation::Number, |engine| async move {
            sequencer(&engine)?.auto_increment(count).await
        })
        .await
    }

    /// What the store's clock says; this machine's, where the store has none.
    ///
    /// An answer that took long says little, since the store may have read its clock at any moment of it:
    /// then it is asked again, and the clock of ids rather stays behind than runs ahead.
    pub(crate) async fn time(&self) -> Result<Reading> {
        let mut best: Option<(Duration, SystemTime, Moment)> = None;
        for _ in 0..LOOKS {
            let sent = Moment::now();
            let told =
                self.ask(Operation::Time, |engine| async move { sequencer(&engine)?.time().await });
            let told = told.await?;
            // Before the moment is taken: a pause in between shows as an answer that took long.
            let own = SystemTime::now();
            let took = Moment::now().since(sent);
            let precise = told.is_some() && took <= PRECISE;
            let time = told.unwrap_or(own) + if precise { took / 2 } else { Duration::ZERO };
            if best.is_none_or(|(before, ..)| took < before) {
                best = Some((took, time, sent + took));
            }
            if took <= PRECISE {
                break;
            }
        }
        let unread = || Error::new(ErrorKind::Unavailable, "the store's clock was not read");
        let (_, time, at) = best.ok_or_else(unread)?;
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| {
            Error::new(ErrorKind::Store, "the store's clock is before 1970: set it")
        })?;
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Ok(Reading { nanos, at })
    }

    /// Sleeps, on whatever executor.
    pub(crate) async fn sleep(&self, time: Duration) -> Result<()> {
        let sleep = tokio_sleep(time);
        Entered::new(sleep, self.engine.background.handle()?).await;
        Ok(())
    }

    async fn ask<T, F>(
        &self,
        operation: Operation,
        question: impl FnOnce(Arc<Engine>) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let question = question(self.engine.clone());
        let engine = self.engine.clone();
        let asked = async move { engine.counted(operation, question).await };
        self.engine.completing(asked)?.await
    }
}

async fn tokio_sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

fn sequencer(engine: &Engine) -> Result<&dyn Sequencer> {
    engine
        .backend
        .sequencer()
        .ok_or_else(|| unsupported(engine, "count of numbers", |c| c.sequences))
}

/// A number that tells one writer's records from another's.
pub(crate) fn nonce(store: &Store) -> String {
    store.engine.ids.next().to_string().chars().take(16).collect()
}

/// Checks the key of ids.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.len() > LONGEST_KEY {
        let message = format!("the key of ids has at most {LONGEST_KEY} bytes");
        return Err(Error::new(ErrorKind::InvalidName, message));
    }
    Name::new(key).map(drop)
}

/// Where the record of a key is.
pub(crate) fn key_name(key: &str) -> Result<Name> {
    Name::new(&format!("{KEYS}{key}"))
}

/// Where the count of a key is: another one for a key that is made anew, so that those who knew the one
/// of before notice.
pub(crate) fn counter_name(key: &str, nonce: &str) -> Result<Name> {
    Name::new(&format!("id/{nonce}/{key}"))
}

/// Where the record of a worker is.
pub(crate) fn worker_name(key: &str, number: u32) -> Result<Name> {
    Name::new(&format!("{}{number}", workers_of(key)))
}

/// What the names of the workers of a key begin with; those of another key may, too.
pub(crate) fn workers_of(key: &str) -> String {
    format!("{WORKERS}{key}/")
}

/// What the names of all records of keys begin with.
pub(crate) const KEYS: &str = "id/key/";

/// What the names of all records of workers begin with.
pub(crate) const WORKERS: &str = "id/worker/";
