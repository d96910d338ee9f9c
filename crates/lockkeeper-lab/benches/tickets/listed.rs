//! A hundred thousand locks, listed in pages: what the client needs for it, and what others feel of it.

use crate::figures::at_most;
use crate::middle;
use anyhow::{Context, Result};
use lockkeeper::Keeper;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LOCKS: u32 = 100_000;
const TASKS: u32 = 64;
const PAGE: usize = 1000;
const ROUNDS: usize = 7;
/// How long others are measured for without a list, in each round.
const QUIET: Duration = Duration::from_secs(2);

pub(crate) fn in_pages(url: &str) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(fill(url))?;
    let (mut ratios, mut grown) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let quiet = beside(url, || {
            std::thread::sleep(QUIET);
            Ok(())
        })?;
        let mut growth = 0;
        let listing = beside(url, || {
            growth = runtime.block_on(list(url))?;
            Ok(())
        })?;
        ratios.push(listing.as_secs_f64() / quiet.as_secs_f64());
        grown.push(growth as f64 / 1024.0);
    }
    let what = format!("{LOCKS} locks in pages of {PAGE}");
    at_most(&format!("{what}: p99 of another's acquire, of that without"), middle(ratios), 1.5);
    at_most(&format!("{what}: MiB that the client grows by"), middle(grown), 16.0);
    Ok(())
}

/// Takes them, and leaves them alone.
async fn fill(url: &str) -> Result<()> {
    let keeper = lockkeeper::connect(url).await?;
    let take = |task: u32| {
        let keeper = keeper.clone();
        tokio::spawn(async move {
            for number in (task..LOCKS).step_by(TASKS as usize) {
                let lock = keeper.lock(format!("many/{number}")).ttl(Duration::from_secs(3600 * 6));
                lock.acquire().await?.detach();
            }
            anyhow::Ok(())
        })
    };
    let all: Vec<_> = (0..TASKS).map(take).collect();
    for task in all {
        task.await??;
    }
    Ok(())
}

/// Lists all of them; by how many KiB this process grew meanwhile.
async fn list(url: &str) -> Result<u64> {
    let keeper = lockkeeper::connect(url).await?;
    // The connection and the first page are not what is asked about.
    keeper.list_page("many/", None, PAGE).await?;
    let before = resident()?;
    let (mut seen, mut most, mut after) = (0, before, None);
    loop {
        let page = keeper.list_page("many/", after.as_deref(), PAGE).await?;
        seen += page.locks.len();
        most = most.max(resident()?);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    anyhow::ensure!(seen >= LOCKS as usize, "only {seen} of {LOCKS} were listed");
    keeper.close(Duration::from_secs(5)).await;
    Ok(most - before)
}

/// What this process has in memory, in KiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no figure")?.parse()?)
}

/// The 99th percentile of the time that another client takes to acquire, while `work` is done here.
fn beside(url: &str, work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let over = Arc::new(AtomicBool::new(false));
    let (url, stop) = (url.to_owned(), over.clone());
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let keeper: Keeper = lockkeeper::connect(&url).await?;
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let guard = keeper.lock("another").acquire().await?;
                times.push(begun.elapsed());
                guard.release().await?;
            }
            keeper.close(Duration::from_secs(5)).await;
            anyhow::Ok(times)
        })
    });
    let done = work();
    over.store(true, Ordering::Relaxed);
    let mut times = other.join().map_err(|_| anyhow::anyhow!("it panicked"))??;
    done?;
    times.sort();
    times.get(times.len() * 99 / 100).copied().context("nothing was measured")
}
