//! `ls` and `show`.

use crate::arguments::{LsArguments, ShowArguments};
use crate::exit::{self, Failure};
use crate::text::{shortened, span, visible};
use crate::{json, output, table};
use lockkeeper::backend::{HolderView, LockView, NodeView};
use lockkeeper::{FencingToken, Keeper};

/// The longest note in a list; `show` prints all of it.
const NOTE_IN_LIST: usize = 60;
const ABSENT: &str = "-";

pub(crate) async fn ls(asked: &LsArguments) -> Result<u8, Failure> {
    let keeper = lockkeeper::connect(asked.store.url()).await?;
    let views = keeper.list(&asked.prefix).await?;
    if asked.json {
        output::print(json::line(&views))?;
    } else if views.is_empty() {
        output::say(&nothing_under(&asked.prefix));
    } else {
        output::print(list(&views))?;
    }
    Ok(code(&views))
}

pub(crate) async fn show(asked: &ShowArguments) -> Result<u8, Failure> {
    let keeper = lockkeeper::connect(asked.store.url()).await?;
    if asked.keys {
        return keys(&keeper, asked);
    }
    let view = keeper.show(&asked.name).await?;
    if asked.json {
        output::print(json::line(&view))?;
    } else if view.holders.is_empty() && view.waiters.is_empty() && agree(&view.nodes) {
        output::say(&format!("{:?} is free", asked.name));
    } else {
        output::print(portrait(&view))?;
    }
    Ok(code(std::slice::from_ref(&view)))
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

fn code(views: &[LockView]) -> u8 {
    let held = views.iter().any(|view| !view.holders.is_empty());
    if held { exit::FINE } else { exit::NOTHING }
}

fn nothing_under(prefix: &str) -> String {
    match prefix {
        "" => "no lock is held".to_owned(),
        _ => format!("no lock is held whose name starts with {prefix:?}"),
    }
}

/// One line per holder; the first line of each name shows the number of waiters.
fn list(views: &[LockView]) -> String {
    let mut rows = Vec::new();
    for view in views {
        let name = visible(view.name.as_str());
        let mut waiting = match view.waiters.len() {
            0 => ABSENT.to_owned(),
            number => number.to_string(),
        };
        for holder in &view.holders {
            let [identity, mode, held, expires, token, note] = cells(holder);
            let waiting = std::mem::replace(&mut waiting, ABSENT.to_owned());
            let note = shortened(&note, NOTE_IN_LIST);
            rows.push([name.clone(), identity, mode, held, expires, token, waiting, note]);
        }
        if view.holders.is_empty() {
            let nobody = || ABSENT.to_owned();
            let (none, no_note) = (nobody(), String::new());
            rows.push([name, none, nobody(), nobody(), nobody(), nobody(), waiting, no_note]);
        }
    }
    let titles = ["NAME", "HOLDER", "MODE", "HELD", "EXPIRES", "TOKEN", "WAITING", "NOTE"];
    table::lay_out("", titles, &rows)
}

fn portrait(view: &LockView) -> String {
    let mut text = format!("{}\n", visible(view.name.as_str()));
    if view.holders.is_empty() {
        text += "\nheld by nobody\n";
    } else {
        let rows: Vec<_> = view.holders.iter().map(cells).collect();
        let titles = ["HOLDER", "MODE", "HELD", "EXPIRES", "TOKEN", "NOTE"];
        text += "\nheld by\n";
        text += &table::lay_out("  ", titles, &rows);
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
        text += &table::lay_out("  ", ["PLACE", "WAITER", "MODE", "WAITING", "NOTE"], &rows);
    }
    if !view.nodes.is_empty() {
        text += &votes(&view.nodes);
    }
    text
}

/// Whether every node of several says that nobody has it, and may vote.
fn agree(nodes: &[NodeView]) -> bool {
    nodes.iter().all(|node| node.holders.is_empty() && node.objection.is_none())
}

/// What each node of several has: `3 of 5 nodes`, and a line for each.
fn votes(nodes: &[NodeView]) -> String {
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
    let lines = table::lay_out("  ", ["NODE", "HAS", "EXPIRES", "DOES NOT VOTE"], &rows);
    format!("\ntaken at {taken} of {} nodes\n{lines}", nodes.len())
}

/// A holder by name; one that came by another library has only its id.
fn who(holder: &HolderView) -> String {
    let identity = if holder.identity.is_empty() { holder.owner.id() } else { &holder.identity };
    visible(identity)
}

fn cells(holder: &HolderView) -> [String; 6] {
    let mut mode = holder.mode.to_string();
    if holder.count > 1 {
        mode += &format!(" ×{}", holder.count);
    }
    [
        who(holder),
        mode,
        span(holder.held_for),
        format!("in {}", span(holder.expires_in)),
        holder.token.map_or_else(|| ABSENT.to_owned(), |token: FencingToken| token.to_string()),
        visible(&holder.note),
    ]
}
