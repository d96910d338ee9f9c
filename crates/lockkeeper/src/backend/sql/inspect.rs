//! The tables, as people want to see them.

use super::context::Context;
use super::record::{Record, WAITING, span};
use crate::backend::{FencingToken, HolderView, LockView, Name, Owner, Page, WaiterView};
use crate::error::Result;
use std::sync::Arc;

/// All claims on `name`, in the order of the queue. Broken claims are left out: they hold nothing.
pub(super) async fn show(context: &Arc<Context>, name: &Name) -> Result<LockView> {
    let empty = LockView::new(name.clone());
    Ok(views(context, name.as_str(), name.as_str()).await?.pop().unwrap_or(empty))
}

/// All claims on names that start with `prefix`.
pub(super) async fn list(context: &Arc<Context>, prefix: &str) -> Result<Vec<LockView>> {
    views(context, prefix, &last_of(prefix)).await
}

/// One page of them: first which names it has, then their claims.
pub(super) async fn list_page(
    context: &Arc<Context>,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page> {
    let (last, most) = (last_of(prefix), i64::try_from(limit).unwrap_or(i64::MAX));
    let names = context.requests.names([prefix, &last], after.unwrap_or_default(), most).await;
    let names = names.map_err(|failure| context.explain(failure))?;
    let (Some(first), Some(last)) = (names.first(), names.last()) else {
        return Ok(Page::default());
    };
    let next = (names.len() >= limit).then(|| last.clone());
    Ok(Page::new(views(context, first, last).await?, next))
}

/// No name that starts with `prefix` is behind it: a name has at most 200 bytes, and there is no larger
/// character. Names are in the order of their bytes.
fn last_of(prefix: &str) -> String {
    prefix.to_owned() + &char::MAX.to_string().repeat(50)
}

/// Breaks by token and not by name alone: an operator who looked, and typed the command a minute
/// later, must not hit the successor of the holder that was seen.
pub(super) async fn break_hold(
    context: &Arc<Context>,
    name: &Name,
    token: FencingToken,
    reason: &str,
) -> Result<bool> {
    let broken = context.change(name.as_str(), "", false, |queue| queue.break_hold(token, reason));
    let broken = broken.await.map_err(|failure| context.explain(failure))?;
    Ok(broken.is_some_and(|broken| broken.outcome))
}

/// The names from `first` to `last`, in order.
async fn views(context: &Arc<Context>, first: &str, last: &str) -> Result<Vec<LockView>> {
    let listed = context.requests.list(first, last).await;
    let (now, mut listed) = listed.map_err(|failure| context.explain(failure))?;
    listed.sort_by(|(one, a, _), (two, b, _)| {
        (one, a.state == WAITING, a.ticket).cmp(&(two, b.state == WAITING, b.ticket))
    });
    let mut views: Vec<LockView> = Vec::new();
    for (name, record, alive) in listed {
        let shown = match record.state {
            WAITING => alive,
            _ => record.holds() && record.expires > now,
        };
        // A name that this library would not accept was written by another program.
        let Ok(name) = Name::new(&name) else { continue };
        if !shown {
            continue;
        }
        if views.last().is_none_or(|view| view.name != name) {
            views.push(LockView::new(name));
        }
        if let Some(view) = views.last_mut() {
            add(view, record, now);
        }
    }
    Ok(views)
}

/// Adds a claim to the view of its name. Claims of one owner are one holder, with a count, that
/// expires when the last of them does.
fn add(view: &mut LockView, record: Record, now: i64) {
    let owner = Owner::from_id(record.owner.clone());
    if record.state == WAITING {
        view.waiters.push(WaiterView {
            owner,
            identity: record.identity,
            note: record.note,
            mode: record.mode,
            waiting_for: span(now - record.since),
        });
        return;
    }
    if let Some(holder) = view.holders.iter_mut().find(|holder| holder.owner == owner) {
        holder.count += 1;
        holder.expires_in = holder.expires_in.max(span(record.expires - now));
        return;
    }
    let token = Some(record.fencing_token());
    view.holders.push(HolderView {
        owner,
        identity: record.identity,
        note: record.note,
        mode: record.mode,
        token,
        count: 1,
        held_for: span(now - record.since),
        expires_in: span(record.expires - now),
    });
}
