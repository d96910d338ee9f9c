//! What the library warns of, as lines for people.

use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

/// Modules whose warnings the command tells of in words of its own, at the moment that suits it: a lost
/// lock, and a release that was not answered.
const TOLD_OTHERWISE: [&str; 2] = ["lockkeeper::event", "lockkeeper::hold"];

/// Whether this is a warning that is shown without being asked for.
///
/// Only those of lockkeeper: what other libraries warn of is explained by our own errors.
pub(crate) fn is_shown(told: &Metadata<'_>) -> bool {
    told.is_event()
        && *told.level() <= Level::WARN
        && is_of_lockkeeper(told.target())
        && !TOLD_OTHERWISE.into_iter().any(|module| is_within(module, told.target()))
}

/// Whether it comes from a module of the library.
pub(crate) fn is_of_lockkeeper(target: &str) -> bool {
    is_within("lockkeeper", target)
}

fn is_within(module: &str, target: &str) -> bool {
    let rest = target.strip_prefix(module);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The message, and behind it what it is about.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) message: String,
    fields: String,
}

impl Line {
    pub(crate) fn of(event: &Event<'_>) -> Self {
        let mut line = Self::default();
        event.record(&mut line);
        line
    }

    /// In one line, whatever a store said: a line break would look like a message of another program.
    pub(crate) fn finish(self) -> String {
        let text = match self.fields.is_empty() {
            true => format!("warning: {}", self.message),
            false => format!("warning: {} ({})", self.message, self.fields),
        };
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // To write to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let between = if self.fields.is_empty() { "" } else { ", " };
            write!(self.fields, "{between}{}: {value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_says_itself_is_not_said_twice() {
        let is_ours = |target: &str| {
            is_of_lockkeeper(target) && !TOLD_OTHERWISE.into_iter().any(|it| is_within(it, target))
        };
        assert!(is_ours("lockkeeper::backend::redis::eviction") && is_ours("lockkeeper"));
        for other in ["lockkeeper::event", "lockkeeper::hold::ending", "lockkeeper_lab", "rustls"] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn a_warning_is_one_line() {
        let line = Line { message: "cannot\nsee".into(), fields: "error: a\r\nb".into() };
        assert_eq!(line.finish(), "warning: cannot see (error: a  b)");
        let line = Line { message: "short".into(), fields: String::new() };
        assert_eq!(line.finish(), "warning: short");
    }
}
