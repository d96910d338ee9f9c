//! Who holds, for the inspector: our own claims by their notes, holds of Redisson by the fields of the
//! lock.
//!
//! Redisson's waiters are subscribed to a channel and not known to Redis, and ours do the same, so
//! nobody is shown waiting. Of a hold of Redisson there is an owner, a count and an expiry, and no
//! token, note or beginning.

use super::Shared;
use crate::backend::redis::error::unexpected;
use crate::backend::redis::protocol::text;
use crate::backend::support::list;
use crate::backend::{FencingToken, HolderView, LockView, Mode, Name, Owner, Page};
use crate::error::{Error, ErrorKind, Result};
use redis::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Who holds one name.
pub(super) async fn show(shared: &Shared, name: &Name) -> Result<LockView> {
    let found = look(shared, name).await?;
    found.ok_or_else(|| {
        Error::new(ErrorKind::Store, format!("the key of {name:?} holds something that is no lock"))
    })
}

/// `None` where the key is no lock.
async fn look(shared: &Shared, name: &Name) -> Result<Option<LockView>> {
    let answer = shared.requests.show(&shared.layout.keys(name)?).await?;
    match &answer {
        Value::Array(parts) if parts.is_empty() => Ok(None),
        answer => view(name, answer).map(Some).ok_or_else(|| unexpected(answer).with("lock", name)),
    }
}

/// Now, our claims and the holds of others. Claims of one owner are shown as one holder.
fn view(name: &Name, answer: &Value) -> Option<LockView> {
    let Value::Array(parts) = answer else { return None };
    let [now, Value::Array(ours), Value::Array(theirs)] = &parts[..] else { return None };
    let now = text(now)?.parse().ok()?;
    let mut claims: Vec<_> =
        ours.iter().map(|record| holder(text(record)?, now)).collect::<Option<_>>()?;
    // In the order of their grants; of one owner's claims the first is shown, the strongest mode.
    let by_grant = |holder: &HolderView| (holder.token, std::cmp::Reverse(holder.held_for));
    claims.sort_by_key(by_grant);
    let others: Option<Vec<_>> = theirs.chunks_exact(4).map(other).collect();
    let mut holders: Vec<HolderView> = Vec::new();
    for claim in claims.into_iter().chain(others?) {
        match holders.iter_mut().find(|seen| seen.owner == claim.owner && claim.owner.id() != "-") {
            Some(seen) => {
                seen.count += claim.count;
                seen.expires_in = seen.expires_in.max(claim.expires_in);
                if claim.mode == Mode::Exclusive {
                    seen.mode = claim.mode;
                }
            }
            None => holders.push(claim),
        }
    }
    Some(LockView { holders, ..LockView::new(name.clone()) })
}

/// `expiry, token, since, field, channel, owner, identity, note`, a line each.
fn holder(record: &str, now: u64) -> Option<HolderView> {
    let mut lines = record.splitn(8, '\n');
    let mut number = || lines.next()?.parse::<u64>().ok();
    let (expires, token, since) = (number()?, number()?, number()?);
    let (field, _channel, owner) = (lines.next()?, lines.next()?, lines.next()?);
    Some(HolderView {
        owner: Owner::from_id(owner.to_owned()),
        identity: lines.next()?.to_owned(),
        note: lines.next()?.to_owned(),
        mode: if field.ends_with(":write") { Mode::Exclusive } else { Mode::Shared },
        token: FencingToken::new(token),
        count: 1,
        held_for: Duration::from_millis(now.saturating_sub(since)),
        expires_in: Duration::from_millis(expires.saturating_sub(now)),
    })
}

/// A hold of another library: since when it holds, nobody knows.
fn other(words: &[Value]) -> Option<HolderView> {
    let [field, Value::Int(exclusive), count, Value::Int(left)] = words else { return None };
    Some(HolderView {
        owner: Owner::from_id(text(field)?.to_owned()),
        identity: String::new(),
        note: String::new(),
        mode: if *exclusive == 1 { Mode::Exclusive } else { Mode::Shared },
        token: None,
        count: text(count)?.parse().ok()?,
        held_for: Duration::ZERO,
        expires_in: Duration::from_millis(u64::try_from(*left).unwrap_or_default()),
    })
}

/// Every name that is held and begins with `prefix`: every hash that looks like a lock.
pub(super) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<LockView>> {
    shown(shared, names(shared, prefix).await?).await
}

/// Some of them, in the order in which Redis goes through its keys.
pub(super) async fn list_page(
    shared: &Shared,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page> {
    let start = format!("{}{prefix}", shared.layout.prefix);
    let client = &shared.requests.client;
    let (keys, next) = client.some_keys(&start, Some("hash"), after, limit).await?;
    let names: BTreeSet<Name> = keys.iter().filter_map(|key| shared.layout.name_of(key)).collect();
    Ok(Page::new(shown(shared, names).await?, next))
}

/// Those of the names that are held or waited for.
async fn shown(shared: &Shared, names: BTreeSet<Name>) -> Result<Vec<LockView>> {
    let show = |name: Name| async move {
        let looked = look(shared, &name).await?;
        Ok(looked.unwrap_or_else(|| LockView::new(name)))
    };
    list::shown(names, ErrorKind::Store, show).await
}

/// Every name whose key is a hash: locks of Redisson have nothing else in common.
async fn names(shared: &Shared, prefix: &str) -> Result<BTreeSet<Name>> {
    let start = format!("{}{prefix}", shared.layout.prefix);
    let keys = shared.requests.client.keys(&start, Some("hash")).await?;
    Ok(keys.iter().filter_map(|key| shared.layout.name_of(key)).collect())
}
