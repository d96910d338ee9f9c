//! Numbers that nobody else gets.
//!
//! One key per sequence with the last number reserved, counted up by the server itself (`ma`). It
//! never expires, but it can be evicted, and ends with the server: then the count begins again at the
//! caller's `floor`, which should therefore be above every number that is known to have been used.
//!
//! An answer that is lost takes its numbers with it, so there may be gaps and never a number twice.

use super::client::Stored;
use super::error::Failure;
use super::requests::{Locks, restless};
use crate::backend::Name;
use crate::error::{Error, ErrorKind, Result};

/// How often a count is moved on to the floor that others move as well.
const TRIES: u32 = 16;

/// The first of `count` numbers, not below `floor`.
pub(super) async fn reserve(locks: &Locks, name: &Name, count: u32, floor: u64) -> Result<u64> {
    let place = locks.keys.sequence(name);
    let count = u64::from(count.max(1));
    let least = floor.max(1).checked_add(count - 1).filter(|last| i64::try_from(*last).is_ok());
    let Some(least) = least else {
        return Err(Error::new(ErrorKind::Config, "a sequence ends below 2^63"));
    };
    let explain = |failure: Failure| locks.explain(&failure, &place);
    let foreign = || {
        let key = &place.key;
        Error::new(ErrorKind::Store, format!("{key:?} is no count: is the key used otherwise?"))
    };
    for _ in 0..TRIES {
        // Not repeated on a new connection: the numbers would be lost, but so would the certainty
        // that a sequence near its end is not passed.
        let last = locks.client.count(&place, count, least).await.map_err(explain)?;
        let last = last.ok_or_else(foreign)?;
        if i64::try_from(last).is_err() {
            return Err(Error::new(ErrorKind::Config, "a sequence ends below 2^63"));
        }
        if last >= least {
            return Ok(last + 1 - count);
        }
        // The count is behind the floor: move it to just before, and count again.
        let before = least - count;
        let Some(item) = locks.client.read(&place).await.map_err(explain)? else { continue };
        let shown = std::str::from_utf8(&item.value).ok();
        let shown: Option<u64> = shown.and_then(|shown| shown.trim().parse().ok());
        if shown.ok_or_else(foreign)? < before {
            let text = before.to_string();
            let moved = locks.client.replace(&place, text.as_bytes(), item.version, 0).await;
            let _: Stored = moved.map_err(explain)?;
        }
    }
    Err(restless(name.as_str()))
}
