//! Where a bench is, on one line of a terminal.

use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::time::{Instant, interval};

#[derive(Debug)]
pub(super) struct Progress {
    /// Nobody looks at a file or a pipe meanwhile.
    is_seen: bool,
    begun: Instant,
    length: Duration,
}

impl Progress {
    pub(super) fn new(length: Duration) -> Self {
        let is_seen = std::io::stderr().is_terminal();
        Self { is_seen, begun: Instant::now(), length }
    }

    /// Does `work`, and says so.
    pub(super) async fn during<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut tick = interval(Duration::from_millis(250));
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = tick.tick() => self.say(what),
            }
        };
        self.clear();
        done
    }

    fn say(&self, what: &str) {
        if self.is_seen {
            let left = self.length.saturating_sub(self.begun.elapsed()).as_secs();
            let line = format!("\r\u{1b}[2Kmeasuring: {what}, about {left}s left");
            // A stderr that is gone misses nothing.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn clear(&self) {
        if self.is_seen {
            let _ = std::io::stderr().write_all(b"\r\x1b[2K");
        }
    }
}

impl Drop for Progress {
    /// Also after an interrupt.
    fn drop(&mut self) {
        self.clear();
    }
}
