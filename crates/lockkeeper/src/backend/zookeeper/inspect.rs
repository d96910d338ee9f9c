//! Who holds and who waits, and how a hold is broken.
//!
//! A look costs a listing and one more round trip for the nodes, all of which are read at once. The
//! listing goes through the leader: what `show` says is no older than the call, so that a claim that
//! was granted before the call is seen.

use super::client::{Failure, Request, Stat, refusal};
use super::context::Context;
use super::layout::Entry;
use super::lock_node::CounterAge;
use super::record::Record;
use super::session::Session;
use super::{break_note, keys};
use crate::backend::support::list;
use crate::backend::{FencingToken, HolderView, LockView, Name, Page, WaiterView, queue};
use crate::error::{ErrorKind, Result};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A claim's node, read.
struct Seen {
    entry: Entry,
    stat: Stat,
    record: Record,
}

impl Seen {
    /// The fencing token that the claim was granted with, or will be.
    fn token(&self) -> Option<FencingToken> {
        FencingToken::from_revision(self.stat.czxid)
    }

    /// The time since the node was created: the server's clock against ours, since the server
    /// does not tell its time without being written to.
    fn age(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let made = u64::try_from(self.stat.ctime).unwrap_or_default();
        now.saturating_sub(Duration::from_millis(made))
    }

    /// As the view of a holder. Its node was created when it entered the queue, so that `held_for`
    /// includes its wait: ZooKeeper does not record when the node came to be the first.
    fn into_holder(self) -> HolderView {
        let (held_for, token, mode) = (self.age(), self.token(), self.entry.mode);
        let Record { identity, owner, ttl: expires_in, count, note } = self.record;
        HolderView { owner, identity, note, mode, token, count, held_for, expires_in }
    }

    /// As the view of a waiter.
    fn into_waiter(self) -> WaiterView {
        let (waiting_for, mode) = (self.age(), self.entry.mode);
        let Record { identity, owner, note, .. } = self.record;
        WaiterView { owner, identity, note, mode, waiting_for }
    }
}

/// Holders and waiters, in order.
pub(super) async fn show(context: &Context, name: &Name) -> Result<LockView> {
    let session = context.session().await?;
    let parent = context.path_of(name);
    let entries = list_claims(context, &session, &parent).await?;
    let mut claims = read(context, &session, &parent, entries).await?;
    // By what was read and not by what was listed: a claim that went in between holds nothing.
    let waiters = claims.split_off(count_holders(&claims));
    let mut view = LockView::new(name.clone());
    view.holders = claims.into_iter().map(Seen::into_holder).collect();
    view.waiters = waiters.into_iter().map(Seen::into_waiter).collect();
    Ok(view)
}

/// The holders alone: of a long queue, only their nodes are read.
pub(super) async fn holders(context: &Context, name: &Name) -> Result<Vec<HolderView>> {
    let session = context.session().await?;
    let holders = read_holders(context, &session, &context.path_of(name)).await?;
    Ok(holders.into_iter().map(Seen::into_holder).collect())
}

/// The claims that hold the lock, in order.
async fn read_holders(context: &Context, session: &Session, parent: &str) -> Result<Vec<Seen>> {
    let entries = list_claims(context, session, parent).await?;
    // Where numbers say nothing any more, all nodes must be read to know their order.
    if !entries.iter().any(has_ended) {
        let count = queue::holders(entries.iter().map(|entry| entry.mode));
        let first = read(context, session, parent, entries[..count].to_vec()).await?;
        if first.len() == count {
            return Ok(first);
        }
        // A holder went meanwhile, and others hold now.
    }
    let mut claims = read(context, session, parent, entries).await?;
    claims.truncate(count_holders(&claims));
    Ok(claims)
}

/// How many of the claims, in order, hold the lock.
fn count_holders(claims: &[Seen]) -> usize {
    queue::holders(claims.iter().map(|seen| seen.entry.mode))
}

/// Whether the number comes from the end of the counter: see [`lock_node`](super::lock_node).
fn has_ended(entry: &Entry) -> bool {
    CounterAge::of(entry.number) == CounterAge::Ended
}

/// The claims on a lock, by number, no older than the call.
async fn list_claims(context: &Context, session: &Session, parent: &str) -> Result<Vec<Entry>> {
    let explain = |failure: Failure| context.explain(&failure);
    match session.call_synced(parent, Request::children(parent)).await {
        Ok(answer) => context.entries(answer.children().map_err(explain)?),
        Err(failure) if failure.is(refusal::NO_NODE) => Ok(Vec::new()),
        Err(failure) => Err(explain(failure)),
    }
}

