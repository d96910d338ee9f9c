//! List, show, break.
//!
//! Nobody who waits can be seen: they ask again and again, and leave nothing in the store.

use super::client::{Code, Item};
use super::error::Failure;
use super::keys::{Keys, Place};
use super::record::Record;
use super::requests::{Locks, restless};
use crate::backend::support::list;
use crate::backend::{FencingToken, HolderView, LockView, Mode, Name, Owner};
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// For how long it is said that a claim was broken: longer than the longest ttl.
const TOLD: u64 = 25 * 3600;
/// How often a break is tried while the holder renews.
const TRIES: u32 = 16;

/// Every name that is held and starts with `prefix`. Asks each server for its keys.
pub(super) async fn list(locks: &Arc<Locks>, prefix: &str) -> Result<Vec<LockView>> {
    let mut names = BTreeSet::new();
    for server in 0..locks.client.servers() {
        for key in keys(locks, server, Keys::is_lock).await? {
            let place = Place { server, key };
            let item =
                locks.read(&place).await.map_err(|failure| locks.explain(&failure, &place))?;
            let record = item.and_then(|item| Record::read(&item.value));
            // A key that a later list of servers has elsewhere is no lock of this one.
            names.extend(
                record.map(|record| record.name).filter(|name| {
                    name.as_str().starts_with(prefix) && locks.keys.of(name) == place
                }),
            );
        }
    }
    list::shown(names, ErrorKind::Store, |name| show(locks, name)).await
}

/// The keys of a server that `wanted` picks.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where the server does not list them.
pub(super) async fn keys(
    locks: &Arc<Locks>,
    server: usize,
    wanted: fn(&Keys, &str) -> bool,
) -> Result<Vec<String>> {
    let own = locks.clone();
    let dumped = locks.client.dump(server, move |key| wanted(&own.keys, key)).await;
    let at = locks.client.shown(server);
    dumped.map_err(|failure| failure.explain(&at))?.ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{at} does not list its keys: start memcached without -X and with its LRU \
                 crawler, or ask for one name"
            ),
        )
    })
}

/// Who holds the name.
pub(super) async fn show(locks: &Arc<Locks>, name: Name) -> Result<LockView> {
    let place = locks.keys.of(&name);
    let read = locks.read(&place).await.map_err(|failure| locks.explain(&failure, &place))?;
    let mut view = LockView::new(name);
    view.holders.extend(read.map(|item| holder(&item)));
    Ok(view)
}

/// The holder as the item tells. What is not written by us keeps us out as well.
fn holder(item: &Item) -> HolderView {
    // The server rounds up, and was asked for more than the ttl.
    let left = Duration::from_secs(u64::try_from(item.ttl - 2).unwrap_or_default());
    let Some(record) = Record::read(&item.value) else {
        let value: String = String::from_utf8_lossy(&item.value).chars().take(100).collect();
        let mut view = HolderView::new(Owner::from_id(value.clone()), Mode::Exclusive);
        (view.note, view.expires_in) = (value, left);
        view.identity = "another program, or a claim that only stays".to_owned();
        return view;
    };
    let (token, held_for) = (record.token(&item.version), record.age());
    let mut view = HolderView::new(record.owner, Mode::Exclusive);
    (view.identity, view.note) = (record.identity, record.note);
    (view.token, view.held_for, view.expires_in) = (token, held_for, left);
    view
}

/// Deletes the claim with this token. First it is written down why, for the holder to find when it
/// renews.
pub(super) async fn break_hold(
    locks: &Arc<Locks>,
    name: &Name,
    token: FencingToken,
    reason: &str,
) -> Result<bool> {
    let place = locks.keys.of(name);
    let explain = |failure: Failure| locks.explain(&failure, &place);
    for _ in 0..TRIES {
        let Some(item) = locks.read(&place).await.map_err(explain)? else { return Ok(false) };
        let Some(record) = Record::read(&item.value) else { return Ok(false) };
        if record.token(&item.version) != Some(token) {
            return Ok(false);
        }
        let note = locks.keys.broken(&place, &record.id);
        locks.client.set(&note, reason.as_bytes(), TOLD).await.map_err(explain)?;
        match locks.client.delete(&place, item.version).await.map_err(explain)? {
            Code::Done => {
                locks.waiters.released(&place.key);
                return Ok(true);
            }
            // It was renewed meanwhile, or given back: look again.
            _ => continue,
        }
    }
    Err(restless(name.as_str()))
}
