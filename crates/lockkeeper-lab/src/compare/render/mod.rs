//! The pages of a stored run.

mod advice;
mod chart;
mod format;
mod html;
mod markdown;
mod rank;
mod svg;

pub use html::html;
pub use markdown::markdown;

use super::cell::Cell;
use super::column::{COLUMNS, Column, Group, Unit};
use super::stored::{Comparison, Row, StoredRun};

/// The pictures of a run, each with the name of its file.
#[must_use]
pub fn pictures(comparison: &Comparison) -> [(&'static str, String); 2] {
    [("speed.svg", svg::speed(comparison)), ("promises.svg", svg::promises(comparison))]
}

/// What a column's figures are divided by: its smallest figure among locks that reach several machines.
/// Stores of one process or one machine have it easier, and are shown beside them.
fn base(run: &StoredRun, column: &Column) -> Option<f64> {
    if column.unit != Unit::Time {
        return None;
    }
    let figures = run.rows.iter().filter(|row| reaches_far(row));
    let figures = figures.filter_map(|row| row.figure(column.key)).filter(|it| *it > 0.0);
    figures.min_by(f64::total_cmp)
}

fn reaches_far(row: &Row) -> bool {
    row.reach == "network"
}

fn columns(group: Group) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |column| column.group == group)
}

/// What a row is called.
fn title(row: &Row) -> String {
    format!("{} {}", row.store, row.name)
}

/// A cell as text: a time as a multiple of the base.
fn shown(cell: &Cell, column: &Column, base: Option<f64>) -> String {
    match (cell, base) {
        (Cell::Figure(figure), Some(base)) => format::times(figure / base),
        (Cell::Figure(figure), None) => format::figure(column.unit, *figure),
        (other, _) => format::word(other),
    }
}

/// Why cells have no figure: each reason once, with where it applies.
fn reasons(run: &StoredRun) -> Vec<(String, Vec<String>)> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for row in &run.rows {
        for (key, cell) in &row.cells {
            let reason = match cell {
                Cell::Unknown(why) => format!("*unknown*: {why}"),
                Cell::NotApplicable(why) => format!("n/a: {why}"),
                Cell::Broken(how) => format!("**broken**: {how}"),
                _ => continue,
            };
            let place = format!("{} {} ({key})", row.store, row.name);
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, places)) => places.push(place),
                None => reasons.push((reason, vec![place])),
            }
        }
    }
    reasons
}
