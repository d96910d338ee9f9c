//! Interleaved rounds, medians, and a line per ratio.

use std::time::{Duration, Instant};

/// The median of several rounds.
pub(crate) fn median(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort();
    rounds[rounds.len() / 2]
}

/// The time that `work` took per turn, for `count` turns.
pub(crate) async fn each(count: u32, work: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    work.await;
    start.elapsed() / count
}

/// Prints our speed as a fraction of theirs.
pub(crate) fn speed(what: &str, ours: Duration, theirs: Duration, least: f64) {
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    let verdict = if ratio >= least { "kept" } else { "MISSED" };
    println!("{what:<72} {ours:>9.1?} {theirs:>9.1?}   {ratio:>6.2} ≥ {least:<5} {verdict}");
}

/// As [`speed`], without a target.
pub(crate) fn compared(what: &str, ours: Duration, theirs: Duration) {
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    println!("{what:<72} {ours:>9.1?} {theirs:>9.1?}   {ratio:>6.2}");
}

/// Prints a figure that must stay below a limit.
pub(crate) fn at_most(what: &str, figure: f64, most: f64) {
    let verdict = if figure <= most { "kept" } else { "MISSED" };
    println!("{what:<92}   {figure:>6.2} ≤ {most:<5} {verdict}");
}
