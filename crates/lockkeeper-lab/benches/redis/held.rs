//! Many locks, held and renewed.

use crate::figures::at_most;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

const LOCKS: u32 = 10_000;

/// The share of a core that this process uses to renew them.
pub(crate) fn renewing(url: &str) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let keeper = lockkeeper::connect(url).await?;
        let mut held = Vec::new();
        for number in 0..LOCKS {
            held.push(keeper.lock(format!("held/{number}")).acquire().await?);
        }
        // Time for two renewals of each lock.
        let (start, before) = (Instant::now(), used()?);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let share = (used()? - before).as_secs_f64() / start.elapsed().as_secs_f64();
        assert!(held.iter().all(|guard| !guard.remaining().is_zero()), "all are kept");
        at_most("10,000 locks held and renewed: percent of a core", share * 100.0, 5.0);
        drop(held);
        keeper.close(Duration::from_secs(20)).await;
        Ok(())
    })
}

/// The CPU time of this process so far.
fn used() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("a name in brackets")?;
    let ticks = |at: usize| fields.split_whitespace().nth(at).and_then(|t| t.parse::<u64>().ok());
    let ticks = ticks(11).zip(ticks(12)).context("user and system time")?;
    Ok(Duration::from_millis((ticks.0 + ticks.1) * 10))
}
