//! Which owner holds what here, so that asking again does not wait.

use crate::claim::{Claim, Owner};
use crate::error::Result;
use crate::hold::Hold;
use crate::name::Name;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

#[derive(Debug, Default)]
pub(crate) struct Reentry(Mutex<HashMap<(Name, Owner), Weak<Hold>>>);

impl Reentry {
    /// A stake in the hold that `claim`'s owner already has on the name; `None` when it has
    /// none here.
    ///
    /// # Errors
    /// `WouldDeadlock` when it holds the name in a mode that does not cover the claim's.
    pub(crate) fn enter(&self, claim: &Claim) -> Result<Option<Arc<Hold>>> {
        let hold = self.with(|holds| {
            holds.get(&(claim.name.clone(), claim.owner.clone())).and_then(Weak::upgrade)
        });
        let Some(hold) = hold.filter(|hold| !hold.remaining().is_zero()) else { return Ok(None) };
        if !hold.claim().mode.covers(claim.mode) {
            return Err(hold.claim().mode.upgrade_refused(&claim.name, claim.mode));
        }
        Ok(hold.add_stake().then_some(hold))
    }

    pub(crate) fn remember(&self, hold: &Arc<Hold>) {
        self.with(|holds| holds.insert(key(hold), Arc::downgrade(hold)));
    }

    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        self.with(|holds| {
            let key = key(hold);
            if holds.get(&key).is_some_and(|weak| weak.as_ptr() == Arc::as_ptr(hold)) {
                holds.remove(&key);
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<(Name, Owner), Weak<Hold>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn key(hold: &Arc<Hold>) -> (Name, Owner) {
    (hold.claim().name.clone(), hold.claim().owner.clone())
}
