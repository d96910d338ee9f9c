//! One session: requests in order over one connection at a time, and what it has in the store.

use super::estate::Estate;
use super::known::Known;
use super::request::{Answer, Request};
use super::route::{Route, Ticket};
use super::trouble::Fault;
use super::vigil::Queue;
use super::watchers::Watchers;
use super::{driver, wire::Wire};
use crate::backend::{Alarm, ClaimId, LossReason, Moment, Patience};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

/// A session, for as long as anyone has need of it.
pub(super) struct Session(pub(super) Arc<Link>);

/// What a session and its driver share.
pub(super) struct Link {
    pub(super) route: Arc<Route>,
    pub(super) ticket: Ticket,
    state: Mutex<State>,
    /// Wakes the driver.
    pub(super) stir: Notify,
    phase: watch::Sender<Phase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Connected,
    Over,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) wire: Wire,
    pub(super) watchers: Watchers,
    pub(super) estate: Estate,
    pub(super) known: Known,
    /// The driver in charge; zero when its runtime ended under it.
    pub(super) driver: u64,
    drivers: u64,
    /// Nobody has need of the session any more.
    pub(super) leaving: bool,
    /// When the driver will look at the estate by itself.
    pub(super) planned: Option<Moment>,
    /// When the last request was sent that the leader answered.
    pub(super) assured: Option<Moment>,
    /// The last transaction that we have seen.
    pub(super) seen: i64,
}

/// An answer that is on its way.
pub(super) type Coming = oneshot::Receiver<Result<Answer, Fault>>;

impl Session {
    pub(super) async fn open(route: &Arc<Route>) -> Result<Self, Fault> {
        let (connection, ticket) = route.connect(&Ticket::default(), 0).await?;
        let link = Arc::new(Link {
            route: route.clone(),
            ticket,
            state: Mutex::default(),
            stir: Notify::new(),
            phase: watch::Sender::new(Phase::Connecting),
        });
        driver::start(&link, &mut link.state(), Some(connection));
        Ok(Self(link))
    }

    pub(super) fn id(&self) -> i64 {
        self.0.ticket.id
    }

    /// How long after a request was answered that reached the leader the session is certain to
    /// be alive, counted from the sending of that request.
    ///
    /// Not its whole timeout. A server passes on to the leader who was heard of only every half
    /// tick, and a tick is at most half the timeout; what was passed on is from our last sign of
    /// life, which we give every sixth of it. So the leader may end the session as early as
    /// 7/12 of the timeout after it answered us through a server that it then lost touch with.
    pub(super) fn certainty(&self) -> Duration {
        self.0.ticket.timeout / 2
    }

    pub(super) fn is_over(&self) -> bool {
        *self.0.phase.borrow() == Phase::Over
    }

    /// Sends requests, all at once and in this order.
    pub(super) fn ask<const N: usize>(&self, requests: [Request; N]) -> [Coming; N] {
        let mut state = self.0.state();
        let coming = requests.map(|request| state.put(request));
        self.0.push(&mut state);
        coming
    }

    /// As [`ask`](Self::ask), however many there are.
    pub(super) fn ask_all(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Coming> {
        let mut state = self.0.state();
        let coming = requests.into_iter().map(|request| state.put(request)).collect();
        self.0.push(&mut state);
        coming
    }

    /// The answer, unless it takes too long.
    pub(super) async fn answer(&self, coming: Coming) -> Result<Answer, Fault> {
        match tokio::time::timeout(self.0.route.door.timeout, coming).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Fault::Unanswered("the connection broke".into())),
            Err(_) => {
                self.0.is_hung();
                Err(Fault::Unanswered("it took too long".into()))
            }
        }
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn call_once(&self, request: Request) -> Result<Answer, Fault> {
        self.connected().await?;
        let [coming] = self.ask([request]);
        self.answer(coming).await
    }

    /// Sends a request that does the same when it is sent twice: again, should the connection
    /// break under it.
    pub(super) async fn call(&self, request: Request) -> Result<Answer, Fault> {
        let begin = Moment::now();
        match self.call_once(request.clone()).await {
            Err(Fault::Unanswered(_)) if self.may_try_again(begin) => self.call_once(request).await,
            answer => answer,
        }
    }

    /// As [`call`](Self::call), and makes sure that the answer is not older than now: neither
    /// what it says of a node, nor that the session is alive.
    pub(super) async fn call_surely(&self, path: &str, request: Request) -> Result<Answer, Fault> {
        let [answer] = self.call_all_surely(path, [request]).await;
        answer
    }

