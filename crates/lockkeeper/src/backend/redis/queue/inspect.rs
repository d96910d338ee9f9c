//! Who holds and who waits.

use super::record::Record;
use super::scripts::{number, span, text};
use super::{Shared, strange};
use crate::backend::redis::key::Keys;
use crate::backend::redis::scan;
use crate::backend::support::list;
use crate::backend::{HolderView, LockView, Name};
use crate::error::{ErrorKind, Result};
use redis::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

pub(super) async fn show(shared: &Shared, name: &Name) -> Result<LockView> {
    let keys = Keys::new(&shared.prefix, name);
    let answer = shared.link.call(&shared.scripts.show, &keys.all(), &[]).await?;
    view(name, &answer).ok_or_else(|| strange(&answer).with("lock", name))
}

/// A record as text. What others wrote there need not be; it holds the name all the same.
fn lossy(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes)),
        other => text(other).map(Cow::Borrowed),
    }
}

/// As [`show`], without those who wait, who may be many.
pub(super) async fn holders(shared: &Shared, name: &Name) -> Result<Vec<HolderView>> {
    let keys = Keys::new(&shared.prefix, name);
    let answer = shared.link.call(&shared.scripts.show, &keys.all(), &[b"1"]).await?;
    let view = view(name, &answer).ok_or_else(|| strange(&answer))?;
    Ok(view.holders)
}

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
    Some(LockView { name: name.clone(), holders, waiters: waiters.collect::<Option<_>>()? })
}

pub(super) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<LockView>> {
    let names = names(shared, prefix).await?;
    list::shown(names, ErrorKind::Store, |name| async move { show(shared, &name).await }).await
}

/// Every name that has a key, in order.
async fn names(shared: &Shared, prefix: &str) -> Result<BTreeSet<Name>> {
    let keys = scan::keys(&shared.link, &format!("{}{{", shared.prefix), None).await?;
    let names = keys.iter().filter_map(|key| Keys::name_of(&shared.prefix, key)?.ok());
    Ok(names.filter(|name| name.as_str().starts_with(prefix)).collect())
}