/// Reads the nodes of claims, all at once, and puts them in order. Those that went meanwhile are
/// left out.
async fn read(
    context: &Context,
    session: &Session,
    parent: &str,
    entries: Vec<Entry>,
) -> Result<Vec<Seen>> {
    let node = |entry: &Entry| Request::data(&format!("{parent}/{}", entry.node), false);
    // All in one round trip, however many there are.
    let coming = session.send_all(entries.iter().map(node).collect::<Vec<_>>());
    let mut claims = Vec::with_capacity(entries.len());
    for (entry, coming) in entries.into_iter().zip(coming) {
        match session.answer(coming).await.and_then(|answer| answer.data()) {
            Ok((data, stat)) => {
                let record = Record::read(&data, &entry.node);
                claims.push(Seen { entry, stat, record });
            }
            Err(failure) if failure.is(refusal::NO_NODE) => {}
            Err(failure) => return Err(context.explain(&failure)),
        }
    }
    // Where numbers are at their end, only the transactions tell the order.
    if claims.iter().any(|seen| has_ended(&seen.entry)) {
        claims.sort_by_key(|seen| seen.stat.czxid);
    }
    Ok(claims)
}

/// Every lock below the root that is held or waited for and whose name starts with `prefix`.
pub(super) async fn list(context: &Context, prefix: &str) -> Result<Vec<LockView>> {
    shown(context, names(context, prefix).await?).await
}

/// Some of them. ZooKeeper tells the names of all children or of none, so every page asks for the names;
/// who is at them is asked of the page's own.
pub(super) async fn list_page(
    context: &Context,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page> {
    let mut names = names(context, prefix).await?;
    names.retain(|name| after.is_none_or(|after| name.as_str() > after));
    let is_last = names.len() <= limit;
    let names: BTreeSet<Name> = names.into_iter().take(limit).collect();
    let next = names.last().filter(|_| !is_last).map(Name::to_string);
    Ok(Page::new(shown(context, names).await?, next))
}

/// Every name below the root that starts with `prefix`, in order.
async fn names(context: &Context, prefix: &str) -> Result<BTreeSet<Name>> {
    let session = context.session().await?;
    let top = if context.root.is_empty() { "/" } else { &context.root };
    let children = match session.call_synced(top, Request::children(top)).await {
        Ok(answer) => answer.children().map_err(|failure| context.explain(&failure))?,
        Err(failure) if failure.is(refusal::NO_NODE) => Vec::new(),
        Err(failure) => return Err(context.explain(&failure)),
    };
    // A child whose name does not decode was not created by us.
    let names = children.iter().filter_map(|child| keys::name_of(child));
    Ok(names.filter(|name| name.as_str().starts_with(prefix)).collect())
}

/// Those of the names that are held or waited for.
async fn shown(context: &Context, names: BTreeSet<Name>) -> Result<Vec<LockView>> {
    // A node that another recipe works on is no lock of ours.
    list::shown(names, ErrorKind::Config, |name| async move { show(context, &name).await }).await
}

/// Deletes the node of the holder with this token, and leaves it a note about the reason.
///
/// Both are one step on the server, which depends on the version of the lock's node: of two
/// operators at once the second one looks again, and finds the holder gone.
pub(super) async fn break_hold(
    context: &Context,
    name: &Name,
    token: FencingToken,
    reason: &str,
) -> Result<bool> {
    let session = context.session().await?;
    let explain = |failure: Failure| context.explain(&failure);
    let parent = context.path_of(name);
    loop {
        let holders = read_holders(context, &session, &parent).await?;
        let Some(holder) = holders.iter().find(|seen| seen.token() == Some(token)) else {
            return Ok(false);
        };
        let node = &holder.entry.node;
        let lock = session.call(Request::data(&parent, false)).await;
        let (before, stat) = lock.and_then(|answer| answer.data()).map_err(explain)?;
        let note = break_note::add(&before, node, reason);
        let child = format!("{parent}/{node}");
        let request = Request::write_and_delete(&parent, note.as_bytes(), stat.version, &child);
        // Not sent again by itself: a second one would find the node gone and count as a failure.
        match session.call_once(request).await.and_then(|answer| answer.all_done()) {
            Ok(()) => return Ok(true),
            // Another note was written meanwhile, or the holder went: look again.
            Err(failure) if failure.is(refusal::BAD_VERSION) || failure.is(refusal::NO_NODE) => {}
            Err(failure) => return Err(explain(failure)),
        }
    }
}
