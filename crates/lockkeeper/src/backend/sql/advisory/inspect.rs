//! Who holds what, from the server's own list of locks and our rows beside it.

use super::super::error::Failure;
use super::super::session::postgres::PostgresSession;
use super::Core;
use crate::backend::{FencingToken, HolderView, LockView, Mode, Name, Owner, WaiterView};
use std::time::Duration;
use tokio_postgres::Row;

/// Every lock whose name is `text`, or begins with it.
pub(super) async fn look(
    core: &Core,
    session: &PostgresSession,
    text: &str,
    whole: bool,
) -> Result<Vec<LockView>, Failure> {
    let rows = core.rows(session, &core.statements.show, &[&text, &whole]).await?;
    let mut views: Vec<LockView> = Vec::new();
    for row in &rows {
        // Not written by us, if it is no name.
        let Ok(name) = Name::new(row.get(0)) else { continue };
        if views.last().is_none_or(|view| view.name != name) {
            views.push(LockView::new(name));
        }
        if let Some(view) = views.last_mut() {
            add(view, row);
        }
    }
    Ok(views)
}

/// Ends the session of the holder with this token, which frees its lock at once.
pub(super) async fn break_hold(
    core: &Core,
    session: &PostgresSession,
    name: &Name,
    token: FencingToken,
    reason: &str,
) -> Result<bool, Failure> {
    let Ok(token) = i64::try_from(token.get()) else { return Ok(false) };
    let statements = &core.statements;
    let key = core.key(name);
    let found = core.rows(session, &statements.break_hold, &[&key, &token, &reason]).await?;
    for row in found.iter().filter(|row| row.get::<_, bool>(1)) {
        core.rows(session, &statements.end, &[&row.get::<_, i32>(0)]).await?;
    }
    Ok(!found.is_empty())
}

/// One session that has the lock or waits for it.
fn add(view: &mut LockView, row: &Row) {
    let mode = if row.get(2) { Mode::Exclusive } else { Mode::Shared };
    let since = row.get::<_, Option<i64>>(7).and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    let since = Duration::from_millis(since);
    let pid: i32 = row.get(9);
    let owner = row.get::<_, Option<String>>(4);
    // One that has the lock, and waits until a holder without a session has stopped believing.
    let waits_out = owner.is_none() && !view.holders.is_empty();
    if !row.get::<_, bool>(1) || waits_out {
        // Those who wait write nothing down.
        let mut waiter = WaiterView::new(Owner::from_id(format!("pid {pid}")), mode);
        waiter.identity = format!("PostgreSQL session {pid}");
        waiter.waiting_for = since;
        view.waiters.push(waiter);
        return;
    }
    let Some(owner) = owner else {
        // A lock that was taken a moment ago, or by another program with our key.
        let mut holder = HolderView::new(Owner::from_id(format!("pid {pid}")), mode);
        holder.identity = format!("PostgreSQL session {pid}");
        view.holders.push(holder);
        return;
    };
    let mut holder = HolderView::new(Owner::from_id(owner), mode);
    holder.identity = row.get(5);
    holder.note = row.get(6);
    let token = row.get::<_, i64>(3);
    holder.token = u64::try_from(token).ok().and_then(FencingToken::new);
    holder.held_for = since;
    // Of one with a session: it is kept for as long as it is renewed.
    let lease = u64::try_from(row.get::<_, i64>(8)).unwrap_or(0);
    holder.expires_in = Duration::from_millis(lease);
    view.holders.push(holder);
}
