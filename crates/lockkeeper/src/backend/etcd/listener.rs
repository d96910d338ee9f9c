//! The stream on which etcd tells what happens to keys.
//!
//! All watches of a keeper share one stream, which one task reads: nothing else would notice a
//! key that an operator deletes while its holder is at work. The task is the stream's driver, as
//! other clients have one inside; it ends with its keeper, and is started again on whatever
//! runtime next needs it.

use super::debt::Debts;
use super::link::Link;
use super::proto::{
    Event, EventType, RangeResponse, WatchCancelRequest, WatchCreateRequest, WatchFilter,
    WatchOrder, WatchRequest, WatchResponse, path,
};
use super::{history, lock, record, requests};
use crate::backend::{Alarm, ClaimId, LossReason, Moment};
use crate::error::Result;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

/// A key of our own is watched once it has been there for so long: most locks are held for less,
/// and cost etcd no watch.
const LATER: Duration = Duration::from_millis(20);
/// The shortest pause between two looks at which of those are due.
const TICK: Duration = Duration::from_millis(10);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Who wants to know.
#[derive(Debug, Clone)]
pub(super) enum Ear {
    /// Someone who will look for himself.
    Waiter(Arc<Notify>),
    /// The holder of the key, which was created then on this lease.
    Holder { alarm: Arc<Alarm>, created: i64, lease: i64 },
}

/// When to begin to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Now,
    /// In a moment, if it is still wanted then.
    Later,
}

#[derive(Debug)]
struct Watch {
    key: Vec<u8>,
    ear: Ear,
    /// The revision up to which nothing was missed, if that is known.
    seen: Option<i64>,
    /// Everything from this revision on; zero for from now on. A watch from a revision that is past
    /// is served only every 100 ms, so that is for one that broke.
    from: i64,
    /// Whether it is to be watched now, not later.
    due: bool,
    /// Whether etcd was asked, on the present stream, and whether it would tell, with nothing
    /// missed before.
    asked: bool,
    live: bool,
}

#[derive(Debug, Default)]
struct Board {
    next: i64,
    watches: HashMap<i64, Watch>,
    /// Watches to begin later, in order.
    later: VecDeque<(Moment, i64)>,
    /// Claims that were detached, by when their keys are to go.
    detached: BTreeSet<(Moment, ClaimId)>,
    /// The connection of the present stream.
    connection: Option<u64>,
    orders: Option<mpsc::UnboundedSender<Order>>,
}

#[derive(Debug)]
enum Order {
    Begin(i64),
    End(i64),
    /// There is something to do later.
    Mind,
}

#[derive(Debug)]
pub(super) struct Listener {
    link: Arc<Link>,
    debts: Arc<Debts>,
    board: Arc<Mutex<Board>>,
}

/// One watch, for as long as this lives.
#[derive(Debug)]
pub(super) struct Listening {
    id: i64,
    board: Arc<Mutex<Board>>,
}

impl Listener {
    pub(super) fn new(link: Arc<Link>, debts: Arc<Debts>) -> Self {
        Self { link, debts, board: Arc::default() }
    }

    /// Begins to watch a key which was looked at at the revision `seen`.
    pub(super) fn listen(&self, when: When, key: &[u8], seen: i64, ear: Ear) -> Listening {
        let mut board = lock(&self.board);
        board.next += 1;
        let id = board.next;
        let due = when == When::Now;
        let (key, seen) = (key.to_vec(), Some(seen));
        let watch = Watch { key, ear, seen, from: 0, due, asked: false, live: false };
        board.watches.insert(id, watch);
        let idle = board.later.is_empty();
        if !due {
            board.later.push_back((Moment::now() + LATER, id));
        }
        self.ensure(&mut board);
        if let Some(orders) = board.orders.as_ref().filter(|_| due || idle) {
            // A driver that ended just now is started again at the next chance.
            let _ = orders.send(if due { Order::Begin(id) } else { Order::Mind });
        }
        Listening { id, board: self.board.clone() }
    }

