//! The keys that this keeper watches, and who is told what happens to them.
//!
//! A waiting claim watches the keys it is behind, and its own; a held claim watches its own, since
//! nothing else would notice a key that an operator deletes while its holder is at work. All
//! watches share one stream, which the [`driver`](super::driver) reads. The table here is what the
//! driver and the claims share; it does no I/O.
//!
//! A watch of a holder must miss nothing from the revision at which its key was last seen. A watch
//! from that revision would do, but etcd serves such watches only every 100 ms; so a watch begins
//! "now", and if anything at all was written in between, the key is read once more. After a break
//! of the stream it does begin at the revision where it ended: that is rare, and no read can tell
//! what happened to a key that was deleted and created again.
//!
//! ```text
//!   wanted ──(at once, or 20 ms later)──► due ──► asked ──► live
//!                                          ▲                 │
//!                                          └─ stream broke ──┘
//! ```

use super::protocol::{WatchCreateRequest, WatchFilter};
use crate::backend::support::sync::lock;
use crate::backend::{Alarm, ClaimId, LossReason, Moment};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// A key of our own is watched once it has been there for this long: most locks are held for less,
/// and cost etcd no watch.
const LATER: Duration = Duration::from_millis(20);
/// The shortest pause between two looks at which of those are due.
const TICK: Duration = Duration::from_millis(10);

/// Who is told.
#[derive(Debug, Clone)]
pub(super) enum Subscriber {
    /// A waiting claim, which then looks for itself.
    Waiter(Arc<Notify>),
    /// The holder of the key, which was created at this revision on this server lease.
    Holder { alarm: Alarm, created: i64, lease: i64 },
}

/// When to begin to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    Now,
    /// In a moment, if it is still wanted then.
    Later,
}

/// One watch, as the table knows it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) subscriber: Subscriber,
    /// The revision up to which nothing was missed, if that is known.
    pub(super) seen: Option<i64>,
    /// Watch from this revision on; zero for from now on. A watch from a past revision is served
    /// only every 100 ms, so that is for a holder's watch that broke.
    pub(super) from: i64,
    /// Whether it is to be watched now, not later.
    due: bool,
    /// Whether etcd was asked, on the present stream.
    asked: bool,
    /// Whether etcd would tell, with nothing missed before.
    pub(super) live: bool,
}

/// All watches of a keeper.
#[derive(Debug, Default)]
pub(super) struct WatchTable {
    /// The number of the last watch.
    next: i64,
    pub(super) watches: HashMap<i64, Entry>,
    /// Watches to begin later, in order.
    later: VecDeque<(Moment, i64)>,
    /// Claims that were detached, by when their keys are to go.
    detached: BTreeSet<(Moment, ClaimId)>,
    /// The connection of the present stream.
    pub(super) connection: Option<u64>,
    /// Whether the holders have been told that etcd cannot be reached.
    endangered: bool,
    /// Where the driver takes its orders; closed when it ended, which its runtime may do to it.
    orders: Option<mpsc::UnboundedSender<Order>>,
    /// The number of the driver in charge. One that was closed and has not noticed yet must not
    /// touch what the next one does.
    driver: u64,
}

/// What the driver is told.
#[derive(Debug)]
pub(super) enum Order {
    /// Begin the watch with this number.
    Begin(i64),
    /// End the watch with this number.
    End(i64),
    /// There is something to do later.
    Schedule,
}

/// What a driver is started with.
#[derive(Debug)]
pub(super) struct Assignment {
    /// Weak, so that the driver does not keep its keeper alive.
    table: Weak<Mutex<WatchTable>>,
    number: u64,
    /// Closed when the driver is to end.
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
}

type StartDriver = Box<dyn Fn(Assignment) + Send + Sync>;

/// The watches of a keeper.
pub(super) struct Watches {
    table: Arc<Mutex<WatchTable>>,
    start: StartDriver,
}

/// One watch, for as long as this lives.
#[derive(Debug)]
pub(super) struct Watch {
    id: i64,
    table: Arc<Mutex<WatchTable>>,
}

