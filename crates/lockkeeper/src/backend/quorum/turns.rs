//! The waiting claims of one keeper take turns: for each name one of them asks, for all.
//!
//! ```text
//!   line    claims of this keeper that wait for the name, in order; the first may ask the nodes
//!   held    while a claim of this keeper has the name, nobody here need ask at all
//! ```
//!
//! Without this they would take votes from one another. Between keepers there is no order.

use crate::backend::support::sync::lock;
use crate::backend::{Moment, Name};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long the first in line trusts that the keeper's own holder will tell when it is done. A holder
/// that was lost and whose guard is kept tells nobody.
const TRUST: Duration = Duration::from_secs(1);

/// Every name that claims of this keeper hold or wait for.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Name, Arc<Turn>>>);

#[derive(Debug)]
struct Turn {
    line: Arc<Semaphore>,
    held: Arc<Semaphore>,
}

/// One claim's part in it; leaves when dropped.
#[derive(Debug)]
pub(super) struct Place {
    turns: Arc<Turns>,
    name: Name,
    turn: Option<Arc<Turn>>,
    first: Option<OwnedSemaphorePermit>,
    holds: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Joins those who want the name.
    pub(super) fn join(self: &Arc<Self>, name: &Name) -> Place {
        let turn = {
            let mut turns = lock(&self.0);
            let turn = turns.entry(name.clone()).or_insert_with(|| {
                let one = || Arc::new(Semaphore::new(1));
                Arc::new(Turn { line: one(), held: one() })
            });
            turn.clone()
        };
        Place {
            turns: self.clone(),
            name: name.clone(),
            turn: Some(turn),
            first: None,
            holds: None,
        }
    }
}

impl Place {
    /// Whether it is first in line without having to wait, and no claim of this keeper has the name.
    pub(super) fn is_free(&mut self) -> bool {
        let Some(turn) = &self.turn else { return false };
        self.first = turn.line.clone().try_acquire_owned().ok();
        self.first.is_some() && turn.held.available_permits() > 0
    }

    /// Waits until it is first in line.
    pub(super) async fn first(&mut self) {
        let Some(turn) = self.turn.as_ref().filter(|_| self.first.is_none()) else { return };
        // Never closed, so this never fails.
        self.first = turn.line.clone().acquire_owned().await.ok();
    }

    /// Waits until no claim of this keeper has the name, as far as that can be trusted.
    pub(super) async fn nobody_holds(&self) {
        let Some(turn) = &self.turn else { return };
        let limit = Moment::now() + TRUST;
        tokio::select! {
            biased;
            _ = turn.held.acquire() => {}
            () = limit.reached() => {}
        }
    }

    /// Whether a claim of this keeper has the name.
    pub(super) fn is_held_here(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.held.available_permits() == 0)
    }

    /// The claim was granted: it holds until this is dropped, and the next in line moves up.
    pub(super) fn hold(mut self) -> Self {
        if let Some(turn) = &self.turn {
            self.holds = turn.held.clone().try_acquire_owned().ok();
        }
        self.first = None;
        self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.first = None;
        self.holds = None;
        let mut turns = lock(&self.turns.0);
        self.turn = None;
        // With the map locked nobody else can join: one that only the map has is nobody's.
        if turns.get(&self.name).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn they_come_in_order_and_leave_nothing() {
        let (turns, name) = (Arc::new(Turns::default()), Name::new("a").unwrap());
        let mut one = turns.join(&name);
        assert!(one.is_free());
        let (mut two, mut three) = (turns.join(&name), turns.join(&name));
        assert!(!two.is_free());
        let one = one.hold();
        two.first().await;
        assert!(two.is_held_here());
        let begin = Moment::now();
        // A holder that tells nobody is not waited for for ever.
        two.nobody_holds().await;
        assert_eq!(Moment::now().since(begin), TRUST);
        let told = tokio::spawn(async move {
            let begin = Moment::now();
            two.nobody_holds().await;
            assert_eq!(Moment::now().since(begin), TRUST / 4);
        });
        tokio::time::sleep(TRUST / 4).await;
        drop(one);
        told.await.unwrap();
        three.first().await;
        drop(three);
        assert!(lock(&turns.0).is_empty());
    }
}
