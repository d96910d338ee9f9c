//! One session: any number of requests in flight, in order, over one connection at a time.
//!
//! The session outlives its connections. When one breaks, the driver makes another and resumes the
//! session on it; requests that were in flight fail with [`Failure::Unanswered`], and what may be
//! sent again is sent again by [`call`](Session::call).
//!
//! Three ways to ask, by what a repetition would do:
//!
//! | | sent again | for |
//! |---|---|---|
//! | [`call_once`](Session::call_once) | never | what must know whether *this* request did it |
//! | [`call`](Session::call) | once | idempotent requests |
//! | [`call_synced`](Session::call_synced) | once | reads that must not be older than the call |
//!
//! [`send`](Session::send) and [`answer`](Session::answer) are for requests that share a round trip.

use super::answers::Answer;
use super::connection::{Connector, SessionKey};
use super::driver;
use super::error::Failure;
use super::observer::Observer;
use super::pipeline::Reply;
use super::requests::Request;
use super::state::{Inner, Phase, run};
use super::watchers::Watchers;
use crate::clock::Moment;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A session with its observer. Closed when it is dropped and the observer is idle.
pub(crate) struct Session<O: Observer>(pub(super) Arc<Inner<O>>);

/// An answer that is on its way.
/// It fails at once when the connection breaks, so that nobody waits for an answer that cannot come.
pub(crate) type Coming = oneshot::Receiver<Result<Answer, Failure>>;

/// What the session knows at the moment of a look at its observer.
pub(crate) struct Facts<'a> {
    watchers: &'a Watchers,
    /// When the last request was sent that was answered through the leader.
    pub(crate) leader_answered: Option<Moment>,
}

impl Facts<'_> {
    /// Whether the watcher `id` still watches `path`, so that nothing was reported of it yet.
    pub(crate) fn is_watching(&self, id: u64, path: &str) -> bool {
        self.watchers.is_watching(id, path)
    }
}

impl<O: Observer> Session<O> {
    /// Opens a new session; its driver runs on the caller's runtime.
    /// The first connection is made before there is a session object: a wrong host or password is
    /// reported to the caller and not retried.
    pub(super) async fn open(connector: &Arc<Connector>) -> Result<Self, Failure> {
        let (connection, key) = connector.connect(&SessionKey::default(), 0).await?;
        let inner = Arc::new(Inner::new(connector.clone(), key));
        driver::start(&inner, &mut inner.state(), Some(connection));
        Ok(Self(inner))
    }

    /// The server's number for it, which is in the metadata of its ephemeral nodes.
    pub(crate) fn id(&self) -> i64 {
        self.0.key.id
    }

    /// How long the session is certain to be alive after a request that reached the leader,
    /// counted from the sending of that request.
    ///
    /// Not its whole timeout. A follower reports to the leader which sessions it heard of only
    /// every half tick, and a tick is at most half the timeout; what it reports is our last
    /// heartbeat, which we send every sixth of the timeout. So the leader may end the session as
    /// early as 7/12 of the timeout after it answered us through a follower that then lost touch
    /// with the leader.
    pub(crate) fn certain_for(&self) -> Duration {
        self.0.key.timeout / 2
    }

    /// Whether it ended. Requests then fail with [`Failure::SessionEnded`] for ever.
    pub(crate) fn is_over(&self) -> bool {
        self.0.phase() == Phase::Over
    }

    /// Sends requests, all at once and in this order.
    pub(crate) fn send<const N: usize>(&self, requests: [Request; N]) -> [Coming; N] {
        let mut state = self.0.state();
        let coming = requests.map(|request| {
            let (caller, coming) = oneshot::channel();
            state.pipeline.put(request, Reply::Caller(caller));
            coming
        });
        self.0.push(&mut state);
        coming
    }

