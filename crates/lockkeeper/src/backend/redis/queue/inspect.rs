//! Who holds and who waits, for the inspector.
//!
//! Redis has one list of keys for everything, so listing scans all of them for our prefix, and then
//! looks at each name that was found, many at once. A name may change between the two: what is listed
//! is no snapshot.

use super::record::Record;
use super::requests::Requests;
use crate::backend::redis::error::unexpected;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::protocol::{number, span, text};
use crate::backend::support::list;
use crate::backend::{HolderView, LockView, Name, Page};
use crate::error::{ErrorKind, Result};
use redis::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Every name that is held or waited for and begins with `prefix`.
pub(super) async fn list(requests: &Requests, prefix: &str) -> Result<Vec<LockView>> {
    let names = names(requests, prefix).await?;
    list::shown(names, ErrorKind::Store, |name| async move { show(requests, &name).await }).await
}

/// Some of them, in the order in which Redis goes through its keys.
pub(super) async fn list_page(
    requests: &Requests,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page> {
    // Letter by letter, so that the coded beginning is the beginning of the coded name.
    let start = Keys::beginning(&requests.prefix, prefix);
    let (keys, next) = requests.client.some_keys(&start, None, after, limit).await?;
    // The state alone says nothing: it stays behind for a while.
    let keys = keys.iter().filter(|key| !key.ends_with("}:state"));
    let names = keys.filter_map(|key| Keys::name_of(&requests.prefix, key)?.ok());
    let names: BTreeSet<Name> = names.collect();
    let shown = |name: Name| async move { show(requests, &name).await };
    Ok(Page::new(list::shown(names, ErrorKind::Store, shown).await?, next))
}

/// Who holds and who waits for one name.
pub(super) async fn show(requests: &Requests, name: &Name) -> Result<LockView> {
    let answer = requests.show(name, true).await?;
    view(name, &answer).ok_or_else(|| unexpected(&answer).with("lock", name))
}

/// As [`show`], without those that wait, which may be many.
pub(super) async fn holders(requests: &Requests, name: &Name) -> Result<Vec<HolderView>> {
    let answer = requests.show(name, false).await?;
    Ok(view(name, &answer).ok_or_else(|| unexpected(&answer))?.holders)
}

/// Now, the holders as milliseconds left and record, and the records of those that wait. Claims of
/// one owner are shown as one holder.
fn view(name: &Name, answer: &Value) -> Option<LockView> {
    let Value::Array(parts) = answer else { return None };
    let [now, Value::Array(held), Value::Array(waiting)] = &parts[..] else { return None };
    let now = number(now)?;
    let mut holders: Vec<HolderView> = Vec::new();
    for pair in held.chunks_exact(2) {
        let text = lossy(&pair[1])?;
        let record = Record::read(&text)?;
        match holders.iter_mut().find(|view| view.owner == *record.owner()) {
            Some(view) => view.count += 1,
            None => holders.push(record.holder(now, span(&pair[0])?)),
        }
    }
    let waiters = waiting.iter().map(|record| Some(Record::read(&lossy(record)?)?.waiter(now)));
    let waiters = waiters.collect::<Option<_>>()?;
    Some(LockView { holders, waiters, ..LockView::new(name.clone()) })
}

/// A record as text. What others wrote there need not be UTF-8; it holds the name all the same.
fn lossy(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes)),
        other => text(other).map(Cow::Borrowed),
    }
}

/// Every name that has a key, in order.
async fn names(requests: &Requests, prefix: &str) -> Result<BTreeSet<Name>> {
    let keys = requests.client.keys(&format!("{}{{", requests.prefix), None).await?;
    let names = keys.iter().filter_map(|key| Keys::name_of(&requests.prefix, key)?.ok());
    Ok(names.filter(|name| name.as_str().starts_with(prefix)).collect())
}
