//! PostgreSQL and MariaDB: a lock compared with its bare statements on the same driver, what it costs
//! to hand a lock on, other libraries on the same servers, and how soon a lock is free whose holder
//! was killed.
//!
//! The servers write every commit to their disk, as they do by default. Behind `--` a word picks a
//! server, and one a part: `cycles`, `line`, `crowd`, `peers`, `killed`.

mod bare;
mod cycles;
mod figures;
mod killed;
mod line;
mod peers;
#[path = "../common/timed.rs"]
mod timed;

use anyhow::Result;
use lockkeeper_lab::server::Lab;

const PARTS: [&str; 5] = ["cycles", "line", "crowd", "peers", "killed"];

fn main() -> Result<()> {
    if let Ok(url) = std::env::var(line::PROCESS) {
        return line::contend(&url);
    }
    if let Ok(url) = std::env::var(killed::PROCESS) {
        return killed::hold(&url);
    }
    // Cargo runs benchmarks with --bench, and `cargo test` runs them without.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--bench") {
        return Ok(());
    }
    let named = |word: &str| words.iter().any(|it| it == word);
    let server_wanted = |word| named(word) || !(named("postgres") || named("mariadb"));
    let part_wanted = |word| named(word) || !PARTS.into_iter().any(named);
    let lab = Lab::open()?;
    println!("{:<66} {:>9} {:>9} {:>7}", "acquire + release", "ours", "theirs", "ratio");
    for kind in ["postgres", "mariadb"] {
        if !server_wanted(kind) {
            continue;
        }
        let server = match kind {
            "postgres" => lab.postgres().config("fsync=on").start()?,
            _ => lab.mariadb().config("--innodb-flush-log-at-trx-commit=1").start()?,
        };
        let runtime = tokio::runtime::Runtime::new()?;
        if part_wanted("cycles") {
            runtime.block_on(cycles::run(kind, &server))?;
        }
        if part_wanted("line") {
            runtime.block_on(line::one_name(kind, &server))?;
        }
        drop(runtime);
        if part_wanted("crowd") {
            line::many_waiters(kind, &server.url())?;
        }
        if part_wanted("peers") {
            peers::run(kind, &server.url())?;
        }
        if part_wanted("killed") {
            killed::run(kind, &server.url())?;
        }
    }
    Ok(())
}
