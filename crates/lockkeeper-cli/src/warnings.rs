//! What the library warns of, as lines on stderr.
//!
//! The library tells of its warnings by `tracing`, and without a subscriber nobody would see them: that
//! Redis may evict locks, that a right is missing, that a lock was left out of a list. This is the
//! smallest subscriber that shows them. `tracing-subscriber` was rejected: to print lines that look
//! like our others it would need a formatter of our own all the same.

use crate::output;
use std::fmt::{self, Write};
use std::sync::mpsc;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Modules whose warnings the command tells of in words of its own, at the moment that suits it: a lost
/// lock, and a release that was not answered.
const TOLD_OTHERWISE: [&str; 2] = ["lockkeeper::event", "lockkeeper::hold"];

/// How long a stuck stderr can delay the end.
const LAST_WORD: Duration = Duration::from_millis(500);

/// Prints warnings from now on, each as one line that begins as all of ours do.
///
/// Only those of lockkeeper: what other libraries warn of is explained by our own errors.
pub(crate) fn show() -> Warnings {
    let (warnings, told) = mpsc::channel();
    // A thread of its own, which ends with the process: a stderr that is stuck must not keep a lock
    // from being renewed. If there is none, warnings are not shown.
    let printer = std::thread::Builder::new().name("warnings".into());
    if printer.spawn(move || told.iter().for_each(print)).is_ok() {
        // Fails only if there is a subscriber already, which only we could have set.
        let _ = tracing::subscriber::set_global_default(Warnings(warnings.clone()));
    }
    Warnings(warnings)
}

/// What the printer is told.
enum Told {
    Warning(String),
    /// To say that everything before is printed.
    Flush(mpsc::Sender<()>),
}

fn print(told: Told) {
    match told {
        Told::Warning(line) => output::say(&line),
        // The caller of `flush` may have gone on.
        Told::Flush(done) => drop(done.send(())),
    }
}

/// The way to the printer.
pub(crate) struct Warnings(mpsc::Sender<Told>);

impl Warnings {
    /// Waits until all warnings so far are printed, but not for a stderr that is stuck.
    pub(crate) fn flush(&self) {
        let (done, flushed) = mpsc::channel();
        if self.0.send(Told::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(LAST_WORD);
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN && is_ours(metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        // The printer ends with the process.
        let _ = self.0.send(Told::Warning(line.finish()));
    }

    // No span is enabled, so nothing is ever asked of these.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Whether to print what comes from this module.
fn is_ours(target: &str) -> bool {
    let within = |module: &str| {
        let rest = target.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    within("lockkeeper") && !TOLD_OTHERWISE.into_iter().any(within)
}

/// The message, and behind it what it is about.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    /// In one line, whatever a store said: a line break would look like a message of another program.
    fn finish(self) -> String {
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