    /// As [`call_surely`](Self::call_surely), for several at once.
    pub(super) async fn call_all_surely<const N: usize>(
        &self,
        path: &str,
        requests: [Request; N],
    ) -> [Result<Answer, Fault>; N] {
        let begin = Moment::now();
        loop {
            let fault = match self.call_all_once(path, &requests).await {
                Ok(answers) => return answers,
                Err(fault) => fault,
            };
            if !matches!(fault, Fault::Unanswered(_)) || !self.may_try_again(begin) {
                return std::array::from_fn(|_| Err(fault.clone()));
            }
        }
    }

    async fn call_all_once<const N: usize>(
        &self,
        path: &str,
        requests: &[Request; N],
    ) -> Result<[Result<Answer, Fault>; N], Fault> {
        self.connected().await?;
        let all = std::iter::once(Request::sync(path)).chain(requests.iter().cloned());
        let mut coming = self.ask_all(all);
        // Answers come in order. With the last the others are there, and we are woken once.
        let mut answers = Vec::with_capacity(N + 1);
        while let Some(last) = coming.pop() {
            match self.answer(last).await {
                Err(fault @ Fault::Unanswered(_)) => return Err(fault),
                answer => answers.push(answer),
            }
        }
        // The first was the `sync`, whose answer came off last.
        if let Some(Err(fault)) = answers.pop() {
            return Err(fault);
        }
        answers.reverse();
        // There are as many as were asked for.
        answers.try_into().map_err(|_| Fault::Unanswered("an answer is missing".into()))
    }

    /// Whether there is time left for a request that failed.
    fn may_try_again(&self, begin: Moment) -> bool {
        Moment::now().since(begin) < self.0.route.door.timeout / 2
    }

    /// Waits until there is a connection, for as long as a request may take.
    pub(super) async fn connected(&self) -> Result<(), Fault> {
        self.connected_within(self.0.route.door.timeout).await
    }

    /// Waits for a connection as one who has patience, though not without an end.
    pub(super) async fn connected_for(&self, patience: &Patience) -> Result<(), Fault> {
        tokio::select! {
            biased;
            connected = self.connected_within(patience.outage()) => connected,
            () = patience.over() => self.connected().await,
        }
    }

    pub(super) async fn connected_within(&self, limit: Duration) -> Result<(), Fault> {
        if *self.0.phase.borrow() == Phase::Connected {
            return Ok(());
        }
        let mut phase = self.0.phase.subscribe();
        let settled = async {
            loop {
                // Whenever the phase changed: a driver that went with its runtime leaves it so.
                self.0.revive();
                match *phase.borrow_and_update() {
                    Phase::Connected => return Ok(()),
                    Phase::Over => return Err(Fault::Over),
                    Phase::Connecting => {}
                }
                if phase.changed().await.is_err() {
                    return Err(Fault::Over);
                }
            }
        };
        let late = |_| Err(Fault::Unanswered("there is no connection".into()));
        tokio::time::timeout(limit, settled).await.unwrap_or_else(late)
    }

    /// A queue was listed: nobody is left who was before the first.
    pub(super) fn saw(&self, parent: &str, queue: &Queue) {
        if let Some(first) = queue.entries.first() {
            self.0.state().known.raise(parent, queue.made, first.number);
        }
    }

    /// The node of a claim is about to be asked for below `parent`, with a name that starts so;
    /// `None` where there is but one.
    pub(super) fn enter(&self, id: ClaimId, parent: &str, start: Option<&str>) {
        self.0.state().estate.enter(id, parent, start);
    }

    pub(super) fn sealed(&self, id: ClaimId, path: &str, seal: i32) {
        let mut state = self.0.state();
        state.estate.found(id, path);
        state.estate.seal(id, Some(seal));
    }

    pub(super) fn found(&self, id: ClaimId, path: &str) {
        self.0.state().estate.found(id, path);
    }

    /// The node of a claim was made by the transaction `czxid`.
    pub(super) fn made(&self, id: ClaimId, path: &str, czxid: i64) {
        self.0.state().estate.made(id, path, czxid);
    }

    pub(super) fn hold(&self, id: ClaimId, expires: Moment) {
        self.0.hold(&mut self.0.state(), id, expires, false);
    }

    pub(super) fn renewed(&self, id: ClaimId, until: Moment) {
        self.0.state().estate.renewed(id, until);
    }

    pub(super) fn alarm(&self, id: ClaimId, alarm: Alarm) {
        let refused = self.0.state().estate.alarm(id, alarm);
        if let Err(alarm) = refused {
            alarm.ring(LossReason::Gone);
        }
    }

