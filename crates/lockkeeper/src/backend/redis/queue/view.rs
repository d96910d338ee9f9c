//! Who holds and who waits.

use super::record::Record;
use super::scripts::{number, span, text};
use super::{Shared, strange};
use crate::backend::redis::key::Keys;
use crate::backend::redis::scan;
use crate::backend::{HolderView, LockView, Name};
use crate::error::{ErrorKind, Result};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use redis::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// How many names are looked at at once.
const AT_ONCE: usize = 32;

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
    let views = stream::iter(names).map(|name| async move {
        match show(shared, &name).await {
            Ok(view) => Ok(Some(view)),
            // A key of someone else: it does not hide the locks beside it.
            Err(error) if error.kind() == ErrorKind::Store => {
                tracing::warn!(%name, %error, "left out of the list: its key holds no lock");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    });
    let views: Vec<Option<LockView>> = views.buffered(AT_ONCE).try_collect().await?;
    let busy = |view: &LockView| !view.holders.is_empty() || !view.waiters.is_empty();
    Ok(views.into_iter().flatten().filter(busy).collect())
}

/// Every name that has a key, in order.
async fn names(shared: &Shared, prefix: &str) -> Result<BTreeSet<Name>> {
    let keys = scan::keys(&shared.link, &format!("{}{{", shared.prefix), None).await?;
    let names = keys.iter().filter_map(|key| Keys::name_of(&shared.prefix, key)?.ok());
    Ok(names.filter(|name| name.as_str().starts_with(prefix)).collect())
}
