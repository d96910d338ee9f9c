//! The count of a key in its store, which must not go back.

use super::registry::KeyRecord;
use super::store::Store;
use crate::backend::{Name, Reserve, Reserved};
use crate::error::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Reserves numbers of one key.
#[derive(Debug)]
pub(crate) struct Counter {
    store: Store,
    record: KeyRecord,
    name: Name,
    /// What the owner of the key says is above every number that was used.
    floor: Option<u64>,
    /// Whether a count that is not there was lost.
    begun: AtomicBool,
    /// The largest number that was reserved here.
    last: AtomicU64,
    reservations: AtomicU64,
}

impl Counter {
    pub(crate) fn new(store: Store, record: KeyRecord, floor: Option<u64>) -> Result<Self> {
        let name = record.counter()?;
        // With a floor it may be begun anew, once.
        let begun = AtomicBool::new(record.made && floor.is_none());
        let (last, reservations) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { store, record, name, floor, begun, last, reservations })
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn record(&self) -> &KeyRecord {
        &self.record
    }

    pub(crate) fn reservations(&self) -> u64 {
        self.reservations.load(Ordering::Relaxed)
    }

    /// The largest number that was reserved here.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// The first of `count` numbers in a row, above all that were reserved before and not below
    /// `floor`; `None` where the last would be above `ceiling`.
    pub(crate) async fn reserve(
        &self,
        count: u32,
        floor: u64,
        ceiling: u64,
    ) -> Result<Option<u64>> {
        let begun = self.begun.load(Ordering::Acquire);
        let floor = floor.max(self.floor.unwrap_or(1)).max(self.last() + 1);
        let mut wish = Reserve::new(count).from(floor).up_to(ceiling);
        if begun {
            wish = wish.of_existing();
        }
        let reserved = self.store.reserve(&self.name, wish).await?;
        self.reservations.fetch_add(1, Ordering::Relaxed);
        match reserved {
            Reserved::From(first) => {
                if !begun {
                    // A count that was begun in a store that has lost the key: others may have had those.
                    if !self.record.set_made(&self.store).await? {
                        return Err(self.lost());
                    }
                    self.begun.store(true, Ordering::Release);
                }
                self.last.fetch_max(first + u64::from(wish.count) - 1, Ordering::Relaxed);
                Ok(Some(first))
            }
            Reserved::Beyond(_) => Ok(None),
            Reserved::Missing => Err(self.lost()),
        }
    }

    fn lost(&self) -> Error {
        let (backend, key) = (&self.store.engine().backend, &self.record.key);
        let message = format!(
            "{backend} has lost the count of the ids {key:?}, and ids of before could be given again: \
             open them with a floor above every id that was used"
        );
        Error::new(ErrorKind::Store, message).lasting()
    }
}
