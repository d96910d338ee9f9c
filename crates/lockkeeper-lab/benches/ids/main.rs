//! Ids: snowflakes compared with the least that such an id takes (one reading of the clock and one
//! addition) and with other libraries; segments compared with a bare addition; and whether a store ever
//! holds a segment up.
//!
//! Behind `--` a word picks a part: `clock`, `rivals`, `segment`, `stores`, `dated`.
//!
//! A snowflake of 12 bits of sequence is limited to 4,096 ids in a millisecond by its layout. What is
//! measured on that layout is bursts below it, with a pause between; what is measured without a pause is
//! on 41/1/21, which has no such limit.

mod clocked;
mod ranges;
mod rivals;
mod rounds;

use anyhow::Result;

const PARTS: [&str; 5] = ["clock", "rivals", "segment", "stores", "dated"];

fn main() -> Result<()> {
    // Cargo runs benchmarks with --bench, and `cargo test` runs them without.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--bench") {
        return Ok(());
    }
    let named = |word: &str| words.iter().any(|it| it == word);
    let wanted = |word| named(word) || !PARTS.into_iter().any(named);
    let runtime = tokio::runtime::Runtime::new()?;
    println!("{:<58} {:>9} {:>9} {:>6}", "ns for an id", "ours", "theirs", "ratio");
    if wanted("clock") {
        clocked::against_the_floor(&runtime)?;
    }
    if wanted("rivals") {
        rivals::run(&runtime)?;
    }
    if wanted("segment") {
        ranges::against_an_addition(&runtime)?;
    }
    if wanted("dated") {
        clocked::dated(&runtime)?;
    }
    if wanted("stores") {
        ranges::over_stores(&runtime)?;
    }
    Ok(())
}
