//! Numbers out of ranges that were reserved ahead: an addition each, and no request for most.
//!
//! One range is given out while the next is fetched in the background, from the moment a fifth is used.
//! There is one request at a time, so that ranges come in order and a process never goes back. The size
//! of a range follows the rate: it should last a few seconds.

mod block;
mod stock;

pub use block::Block;

use super::core::cursor::Cursor;
use super::counter::Counter;
use super::generator::Generator;
use super::order::{Health, Order};
use super::value::Id;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stock::{Fetch, Refill, Stock};
use tokio::sync::Notify;

/// Numbers of one key, unique for all and growing in each process. After a crash, what was reserved and
/// not given is a gap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::id::Generator;
///
/// let keeper = lockkeeper::connect("memory:").await?;
/// let ids = keeper.ids("photos").segment().await?;
/// let one = ids.next().await?;
/// let more = ids.next_n(1_000).await?;
/// assert!(more.iter().all(|id| *id > one));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Segment {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    cursor: Cursor,
    counter: Counter,
    stock: std::sync::Mutex<Stock>,
    /// A range came, or the store failed.
    changed: Notify,
    waits: AtomicU64,
}

impl Segment {
    pub(crate) fn new(counter: Counter) -> Self {
        let shared = Shared {
            cursor: Cursor::new(),
            counter,
            stock: std::sync::Mutex::default(),
            changed: Notify::new(),
            waits: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Numbers for one thread, taken `size` at a time: faster than a shared addition for each. They grow
    /// within the block, and not across threads; what is left when it is dropped is a gap.
    pub fn block(&self, size: u32) -> Block {
        Block::new(self.clone(), size)
    }

    /// Up to `count` numbers in a row.
    #[inline]
    fn take(&self, count: u64) -> Result<Option<(u64, u64)>> {
        match self.shared.cursor.take(count) {
            Some(piece) => {
                if piece.ebb {
                    self.ebb();
                }
                Ok(Some((piece.first, piece.count)))
            }
            None => self.refill(count),
        }
    }

    /// Sees to the next range.
    #[cold]
    fn ebb(&self) {
        let fetch = self.shared.stock().ebb();
        self.fetch(fetch);
    }

    /// Goes on to the next range; `None` while it is on its way.
    #[cold]
    fn refill(&self, wanted: u64) -> Result<Option<(u64, u64)>> {
        loop {
            let refill = self.shared.stock().refill(&self.shared.cursor, wanted);
            match refill {
                Refill::Filled => {}
                Refill::Wait(fetch) => {
                    self.fetch(fetch);
                    return Ok(None);
                }
                Refill::Failed(error) => return Err(error),
            }
            if let Some(piece) = self.shared.cursor.take(wanted) {
                if piece.ebb {
                    self.ebb();
                }
                return Ok(Some((piece.first, piece.count)));
            }
        }
    }

    /// Reserves a range in the background.
    fn fetch(&self, fetch: Option<Fetch>) {
        let Some(Fetch { count }) = fetch else { return };
        let shared = self.shared.clone();
        self.shared.counter.store().engine().spawn(async move {
            let reserved = shared.counter.reserve(count, 1, crate::backend::LAST_NUMBER).await;
            let range = reserved.and_then(|first| first.ok_or_else(super::sequence::used_up));
            shared.stock().arrived(range.map(|first| (first, first + u64::from(count))));
            shared.changed.notify_waiters();
        });
    }

    /// Up to `count` numbers, once there are some.
    async fn wait(&self, count: u64) -> Result<(u64, u64)> {
        let mut waited = false;
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that a range that comes in between is not missed.
            changed.as_mut().enable();
            if let Some(piece) = self.take(count)? {
                return Ok(piece);
            }
            if !waited {
                waited = true;
                self.shared.waits.fetch_add(1, Ordering::Relaxed);
            }
            changed.await;
        }
    }
}

impl Shared {
    fn stock(&self) -> std::sync::MutexGuard<'_, Stock> {
        crate::backend::support::sync::lock(&self.stock)
    }
}

impl Generator for Segment {
    type Id = Id;

    #[inline]
    fn try_next(&self) -> Result<Option<Id>> {
        Ok(self.take(1)?.map(|(first, _)| Id::new(first)))
    }

    async fn next(&self) -> Result<Id> {
        match self.try_next()? {
            Some(id) => Ok(id),
            None => self.wait(1).await.map(|(first, _)| Id::new(first)),
        }
    }

    async fn next_n(&self, count: u32) -> Result<Vec<Id>> {
        let mut ids = Vec::new();
        let mut left = u64::from(count);
        while left > 0 {
            let (first, count) = self.wait(left).await?;
            ids.extend((first..first + count).map(Id::new));
            left -= count;
        }
        Ok(ids)
    }

    fn order(&self) -> Order {
        Order::PerProcess
    }

    fn health(&self) -> Health {
        let stock = self.shared.stock();
        let left = self.shared.cursor.left() + stock.ready();
        Health {
            left: Some(left),
            reservations: self.shared.counter.reservations(),
            // The first range is always waited for.
            waits: self.shared.waits.load(Ordering::Relaxed).saturating_sub(1),
            trouble: stock.trouble(),
            ..Health::default()
        }
    }
}

/// An error for each of several callers: the store is asked once for all of them.
fn copy(error: &Error) -> Error {
    let copy = Error::new(error.kind(), error.to_string());
    if error.is_retryable() { copy } else { copy.lasting() }
}
