//! What a session's handle and its driver share, behind one lock.
//!
//! The rule that keeps it free of deadlocks: nothing that could call back is called under the lock. A
//! caller's answer is sent after it is released, and what an observer wants called is collected as
//! [`Afterwards`] and [run] then.

use super::connection::{Connector, SessionKey};
use super::error::Failure;
use super::observer::{Afterwards, Observer, Outgoing};
use super::pipeline::Pipeline;
use super::watchers::Watchers;
use crate::backend::support::sync::lock;
use crate::clock::Moment;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

/// The shared part of a session.
pub(super) struct Inner<O: Observer> {
    pub(super) connector: Arc<Connector>,
    pub(super) key: SessionKey,
    state: Mutex<State<O>>,
    /// Wakes the driver.
    pub(super) wake: Notify,
    phase: watch::Sender<Phase>,
}

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is no connection at present. The server keeps the session until its timeout.
    Connecting,
    Connected,
    /// The session ended, and does not come back.
    Over,
}

/// Everything that changes. One lock for all of it: an event, for instance, changes the watchers
/// and the observer in one step, and a caller never sees one without the other.
pub(super) struct State<O: Observer> {
    pub(super) pipeline: Pipeline<O::Purpose>,
    pub(super) watchers: Watchers,
    pub(super) observer: O,
    /// The number of the driver in charge; zero when there is none, because its runtime ended.
    pub(super) driver: u64,
    /// How many there have been, so that no number is used twice.
    drivers: u64,
    /// The session is to be closed as soon as its observer is idle.
    pub(super) closing: bool,
    /// When the driver wakes up by itself.
    pub(super) planned: Option<Moment>,
    /// When the last request was sent that was answered through the leader.
    pub(super) leader_answered: Option<Moment>,
    /// The last transaction that this session has seen.
    pub(super) last_seen: i64,
}

impl<O: Observer> State<O> {
    /// The observer, and where it puts its requests.
    pub(super) fn observer(&mut self) -> (&mut O, Outgoing<'_, O::Purpose>) {
        (&mut self.observer, Outgoing(&mut self.pipeline))
    }

    /// The number of a new driver, which is in charge from now on. A driver that finds another
    /// number here has been replaced and stops.
    pub(super) fn next_driver(&mut self) -> u64 {
        self.drivers += 1;
        self.driver = self.drivers;
        self.driver
    }
}

impl<O: Observer> Inner<O> {
    pub(super) fn new(connector: Arc<Connector>, key: SessionKey) -> Self {
        let state = State {
            pipeline: Pipeline::default(),
            watchers: Watchers::default(),
            observer: O::default(),
            driver: 0,
            drivers: 0,
            closing: false,
            planned: None,
            leader_answered: None,
            last_seen: 0,
        };
        let phase = watch::Sender::new(Phase::Connecting);
        Self { connector, key, state: Mutex::new(state), wake: Notify::new(), phase }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<O>> {
        lock(&self.state)
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// To wait for the next phase.
    pub(super) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Called with the state locked, so that phases and state change in the same order.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Sends what is queued, as far as that goes without waiting; the driver does the rest.
    pub(super) fn push(&self, state: &mut State<O>) {
        // A connection that turns out to be broken is left to the driver as well.
        if !state.pipeline.push().unwrap_or(false) {
            self.wake.notify_one();
        }
    }

    /// Makes sure that the driver wakes up in time for what the observer plans.
    pub(super) fn plan(&self, state: &mut State<O>) {
        let due = state.observer.next_due();
        if due.is_some() && state.planned.is_none_or(|planned| due < Some(planned)) {
            state.planned = due;
            self.wake.notify_one();
        }
    }

    /// The connection is gone, and the watches with it. Returns what is to be called when the
    /// state is not locked any more.
    #[must_use]
    pub(super) fn disconnected(&self, state: &mut State<O>) -> Vec<Afterwards> {
        if self.phase() == Phase::Over {
            return Vec::new();
        }
        self.set_phase(Phase::Connecting);
        // Callers learn that their requests were not answered, watchers that they may have missed
        // something, the observer that everything it knew is in doubt.
        state.pipeline.disconnect(&Failure::Unanswered("the connection broke".into()));
        state.watchers.disconnected();
        state.observer.disconnected()
    }

    /// The session is over, and every ephemeral node with it.
    pub(super) fn ended(&self) {
        let afterwards = {
            let mut state = self.state();
            self.set_phase(Phase::Over);
            state.driver = 0;
            state.pipeline.disconnect(&Failure::SessionEnded);
            state.watchers.disconnected();
            state.observer.ended()
        };
        run(afterwards);
    }
}

/// Calls what had to wait until the state is not locked any more.
pub(super) fn run(afterwards: impl IntoIterator<Item = Afterwards>) {
    afterwards.into_iter().for_each(|call| call());
}