impl Watches {
    /// `start` is called when a driver is needed and none runs.
    pub(super) fn new(start: impl Fn(Assignment) + Send + Sync + 'static) -> Self {
        Self { table: Arc::default(), start: Box::new(start) }
    }

    /// Begins to watch a key that was looked at at the revision `seen`.
    pub(super) fn watch(
        &self,
        begin: Begin,
        key: &[u8],
        seen: i64,
        subscriber: Subscriber,
    ) -> Watch {
        let mut table = lock(&self.table);
        table.next += 1;
        let id = table.next;
        let due = begin == Begin::Now;
        let (key, seen) = (key.to_vec(), Some(seen));
        let entry = Entry { key, subscriber, seen, from: 0, due, asked: false, live: false };
        table.watches.insert(id, entry);
        let idle = table.later.is_empty();
        if !due {
            table.later.push_back((Moment::now() + LATER, id));
        }
        self.ensure_driver(&mut table);
        if due || idle {
            table.order(if due { Order::Begin(id) } else { Order::Schedule });
        }
        Watch { id, table: self.table.clone() }
    }

    /// Has the driver delete the key of a detached claim when it is due.
    pub(super) fn delete_later(&self, claim: ClaimId, due: Moment) {
        let mut table = lock(&self.table);
        table.detached.insert((due, claim));
        self.ensure_driver(&mut table);
        table.order(Order::Schedule);
    }

    /// Makes sure that a driver runs, where there is anything to do for it.
    pub(super) fn revive(&self) {
        let mut table = lock(&self.table);
        if table.is_needed() {
            self.ensure_driver(&mut table);
        }
    }

    /// Ends the driver, unless it is needed; whether it was not.
    pub(super) fn close(&self) -> bool {
        let mut table = lock(&self.table);
        let idle = !table.is_needed();
        if idle {
            table.orders = None;
            table.disconnected();
        }
        idle
    }

    /// Starts a driver if none runs.
    fn ensure_driver(&self, table: &mut WatchTable) {
        if !table.is_driven() {
            let (sender, orders) = mpsc::unbounded_channel();
            table.orders = Some(sender);
            table.driver += 1;
            let (weak, number) = (Arc::downgrade(&self.table), table.driver);
            (self.start)(Assignment { table: weak, number, orders });
        }
    }

    /// Tells the holders on this server lease that it is no more, and the waiting claims to look.
    pub(super) fn lease_gone(&self, lease: i64) {
        // Outside of the lock: the alarm may call back.
        let subscribers = lock(&self.table).subscribers();
        for subscriber in subscribers {
            match subscriber {
                Subscriber::Waiter(look) => look.notify_one(),
                Subscriber::Holder { alarm, lease: on, .. } if on == lease => {
                    alarm.ring(LossReason::Gone);
                }
                Subscriber::Holder { .. } => {}
            }
        }
    }

    /// Tells the holders that etcd cannot be reached, once until it has answered again.
    pub(super) fn endanger(&self) {
        let holders = lock(&self.table).endanger();
        // Outside of the lock: the alarm may call back.
        holders.iter().for_each(Alarm::endanger);
    }

    /// Notes that etcd answers.
    pub(super) fn reached(&self) {
        lock(&self.table).endangered = false;
    }
}

impl Assignment {
    /// Does something with the table; `None` when the keeper is gone or another driver is in
    /// charge.
    pub(super) fn with_table<T>(&self, work: impl FnOnce(&mut WatchTable) -> T) -> Option<T> {
        let table = self.table.upgrade()?;
        let mut table = lock(&table);
        (table.driver == self.number && table.is_driven()).then(|| work(&mut table))
    }
}

impl Watch {
    /// Whether etcd would tell us now, on this very connection. A member that is not known to keep
    /// up with the others may stay silent about what has long happened.
    pub(super) fn is_live_on(&self, connection: Option<u64>) -> bool {
        let table = lock(&self.table);
        table.is_driven()
            && connection.is_some()
            && table.connection == connection
            && table.watches.get(&self.id).is_some_and(|entry| entry.live)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        if table.watches.remove(&self.id).is_some_and(|entry| entry.asked) {
            table.order(Order::End(self.id));
        }
    }
}

