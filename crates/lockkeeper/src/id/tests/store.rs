//! A store in memory that can be cut off, emptied, and whose clock can be set.

use crate::Keeper;
use crate::backend::memory::Memory;
use crate::backend::support::sync::lock;
use crate::backend::{
    Backend, Capability, Claim, Grant, Name, Patience, Reserve, Reserved, Sequencer,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The beginning of its time, in seconds since 1970: 2026-11-15 07:30:00 UTC.
pub(super) const START: u64 = 1_794_727_800;

#[derive(Debug)]
pub(super) struct Breakable {
    memory: Mutex<Arc<Memory>>,
    started: Instant,
    /// By how many seconds its clock was set forward.
    ahead: AtomicU64,
    cut: AtomicBool,
    /// Whether what it does is not answered.
    mute: AtomicBool,
}

impl Breakable {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: Mutex::new(Arc::new(Memory::new())),
            started: Instant::now(),
            ahead: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            mute: AtomicBool::new(false),
        })
    }

    pub(super) fn keeper(self: &Arc<Self>) -> Keeper {
        self.link().0
    }

    /// A keeper with a connection of its own, which can be cut.
    pub(super) fn link(self: &Arc<Self>) -> (Keeper, Arc<Link>) {
        let link = Arc::new(Link { store: self.clone(), cut: AtomicBool::new(false) });
        (Keeper::new(link.clone()).unwrap(), link)
    }

    pub(super) fn cut_off(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    pub(super) fn lose_answers(&self, lose: bool) {
        self.mute.store(lose, Ordering::SeqCst);
    }

    pub(super) fn forget_everything(&self) {
        *lock(&self.memory) = Arc::new(Memory::new());
    }

    pub(super) fn set_clock_ahead(&self, seconds: u64) {
        self.ahead.store(seconds, Ordering::SeqCst);
    }

    fn memory(&self) -> Result<Arc<Memory>> {
        if self.cut.load(Ordering::SeqCst) { Err(silent()) } else { Ok(lock(&self.memory).clone()) }
    }

    fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        if self.mute.load(Ordering::SeqCst) { Err(silent()) } else { answer }
    }
}

fn silent() -> Error {
    Error::new(ErrorKind::Unavailable, "the store does not answer")
}

/// The connection of one keeper.
#[derive(Debug)]
pub(super) struct Link {
    store: Arc<Breakable>,
    cut: AtomicBool,
}

impl Link {
    /// As if the process had died, or the network.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    fn memory(&self) -> Result<Arc<Memory>> {
        if self.cut.load(Ordering::SeqCst) { Err(silent()) } else { self.store.memory() }
    }
}

#[async_trait]
impl Backend for Link {
    fn capability(&self) -> Capability {
        crate::recipes::MEMORY
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        self.memory()?.acquire(claim, patience).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.memory()?.withdraw(claim).await
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }
}

#[async_trait]
impl Sequencer for Link {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        self.store.answer(self.memory()?.reserve(name, wish).await)
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        self.store.answer(self.memory()?.read(name).await)
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        self.store.answer(self.memory()?.write(name, value, expected).await)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        self.store.answer(self.memory()?.list(prefix).await)
    }

    async fn time(&self) -> Result<Option<SystemTime>> {
        self.memory()?;
        let store = &self.store;
        let ahead = Duration::from_secs(START + store.ahead.load(Ordering::SeqCst));
        store.answer(Ok(Some(UNIX_EPOCH + ahead + store.started.elapsed())))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("breakable:")
    }
}
