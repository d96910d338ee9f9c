//! Ids by the clock with a leased worker number: given without asking the store, up to the mark that the
//! store has on record.
//!
//! A task in the background looks at the store's clock and moves the mark on, three times in each window.
//! While the store does not answer, ids go on up to the mark, and then there is an error.

use super::clock::IdClock;
use super::core::ticks::{Taken, Ticks};
use super::generator::Generator;
use super::order::{Health, Order};
use super::registry::KeyRecord;
use super::scale::Scale;
use super::store::Store;
use super::value::Id;
use super::worker::{self, Extended, WorkerLease};
use crate::backend::support::sync::lock;
use crate::error::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long `next` waits for the store to move the mark on.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many looks `next` waits for while the store answers: in a crowd an answer may come so late that the
/// mark is past again.
const LOOKS: u32 = 5;

/// The pause before the store is asked again that did not answer.
const AGAIN: Duration = Duration::from_millis(250);

/// The pause after a look that somebody asked for.
const CALM: Duration = Duration::from_millis(20);

/// The pause while the ids of a new number have not begun.
const EARLY: Duration = Duration::from_millis(5);

/// What a generator with a leased number is made of, beside its layout.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lease {
    /// For how long ids go on while the store does not answer; and how long the number of a process that
    /// died is left alone, twice that long. It is on record with the key, and another is refused. `None` is
    /// what is on record, and 30 s for a new key; after a store lost its keys, processes that leave it to the
    /// record begin with 30 s, so name it where it is longer.
    pub window: Option<Duration>,
    /// Reads a clock that a task brings up to date once a millisecond, instead of the machine's for each
    /// id: several times as fast, at the price of that task. Default false.
    pub cached_clock: bool,
}

/// A generator that gives ids by the clock. Clones share it; the last one that is dropped gives the worker
/// number back in the background, [`close`](Self::close) does so at once.
///
/// On a server a key that is new is opened when it is a [`window`](Lease::window) old: it may be an old one
/// whose server lost its data, and whose holders of before go on for so long.
#[derive(Debug)]
pub struct Leased<S: Scale> {
    shared: Arc<Shared<S>>,
    /// Ends the task in the background with the last clone.
    handle: Arc<Handle<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    ticks: Ticks,
    clock: IdClock,
    scale: S,
    ahead: u64,
    cached: bool,
    store: Store,
    key: KeyRecord,
    window: Duration,
    lease: tokio::sync::Mutex<Option<WorkerLease>>,
    state: Mutex<State>,
    /// The task should look now.
    nudge: Notify,
    /// The task has looked.
    looked: Notify,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    worker: u32,
    /// Ids are of times above this only, in milliseconds since 1970.
    floor: u64,
    trouble: Option<String>,
}

#[derive(Debug)]
struct Handle<S: Scale>(Arc<Shared<S>>);

impl<S: Scale> Leased<S> {
    pub(crate) async fn open(store: Store, key: KeyRecord, scale: S, terms: Lease) -> Result<Self> {
        let window = key.window(terms.window);
        let mut reading = store.time().await?;
        scale.check(reading.nanos / 1_000_000)?;
        if let Some(left) = unripe(&store, &key, window, reading.nanos / 1_000_000) {
            store.sleep(left).await?;
            reading = store.time().await?;
        }
        let now = reading.nanos / 1_000_000;
        let lease = WorkerLease::take(&store, &key, scale.workers(), window, now).await?;
        let shared = Arc::new(Shared {
            ticks: Ticks::new(scale.worker_bits()),
            clock: IdClock::new(reading),
            ahead: scale.ahead(),
            cached: terms.cached_clock,
            scale,
            store,
            key,
            window,
            state: Mutex::default(),
            nudge: Notify::new(),
            looked: Notify::new(),
            ended: CancellationToken::new(),
            lease: tokio::sync::Mutex::new(None),
        });
        shared.begin(&lease);
        *shared.lease.lock().await = Some(lease);
        let background = &shared.store.engine().background;
        background.drive(extend(shared.clone()));
        if terms.cached_clock {
            background.drive(tick(shared.clone()));
        }
        Ok(Self { handle: Arc::new(Handle(shared.clone())), shared })
    }

    /// What the bits or digits of its ids mean.
    pub fn scale(&self) -> &S {
        &self.shared.scale
    }

    /// Gives the worker number back: from now on there are no ids here.
    ///
    /// # Errors
    /// What the store said; the number is then free once its mark is past.
    ///
    /// # Cancel safety
    /// Cancel safe: without an answer the number is free later.
    pub async fn close(&self) -> Result<()> {
        self.shared.clone().close().await
    }

