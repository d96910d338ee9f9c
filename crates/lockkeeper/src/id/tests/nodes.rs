//! What the model of worker leases is made of: nodes with the library's own leases and ticks, each with
//! a clock of its own.

use super::store::{Breakable, START};
use crate::Keeper;
use crate::id::core::ticks::{Taken, Ticks};
use crate::id::registry::KeyRecord;
use crate::id::scale::Scale;
use crate::id::store::Store;
use crate::id::worker::{Extended, WorkerLease};
use crate::id::{Kind, Layout};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// Fewer numbers than processes that lived within two windows: they are fought over.
pub(super) const NUMBERS: u32 = 3;

/// What the nodes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Design {
    /// What the library does.
    Marks,
    /// Who has a lease gives ids until it finds that the lease ran out: the mark says when others may
    /// have the number, and limits no id.
    TtlOnly,
    /// A number is taken over at once, and its mark of before is not heeded.
    NoFloor,
    /// An extension counts when it was sent, whatever the store says.
    Unconfirmed,
}

/// What happened; a run that saw too little tells nothing.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) ids: u64,
    pub(super) duplicates: u64,
    /// Nothing was free, or another was faster.
    pub(super) contention: u64,
    pub(super) crashes: u64,
    pub(super) take_overs: u64,
    pub(super) lost_answers: u64,
    pub(super) stops: u64,
    pub(super) losses: u64,
}

/// One process.
pub(super) struct Node {
    number: usize,
    store: Store,
    key: KeyRecord,
    ticks: Ticks,
    lease: Option<WorkerLease>,
    /// By how many milliseconds its clock is ahead of the store's.
    pub(super) ahead: i64,
    /// It does nothing before this moment of the store's clock.
    pub(super) wakes: u64,
    /// What its clock said before it was paused: the request that it was about to send has that.
    pub(super) read: Option<u64>,
    design: Design,
    last: u64,
}

/// Who had each worker number last, and every id: by whom and when.
#[derive(Default)]
pub(super) struct Book {
    holders: BTreeMap<u32, usize>,
    ids: BTreeMap<(u64, u64), usize>,
    pub(super) tally: Tally,
}

pub(super) fn layout() -> Layout {
    Layout::new(41, 2, 2).unwrap()
}

impl Node {
    /// A process that has just started; it has no number yet.
    pub(super) async fn start(number: usize, store: &Arc<Breakable>, design: Design) -> Self {
        let keeper: Keeper = store.keeper();
        let kind = Kind::Snowflake(layout());
        let (store, key) = keeper.ids("orders").record(Some(&kind)).await.unwrap();
        let ticks = Ticks::new(Scale::worker_bits(&layout()));
        Self {
            number,
            store,
            key,
            ticks,
            lease: None,
            ahead: 0,
            wakes: 0,
            read: None,
            design,
            last: 0,
        }
    }

    fn clock(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.ahead).max(START * 1000 - 86_400_000)
    }

    /// Reads its clock for a request that is sent later.
    pub(super) fn read_clock(&mut self, now: u64) {
        self.read = Some(self.clock(now));
    }

    /// Gives up to so many ids.
    pub(super) fn give(&mut self, now: u64, count: u32, book: &mut Book) {
        let clock = self.clock(now);
        for _ in 0..count {
            let taken = self.ticks.take(layout().tick_of(clock), layout().ahead(), 1);
            match taken {
                Taken::From { tick, worker } => {
                    assert!(tick > self.last, "node {} went back", self.number);
                    self.last = tick;
                    book.tally.ids += 1;
                    if book.ids.insert((tick, worker), self.number).is_some() {
                        book.tally.duplicates += 1;
                    }
                }
                Taken::Full => return,
                Taken::PastMark => {
                    book.tally.stops += 1;
                    return;
                }
            }
        }
    }

    /// One look at the store: what `Leased` does in the background.
    pub(super) async fn confirm(&mut self, now: u64, book: &mut Book) {
        let clock = self.read.take().unwrap_or(self.clock(now));
        let scale = layout();
        if let Some(held) = self.lease.as_mut() {
            let extended = held.extend(&self.store, WINDOW, clock).await;
            if self.design == Design::Unconfirmed {
                self.ticks.extend(scale.up_to(clock + 1_000));
            }
            match extended {
                Ok(Extended::Until(mark)) => {
                    self.ticks.extend(scale.up_to(mark));
                    return;
                }
                Ok(Extended::Lost) => self.lease = None,
                Err(_) => {
                    book.tally.lost_answers += 1;
                    return;
                }
            }
        }
        let hurry = if self.design == Design::NoFloor { 3_000 } else { 0 };
        let kind = Some(&self.key.kind);
        let Ok(key) = KeyRecord::open(&self.store, &self.key.key, kind, None, false).await else {
            book.tally.lost_answers += 1;
            return;
        };
        let taken = WorkerLease::take(&self.store, &key, NUMBERS, WINDOW, clock + hurry).await;
        let lease = match taken {
            Ok(lease) => lease,
            Err(error) if error.kind() == crate::ErrorKind::Exhausted => {
                book.tally.contention += 1;
                return;
            }
            Err(_) => {
                book.tally.lost_answers += 1;
                return;
            }
        };
        let holder = book.holders.insert(lease.number(), self.number);
        book.tally.take_overs += u64::from(holder.is_some_and(|it| it != self.number));
        let (floor, mark) = match self.design {
            Design::Marks | Design::Unconfirmed => (lease.floor, lease.mark()),
            Design::TtlOnly => (0, START * 1000 + 365 * 86_400_000),
            Design::NoFloor => (0, lease.mark()),
        };
        if self.ticks.begin(u64::from(lease.number()), scale.up_to(floor), scale.up_to(mark)) {
            self.lease = Some(lease);
        } else {
            let _ = lease.release(&self.store, lease.floor).await;
        }
    }

    /// Ends in order: gives its number back.
    pub(super) async fn close(&mut self) {
        let last = self.ticks.close();
        if let Some(lease) = self.lease.take() {
            let _ = lease.release(&self.store, Scale::millis(&layout(), last)).await;
        }
    }
}

trait TickOf {
    fn tick_of(&self, millis: u64) -> u64;
}

impl TickOf for Layout {
    fn tick_of(&self, millis: u64) -> u64 {
        Scale::tick(self, millis)
    }
}
