//! The cost of tickets and of listing in pages on `redis://`, as ratios within one run. Starts its own
//! server.
//!
//! The things compared take turns, round by round, and the median of the rounds' ratios counts.

#[path = "../redis/figures.rs"]
#[allow(dead_code, reason = "shared with the benchmark of Redis")]
mod figures;
mod kept;
mod listed;

use anyhow::Result;
use lockkeeper_lab::server::Lab;

fn main() -> Result<()> {
    // Cargo runs benchmarks with --bench, and `cargo test` runs them without.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let parts: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|it| it == part);
    let lab = Lab::open()?;
    let server = lab.redis().start()?;
    println!("{:<72} {:>9} {:>9}   {:>6}", "tickets, redis", "ours", "theirs", "ratio");
    if wanted("kept") {
        kept::by_ticket(&server.url())?;
    }
    if wanted("listed") {
        listed::in_pages(&server.url())?;
    }
    Ok(())
}

/// The middle one.
fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Prints our speed as a fraction of theirs.
fn printed(what: &str, ours: f64, theirs: f64, ratio: f64, least: f64) {
    let (ours, theirs) = (ours * 1e6, theirs * 1e6);
    let verdict = if ratio >= least { "kept" } else { "MISSED" };
    println!("{what:<72} {ours:>7.1}µs {theirs:>7.1}µs   {ratio:>6.2} ≥ {least:<5} {verdict}");
}