    /// Sees to it that the key of a detached claim goes when it is due.
    pub(super) fn mind(&self, claim: ClaimId, due: Moment) {
        let mut board = lock(&self.board);
        board.detached.insert((due, claim));
        self.ensure(&mut board);
        if let Some(orders) = &board.orders {
            let _ = orders.send(Order::Mind);
        }
    }

    /// Makes sure that the stream has a driver, where there is anything to listen for.
    pub(super) fn revive(&self) {
        let mut board = lock(&self.board);
        if !board.watches.is_empty() || !board.detached.is_empty() {
            self.ensure(&mut board);
        }
    }

    fn ensure(&self, board: &mut Board) {
        if board.orders.as_ref().is_some_and(|orders| !orders.is_closed()) {
            return;
        }
        // Without a runtime, renewals look for themselves.
        let Ok(runtime) = Handle::try_current() else { return };
        let (orders, taken) = mpsc::unbounded_channel();
        let (link, debts) = (self.link.clone(), self.debts.clone());
        let driver = Driver { link, debts, board: Arc::downgrade(&self.board) };
        runtime.spawn(driver.drive(taken));
        board.orders = Some(orders);
    }

    /// Tells the holders on this lease that it is no more, and everyone who waits to look.
    pub(super) fn lease_gone(&self, lease: i64) {
        let ears: Vec<Ear> = lock(&self.board).watches.values().map(|w| w.ear.clone()).collect();
        for ear in ears {
            match ear {
                Ear::Waiter(look) => look.notify_one(),
                Ear::Holder { alarm, lease: on, .. } if on == lease => alarm.ring(LossReason::Gone),
                Ear::Holder { .. } => {}
            }
        }
    }
}

impl Listening {
    /// Whether etcd would tell us now, on this very connection. What a member tells that is not
    /// known to keep up with the others, or does not tell, means nothing.
    pub(super) fn is_live_on(&self, connection: Option<u64>) -> bool {
        let board = lock(&self.board);
        let driven = board.orders.as_ref().is_some_and(|orders| !orders.is_closed());
        driven
            && connection.is_some()
            && board.connection == connection
            && board.watches.get(&self.id).is_some_and(|watch| watch.live)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut board = lock(&self.board);
        let asked = board.watches.remove(&self.id).is_some_and(|watch| watch.asked);
        if let Some(orders) = board.orders.as_ref().filter(|_| asked) {
            let _ = orders.send(Order::End(self.id));
        }
    }
}

/// Reads the stream.
struct Driver {
    link: Arc<Link>,
    debts: Arc<Debts>,
    board: Weak<Mutex<Board>>,
}

type Orders = mpsc::UnboundedReceiver<Order>;
type Asking = mpsc::UnboundedSender<WatchRequest>;
/// Looks at the keys of watches that may have missed something.
type Looks = FuturesUnordered<Look>;
type Look = BoxFuture<'static, (i64, Result<Found>)>;

/// What a look at a holder's key found.
enum Found {
    /// It is there, as of this revision.
    Held(Option<i64>),
    Lost(LossReason),
}

/// What came of a message.
enum Heard {
    Told,
    /// The watch with this number may have missed what happened to this key before.
    Missed {
        id: i64,
        key: Vec<u8>,
        created: i64,
    },
    /// The stream is of no use any more.
    Useless,
}

