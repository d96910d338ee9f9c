//! What the benchmarks share: rounds in turn, medians, and a line per ratio.

use std::time::{Duration, Instant};

/// The median of several runs.
pub(crate) fn median(mut runs: Vec<Duration>) -> Duration {
    runs.sort();
    runs[runs.len() / 2]
}

/// How long `work` took for one of `count` turns.
pub(crate) fn each(count: u32, work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed() / count
}

/// Prints `ours` beside `floor`, and whether their ratio keeps to the goal.
pub(crate) fn report(what: &str, ours: Duration, floor: Duration, goal: Goal) {
    let (ratio, kept, sign, limit) = match goal {
        Goal::TimeAtMost(limit) => {
            let ratio = ours.as_secs_f64() / floor.as_secs_f64();
            (ratio, ratio <= limit, "≤", limit)
        }
        Goal::SpeedAtLeast(limit) => {
            let ratio = floor.as_secs_f64() / ours.as_secs_f64();
            (ratio, ratio >= limit, "≥", limit)
        }
    };
    let verdict = if kept { "kept" } else { "MISSED" };
    println!("{what:<58} {ours:>9.1?} {floor:>9.1?}   {ratio:>6.3} {sign} {limit:<5} {verdict}");
}

/// What a ratio should be.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "each benchmark uses its own")]
pub(crate) enum Goal {
    /// Our time is at most this part of the floor's.
    TimeAtMost(f64),
    /// Our speed is at least this part of the floor's.
    SpeedAtLeast(f64),
}
