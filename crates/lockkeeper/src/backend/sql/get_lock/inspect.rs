//! Who holds what, from the server's word and our rows beside it. Those who wait leave no trace.

use super::super::error::Failure;
use super::{Core, MysqlSession, requests, value};
use crate::backend::{FencingToken, HolderView, LockView, Mode, Name, Owner};
use mysql_async::Row;
use std::time::Duration;

/// Every lock whose name is `text`, or begins with it.
pub(super) async fn look(
    core: &Core,
    session: &mut MysqlSession,
    text: &str,
    whole: bool,
) -> Result<Vec<LockView>, Failure> {
    let request = requests::show(&core.tables, text, whole);
    let answer = core.run(session, &request, core.connector.timeout()).await?;
    Ok(answer.first().into_iter().flatten().filter_map(view_of).collect())
}

/// Ends the session of the holder with this token, which frees its lock at once.
pub(super) async fn break_hold(
    core: &Core,
    session: &mut MysqlSession,
    name: &Name,
    token: FencingToken,
    reason: &str,
) -> Result<bool, Failure> {
    let limit = core.connector.timeout();
    let request = requests::mark_broken(&core.tables, &core.id(name), token.get(), reason);
    let answer = core.run(session, &request, limit).await?;
    let Some(holder) = value::<u64>(&answer, 0, 0) else { return Ok(false) };
    core.run(session, &requests::end(holder), limit).await?;
    Ok(true)
}

/// `None` for what was not written by us.
fn view_of(row: &Row) -> Option<LockView> {
    let words = |column: usize| {
        let bytes: Vec<u8> = row.get(column).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let span = |column: usize| Duration::from_millis(row.get(column).unwrap_or_default());
    let mut holder = HolderView::new(Owner::from_id(words(2)), Mode::Exclusive);
    holder.token = row.get::<u64, _>(1).and_then(FencingToken::new);
    (holder.identity, holder.note) = (words(3), words(4));
    // How long since its last renewal, the server does not say.
    (holder.held_for, holder.expires_in) = (span(5), span(6));
    let mut view = LockView::new(Name::new(&words(0)).ok()?);
    view.holders.push(holder);
    Some(view)
}