    /// So many guards share a claim that is held; `data` is what its node says of it.
    pub(super) fn note(&self, id: ClaimId, guards: usize, data: String) {
        let mut state = self.0.state();
        let due = state.estate.note(id, guards, data);
        self.0.plan(&mut state, due);
    }

    /// Nobody renews the claim any more, nor is there anyone to alarm: it runs out by itself.
    pub(super) fn hush(&self, id: ClaimId) {
        self.0.state().estate.hush(id);
    }

    /// The claim is being given back: its end is no loss, and not yet asked for by anyone else.
    pub(super) fn let_go(&self, id: ClaimId) {
        let alarm = self.0.state().estate.let_go(id);
        drop(alarm);
    }

    pub(super) fn doom(&self, id: ClaimId) {
        self.0.state().estate.doom(id);
        self.0.revive();
        self.0.stir.notify_one();
    }

    pub(super) fn strike_off(&self, id: ClaimId) {
        let alarm = self.0.state().strike_off(id);
        // Its hold may be ended by this, and must not find the state locked.
        drop(alarm);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.state().leaving = true;
        self.0.stir.notify_one();
    }
}

impl Link {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock; were it poisoned, the state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Sends what is to be sent, as far as it goes; the driver does the rest.
    pub(super) fn push(&self, state: &mut State) {
        // A connection that broke is left to the driver as well.
        if !state.wire.push().unwrap_or(false) {
            self.stir.notify_one();
        }
    }

    pub(super) fn hold(&self, state: &mut State, id: ClaimId, expires: Moment, watched: bool) {
        let due = state.estate.hold(id, expires, watched);
        self.plan(state, Some(due));
    }

    /// Sees to it that the driver looks at the estate by then.
    fn plan(&self, state: &mut State, due: Option<Moment>) {
        if due.is_some() && state.planned.is_none_or(|planned| due < Some(planned)) {
            state.planned = due;
            self.stir.notify_one();
        }
    }

    /// Sees to it that there is a driver, where the one before went with its runtime.
    fn revive(self: &Arc<Self>) {
        let mut state = self.state();
        if state.driver == 0 && self.phase() != Phase::Over {
            driver::start(self, &mut state, None);
        }
    }

    /// A request was not answered in time. If none is, the connection is of no use, or nobody
    /// drives the runtime that it is on: someone here makes another.
    fn is_hung(self: &Arc<Self>) {
        let mut state = self.state();
        let silent = state
            .wire
            .oldest()
            .is_some_and(|sent| Moment::now().since(sent) >= self.route.door.timeout);
        if silent && self.phase() == Phase::Connected {
            let alarms = self.cut(&mut state);
            driver::start(self, &mut state, None);
            drop(state);
            alarms.iter().for_each(|alarm| alarm.endanger());
        }
    }

    /// The connection is no more, and the watches with it. Returns the alarms of what is held,
    /// to be told when no lock is held.
    pub(super) fn cut(&self, state: &mut State) -> Vec<Arc<Alarm>> {
        if self.phase() == Phase::Over {
            return Vec::new();
        }
        self.set_phase(Phase::Connecting);
        state.wire.cut(&Fault::Unanswered("the connection broke".into()));
        state.watchers.disturb();
        state.estate.disconnected()
    }

    /// The session is no more, and every node with it.
    pub(super) fn end(&self) {
        let alarms = {
            let mut state = self.state();
            self.set_phase(Phase::Over);
            state.driver = 0;
            state.wire.cut(&Fault::Over);
            state.watchers.disturb();
            state.estate.dissolve()
        };
        alarms.iter().for_each(|alarm| alarm.ring(LossReason::Gone));
    }
}

impl State {
    fn put(&mut self, request: Request) -> Coming {
        let (tell, coming) = oneshot::channel();
        self.wire.put(request, tell);
        coming
    }

    /// The server said that the node of a claim is gone, or never was.
    pub(super) fn strike_off(&mut self, id: ClaimId) -> Option<Arc<Alarm>> {
        if let Some((path, czxid)) = self.estate.node(id) {
            self.known.gone_since(path, czxid);
        }
        self.estate.strike_off(id)
    }

    /// A driver to be in charge from now on.
    pub(super) fn next_driver(&mut self) -> u64 {
        self.drivers += 1;
        self.driver = self.drivers;
        self.driver
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:#x}, {:?})", self.id(), self.0.phase())
    }
}
