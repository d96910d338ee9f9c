//! Many who wait for one.

use crate::raw::metric;
use crate::{LONG, PATIENT, cases, keeper, queue_of};
use anyhow::{Result, ensure};
use lockkeeper_lab::server::Lab;
use std::sync::{Arc, Mutex, PoisonError};

cases![a_thousand_wait_and_one_is_woken, permits_wake_no_more_than_there_are];

/// How often anyone was told that a node is gone.
const WOKEN: &str = "zk_sum_node_deleted_watch_count";

async fn a_thousand_wait_and_one_is_woken(lab: &Lab) -> Result<()> {
    const WAITERS: usize = 1000;
    let server = lab.zookeeper().tick(1000).start()?;
    let mut keepers = Vec::new();
    for _ in 0..10 {
        keepers.push(keeper(&server.url(), "session=20s&timeout=15s").await?);
    }
    let guard = keepers[0].lock("n").ttl(LONG).acquire().await?;
    let mut waiters = tokio::task::JoinSet::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..WAITERS {
        let lock = keepers[number % keepers.len()].lock("n").ttl(LONG);
        let order = order.clone();
        waiters.spawn(async move {
            let guard = lock.acquire_within(PATIENT * 4).await?;
            order.lock().unwrap_or_else(PoisonError::into_inner).push(guard.token());
            guard.release().await
        });
    }
    queue_of(&keepers[0], "n", WAITERS).await?;
    let before = metric(&server.address(), WOKEN)?;
    guard.release().await?;
    while let Some(waiter) = waiters.join_next().await {
        waiter??;
    }
    ensure!(order.lock().is_ok_and(|order| order.is_sorted()), "out of turn");
    let woken = metric(&server.address(), WOKEN)? - before;
    let most = u64::try_from(WAITERS + WAITERS / 10)?;
    // Each hand-over wakes the next; holders that watch their own node hear of it themselves.
    ensure!(woken <= most * 2, "{woken} were woken for {WAITERS} hand-overs");
    println!("{woken} wake-ups for {WAITERS} hand-overs");
    Ok(())
}

async fn permits_wake_no_more_than_there_are(lab: &Lab) -> Result<()> {
    const WAITERS: usize = 100;
    const OF: u32 = 3;
    let server = lab.zookeeper().tick(1000).start()?;
    let one = keeper(&server.url(), "session=20s").await?;
    let gate = one.semaphore("n", OF).ttl(LONG);
    let mut held = Vec::new();
    for _ in 0..OF {
        held.push(gate.acquire().await?);
    }
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let gate = one.semaphore("n", OF).ttl(LONG);
        waiters.spawn(async move { gate.acquire_within(PATIENT).await?.release().await });
    }
    queue_of(&one, "n", WAITERS).await?;
    let before = metric(&server.address(), WOKEN)?;
    drop(held);
    while let Some(waiter) = waiters.join_next().await {
        waiter??;
    }
    let woken = metric(&server.address(), WOKEN)? - before;
    let most = u64::try_from(WAITERS)? * u64::from(OF + 1);
    ensure!(woken <= most, "{woken} were woken for {WAITERS} hand-overs");
    Ok(())
}
