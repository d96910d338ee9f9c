//! Which owner holds what here, so that asking again does not wait.

use crate::claim::{Claim, Owner};
use crate::core::Core;
use crate::error::Result;
use crate::hold::Hold;
use crate::name::Name;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio_util::sync::CancellationToken;

type Key = (Name, Owner);

/// The holds of named owners.
#[derive(Debug, Default)]
pub(crate) struct Reentry(Mutex<HashMap<Key, Place>>);

#[derive(Debug)]
enum Place {
    Held(Weak<Hold>),
    /// Given back, but perhaps not yet by the store; cancelled when that is through.
    Leaving(CancellationToken),
}

/// What an owner finds that asks again.
pub(crate) enum Entry {
    /// A stake in the hold it has.
    Again(Arc<Hold>),
    /// A claim of its own on the way out.
    Leaving(CancellationToken),
}

impl Reentry {
    /// What `claim`'s owner already has on the name; `None` when it has nothing here.
    ///
    /// # Errors
    /// `WouldDeadlock` when it holds the name in a mode that does not cover the claim's.
    pub(crate) fn enter(&self, claim: &Claim) -> Result<Option<Entry>> {
        let key = (claim.name.clone(), claim.owner.clone());
        let found = self.with(|places| match places.get(&key) {
            Some(Place::Held(hold)) => hold.upgrade().ok_or(None),
            Some(Place::Leaving(gone)) => Err(Some(Entry::Leaving(gone.clone()))),
            None => Err(None),
        });
        let hold = match found {
            Ok(hold) if !hold.remaining().is_zero() => hold,
            Ok(_) => return Ok(None),
            Err(other) => return Ok(other),
        };
        if !hold.claim().mode.covers(claim.mode) {
            return Err(hold.claim().mode.upgrade_refused(&claim.name, claim.mode));
        }
        Ok(hold.add_stake().then_some(Entry::Again(hold)))
    }

    /// Whether the owner has, or had a moment ago, anything on the name.
    pub(crate) fn knows(&self, claim: &Claim) -> bool {
        let key = (claim.name.clone(), claim.owner.clone());
        self.with(|places| places.contains_key(&key))
    }

    pub(crate) fn remember(&self, hold: &Arc<Hold>) {
        self.with(|places| places.insert(key(hold), Place::Held(Arc::downgrade(hold))));
    }

    /// Forgets a hold that was lost or detached.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        self.with(|places| {
            if is_at(places, hold) {
                places.remove(&key(hold));
            }
        });
    }

    /// Marks a hold as on its way out, until the returned mark is dropped.
    pub(crate) fn leave(&self, hold: &Arc<Hold>) -> Option<Leaving> {
        self.with(|places| {
            if !is_at(places, hold) {
                return None;
            }
            let gone = CancellationToken::new();
            places.insert(key(hold), Place::Leaving(gone.clone()));
            Some(Leaving { core: hold.core().clone(), key: key(hold), gone })
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Key, Place>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A hold on its way out. Dropped when the store has answered, or never will.
pub(crate) struct Leaving {
    core: Arc<Core>,
    key: Key,
    gone: CancellationToken,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.core.reentry.with(|places| {
            if matches!(places.get(&self.key), Some(Place::Leaving(_))) {
                places.remove(&self.key);
            }
        });
        self.gone.cancel();
    }
}

fn key(hold: &Arc<Hold>) -> Key {
    (hold.claim().name.clone(), hold.claim().owner.clone())
}

fn is_at(places: &HashMap<Key, Place>, hold: &Arc<Hold>) -> bool {
    let place = places.get(&key(hold));
    matches!(place, Some(Place::Held(weak)) if weak.as_ptr() == Arc::as_ptr(hold))
}
