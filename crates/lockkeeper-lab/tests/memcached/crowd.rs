//! Many who wait.

use crate::{LONG, PATIENT, cases, keeper, stat};
use anyhow::{Result, ensure};
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::queued;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

cases!(
    a_thousand_who_wait_cost_no_more_requests_than_ten,
    all_of_a_crowd_get_their_turn_one_at_a_time,
);

/// How long the server's requests are counted.
const WINDOW: Duration = Duration::from_secs(6);

/// Requests of the server while so many claims of one keeper wait for one name.
async fn requests(lab: &Lab, waiters: usize) -> Result<u64> {
    let server = lab.memcached().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("n").ttl(LONG).acquire().await?;
    let mut events = two.events();
    let mut tasks = Vec::new();
    for _ in 0..waiters {
        let lock = two.lock("n").ttl(LONG);
        tasks.push(tokio::spawn(async move { lock.acquire().await }));
    }
    queued(&mut events, waiters.min(500)).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = stat(&server, "cmd_set")? + stat(&server, "cmd_get")?;
    tokio::time::sleep(WINDOW).await;
    let after = stat(&server, "cmd_set")? + stat(&server, "cmd_get")?;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    held.release().await?;
    Ok(after - before)
}

async fn a_thousand_who_wait_cost_no_more_requests_than_ten(lab: &Lab) -> Result<()> {
    let few = requests(lab, 10).await?;
    let many = requests(lab, 1000).await?;
    println!("requests in {WINDOW:?}: {few} with 10 waiters, {many} with 1000");
    ensure!(few > 0 && many > 0, "unknown: nobody asked");
    // Between 200 and 300 ms apart; a busy machine asks less often, never more.
    let most = WINDOW.as_millis() / 200 + 2;
    ensure!(u128::from(few) <= most && u128::from(many) <= most, "{few} and {many} of {most}");
    Ok(())
}

async fn all_of_a_crowd_get_their_turn_one_at_a_time(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keepers = [keeper(&server).await?, keeper(&server).await?, keeper(&server).await?];
    let (inside, turns) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for number in 0..150 {
        let lock = keepers[number % 3].lock("n").ttl(LONG);
        let (inside, turns) = (inside.clone(), turns.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire_within(PATIENT * 2).await?;
            ensure!(inside.fetch_add(1, Ordering::SeqCst) == 0, "two are inside");
            tokio::time::sleep(Duration::from_millis(1)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            turns.fetch_add(1, Ordering::SeqCst);
            Ok(guard.release().await?)
        }));
    }
    for task in tasks {
        task.await??;
    }
    ensure!(turns.load(Ordering::SeqCst) == 150, "not everyone had a turn");
    Ok(())
}