    /// Takes up to `count` ticks in a row.
    #[inline]
    fn take(&self, count: u64) -> Taken {
        let shared = &*self.shared;
        let millis =
            if shared.cached { shared.clock.cached_millis() } else { shared.clock.millis() };
        shared.ticks.take(shared.scale.tick(millis), shared.ahead, count)
    }

    #[inline]
    fn id(&self, tick: u64, worker: u64) -> Id {
        self.shared.scale.id(tick, worker)
    }

    /// As many ids as there are at once, `count` at the most.
    async fn some(&self, count: u64) -> Result<Vec<Id>> {
        let count = count.min(self.shared.ahead.max(2) / 2);
        let mut looks = 0;
        loop {
            match self.take(count) {
                Taken::From { tick, worker } => {
                    return Ok((tick..tick + count).map(|tick| self.id(tick, worker)).collect());
                }
                Taken::Full => self.shared.store.sleep(Duration::from_millis(1)).await?,
                Taken::PastMark if self.shared.is_early() => {
                    self.shared.store.sleep(EARLY).await?;
                }
                Taken::PastMark if looks == LOOKS || looks > 0 && self.shared.is_troubled() => {
                    return Err(self.shared.past_mark());
                }
                Taken::PastMark => {
                    looks += 1;
                    self.shared.look().await?;
                }
            }
        }
    }
}

impl<S: Scale> Generator for Leased<S> {
    type Id = Id;

    #[inline]
    fn try_next(&self) -> Result<Option<Id>> {
        match self.take(1) {
            Taken::From { tick, worker } => Ok(Some(self.id(tick, worker))),
            Taken::Full => Ok(None),
            Taken::PastMark if self.shared.is_early() => Ok(None),
            Taken::PastMark => Err(self.shared.past_mark()),
        }
    }

    async fn next(&self) -> Result<Id> {
        if let Taken::From { tick, worker } = self.take(1) {
            return Ok(self.id(tick, worker));
        }
        let ids = self.some(1).await?;
        ids.first().copied().ok_or_else(|| self.shared.past_mark())
    }

    async fn next_n(&self, count: u32) -> Result<Vec<Id>> {
        let mut ids = Vec::new();
        let count = count as usize;
        while ids.len() < count {
            ids.extend(self.some((count - ids.len()) as u64).await?);
        }
        Ok(ids)
    }

    fn order(&self) -> Order {
        Order::RoughlyByTime(Duration::from_secs(1))
    }

    fn health(&self) -> Health {
        let shared = &self.shared;
        let state = lock(&shared.state);
        let mark = shared.scale.millis(shared.ticks.mark());
        let headroom = Duration::from_millis(mark.saturating_sub(shared.clock.millis()));
        Health {
            worker: Some(state.worker),
            headroom: Some(headroom),
            trouble: state.trouble.clone(),
            end: Some(shared.scale.end()),
            ..Health::default()
        }
    }
}

impl<S: Scale> Shared<S> {
    /// Gives ids by this lease; whether it can, since marks do not go back.
    fn begin(&self, lease: &WorkerLease) -> bool {
        let (floor, mark) = (self.scale.up_to(lease.floor), self.scale.up_to(lease.mark()));
        let begun = self.ticks.begin(u64::from(lease.number()), floor, mark);
        if begun {
            let mut state = lock(&self.state);
            (state.worker, state.floor) = (lease.number(), lease.floor);
        }
        begun
    }

    /// Whether the times that the lease is good for have not begun: the mark is moved on meanwhile.
    #[cold]
    fn is_early(&self) -> bool {
        !self.ended.is_cancelled() && self.clock.millis() <= lock(&self.state).floor
    }

    /// The last millisecond of which ids may be given.
    fn usable(&self) -> u64 {
        self.scale.millis(self.ticks.mark())
    }

    /// Asks the background task to look at the store, and waits until it has, but not long.
    async fn look(&self) -> Result<()> {
        let looked = self.looked.notified();
        self.nudge.notify_one();
        let wait = self.store.sleep(PATIENCE);
        tokio::select! {
            () = looked => Ok(()),
            slept = wait => slept,
        }
    }

    /// Whether the last look at the store was in vain, or there is nothing to look for.
    fn is_troubled(&self) -> bool {
        self.ended.is_cancelled() || lock(&self.state).trouble.is_some()
    }

