//! Claims in the queue, or on record as holders, that nobody of their keeper has any more.

use crate::{LONG, PATIENT, cases, eventually, hosts, keeper, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::Keeper;
use lockkeeper_lab::server::Lab;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

cases!(
    those_of_an_old_snapshot_are_gone_at_once,
    those_that_a_failover_brought_back_are_gone_at_once,
    those_of_a_runtime_that_ended_hold_up_no_other,
    one_that_holds_and_is_nobodys_is_removed,
    one_that_was_detached_stays,
    one_that_lingers_stays,
);

/// A stall that neither a ttl nor a heartbeat explains.
const STALL: Duration = Duration::from_secs(5);

/// Tasks that take one name in turn until they are told to stop.
struct Crowd {
    grants: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Crowd {
    fn at(keepers: &[Keeper], each: usize, name: &str) -> Self {
        let (grants, stop, mut tasks) = (Arc::default(), Arc::default(), JoinSet::new());
        for keeper in keepers {
            for _ in 0..each {
                let (grants, stop): (Arc<AtomicU64>, Arc<AtomicBool>) =
                    (Arc::clone(&grants), Arc::clone(&stop));
                let lock = keeper.lock(name).ttl(LONG);
                tasks.spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        // While the server is away there are errors, which is as it should be.
                        let Ok(guard) = lock.acquire_within(PATIENT * 2).await else {
                            sleep(Duration::from_millis(20)).await;
                            continue;
                        };
                        grants.fetch_add(1, Ordering::Relaxed);
                        sleep(Duration::from_millis(2)).await;
                        let _ = guard.release().await;
                    }
                });
            }
        }
        Self { grants, stop, tasks }
    }

    fn grants(&self) -> u64 {
        self.grants.load(Ordering::Relaxed)
    }

    /// Watches for so long; fails if nobody is granted the name for longer than [`STALL`].
    async fn goes_on_for(&self, span: Duration) -> Result<()> {
        let begin = Instant::now();
        let (mut before, mut since) = (self.grants(), Instant::now());
        while begin.elapsed() < span {
            sleep(Duration::from_millis(20)).await;
            let now = self.grants();
            if now != before {
                (before, since) = (now, Instant::now());
            }
            ensure!(since.elapsed() < STALL, "nobody was granted it for {:?}", since.elapsed());
        }
        Ok(())
    }

    async fn end(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(task) = self.tasks.join_next().await {
            task?;
        }
        Ok(())
    }
}

async fn those_of_an_old_snapshot_are_gone_at_once(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let crowd = Crowd::at(&[keeper(&server).await?, keeper(&server).await?], 8, "snapshot");
    eventually("they take turns", async || Ok((crowd.grants() > 50).then_some(()))).await;
    server.keep_copy()?;
    sleep(Duration::from_millis(500)).await;
    let before = crowd.grants();
    server.restart_as_kept()?;
    crowd.goes_on_for(STALL + STALL / 2).await?;
    ensure!(crowd.grants() > before + 50, "unknown: hardly anyone was granted it");
    crowd.end().await
}

async fn those_that_a_failover_brought_back_are_gone_at_once(lab: &Lab) -> Result<()> {
    let group = lab.redis().start_sentinel(1)?;
    let url = format!("redis+sentinel://{}/{}", hosts(&group.sentinels), group.name());
    let mut keepers = Vec::new();
    for _ in 0..3 {
        keepers.push(lockkeeper::connect(&url).await?);
    }
    let crowd = Crowd::at(&keepers, 4, "failover");
    eventually("they take turns", async || Ok((crowd.grants() > 50).then_some(()))).await;
    // The replica hears nothing of the last turns.
    group.replicas[0].pause()?;
    group.primary.redis()?.ask(&["CLIENT", "KILL", "TYPE", "replica"])?;
    sleep(Duration::from_millis(300)).await;
    group.primary.kill()?;
    group.replicas[0].resume()?;
    eventually("the sentinels have another primary", async || {
        Ok((group.primary_port()? != group.primary.port()).then_some(()))
    })
    .await;
    // Every keeper has found it.
    for keeper in &keepers {
        eventually("it answers", async || Ok(keeper.show("failover").await.ok())).await;
    }
    let before = crowd.grants();
    crowd.goes_on_for(STALL + STALL / 2).await?;
    ensure!(crowd.grants() > before + 50, "unknown: hardly anyone was granted it");
    crowd.end().await
}

/// A runtime of its own, on which so many wait for the name; it ends when this is dropped.
fn waiters_elsewhere(keeper: &Keeper, name: &str, count: usize) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    for _ in 0..count {
        let lock = keeper.lock(name).ttl(LONG);
        runtime.spawn(async move { lock.acquire().await.map(std::mem::forget) });
    }
    Ok(runtime)
}

async fn those_of_a_runtime_that_ended_hold_up_no_other(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = two.lock("ended").ttl(LONG).acquire().await?;
    let other = waiters_elsewhere(&one, "ended", 10)?;
    waiting(&two, "ended", 10).await;
    // It gives signs of life for all of its keeper's.
    let lock = one.lock("ended").ttl(LONG);
    let living = tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await });
    waiting(&two, "ended", 11).await;
    let lock = two.lock("ended").ttl(LONG);
    let behind = tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await });
    waiting(&two, "ended", 12).await;
    other.shutdown_background();
    held.release().await?;
    timeout(STALL, living).await.context("it waits for those who are gone")???.release().await?;
    timeout(STALL, behind).await.context("it waits for those who are gone")???.release().await?;
    Ok(())
}

async fn one_that_holds_and_is_nobodys_is_removed(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let gate = one.lock("nobody's").ttl(LONG).acquire().await?;
    let (mut redis, key) = (server.redis()?, "lockkeeper:{nobody's}");
    let record = redis.ask(&["GET", key])?;
    gate.release().await?;
    for keeper in [&one, &two] {
        // As if the release had been forgotten: nobody holds the name.
        redis.ask(&["SET", key, record.text().context("a record")?, "PX", "30000"])?;
        let lock = keeper.lock("nobody's").ttl(LONG);
        let granted = timeout(STALL, lock.acquire_within(PATIENT * 2)).await;
        granted.context("it waits for one who is gone")??.release().await?;
    }
    Ok(())
}

async fn one_that_was_detached_stays(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    one.lock("detached").ttl(Duration::from_secs(4)).acquire().await?.detach();
    for keeper in [&one, &two] {
        let late = keeper.lock("detached").acquire_within(Duration::from_millis(1200)).await;
        ensure!(late.is_err(), "it was to stay for its ttl");
    }
    one.lock("detached").acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

async fn one_that_lingers_stays(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let lock = one.lock("lingers").ttl(LONG).min_hold(Duration::from_secs(4));
    lock.acquire().await?.release().await?;
    for keeper in [&one, &two] {
        let late = keeper.lock("lingers").acquire_within(Duration::from_millis(1200)).await;
        ensure!(late.is_err(), "it was to stay for its shortest time");
    }
    one.lock("lingers").acquire_within(PATIENT).await?.release().await?;
    Ok(())
}
