//! Two pictures of a stored run, for pages that show no HTML: how long locks take, and who kept excluding
//! when things were broken. Of our recipes each store's first one is shown, which is the one that a URL
//! without `recipe=` means.

use super::super::cell::Cell;
use super::super::column::{self, Promise};
use super::super::measure::faults::FAULTS;
use super::super::stored::{Comparison, Row, StoredRun};
use super::chart::Scale;
use super::format;
use crate::picture::escape;

const STYLE: &str = include_str!("svg.css");
const WIDTH: usize = 900;
const ROW: usize = 21;
/// Where what was measured begins, right of store and library.
const LEFT: usize = 206;
const TOP: usize = 84;

/// How long an acquire and release takes that nobody disturbs, and how long a hand-over.
pub(super) fn speed(comparison: &Comparison) -> String {
    let run = &comparison.first;
    let rows = rows(run);
    let mut body = heads(&rows);
    let panels = [
        ("alone-p50", "acquire and release, nobody else wants it"),
        ("handover-16", "release until the next of 16 has it"),
    ];
    let room = (WIDTH - LEFT - 14) / panels.len();
    for (number, (key, title)) in panels.into_iter().enumerate() {
        let x = LEFT + number * room;
        let column = column::of(key);
        let figures = rows.iter().filter_map(|row| row.figure(key));
        let scale = Scale::of(figures);
        body += &format!(
            "<text class=\"head\" x=\"{x}\" y=\"{}\">{}</text>\n",
            TOP - 12,
            escape(title)
        );
        for (line, row) in rows.iter().enumerate() {
            let y = TOP + line * ROW;
            let track = room - 92;
            let (width, label) = match (row.figure(key), column) {
                (Some(figure), Some(_)) => (scale.width(figure) / 100.0, format::time(figure)),
                _ => (0.0, format::word(&row.cell(key)).trim_matches('*').to_owned()),
            };
            let class = if row.ours { "ours" } else { "other" };
            // No row has more than a few hundred units.
            let width = width * f64::from(u16::try_from(track).unwrap_or(u16::MAX));
            body += &format!(
                "<rect class=\"track\" x=\"{x}\" y=\"{}\" width=\"{track}\" height=\"12\"/>\
                 <rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{width:.1}\" height=\"12\"/>\
                 <text class=\"value\" x=\"{}\" y=\"{}\">{}</text>\n",
                y + 3,
                y + 3,
                x + track + 8,
                y + 13,
                escape(&label)
            );
        }
    }
    let about = format!(
        "the middle one of all turns, on a logarithmic scale; {} · {} cores · {}",
        run.machine.processor, run.machine.cores, run.date
    );
    page("How long a lock takes", &about, rows.len(), &body)
}

/// Which locks kept excluding under which faults.
pub(super) fn promises(comparison: &Comparison) -> String {
    let run = &comparison.first;
    let rows = rows(run);
    let mut body = heads(&rows);
    let room = (WIDTH - LEFT - 14) / FAULTS.len();
    for (number, fault) in FAULTS.iter().enumerate() {
        let x = LEFT + number * room;
        let middle = x + room / 2;
        body += &format!(
            "<text class=\"head middle\" x=\"{middle}\" y=\"{}\"><title>{}</title>{}</text>\n",
            TOP - 12,
            escape(fault.about),
            escape(fault.title)
        );
        for (line, row) in rows.iter().enumerate() {
            let y = TOP + line * ROW;
            let (class, word, why) = match row.cell(&Promise::Claims.key(fault.key)) {
                Cell::Held(how) => ("held", "held", how),
                Cell::Broken(how) => ("broken", "broken", how),
                Cell::NotApplicable(why) => ("none", "n/a", why),
                Cell::Unknown(why) => ("unknown", "unknown", why),
                Cell::Figure(_) | Cell::Words(_) => ("unknown", "unknown", String::new()),
            };
            body += &format!(
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"/>\
                 <text class=\"{class} middle\" x=\"{middle}\" y=\"{}\"><title>{}</title>{word}</text>\n",
                x + 1,
                y + 1,
                room - 2,
                ROW - 3,
                y + 14,
                escape(&why)
            );
        }
    }
    let about = "held: no two had the lock at once. In the last two columns the server itself loses its data, or the time.";
    page("Who kept excluding while things broke", about, rows.len(), &body)
}

/// Ours first in each store, then the other libraries there; stores with other libraries first.
fn rows(run: &StoredRun) -> Vec<&Row> {
    let mut stores: Vec<&str> = Vec::new();
    for row in &run.rows {
        if !stores.contains(&row.store.as_str()) {
            stores.push(&row.store);
        }
    }
    let others =
        |store: &str| run.rows.iter().filter(|row| row.store == store && !row.ours).count();
    stores.sort_by_key(|store| std::cmp::Reverse(others(store)));
    let mut rows = Vec::new();
    for store in stores {
        rows.extend(run.rows.iter().find(|row| row.store == store && row.ours));
        rows.extend(run.rows.iter().filter(|row| row.store == store && !row.ours));
    }
    rows
}

/// The stores and the libraries, left of what was measured.
fn heads(rows: &[&Row]) -> String {
    let mut text = String::new();
    for (line, row) in rows.iter().enumerate() {
        let y = TOP + line * ROW;
        if line == 0 || rows[line - 1].store != row.store {
            text += &format!(
                "<line class=\"rule\" x1=\"14\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>\
                 <text class=\"store\" x=\"14\" y=\"{}\">{}</text>\n",
                WIDTH - 14,
                y + 14,
                escape(&row.store)
            );
        }
        let (class, name) = match row.ours {
            true => ("mine", "lockkeeper"),
            false => ("theirs", row.name.as_str()),
        };
        text += &format!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>\n",
            LEFT - 12,
            y + 14,
            escape(name)
        );
    }
    text
}

fn page(title: &str, about: &str, lines: usize, body: &str) -> String {
    let height = TOP + lines * ROW + 14;
    let (title, about) = (escape(title), escape(about));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>\n{STYLE}</style>\n\
         <rect class=\"paper\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n\
         <text class=\"title\" x=\"14\" y=\"28\">{title}</text>\n\
         <text class=\"about\" x=\"14\" y=\"48\">{about}</text>\n{body}</svg>\n",
        WIDTH - 1,
        height - 1
    )
}