    /// Why there are no ids.
    #[cold]
    fn past_mark(&self) -> Error {
        self.nudge.notify_one();
        let state = lock(&self.state);
        let (backend, key, worker) = (&self.store.engine().backend, &self.key.key, state.worker);
        if self.ended.is_cancelled() {
            return Error::new(ErrorKind::NotHeld, format!("the generator of {key:?} is closed"));
        }
        if let Err(end) = self.scale.check(self.clock.millis()) {
            return end;
        }
        let why =
            state.trouble.as_deref().unwrap_or("this machine's clock is ahead of the store's");
        let message = format!(
            "no more ids of {key:?}: {backend} has not confirmed worker number {worker} up to now, and \
             without that another process may give the same ids: {why}"
        );
        Error::new(ErrorKind::Unavailable, message)
    }

    /// One look: follows the store's clock, and moves the mark on.
    async fn confirm(&self) -> Result<()> {
        let reading = self.store.time().await?;
        self.clock.follow(reading, self.usable());
        let now = self.clock.millis();
        let mut lease = self.lease.lock().await;
        if self.ended.is_cancelled() {
            return Ok(());
        }
        if let Some(held) = lease.as_mut() {
            match held.extend(&self.store, self.window, now).await? {
                Extended::Until(mark) => {
                    self.ticks.extend(self.scale.up_to(mark));
                    return Ok(());
                }
                Extended::Lost => {
                    let (key, worker) = (&*self.key.key, held.number());
                    tracing::warn!(key, worker, "a worker number was lost: another is taken");
                    // Where only its mark is past, it need not be left to run out.
                    let _ = held.release(&self.store, held.mark()).await;
                    *lease = None;
                }
            }
        }
        let taken =
            WorkerLease::take(&self.store, &self.key, self.scale.workers(), self.window, now)
                .await?;
        if !self.begin(&taken) {
            // Its mark is before that of the number that was lost: free again, and another look later.
            taken.release(&self.store, taken.floor).await?;
            return Err(Error::new(ErrorKind::Unavailable, "the store's clock went back"));
        }
        *lease = Some(taken);
        Ok(())
    }

    async fn close(self: Arc<Self>) -> Result<()> {
        self.ended.cancel();
        let mut lease = self.lease.lock().await;
        let Some(held) = lease.take() else { return Ok(()) };
        // Whatever is given from now on is past the mark.
        let last = self.ticks.close();
        held.release(&self.store, self.scale.millis(last)).await
    }
}

/// How long to wait before a number of this key is taken, if at all; see [`worker::ripe`].
fn unripe(store: &Store, key: &KeyRecord, window: Duration, now: u64) -> Option<Duration> {
    let window = worker::millis(window);
    let left = worker::ripe(store, key, window).checked_sub(now)?;
    // A clock that was set back by days is not waited for.
    let left = Duration::from_millis(left.min(window + worker::APART) + 1);
    if left > Duration::from_secs(2) {
        let (key, seconds) = (&*key.key, left.as_secs());
        let why = "the ids are new: the first comes when those of a server that lost its data would be over; a \
             shorter window makes that shorter";
        tracing::warn!(key, seconds, "{why}");
    }
    Some(left)
}

/// Moves the mark on until the generator is dropped.
async fn extend<S: Scale>(shared: Arc<Shared<S>>) {
    let mut pause = shared.window / 3;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.nudge.notified() => {}
            () = shared.ended.cancelled() => return,
        }
        let outcome = shared.confirm().await;
        let failed = outcome.is_err();
        lock(&shared.state).trouble = outcome.err().map(|error| error.to_string());
        shared.looked.notify_waiters();
        // A nudge that came meanwhile was answered by this look. Many callers nudge at once, and a store
        // that does not answer is not asked as often as they call.
        tokio::select! {
            biased;
            () = shared.ended.cancelled() => return,
            () = tokio::time::sleep(AGAIN.min(shared.window / 3)), if failed => {}
            () = shared.nudge.notified(), if !failed => tokio::time::sleep(CALM).await,
            () = std::future::ready(()), if !failed => {}
        }
        pause = if failed { Duration::ZERO } else { shared.window / 3 };
    }
}

/// Brings the cached clock up to date until the generator is dropped.
async fn tick<S: Scale>(shared: Arc<Shared<S>>) {
    let mut every = tokio::time::interval(Duration::from_millis(1));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    while !shared.ended.is_cancelled() {
        every.tick().await;
        shared.clock.tick();
    }
}

impl<S: Scale> Clone for Leased<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), handle: self.handle.clone() }
    }
}

impl<S: Scale> Drop for Handle<S> {
    fn drop(&mut self) {
        if self.0.ended.is_cancelled() {
            return;
        }
        self.0.ended.cancel();
        let shared = self.0.clone();
        self.0.store.engine().spawn(async move {
            // The number is free later if this does not succeed.
            let _ = shared.close().await;
        });
    }
}
