//! The progress of a run, printed for the user.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a line is printed where lines cannot be overwritten.
const LINES: Duration = Duration::from_secs(10);

/// Prints to standard error, so that the verdict on standard output can be piped.
#[derive(Debug)]
pub(crate) struct Progress {
    told: bool,
    terminal: bool,
    next: Instant,
}

impl Progress {
    pub(crate) fn told() -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { told: true, terminal, next: Instant::now() + LINES }
    }

    pub(crate) fn silent() -> Self {
        Self { told: false, ..Self::told() }
    }

    pub(crate) fn say(&mut self, text: &str) {
        if self.told && self.terminal {
            eprint!("\r\x1b[K{text}");
            let _ = std::io::stderr().flush();
        } else if self.told && Instant::now() >= self.next {
            eprintln!("{text}");
            self.next = Instant::now() + LINES;
        }
    }

    pub(crate) fn finish(&self, text: &str) {
        if self.told {
            eprintln!("{}{text}", if self.terminal { "\r\x1b[K" } else { "" });
        }
    }
}