impl WatchTable {
    /// Whether a driver is at work.
    fn is_driven(&self) -> bool {
        self.orders.as_ref().is_some_and(|orders| !orders.is_closed())
    }

    /// Whether a driver has anything to do, now or later.
    fn is_needed(&self) -> bool {
        !self.watches.is_empty() || !self.detached.is_empty()
    }

    /// Tells the driver.
    fn order(&self, order: Order) {
        // A driver that ended just now is started again at the next chance.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }

    /// Copies, to be told after the lock is released.
    fn subscribers(&self) -> Vec<Subscriber> {
        self.watches.values().map(|entry| entry.subscriber.clone()).collect()
    }

    /// The alarms of the holders, to be told that etcd cannot be reached. None if they have been
    /// told since etcd last answered: each of them renews at once, and what fails again is no news.
    pub(super) fn endanger(&mut self) -> Vec<Alarm> {
        if std::mem::replace(&mut self.endangered, true) {
            return Vec::new();
        }
        let alarm = |subscriber| match subscriber {
            Subscriber::Holder { alarm, .. } => Some(alarm),
            Subscriber::Waiter(_) => None,
        };
        self.subscribers().into_iter().filter_map(alarm).collect()
    }

    /// Whether there is anything to watch now.
    pub(super) fn any_due(&self) -> bool {
        self.watches.values().any(|entry| entry.due)
    }

    /// Makes due whatever was to begin later and whose time has come; says when to look again.
    pub(super) fn advance(&mut self) -> Option<Moment> {
        let now = Moment::now();
        while self.later.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, id)) = self.later.pop_front() else { break };
            if let Some(entry) = self.watches.get_mut(&id) {
                entry.due = true;
            }
        }
        let later = self.later.front().map(|(due, _)| (*due).max(now + TICK));
        let detached = self.detached.first().map(|(due, _)| *due);
        later.into_iter().chain(detached).min()
    }

    /// Takes out the detached claims whose keys are to go by now.
    pub(super) fn take_detached(&mut self) -> Vec<ClaimId> {
        let (now, mut due) = (Moment::now(), Vec::new());
        while self.detached.first().is_some_and(|(first, _)| *first <= now) {
            due.extend(self.detached.pop_first().map(|(_, claim)| claim));
        }
        due
    }

    /// The requests that begin all watches that are due and not begun.
    pub(super) fn begin_due(&mut self) -> Vec<WatchCreateRequest> {
        let due = self.watches.iter().filter(|(_, entry)| entry.due && !entry.asked);
        let due: Vec<i64> = due.map(|(id, _)| *id).collect();
        due.into_iter().filter_map(|id| self.begin(id)).collect()
    }

    /// The request that begins the watch with this number, unless that was done or is not wanted
    /// any more.
    pub(super) fn begin(&mut self, id: i64) -> Option<WatchCreateRequest> {
        let entry = self.watches.get_mut(&id).filter(|entry| !entry.asked)?;
        entry.asked = true;
        // A waiter wants to know only of keys that go; a holder also of what is written over its
        // key by an operator who breaks the claim.
        let holder = matches!(entry.subscriber, Subscriber::Holder { .. });
        Some(WatchCreateRequest {
            key: entry.key.clone(),
            start_revision: entry.from,
            filters: if holder { Vec::new() } else { vec![WatchFilter::NoPut as i32] },
            watch_id: id,
        })
    }

    /// A stream is open, on the connection with this number.
    pub(super) fn connected(&mut self, connection: u64) {
        self.connection = Some(connection);
        self.endangered = false;
    }

    /// The stream ended: what happens now is not told. Waiters look for themselves; a holder's
    /// watch begins again where it ended, so that it learns also what happened meanwhile.
    pub(super) fn disconnected(&mut self) {
        self.connection = None;
        for entry in self.watches.values_mut() {
            (entry.asked, entry.live) = (false, false);
            match &entry.subscriber {
                Subscriber::Waiter(look) => {
                    entry.seen = None;
                    look.notify_one();
                }
                Subscriber::Holder { .. } => entry.from = entry.seen.map_or(0, |seen| seen + 1),
            }
        }
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("table", &self.table).finish_non_exhaustive()
    }
}
