//! The cost of `redis://`, as ratios within one run: against the bare commands on the same client,
//! and against other libraries. Starts its own server.
//!
//! Times from one machine mean nothing on another, and little on the same machine an hour later; so
//! the things compared take turns, round by round, and medians are divided.

mod figures;
mod held;
mod line;
mod pairs;

use anyhow::Result;
use lockkeeper_lab::server::Lab;

fn main() -> Result<()> {
    if let Ok(url) = std::env::var(line::PROCESS) {
        return line::contend(&url);
    }
    // Cargo runs benchmarks with --bench, and `cargo test` runs them without.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let lab = Lab::open()?;
    let server = lab.redis().start()?;
    let url = server.url();
    println!("{:<72} {:>9} {:>9}   {:>6}", "redis", "ours", "theirs", "ratio");
    pairs::one_task(&url)?;
    pairs::many_tasks(&url)?;
    pairs::python(&url)?;
    line::one_name(&url, &server)?;
    line::many_waiters(&url)?;
    held::renewing(&url)
}
