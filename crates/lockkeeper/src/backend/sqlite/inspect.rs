//! The table, as people want to see it.
//!
//! Read in a transaction that writes nothing, so it works also while another process keeps the
//! file. Rows that have expired are not shown, although they are still there until the next claim
//! on their name, or the next cleaning.

use super::client::transaction::Transaction;
use super::record::{Record, span};
use crate::backend::{HolderView, LockView, Name, Owner, Page, WaiterView};
use rusqlite::{Result, params};

/// All claims on `name`, in the order of the queue. Broken claims are left out: they hold nothing.
pub(super) fn show(tx: &Transaction<'_>, name: &Name) -> Result<LockView> {
    let mut statement = tx.connection.prepare_cached(
        "SELECT ticket, state, id, owner, process, mode, token, high, ttl, since, expires, identity,
           note
         FROM claim WHERE name = ?1 AND state IN (1, 2, 3) AND expires > ?2 ORDER BY ticket",
    )?;
    let mut view = LockView::new(name.clone());
    for record in statement.query_map(params![name.as_str(), tx.now], Record::read)? {
        add(&mut view, record?, tx.now);
    }
    Ok(view)
}

/// All claims on names that start with `prefix`. Reads from the first such name on and stops behind
/// the last. Not with `LIKE`, which takes `%` and `_` in names for wildcards and ignores case.
pub(super) fn list(tx: &Transaction<'_>, prefix: &str) -> Result<Vec<LockView>> {
    first(tx, prefix, None, usize::MAX)
}

/// One page of them, after the name `after`.
pub(super) fn list_page(
    tx: &Transaction<'_>,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page> {
    Ok(Page::of_all(first(tx, prefix, after, limit + 1)?, after, limit))
}

/// The first `limit` of them after `after`.
fn first(
    tx: &Transaction<'_>,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<LockView>> {
    let mut statement = tx.connection.prepare_cached(
        "SELECT ticket, state, id, owner, process, mode, token, high, ttl, since, expires, identity,
           note, name
         FROM claim WHERE name >= ?1 AND state IN (1, 2, 3) AND expires > ?2
         ORDER BY name, ticket",
    )?;
    let from = after.filter(|after| *after > prefix).unwrap_or(prefix);
    let mut rows = statement.query(params![from, tx.now])?;
    let mut views: Vec<LockView> = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(13)?;
        // Names compare by bytes here as in the index, so those with the prefix come first.
        if !name.starts_with(prefix) {
            break;
        }
        // A name that this library would not accept was written by another program.
        let Ok(name) = Name::new(&name) else { continue };
        if after.is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        if views.last().is_none_or(|view| view.name != name) {
            if views.len() == limit {
                break;
            }
            views.push(LockView::new(name));
        }
        if let Some(view) = views.last_mut() {
            add(view, Record::read(row)?, tx.now);
        }
    }
    Ok(views)
}

/// Adds a row to the view of its name. Claims of one owner are one holder, with a count, that
/// expires when the last of them does. A claim that was handed over and not confirmed is shown as a
/// holder.
fn add(view: &mut LockView, record: Record, now: i64) {
    let owner = Owner::from_id(record.owner.clone());
    if !record.holds() {
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
    view.holders.push(HolderView {
        owner,
        identity: record.identity,
        note: record.note,
        mode: record.mode,
        token: Some(record.token),
        count: 1,
        held_for: span(now - record.since),
        expires_in: span(record.expires - now),
    });
}
