//! The stream on which etcd tells what happens to keys.
//!
//! All watches of a keeper share one stream, which one task reads: nothing else would notice a
//! key that an operator deletes while its holder is at work. The task is the stream's driver, as
//! other clients have one inside; it ends with its keeper, and is started again on whatever
//! runtime next needs it.

use super::debt::Debts;
use super::link::Link;
use super::lock;
use super::proto::{
    EventType, RangeRequest, RangeResponse, WatchCancelRequest, WatchCreateRequest, WatchFilter,
    WatchOrder, WatchRequest, WatchResponse, path,
};
use super::record;
use crate::backend::{Alarm, ClaimId, LossReason, Moment};
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
    /// The holder of the key, on this lease.
    Holder(Arc<Alarm>, i64),
}

/// What is to be watched.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) key: Vec<u8>,
    /// Empty for the key alone.
    pub(super) range_end: Vec<u8>,
    /// Everything from this revision on; zero for from now on, which etcd then confirms.
    pub(super) from: i64,
}

#[derive(Debug)]
struct Watch {
    target: Target,
    ear: Ear,
    /// Whether it is to be watched now, not later.
    due: bool,
    /// Whether etcd was asked, on the present stream, and whether it said yes.
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

    /// Begins to watch: at once from now on, a little later from a revision that is past anyway.
    pub(super) fn listen(&self, target: Target, ear: Ear) -> Listening {
        let mut board = lock(&self.board);
        board.next += 1;
        let id = board.next;
        let at_once = target.from == 0;
        board.watches.insert(id, Watch { target, ear, due: at_once, asked: false, live: false });
        let idle = board.later.is_empty();
        if !at_once {
            board.later.push_back((Moment::now() + LATER, id));
        }
        self.ensure(&mut board);
        if let Some(orders) = board.orders.as_ref().filter(|_| at_once || idle) {
            // A driver that ended just now is started again at the next chance.
            let _ = orders.send(if at_once { Order::Begin(id) } else { Order::Mind });
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
                Ear::Holder(alarm, on) if on == lease => alarm.ring(LossReason::Gone),
                Ear::Holder(..) => {}
            }
        }
    }
}

impl Listening {
    /// Whether etcd would tell us now.
    pub(super) fn is_live(&self) -> bool {
        let board = lock(&self.board);
        let driven = board.orders.as_ref().is_some_and(|orders| !orders.is_closed());
        driven && board.watches.get(&self.id).is_some_and(|watch| watch.live)
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

    /// Reads until the stream breaks; `false` when the keeper is gone.
    async fn read(
        &self,
        number: u64,
        mut stream: Streaming<WatchResponse>,
        asking: &Asking,
        orders: &mut Orders,
    ) -> bool {
        let mut next = self.begin_due(asking);
        loop {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(message)) => {
                        if !self.hear(message, asking).await {
                            return true;
                        }
                    }
                    Ok(None) => return true,
                    Err(error) => {
                        tracing::debug!(%error, "the watch broke");
                        return true;
                    }
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

    /// Passes on what etcd said; `false` when the stream is of no use any more.
    async fn hear(&self, message: WatchResponse, asking: &Asking) -> bool {
        let id = message.watch_id;
        let (ear, target) = {
            let Some(board) = self.board.upgrade() else { return false };
            let mut board = lock(&board);
            let Some(watch) = board.watches.get_mut(&id) else {
                if !message.canceled {
                    end(id, asking);
                }
                return true;
            };
            if message.canceled {
                // The revision it was to begin with is compacted: then from now on. On a new
                // stream, since this one does not let a number be used again.
                watch.target.from = 0;
                return false;
            }
            watch.live = true;
            (watch.ear.clone(), watch.target.clone())
        };
        // What happened before the watch was there is seen only by looking now.
        let missed = message.created && target.from == 0;
        match &ear {
            Ear::Waiter(look) => {
                if missed || !message.events.is_empty() {
                    look.notify_one();
                }
            }
            Ear::Holder(alarm, _) => {
                if missed && !self.is_there(&target, alarm).await {
                    return false;
                }
                for event in message.events {
                    let value = event.kv.map(|kv| kv.value).unwrap_or_default();
                    if event.kind == EventType::Delete as i32 {
                        alarm.ring(LossReason::Gone);
                    } else if let Some(reason) = record::broken(&value) {
                        alarm.ring(LossReason::Broken { reason });
                    }
                }
            }
        }
        true
    }

    /// Rings if the key is gone; `false` when that cannot be found out.
    async fn is_there(&self, target: &Target, alarm: &Alarm) -> bool {
        let request = RangeRequest { key: target.key.clone(), ..RangeRequest::default() };
        let answer: Result<RangeResponse, _> = self.link.call(path::RANGE, &request).await;
        if answer.as_ref().is_ok_and(|answer| answer.kvs.is_empty()) {
            alarm.ring(LossReason::Gone);
        }
        answer.is_ok()
    }

    /// What is said now is not heard: those who wait look for themselves.
    fn went_deaf(&self) {
        let Some(board) = self.board.upgrade() else { return };
        for watch in lock(&board).watches.values_mut() {
            (watch.asked, watch.live) = (false, false);
            if let Ear::Waiter(look) = &watch.ear {
                look.notify_one();
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
        let holder = matches!(watch.ear, Ear::Holder(..));
        let create = WatchCreateRequest {
            key: watch.target.key.clone(),
            range_end: watch.target.range_end.clone(),
            start_revision: watch.target.from,
            filters: if holder { Vec::new() } else { vec![WatchFilter::NoPut as i32] },
            watch_id: id,
        };
        // A stream that broke is noticed by its reader.
        let _ = asking.send(WatchRequest { order: Some(WatchOrder::Create(create)) });
    }
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
