//! Bar charts, as plain boxes that need no script.

use super::super::column::{Column, Unit};
use super::super::stored::{Row, StoredRun};
use super::{base, shown, title};
use crate::picture::escape;

/// The shortest bar, in percent: one that cannot be seen is none.
const SHORTEST: f64 = 1.5;

/// A chart of one column, the best first. Empty if there is no figure.
pub(super) fn chart(run: &StoredRun, column: &Column) -> String {
    let mut bars: Vec<(&Row, f64)> =
        run.rows.iter().filter_map(|row| Some((row, row.figure(column.key)?))).collect();
    if bars.is_empty() {
        return String::new();
    }
    bars.sort_by(|one, other| one.1.total_cmp(&other.1));
    let scale = Scale::of(bars.iter().map(|(_, figure)| *figure));
    let mut text = format!(
        "<figure>\n<figcaption><b>{}</b><span>{}</span></figcaption>\n",
        escape(column.title),
        escape(column.about)
    );
    for (row, figure) in &bars {
        let label = shown(&row.cell(column.key), column, base(run, column));
        let class = if row.ours { "ours" } else { "other" };
        text += &format!(
            "<div class=\"bar {class}\"><span class=\"who\">{}</span><span class=\"track\">\
             <i style=\"width:{:.1}%\"></i></span><span class=\"value\">{}</span></div>\n",
            escape(&title(row)),
            scale.width(*figure),
            escape(&label)
        );
    }
    text += &missing(run, column);
    if scale.logarithmic {
        text += "<p class=\"scale\">each doubling is equally long</p>\n";
    }
    text + "</figure>\n"
}

/// Who has no bar, and why.
fn missing(run: &StoredRun, column: &Column) -> String {
    let mut text = String::new();
    for word in ["*unknown*", "n/a"] {
        let rows = run.rows.iter().filter(|row| {
            super::format::word(&row.cell(column.key)) == word && row.figure(column.key).is_none()
        });
        let names: Vec<String> = rows.map(title).collect();
        if !names.is_empty() {
            let word = word.trim_matches('*');
            text += &format!(
                "<p class=\"missing\"><em>{word}</em>: {}</p>\n",
                escape(&names.join(", "))
            );
        }
    }
    text
}

/// From a figure to the length of its bar.
pub(super) struct Scale {
    least: f64,
    most: f64,
    logarithmic: bool,
}

impl Scale {
    /// Figures that are far apart would leave most bars too short to see on a plain scale.
    pub(super) fn of(figures: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for figure in figures {
            most = most.max(figure);
            if figure > 0.0 {
                least = least.min(figure);
            }
        }
        Self { least, most, logarithmic: most > 20.0 * least }
    }

    pub(super) fn width(&self, figure: f64) -> f64 {
        if figure <= 0.0 || self.most <= 0.0 {
            return 0.0;
        }
        let share = if self.logarithmic {
            // Half of the smallest would be no bar at all.
            let least = self.least / 2.0;
            (figure / least).ln() / (self.most / least).ln()
        } else {
            figure / self.most
        };
        (share * 100.0).clamp(SHORTEST, 100.0)
    }
}

/// Whether figures of this column are relative.
pub(super) fn is_relative(column: &Column) -> bool {
    column.unit == Unit::Time
}
