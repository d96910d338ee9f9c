//! What is told of a claim that waits.

use crate::claim::Claim;
use crate::clock::Moment;
use crate::engine::Engine;
use crate::event::{About, EventKind, GaveUp};
use crate::meter::Waiting;
use crate::patience::Patience;
use std::sync::Arc;

/// A claim that waits, for what is told of it.
pub(crate) struct Waiter {
    engine: Arc<Engine>,
    claim: Claim,
    asked: Moment,
    waiting: Waiting,
}

/// The caller of a claim that waits: gone when this is dropped, with its answer or without.
pub(crate) struct Caller<'a>(pub(crate) Option<&'a Arc<Waiter>>);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|waiter| waiter.waiting.end(&waiter.engine.meter, &waiter.claim));
    }
}

impl Waiter {
    pub(crate) fn new(engine: &Arc<Engine>, claim: &Claim, patience: &Patience) -> Arc<Self> {
        let asked = patience.begun();
        Arc::new(Self {
            engine: engine.clone(),
            claim: claim.clone(),
            asked,
            waiting: Waiting::default(),
        })
    }

    /// The claim has to wait: for another, or for a store that does not answer.
    pub(crate) fn waits(&self) {
        self.waiting.begin(&self.engine.meter, &self.claim);
    }

    pub(crate) fn queued(&self, place: usize) {
        self.waits();
        self.engine.note_contact(&self.claim, self.asked, &Ok(()));
        let place = Some(place).filter(|place| *place > 0);
        self.tell(EventKind::Queued { place });
    }

    pub(crate) fn gave_up(&self, why: GaveUp) {
        self.tell(EventKind::GaveUp(why));
    }

    fn tell(&self, kind: EventKind) {
        self.engine.tell(About::waiting(&self.claim, self.asked), kind);
    }
}
