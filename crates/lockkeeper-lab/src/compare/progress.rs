//! What is being measured, and how long the rest will take.

use super::contender::Contender;
use super::stored::StoredRun;
use std::time::{Duration, Instant};

/// How long a row takes when no earlier run tells, in seconds.
const OURS: f64 = 55.0;
const OTHERS: f64 = 30.0;

/// Prints to standard error, a line for each row.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Instant,
    /// What the rows that are done were expected to take.
    expected_done: f64,
    /// The same of all that are to do.
    expected: f64,
    rows: usize,
    done: usize,
}

/// What a row will take, by an earlier run if there is one.
pub(crate) fn expected(contender: &Contender, earlier: Option<&StoredRun>) -> f64 {
    let row = earlier.and_then(|run| run.row((contender.store(), &contender.name())));
    row.map_or(if contender.is_ours() { OURS } else { OTHERS }, |row| row.seconds)
}

impl Progress {
    pub(crate) fn new(expected: f64, rows: usize) -> Self {
        Self { began: Instant::now(), expected_done: 0.0, expected, rows, done: 0 }
    }

    /// A row begins.
    pub(crate) fn row(&mut self, contender: &Contender) {
        let left = self.left();
        eprint!(
            "{:>2} of {}  {:<10} {:<13} about {} left  ",
            self.done + 1,
            self.rows,
            contender.store(),
            contender.name(),
            shown(left)
        );
    }

    /// A part of the row begins.
    pub(crate) fn part(&mut self, what: &str) {
        eprint!(" {what}");
    }

    /// A row is done.
    pub(crate) fn done(&mut self, expected: f64, seconds: f64) {
        self.done += 1;
        self.expected_done += expected;
        eprintln!("  {seconds:.0} s");
    }

    /// What is left, at the speed so far.
    fn left(&self) -> Duration {
        let left = (self.expected - self.expected_done).max(0.0);
        let speed = if self.expected_done > 0.0 {
            self.began.elapsed().as_secs_f64() / self.expected_done
        } else {
            1.0
        };
        Duration::from_secs_f64(left * speed)
    }
}

fn shown(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}