    /// As [`send`](Self::send), for a number of requests that is not known beforehand.
    pub(crate) fn send_all(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Coming> {
        let mut state = self.0.state();
        let put = |request| {
            let (caller, coming) = oneshot::channel();
            state.pipeline.put(request, Reply::Caller(caller));
            coming
        };
        let coming = requests.into_iter().map(put).collect();
        self.0.push(&mut state);
        coming
    }

    /// Waits for an answer, no longer than a request may take.
    pub(crate) async fn answer(&self, coming: Coming) -> Result<Answer, Failure> {
        match tokio::time::timeout(self.0.connector.options.timeout, coming).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::Unanswered("the connection broke".into())),
            Err(_) => {
                self.reconnect_if_hung();
                Err(Failure::Unanswered("it took too long".into()))
            }
        }
    }

    /// Sends one request and waits for its answer.
    pub(crate) async fn call_once(&self, request: Request) -> Result<Answer, Failure> {
        self.connected().await?;
        let [coming] = self.send([request]);
        self.answer(coming).await
    }

    /// Sends an idempotent request, and sends it once more should the connection break under it.
    pub(crate) async fn call(&self, request: Request) -> Result<Answer, Failure> {
        let begin = Moment::now();
        match self.call_once(request.clone()).await {
            Err(Failure::Unanswered(_)) if self.may_retry(begin) => self.call_once(request).await,
            answer => answer,
        }
    }

    /// As [`call`](Self::call), through the leader: the answer is not older than the call, neither
    /// in what it says of a node nor in what it proves about the session.
    pub(crate) async fn call_synced(
        &self,
        path: &str,
        request: Request,
    ) -> Result<Answer, Failure> {
        let [answer] = self.call_all_synced(path, [request]).await;
        answer
    }

    /// As [`call_synced`](Self::call_synced), for several requests behind one `sync`.
    pub(crate) async fn call_all_synced<const N: usize>(
        &self,
        path: &str,
        requests: [Request; N],
    ) -> [Result<Answer, Failure>; N] {
        let begin = Moment::now();
        loop {
            let failure = match self.call_all_once(path, &requests).await {
                Ok(answers) => return answers,
                Err(failure) => failure,
            };
            if !matches!(failure, Failure::Unanswered(_)) || !self.may_retry(begin) {
                return std::array::from_fn(|_| Err(failure.clone()));
            }
        }
    }

    /// One round trip: the `sync`, then the requests. An error is one that concerns all of them.
    async fn call_all_once<const N: usize>(
        &self,
        path: &str,
        requests: &[Request; N],
    ) -> Result<[Result<Answer, Failure>; N], Failure> {
        self.connected().await?;
        let all = std::iter::once(Request::sync(path)).chain(requests.iter().cloned());
        let mut coming = self.send_all(all);
        // Answers come in order. When the last one is here, so are the others: waiting for it
        // first wakes this task once instead of once for each.
        let mut answers = Vec::with_capacity(N + 1);
        while let Some(last) = coming.pop() {
            match self.answer(last).await {
                Err(failure @ Failure::Unanswered(_)) => return Err(failure),
                answer => answers.push(answer),
            }
        }
        // The answer to the `sync`, which was sent first, was popped last.
        if let Some(Err(failure)) = answers.pop() {
            return Err(failure);
        }
        answers.reverse();
        // There are as many as were asked for.
        answers.try_into().map_err(|_| Failure::Unanswered("an answer is missing".into()))
    }

    /// Whether there is time left to send a failed request again.
    fn may_retry(&self, begin: Moment) -> bool {
        Moment::now().since(begin) < self.0.connector.options.timeout / 2
    }

    /// Waits until there is a connection, for as long as a request may take.
    pub(crate) async fn connected(&self) -> Result<(), Failure> {
        self.connected_within(self.0.connector.options.timeout).await
    }

    /// Waits until there is a connection, and makes sure that somebody works on it.
    ///
    /// This is where a session goes on whose driver went with its runtime: every call that waits
    /// for a connection also starts a driver where there is none.
    pub(crate) async fn connected_within(&self, limit: Duration) -> Result<(), Failure> {
        if self.0.phase() == Phase::Connected {
            return Ok(());
        }
        match self.phase_other_than(Phase::Connecting, limit).await {
            Some(Phase::Connected) => Ok(()),
            Some(_) => Err(Failure::SessionEnded),
            None => Err(Failure::Unanswered("there is no connection".into())),
        }
    }

    /// The next phase that is not `left`; `None` when `limit` passes first.
    async fn phase_other_than(&self, left: Phase, limit: Duration) -> Option<Phase> {
        let mut phases = self.0.phases();
        let settled = async {
            loop {
                // At every change of phase: a driver that went with its runtime leaves one behind.
                self.revive();
                let phase = *phases.borrow_and_update();
                if phase != left || phases.changed().await.is_err() {
                    return phase;
                }
            }
        };
        tokio::time::timeout(limit, settled).await.ok()
    }

    /// Looks at the observer, or changes it, together with what the session knows at that moment.
    /// The driver wakes up in time for what the observer plans.
    /// `look` runs under the session's lock: it must be short, and must not call the session.
    pub(crate) fn observe<R>(&self, look: impl FnOnce(&mut O, &Facts<'_>) -> R) -> R {
        let mut state = self.0.state();
        let now = &mut *state;
        let facts = Facts { watchers: &now.watchers, leader_answered: now.leader_answered };
        let seen = look(&mut now.observer, &facts);
        self.0.plan(now);
        seen
    }

    /// Has the observer ticked as soon as there is a connection, on a new driver if need be.
    pub(crate) fn wake(&self) {
        self.revive();
        self.0.wake.notify_one();
    }

    /// Has the session closed if its observer is idle; whether it is.
    pub(super) fn begin_close(&self) -> bool {
        let mut state = self.0.state();
        state.closing |= state.observer.is_idle();
        state.closing
    }

    /// Waits until the session is closed, no longer than a request may take.
    pub(super) async fn closed(&self) {
        self.wake();
        let limit = self.0.connector.options.timeout;
        let over = async {
            let mut phase = self.0.phase();
            while phase != Phase::Over {
                phase = self.phase_other_than(phase, limit).await.unwrap_or(Phase::Over);
            }
        };
        // With the outer limit in case the phase goes back and forth.
        let _ = tokio::time::timeout(limit, over).await;
    }

    /// Puts a new driver in charge where the one before went with its runtime.
    fn revive(&self) {
        let mut state = self.0.state();
        if state.driver == 0 && self.0.phase() != Phase::Over {
            driver::start(&self.0, &mut state, None);
        }
    }

    /// A request was not answered in time. If nothing else is answered either, the connection is
    /// of no use, or its runtime stands still: a new driver on the caller's runtime replaces it.
    ///
    /// It stands still where the runtime is a current-thread one that nobody polls: the driver is
    /// alive, and reads nothing.
    fn reconnect_if_hung(&self) {
        let inner = &self.0;
        let mut state = inner.state();
        let timeout = inner.connector.options.timeout;
        let silent =
            state.pipeline.oldest().is_some_and(|sent| Moment::now().since(sent) >= timeout);
        if silent && inner.phase() == Phase::Connected {
            let afterwards = inner.disconnected(&mut state);
            driver::start(inner, &mut state, None);
            drop(state);
            run(afterwards);
        }
    }
}

impl<O: Observer> Drop for Session<O> {
    fn drop(&mut self) {
        self.0.state().closing = true;
        self.0.wake.notify_one();
    }
}

impl<O: Observer> fmt::Debug for Session<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:#x}, {:?})", self.id(), self.0.phase())
    }
}
