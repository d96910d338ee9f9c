//! Ids by the clock, against the least that they take.

use crate::rounds::{Bursts, Goal, compare};
use anyhow::Result;
use lockkeeper::id::{DateFormat, Digits, Generator, Layout, Lease, Snowflake};
use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// One shared word on a cache line of its own.
#[repr(align(128))]
pub(crate) struct Word(pub(crate) AtomicU64);

/// Takes ids without waiting; fewer where there are none.
pub(crate) fn take(ids: &impl Generator, count: u64) -> u64 {
    for got in 0..count {
        match ids.try_next() {
            Ok(Some(id)) => black_box(id),
            _ => return got,
        };
    }
    count
}

/// A new key gives nothing for one window: a short one.
fn lease(cached_clock: bool) -> Lease {
    Lease { window: Some(Duration::from_secs(2)), cached_clock }
}

pub(crate) fn snowflake(runtime: &Runtime, layout: Layout, cached: bool) -> Result<Snowflake> {
    runtime.block_on(async {
        let keeper = lockkeeper::connect("memory:").await?;
        let ids = keeper.ids("bench").lease(lease(cached)).snowflake(layout).await?;
        ids.next().await?;
        Ok(ids)
    })
}

/// The floor reads the clock that the library reads, by the same call: `CLOCK_BOOTTIME` through nix.
pub(crate) fn against_the_floor(runtime: &Runtime) -> Result<()> {
    let ids = snowflake(runtime, Layout::new(41, 1, 21)?, false)?;
    let word = Word(AtomicU64::new(0));
    let floor = |count: u64| {
        for _ in 0..count {
            let _ = black_box(clock_gettime(ClockId::CLOCK_BOOTTIME));
            black_box(word.0.fetch_add(1, Ordering::AcqRel));
        }
        count
    };
    for threads in [1, 2] {
        let bursts = Bursts { threads, ids: 4_000, pause: Duration::from_micros(50) };
        let what = format!("snowflake 41/1/21 / clock and addition, {threads} threads");
        compare(&what, bursts, &|count| take(&ids, count), &floor, Goal::AtMost(1.15));
    }
    let ids = snowflake(runtime, Layout::default(), false)?;
    for threads in [1, 2] {
        let bursts = Bursts { threads, ids: 2_000, pause: Duration::from_millis(1) };
        let what = format!("snowflake 41/10/12, bursts / clock and addition, {threads} threads");
        compare(&what, bursts, &|count| take(&ids, count), &floor, Goal::AtMost(1.15));
    }
    Ok(())
}

/// Dated ids of a worker have 10,000 numbers in a second: short bursts with long pauses.
pub(crate) fn dated(runtime: &Runtime) -> Result<()> {
    let bursts = Bursts { threads: 1, ids: 100, pause: Duration::from_millis(6) };
    for cached in [false, true] {
        let ids = snowflake(runtime, Layout::default(), cached)?;
        let dated = runtime.block_on(async {
            let keeper = lockkeeper::connect("memory:").await?;
            let key = keeper.ids("dated").lease(lease(cached));
            let ids = key.dated_local(DateFormat::new(Digits::Worker19)).await?;
            ids.next().await?;
            anyhow::Ok(ids)
        })?;
        let clock = if cached { "cached" } else { "precise" };
        let what = format!("dated local / snowflake, {clock} clock, bursts");
        let goal = if cached { Goal::None } else { Goal::AtMost(1.3) };
        compare(&what, bursts, &|count| take(&dated, count), &|count| take(&ids, count), goal);
    }
    Ok(())
}