impl Driver {
    async fn drive(self, mut orders: Orders) {
        let mut pause = FIRST_PAUSE;
        while self.wait_for_something(&mut orders).await {
            let (asking, questions) = mpsc::unbounded_channel();
            self.begin_due(&asking);
            let questions = UnboundedReceiverStream::new(questions);
            match self.link.stream(path::WATCH, questions).await {
                Ok((number, stream)) => {
                    pause = FIRST_PAUSE;
                    self.connected(number);
                    if !self.read(number, stream, &asking, &mut orders).await {
                        return;
                    }
                }
                Err(trouble) => {
                    let error = trouble.explain(self.link.shown());
                    tracing::debug!(%error, "no watch could be opened");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            self.went_deaf();
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until something is to be watched now; `false` when the keeper is gone.
    async fn wait_for_something(&self, orders: &mut Orders) -> bool {
        loop {
            let next = {
                let Some(board) = self.board.upgrade() else { return false };
                let mut board = lock(&board);
                let next = board.call_due();
                if board.watches.values().any(|watch| watch.due) {
                    return true;
                }
                next
            };
            tokio::select! {
                order = orders.recv() => if order.is_none() { return false },
                () = reached(next) => self.pay_for_the_detached().await,
            }
        }
    }

    fn connected(&self, number: u64) {
        if let Some(board) = self.board.upgrade() {
            lock(&board).connection = Some(number);
        }
    }

    /// Reads until the stream breaks; `false` when the keeper is gone.
    async fn read(
        &self,
        number: u64,
        mut stream: Streaming<WatchResponse>,
        asking: &Asking,
        orders: &mut Orders,
    ) -> bool {
        let mut next = self.begin_due(asking);
        let mut looks = Looks::new();
        loop {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(message)) => match self.hear(message, asking) {
                        Heard::Told => {}
                        Heard::Missed { id, key, created } => {
                            looks.push(self.look(id, key, created));
                        }
                        Heard::Useless => return true,
                    },
                    Ok(None) => return true,
                    Err(error) => {
                        tracing::debug!(%error, "the watch broke");
                        return true;
                    }
                },
                Some((id, found)) = looks.next(), if !looks.is_empty() => match found {
                    Ok(found) => self.looked(id, found),
                    // What cannot be found out is tried again, elsewhere.
                    Err(_) => return true,
                },
                order = orders.recv() => match order {
                    None => return false,
                    Some(Order::Begin(id)) => self.begin(id, asking),
                    Some(Order::End(watch_id)) => end(watch_id, asking),
                    Some(Order::Mind) => next = self.begin_due(asking),
                },
                () = self.link.replaced(number) => return true,
                () = reached(next) => {
                    self.pay_for_the_detached().await;
                    next = self.begin_due(asking);
                }
            }
        }
    }

    fn begin(&self, id: i64, asking: &Asking) {
        if let Some(board) = self.board.upgrade() {
            lock(&board).begin(id, asking);
        }
    }

    /// Begins what is due; says when to look again.
    fn begin_due(&self, asking: &Asking) -> Option<Moment> {
        let board = self.board.upgrade()?;
        let mut board = lock(&board);
        let next = board.call_due();
        let due = board.watches.iter().filter(|(_, watch)| watch.due && !watch.asked);
        let due: Vec<i64> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| board.begin(id, asking));
        next
    }

    async fn pay_for_the_detached(&self) {
        let mut due = Vec::new();
        if let Some(board) = self.board.upgrade() {
            let (now, mut board) = (Moment::now(), lock(&board));
            let detached = board.detached.extract_if(.., |(due, _)| *due <= now);
            due.extend(detached.map(|(_, claim)| claim));
        }
        for claim in due {
            // What fails here is paid with a sign of life.
            if let Some(debt) = self.debts.of(claim) {
                let _ = self.debts.pay(claim, &debt).await;
            }
        }
    }

    /// Passes on what etcd said.
    fn hear(&self, message: WatchResponse, asking: &Asking) -> Heard {
        let id = message.watch_id;
        let Some(board) = self.board.upgrade() else { return Heard::Useless };
        let mut board = lock(&board);
        let Some(watch) = board.watches.get_mut(&id) else {
            if !message.canceled {
                end(id, asking);
            }
            return Heard::Told;
        };
        if message.canceled {
            // The revision it was to begin with is compacted: then from now on. On a new stream,
            // since this one does not let a number be used again.
            watch.seen = None;
            return Heard::Useless;
        }
        // It began behind the revision that it was confirmed with. What happened before, but after
        // what was seen, is found only by looking now.
        let began = message.header.map_or(0, |header| header.revision);
        let missed =
            message.created && watch.from == 0 && watch.seen.is_none_or(|seen| seen < began);
        watch.live |= !missed;
        let (ear, key) = (watch.ear.clone(), watch.key.clone());
        // What it rings may call back.
        drop(board);
        match ear {
            Ear::Waiter(look) => {
                if missed || !message.events.is_empty() {
                    look.notify_one();
                }
                Heard::Told
            }
            Ear::Holder { alarm, created, .. } => {
                let lost = message.events.into_iter().find_map(|event| loss(event, created));
                lost.into_iter().for_each(|reason| alarm.ring(reason));
                if missed { Heard::Missed { id, key, created } } else { Heard::Told }
            }
        }
    }

