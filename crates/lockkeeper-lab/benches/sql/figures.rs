//! Short rounds in turn, and the median of their ratios: a busy machine slows both sides of a round.

use crate::timed::timed;
use anyhow::Result;
use std::time::Duration;

/// The rounds of one comparison: many short ones, because a few long ones hit upon a quiet or a busy
/// time of the machine.
const ROUNDS: u32 = 101;

/// The middle one.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Compares two kinds of work that take turns, and prints how fast ours is.
pub(crate) async fn compare<A, B, F, G>(
    what: &str,
    tasks: u32,
    cycles: u32,
    (bare, ours): (A, B),
    goal: f64,
) -> Result<()>
where
    A: Fn(u32) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
    B: Fn(u32) -> G + Clone + Send + 'static,
    G: Future<Output = Result<()>> + Send,
{
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..=ROUNDS {
        let (theirs, mine) = if round % 2 == 0 {
            let theirs = timed(tasks, cycles, bare.clone()).await?;
            (theirs, timed(tasks, cycles, ours.clone()).await?)
        } else {
            // The second may find caches warm, or the disk busy.
            let mine = timed(tasks, cycles, ours.clone()).await?;
            (timed(tasks, cycles, bare.clone()).await?, mine)
        };
        let (theirs, mine) = (theirs.as_secs_f64(), mine.as_secs_f64());
        // The first connects, prepares and makes the rows.
        if round > 0 {
            times[0].push(mine);
            times[1].push(theirs);
            ratios.push(theirs / mine);
        }
    }
    let [mine, theirs] = times.map(|times| Duration::from_secs_f64(median(times)));
    line(what, mine, theirs, median(ratios), goal);
    Ok(())
}

/// One line: our time, the other one, and how many times as fast we are.
pub(crate) fn line(what: &str, ours: Duration, theirs: Duration, ratio: f64, goal: f64) {
    let verdict = if ratio >= goal { "kept" } else { "MISSED" };
    println!("{what:<66} {ours:>9.1?} {theirs:>9.1?} {ratio:>7.2} >= {goal:<4} {verdict}");
}

/// A figure that must stay below a limit.
pub(crate) fn at_most(what: &str, figure: f64, most: f64) {
    let verdict = if figure <= most { "kept" } else { "MISSED" };
    println!("{what:<86} {figure:>7.2} <= {most:<4} {verdict}");
}
