//! How soon a lock is free again whose holder was killed, by each recipe: from `kill -9` until
//! somebody who waits has it.

use crate::figures::median;
use anyhow::{Context, Result};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set for a process that must hold a lock until it is killed: the URL.
pub(crate) const PROCESS: &str = "LOCKKEEPER_BENCH_SQL_HOLD";
const TTL: Duration = Duration::from_secs(6);
const TIMES: usize = 3;

pub(crate) fn run(kind: &str, url: &str) -> Result<()> {
    let native = if kind == "postgres" { "advisory" } else { "get-lock" };
    let freed = [native, "for-update"].map(|it| format!("{it}&free_on_disconnect=true"));
    let recipes = ["table", native, "for-update", "optimistic", &freed[0], &freed[1]];
    for recipe in recipes {
        let url = format!("{url}?recipe={recipe}");
        let mut times = Vec::new();
        for _ in 0..TIMES {
            times.push(free_after(&url)?.as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        println!(
            "{kind} {recipe}: free {:.3} s after kill -9 (from {:.3} to {:.3}; ttl {TTL:?})",
            median(times.clone()),
            times[0],
            times[TIMES - 1]
        );
    }
    Ok(())
}

/// Kills a holder for which somebody waits.
fn free_after(url: &str) -> Result<Duration> {
    let mut child: Child = Command::new(std::env::current_exe()?)
        .env(PROCESS, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut held = [0; 5];
    child.stdout.as_mut().context("an output")?.read_exact(&mut held)?;
    let keeper = lockkeeper::blocking::connect(url)?;
    let waiting = {
        let lock = keeper.lock("killed").ttl(TTL);
        std::thread::spawn(move || {
            let guard = lock.acquire()?;
            let moment = Instant::now();
            guard.release()?;
            anyhow::Ok(moment)
        })
    };
    // It waits by now, and the holder was granted a while ago.
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    child.kill()?;
    child.wait()?;
    let moment = waiting.join().map_err(|_| anyhow::anyhow!("the waiter panicked"))??;
    Ok(moment.saturating_duration_since(begin))
}

/// Holds the lock until this process is killed, or its parent is gone.
pub(crate) fn hold(url: &str) -> Result<()> {
    let keeper = lockkeeper::blocking::connect(url)?;
    let _guard = keeper.lock("killed").ttl(TTL).acquire()?;
    println!("held");
    let mut end = String::new();
    std::io::stdin().read_line(&mut end)?;
    Ok(())
}