    fn look(&self, id: i64, key: Vec<u8>, created: i64) -> Look {
        let link = self.link.clone();
        Box::pin(async move {
            let found: Result<RangeResponse> =
                link.call(path::RANGE, &requests::one(key.clone())).await;
            let found = match found {
                Ok(found) => found,
                Err(error) => return (id, Err(error)),
            };
            match history::loss(&link, &key, created, &found).await {
                Some(reason) => (id, Ok(Found::Lost(reason))),
                None => (id, Ok(Found::Held(found.header.map(|header| header.revision)))),
            }
        })
    }

    /// Draws the conclusions from a look at a holder's key.
    fn looked(&self, id: i64, found: Found) {
        let Some(board) = self.board.upgrade() else { return };
        let alarm = {
            let mut board = lock(&board);
            let Some(watch) = board.watches.get_mut(&id) else { return };
            let Ear::Holder { alarm, .. } = &watch.ear else { return };
            match found {
                Found::Lost(reason) => Some((alarm.clone(), reason)),
                Found::Held(seen) => {
                    watch.seen = seen;
                    watch.live = true;
                    None
                }
            }
        };
        if let Some((alarm, reason)) = alarm {
            alarm.ring(reason);
        }
    }

    /// What is said now is not heard: those who wait look for themselves.
    fn went_deaf(&self) {
        let Some(board) = self.board.upgrade() else { return };
        let mut board = lock(&board);
        board.connection = None;
        for watch in board.watches.values_mut() {
            (watch.asked, watch.live) = (false, false);
            match &watch.ear {
                Ear::Waiter(look) => {
                    watch.seen = None;
                    look.notify_one();
                }
                Ear::Holder { .. } => watch.from = watch.seen.map_or(0, |seen| seen + 1),
            }
        }
    }
}

impl Board {
    /// Calls those due whose time has come; says when to look again.
    fn call_due(&mut self) -> Option<Moment> {
        let now = Moment::now();
        while let Some((_, id)) = self.later.pop_front_if(|(due, _)| *due <= now) {
            if let Some(watch) = self.watches.get_mut(&id) {
                watch.due = true;
            }
        }
        let later = self.later.front().map(|(due, _)| (*due).max(now + TICK));
        let detached = self.detached.first().map(|(due, _)| *due);
        later.into_iter().chain(detached).min()
    }

    fn begin(&mut self, id: i64, asking: &Asking) {
        let Some(watch) = self.watches.get_mut(&id).filter(|watch| !watch.asked) else { return };
        watch.asked = true;
        let holder = matches!(watch.ear, Ear::Holder { .. });
        let create = WatchCreateRequest {
            key: watch.key.clone(),
            start_revision: watch.from,
            filters: if holder { Vec::new() } else { vec![WatchFilter::NoPut as i32] },
            watch_id: id,
        };
        // A stream that broke is noticed by its reader.
        let _ = asking.send(WatchRequest { order: Some(WatchOrder::Create(create)) });
    }
}

/// What an event means for who holds the key that was created then. Keys are used again, and a
/// member that is behind may still tell of what was in it before.
fn loss(event: Event, created: i64) -> Option<LossReason> {
    let kv = event.kv?;
    if event.kind == EventType::Delete as i32 {
        return (kv.mod_revision > created).then_some(LossReason::Gone);
    }
    let reason = record::broken(&kv.value).filter(|_| kv.create_revision == created)?;
    Some(LossReason::Broken { reason })
}

fn end(watch_id: i64, asking: &Asking) {
    let cancel = WatchOrder::Cancel(WatchCancelRequest { watch_id });
    let _ = asking.send(WatchRequest { order: Some(cancel) });
}

async fn reached(moment: Option<Moment>) {
    match moment {
        Some(moment) => moment.reached().await,
        None => std::future::pending().await,
    }
}
