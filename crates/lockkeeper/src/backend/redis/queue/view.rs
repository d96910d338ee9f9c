//! Who holds and who waits.

use super::record::Record;
use super::scripts::{number, span, text};
use super::{Shared, strange};
use crate::backend::redis::key::Keys;
use crate::backend::{HolderView, LockView, Name};
use crate::error::Result;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use redis::Value;
use std::collections::BTreeSet;

/// How many names are looked at at once.
const AT_ONCE: usize = 32;

pub(super) async fn show(shared: &Shared, name: &Name) -> Result<LockView> {
    let keys = Keys::new(&shared.prefix, name);
    let answer = shared.link.call(&shared.scripts.show, &keys.all(), &[]).await?;
    view(name, &answer).ok_or_else(|| strange(&answer))
}

fn view(name: &Name, answer: &Value) -> Option<LockView> {
    let Value::Array(parts) = answer else { return None };
    let [now, Value::Array(held), Value::Array(waiting)] = &parts[..] else { return None };
    let now = number(now)?;
    let mut holders: Vec<HolderView> = Vec::new();
    for pair in held.chunks_exact(2) {
        let record = Record::read(text(&pair[1])?)?;
        match holders.iter_mut().find(|view| view.owner == *record.owner()) {
            Some(view) => view.count += 1,
            None => holders.push(record.holder(now, span(&pair[0])?)),
        }
    }
    let waiters = waiting.iter().map(|record| Some(Record::read(text(record)?)?.waiter(now)));
    Some(LockView { name: name.clone(), holders, waiters: waiters.collect::<Option<_>>()? })
}

pub(super) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<LockView>> {
    let names = names(shared, prefix).await?;
    let views = stream::iter(names).map(|name| async move { show(shared, &name).await });
    let views: Vec<LockView> = views.buffered(AT_ONCE).try_collect().await?;
    let busy = |view: &LockView| !view.holders.is_empty() || !view.waiters.is_empty();
    Ok(views.into_iter().filter(busy).collect())
}

/// Every name that has a key, in order.
async fn names(shared: &Shared, prefix: &str) -> Result<BTreeSet<Name>> {
    let pattern = format!("{}{{*", literally(&shared.prefix));
    let mut names = BTreeSet::new();
    for mut wire in shared.link.every_primary().await? {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let answer = scan.query_async::<(String, Vec<Vec<u8>>)>(&mut wire).await;
            let (next, keys) = answer.map_err(|error| shared.link.route.explain(error))?;
            let keys = keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
            let found = keys.filter_map(|key| Keys::name_of(&shared.prefix, key)?.ok());
            names.extend(found.filter(|name| name.as_str().starts_with(prefix)));
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(names)
}

/// The text as a pattern that matches itself only.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if "*?[]\\^".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
