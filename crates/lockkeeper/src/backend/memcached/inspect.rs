//! List, show, break.
//!
//! Nobody who waits can be seen: they ask again and again, and leave nothing in the store.

use super::client::{Code, Item};
use super::error::Failure;
use super::keys::{Keys, Place};
use super::record::Record;
use super::requests::{Locks, restless};
use crate::backend::support::list::{asked, no_page};
use crate::backend::support::sync::lock;
use crate::backend::{FencingToken, HolderView, LockView, Mode, Name, Owner, Page};
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// For how long it is said that a claim was broken: longer than the longest ttl.
const TOLD: u64 = 25 * 3600;
/// How often a break is tried while the holder renews.
const TRIES: u32 = 16;

/// Every name that is held and starts with `prefix`. Asks each server for its keys.
pub(super) async fn list(locks: &Arc<Locks>, prefix: &str) -> Result<Vec<LockView>> {
    let mut views = Vec::new();
    for server in 0..locks.client.servers() {
        let keys = keys(locks, server, Keys::is_lock).await?;
        views.extend(shown(locks, server, keys, prefix).await?);
    }
    views.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(views)
}

/// Some of them, server by server, in the order of their keys: `after` is a server and a key of it. A
/// server tells all of its keys or none, so every page goes through them and keeps its own.
pub(super) async fn list_page(
    locks: &Arc<Locks>,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page> {
    let (server, after) = match after {
        Some(after) => {
            let (server, key) = after.split_once(' ').ok_or_else(no_page)?;
            (server.parse::<usize>().map_err(|_| no_page())?, key.to_owned())
        }
        None => (0, String::new()),
    };
    if server >= locks.client.servers() {
        return Err(no_page());
    }
    let first = Arc::new(Mutex::new(BTreeSet::new()));
    let kept = first.clone();
    let later = move |own: &Keys, key: &str| {
        if own.is_lock(key) && key > &*after {
            let mut kept = lock(&kept);
            kept.insert(key.to_owned());
            if kept.len() > limit {
                kept.pop_last();
            }
        }
        // Those that are wanted are kept here, and no more than those.
        false
    };
    keys(locks, server, later).await?;
    let keys = std::mem::take(&mut *lock(&first));
    let next = match keys.last() {
        Some(last) if keys.len() >= limit => Some(format!("{server} {last}")),
        _ if server + 1 < locks.client.servers() => Some(format!("{} ", server + 1)),
        _ => None,
    };
    Ok(Page::new(shown(locks, server, keys, prefix).await?, next))
}

/// The locks that these keys are, if their names start with `prefix`.
async fn shown(
    locks: &Arc<Locks>,
    server: usize,
    keys: impl IntoIterator<Item = String, IntoIter: Send> + Send,
    prefix: &str,
) -> Result<Vec<LockView>> {
    let look = |key: String| async move {
        let place = Place { server, key };
        let item = locks.read(&place).await.map_err(|failure| locks.explain(&failure, &place))?;
        let name = item.as_ref().and_then(|item| Some(Record::read(&item.value)?.name));
        // A key that a later list of servers has elsewhere is no lock of this one.
        let ours =
            name.filter(|name| name.as_str().starts_with(prefix) && locks.keys.of(name) == place);
        Ok(item.zip(ours).map(|(item, name)| {
            let mut view = LockView::new(name);
            view.holders.push(holder(&item));
            view
        }))
    };
    Ok(asked(keys, look).await?.into_iter().flatten().collect())
}

/// The keys of a server that `wanted` picks.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where the server does not list them.
pub(super) async fn keys(
    locks: &Arc<Locks>,
    server: usize,
    wanted: impl Fn(&Keys, &str) -> bool + Send + Sync + 'static,
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
