//! Who holds and who waits; and how a hold is broken.

use super::jute::Stat;
use super::layout::Entry;
use super::line;
use super::numbers::Age;
use super::record::Record;
use super::request::Request;
use super::session::Session;
use super::trouble::{Fault, refusal};
use super::{Shared, broken, path};
use crate::backend::support::list;
use crate::backend::{FencingToken, HolderView, LockView, Name, WaiterView};
use crate::error::{ErrorKind, Result};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A claim and what its node says.
struct Seen {
    entry: Entry,
    stat: Stat,
    record: Record,
}

impl Seen {
    fn token(&self) -> Option<FencingToken> {
        FencingToken::from_revision(self.stat.czxid)
    }

    /// Since it was made. The server's clock against ours: there is no asking the server for its
    /// time without writing to it.
    fn age(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let made = u64::try_from(self.stat.ctime).unwrap_or_default();
        now.saturating_sub(Duration::from_millis(made))
    }
}

pub(super) async fn show(shared: &Shared, name: &Name) -> Result<LockView> {
    let session = shared.client.session().await?;
    let seen = look(shared, &session, &path::of(&shared.root, name)).await?;
    let entries: Vec<Entry> = seen.iter().map(|seen| seen.entry.clone()).collect();
    let mut view = LockView { name: name.clone(), holders: Vec::new(), waiters: Vec::new() };
    let holders = line::holders(&entries);
    for (index, seen) in seen.into_iter().enumerate() {
        let (age, token) = (seen.age(), seen.token());
        let Record { identity, owner, ttl, count, note } = seen.record;
        let mode = seen.entry.mode;
        if index < holders {
            let (held_for, expires_in) = (age, ttl);
            let holder =
                HolderView { owner, identity, note, mode, token, count, held_for, expires_in };
            view.holders.push(holder);
        } else {
            view.waiters.push(WaiterView { owner, identity, note, mode, waiting_for: age });
        }
    }
    Ok(view)
}

/// The claims on a lock, in order, those that went meanwhile left out.
async fn look(shared: &Shared, session: &Session, parent: &str) -> Result<Vec<Seen>> {
    let explain = |fault: Fault| shared.client.explain(&fault);
    // Not older than what whoever asks may know.
    let children = match session.call_surely(parent, Request::children(parent)).await {
        Ok(answer) => answer.children().map_err(explain)?,
        Err(fault) if fault.is(refusal::NO_NODE) => Vec::new(),
        Err(fault) => return Err(explain(fault)),
    };
    let entries = shared.entries(children)?;
    let node = |entry: &Entry| Request::data(&format!("{parent}/{}", entry.node), false);
    let coming = session.ask_all(entries.iter().map(node).collect::<Vec<_>>());
    let mut seen = Vec::with_capacity(entries.len());
    for (entry, coming) in entries.into_iter().zip(coming) {
        match session.answer(coming).await.and_then(|answer| answer.data()) {
            Ok((data, stat)) => {
                let record = Record::read(&data, &entry.node);
                seen.push(Seen { entry, stat, record });
            }
            Err(fault) if fault.is(refusal::NO_NODE) => {}
            Err(fault) => return Err(explain(fault)),
        }
    }
    // Where the numbers are at their end, only the transactions tell the order.
    if seen.iter().any(|seen| Age::of(seen.entry.number) == Age::Ended) {
        seen.sort_by_key(|seen| seen.stat.czxid);
    }
    Ok(seen)
}

pub(super) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<LockView>> {
    let session = shared.client.session().await?;
    let top = if shared.root.is_empty() { "/" } else { &shared.root };
    let children = match session.call_surely(top, Request::children(top)).await {
        Ok(answer) => answer.children().map_err(|fault| shared.client.explain(&fault))?,
        Err(fault) if fault.is(refusal::NO_NODE) => Vec::new(),
        Err(fault) => return Err(shared.client.explain(&fault)),
    };
    let names: BTreeSet<Name> = children
        .iter()
        .filter_map(|child| path::name_of(child))
        .filter(|name| name.as_str().starts_with(prefix))
        .collect();
    // What another recipe is at work on is no lock of ours.
    list::shown(names, ErrorKind::Config, |name| async move { show(shared, &name).await }).await
}

pub(super) async fn break_hold(
    shared: &Shared,
    name: &Name,
    token: FencingToken,
    reason: &str,
) -> Result<bool> {
    let session = shared.client.session().await?;
    let explain = |fault: Fault| shared.client.explain(&fault);
    let parent = path::of(&shared.root, name);
    loop {
        let seen = look(shared, &session, &parent).await?;
        let entries: Vec<Entry> = seen.iter().map(|seen| seen.entry.clone()).collect();
        let holders = &seen[..line::holders(&entries)];
        let Some(holder) = holders.iter().find(|seen| seen.token() == Some(token)) else {
            return Ok(false);
        };
        let node = &holder.entry.node;
        let lock = session.call(Request::data(&parent, false)).await;
        let (before, stat) = lock.and_then(|answer| answer.data()).map_err(explain)?;
        let note = broken::noted(&before, node, reason);
        let child = format!("{parent}/{node}");
        let request = Request::delete_noting(&child, &parent, note.as_bytes(), stat.version);
        match session.call_once(request).await.and_then(|answer| answer.all_done()) {
            Ok(()) => return Ok(true),
            Err(fault) if fault.is(refusal::BAD_VERSION) || fault.is(refusal::NO_NODE) => {}
            Err(fault) => return Err(explain(fault)),
        }
    }
}
