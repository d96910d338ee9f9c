//! A history as an HTML page: who waited, who held, what was broken, and where it went wrong.

mod draw;
mod page;
mod scene;
mod strip;
#[cfg(test)]
mod tests;

use crate::check::{Report, Story};
use crate::history::Record;
use scene::Scene;
pub use strip::{Mark, Panel, strip};

/// One self-contained page of HTML: it loads nothing and runs no script.
///
/// `report` is the result of [`check`](crate::check::check) for the same records. For a long
/// history the page shows the time around the first violation, or the beginning, and says so.
#[must_use]
pub fn timeline(records: &[Record], report: &Report) -> String {
    let story = Story::of(records);
    let scene = Scene::choose(&story, records, report);
    page::write(&story, records, report, &scene)
}

/// Escapes text for HTML, also inside quotes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // HTML does not allow control characters, and some viewers interpret them.
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
