//! Which owner holds what here, so that asking again does not wait.

use crate::backend::support::sync::lock;
use crate::claim::{Claim, Owner};
use crate::engine::Engine;
use crate::error::Result;
use crate::hold::Hold;
use crate::name::Name;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio_util::sync::CancellationToken;

type Key = (Name, Owner);

/// The holds of named owners. Of one owner and name there can be several: claims that were made
/// at the same time, before any of them was held.
#[derive(Debug, Default)]
pub(crate) struct Reentry(Mutex<HashMap<Key, Vec<Place>>>);

/// One hold of an owner, until the store has it back. Known by the hold, not by the id of its claim: one
/// that was lost may have been asked for again under the same id.
#[derive(Debug)]
struct Place {
    hold: Weak<Hold>,
    /// Given back, but perhaps not yet by the store.
    is_leaving: bool,
    /// Cancelled when the place is.
    gone: CancellationToken,
}

/// What an owner finds that asks again.
pub(crate) enum Entry {
    /// A stake in the hold it has.
    Again(Arc<Hold>),
    /// A claim of its own on the way out; cancelled when that is through.
    Leaving(CancellationToken),
}

impl Reentry {
    /// What `claim`'s owner already has on the name; `None` when it has nothing here.
    ///
    /// # Errors
    /// `WouldDeadlock` when it holds the name, but in no mode that covers the claim's.
    pub(crate) fn enter(&self, claim: &Claim) -> Result<Option<Entry>> {
        let key = (claim.name.clone(), claim.owner.clone());
        let places = self.with(|places| {
            let places = places.get(&key).map_or(&[][..], Vec::as_slice);
            let known = |place: &Place| {
                let hold = place.hold.upgrade().filter(|_| !place.is_leaving);
                (hold, place.gone.clone())
            };
            places.iter().map(known).collect::<Vec<_>>()
        });
        let (mut refused, mut leaving) = (None, None);
        // Looked at outside the lock: a hold that turns out to be lost reaches back into the map.
        for (hold, gone) in places {
            let Some(hold) = hold else {
                leaving = Some(gone);
                continue;
            };
            if hold.lost_reason().is_some() {
                continue;
            }
            if !hold.claim().mode.covers(claim.mode) {
                refused = Some(hold.claim().mode.upgrade_refused(&claim.name, claim.mode));
            } else if hold.add_stake() {
                return Ok(Some(Entry::Again(hold)));
            } else {
                // Its last guard is going this moment.
                leaving = Some(gone);
            }
        }
        match refused {
            Some(refused) => Err(refused),
            None => Ok(leaving.map(Entry::Leaving)),
        }
    }

    /// Whether the owner has, or had a moment ago, anything on the name.
    pub(crate) fn knows(&self, claim: &Claim) -> bool {
        let key = (claim.name.clone(), claim.owner.clone());
        self.with(|places| places.contains_key(&key))
    }

    pub(crate) fn remember(&self, hold: &Arc<Hold>) {
        let place =
            Place { hold: Arc::downgrade(hold), is_leaving: false, gone: CancellationToken::new() };
        self.with(|places| places.entry(key(hold)).or_default().push(place));
    }

    /// Forgets a hold that was lost or detached.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        self.remove(&key(hold), &Arc::downgrade(hold));
    }

    /// Marks a hold as on its way out, until the returned mark is dropped.
    pub(crate) fn leave(&self, hold: &Arc<Hold>) -> Option<Leaving> {
        let (key, engine, hold) = (key(hold), hold.engine().clone(), Arc::downgrade(hold));
        self.with(|places| {
            let mut places = places.get_mut(&key)?.iter_mut();
            places.find(|place| place.hold.ptr_eq(&hold))?.is_leaving = true;
            Some(())
        })?;
        Some(Leaving { engine, key, hold })
    }

    fn remove(&self, key: &Key, hold: &Weak<Hold>) {
        let removed = self.with(|all| {
            let places = all.get_mut(key)?;
            let index = places.iter().position(|place| place.hold.ptr_eq(hold))?;
            let removed = places.swap_remove(index);
            if places.is_empty() {
                all.remove(key);
            }
            Some(removed)
        });
        // Outside the lock: cancelling runs the wakers of those that wait.
        if let Some(place) = removed {
            place.gone.cancel();
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Key, Vec<Place>>) -> T) -> T {
        act(&mut lock(&self.0))
    }
}

/// A hold on its way out. Dropped when the store has answered, or never will.
pub(crate) struct Leaving {
    engine: Arc<Engine>,
    key: Key,
    hold: Weak<Hold>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.engine.reentry.remove(&self.key, &self.hold);
    }
}

fn key(hold: &Arc<Hold>) -> Key {
    (hold.claim().name.clone(), hold.claim().owner.clone())
}
