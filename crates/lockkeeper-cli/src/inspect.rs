//! `show`.

use crate::arguments::ShowArguments;
use crate::exit::{self, Failure};
use crate::table::{Look, Table};
use crate::text::{span, visible};
use crate::{json, output};
use lockkeeper::backend::{HolderView, LockView, NodeView};
use lockkeeper::{FencingToken, Keeper};

pub(crate) const ABSENT: &str = "-";
/// Instead of the time that is left.
pub(crate) const OVERDUE: &str = "overdue";

pub(crate) async fn show(asked: &ShowArguments) -> Result<u8, Failure> {
    let keeper = crate::store::open(&asked.store.url()?).await?;
    if asked.keys {
        return keys(&keeper, asked);
    }
    let view = keeper.show(&asked.name).await?;
    if asked.json {
        output::print(json::line(&view))?;
    } else if view.holders.is_empty() && view.waiters.is_empty() && agree(&view.nodes) {
        output::say(&format!("{:?} is free", asked.name));
    } else {
        output::print(portrait(&view, Look::of_stdout(&asked.manner, asked.wide)))?;
    }
    Ok(if view.holders.is_empty() { exit::NOTHING } else { exit::FINE })
}

/// Where the store keeps the lock; works also for a recipe that cannot tell who holds it.
fn keys(keeper: &Keeper, asked: &ShowArguments) -> Result<u8, Failure> {
    let keys = keeper.keys(&asked.name)?;
    if asked.json {
        output::print(json::line(&keys))?;
    } else if keys.is_empty() {
        output::say(&format!("{keeper} has no keys that could be asked for from outside"));
    } else {
        output::print(keys.iter().map(|key| visible(key) + "\n").collect::<String>())?;
    }
    Ok(exit::FINE)
}

pub(crate) fn portrait(view: &LockView, look: Look) -> String {
    let mut text = format!("{}\n", visible(view.name.as_str()));
    if view.holders.is_empty() {
        text += "\nheld by nobody\n";
    } else {
        let rows: Vec<_> = view.holders.iter().map(cells).collect();
        let titles = ["HOLDER", "MODE", "HELD", "EXPIRES", "TOKEN", "NOTE"];
        text += "\nheld by\n";
        let table = Table::new("  ", titles).look(look).cut("HOLDER", 18).cut("NOTE", 10);
        // The token is what `show` is asked for.
        let mut table = table.leave_out(&["NOTE", "MODE", "HELD"]).alarming(OVERDUE);
        text += &table.lay_out(&rows);
    }
    if !view.waiters.is_empty() {
        let rows = view.waiters.iter().enumerate().map(|(index, waiter)| {
            [
                (index + 1).to_string(),
                visible(&waiter.identity),
                waiter.mode.to_string(),
                span(waiter.waiting_for),
                visible(&waiter.note),
            ]
        });
        let rows: Vec<_> = rows.collect();
        text += "\nwaited for by\n";
        let titles = ["PLACE", "WAITER", "MODE", "WAITING", "NOTE"];
        let table = Table::new("  ", titles).look(look).cut("WAITER", 18).cut("NOTE", 10);
        text += &table.leave_out(&["NOTE", "MODE"]).lay_out(&rows);
    }
    if !view.nodes.is_empty() {
        text += &votes(&view.nodes, look);
    }
    text
}

/// Whether every node of several says that nobody has it, and may vote.
fn agree(nodes: &[NodeView]) -> bool {
    nodes.iter().all(|node| node.holders.is_empty() && node.objection.is_none())
}

/// What each node of several has: `3 of 5 nodes`, and a line for each.
fn votes(nodes: &[NodeView], look: Look) -> String {
    let rows = nodes.iter().map(|node| {
        let holder = node.holders.first();
        let has = holder.map_or_else(|| ABSENT.to_owned(), who);
        let expires = holder.map(|holder| format!("in {}", span(holder.expires_in)));
        let why = node.objection.as_deref().map(visible);
        [
            visible(&node.node),
            has,
            expires.unwrap_or_else(|| ABSENT.to_owned()),
            why.unwrap_or_default(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let taken = nodes.iter().filter(|node| !node.holders.is_empty()).count();
    let table = Table::new("  ", ["NODE", "HAS", "EXPIRES", "DOES NOT VOTE"]).look(look);
    let table = table.cut("NODE", 16).cut("HAS", 12).cut("DOES NOT VOTE", 16);
    let lines = table.leave_out(&["HAS", "EXPIRES"]).lay_out(&rows);
    format!("\ntaken at {taken} of {} nodes\n{lines}", nodes.len())
}

/// A holder by name; one that came by another library has only its id.
fn who(holder: &HolderView) -> String {
    let identity = if holder.identity.is_empty() { holder.owner.id() } else { &holder.identity };
    visible(identity)
}

/// A store that does not know says zero.
fn held_for(holder: &HolderView) -> String {
    match holder.held_for.is_zero() {
        true => ABSENT.to_owned(),
        false => span(holder.held_for),
    }
}

fn expires(holder: &HolderView) -> String {
    match holder.expires_in.is_zero() {
        // Neither the one nor the other: of a holder that came by another library.
        true if holder.held_for.is_zero() => ABSENT.to_owned(),
        true => OVERDUE.to_owned(),
        false => format!("in {}", span(holder.expires_in)),
    }
}

pub(crate) fn cells(holder: &HolderView) -> [String; 6] {
    let mut mode = holder.mode.to_string();
    if holder.count > 1 {
        mode += &format!(" ×{}", holder.count);
    }
    [
        who(holder),
        mode,
        held_for(holder),
        expires(holder),
        holder.token.map_or_else(|| ABSENT.to_owned(), |token: FencingToken| token.to_string()),
        visible(&holder.note),
    ]
}
