//! Servers that die, stand still, and come back without a memory of locks.

use crate::{LONG, PATIENT, Recipe, every, lost, network, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::Moment;
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Kind, Lab};
use std::time::Duration;

every!(
    a_killed_server_is_told_to_the_holder_at_once,
    a_server_that_came_back_grants_nothing_that_may_still_be_believed,
    a_server_that_stands_still_loses_the_lock_to_nobody,
    a_restart_is_outlasted_by_who_waits,
);

cases!(
    a_promoted_standby_grants_nothing_that_may_still_be_believed,
    a_crash_of_one_session_is_no_way_to_a_second_holder,
);

async fn a_killed_server_is_told_to_the_holder_at_once(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    let one = recipe.keeper(&server.url(), "session=60s").await?;
    let guard = one.lock("killed").ttl(LONG).acquire().await?;
    server.kill()?;
    if recipe.kind == Kind::Postgres {
        // The driver tells; that of MariaDB tells with the first request that fails.
        tokio::time::timeout(Duration::from_secs(10), guard.lost())
            .await
            .context("the holder was not told before its first renewal")?;
    }
    server.restart()?;
    lost(&guard).await?;
    Ok(())
}

async fn a_server_that_came_back_grants_nothing_that_may_still_be_believed(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    // The holder gets no word of the server's end.
    let one = recipe.keeper(&url, "session=6s").await?;
    let guard = one.lock("believed").ttl(LONG).acquire().await?;
    proxy.control().partition();
    server.kill()?;
    server.restart()?;
    let two = recipe.keeper(&server.url(), "session=2s").await?;
    let mut early = 0;
    while guard.is_held() {
        early += 1;
        let taken = two.lock("believed").try_acquire().await?;
        ensure!(taken.is_none() || !guard.is_held(), "granted while another may believe in it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(early > 3, "unknown: the restart took longer than the lease");
    two.lock("believed").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

async fn a_server_that_stands_still_loses_the_lock_to_nobody(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let one = recipe.keeper(&server.url(), "session=2s&timeout=1s").await?;
    let two = recipe.keeper(&server.url(), "session=2s&timeout=1s").await?;
    let guard = one.lock("still").ttl(LONG).acquire().await?;
    let next = waiting(&two, "still");
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.pause()?;
    lost(&guard).await?;
    let over = Moment::now();
    server.resume()?;
    let next = next.await??;
    ensure!(Moment::now() > over && next.is_held(), "the next has nothing");
    next.release().await?;
    Ok(())
}

async fn a_restart_is_outlasted_by_who_waits(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    let one = recipe.keeper(&server.url(), "session=2s").await?;
    let two = recipe.keeper(&server.url(), "session=2s").await?;
    let guard = one.lock("outlasted").ttl(LONG).acquire().await?;
    let next = waiting(&two, "outlasted");
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.restart()?;
    lost(&guard).await?;
    let next = next.await??;
    ensure!(next.token() > guard.token(), "{:?} after {:?}", next.token(), guard.token());
    next.release().await?;
    Ok(())
}

async fn a_promoted_standby_grants_nothing_that_may_still_be_believed(lab: &Lab) -> Result<()> {
    let recipe = Recipe { kind: Kind::Postgres, name: "advisory" };
    let pair = lab.postgres().start_replicated()?;
    let (proxy, url) = network(&pair.primary).await?;
    let one = recipe.keeper(&url, "session=8s").await?;
    let guard = one.lock("promoted").ttl(LONG).acquire().await?;
    pair.await_standby()?;
    proxy.control().partition();
    pair.primary.kill()?;
    pair.promote()?;
    let two = recipe.keeper(&pair.standby.url(), "session=2s").await?;
    let mut early = 0;
    while guard.is_held() {
        early += 1;
        let taken = two.lock("promoted").try_acquire().await?;
        ensure!(taken.is_none() || !guard.is_held(), "granted while another may believe in it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(early > 3, "unknown: the promotion took longer than the lease");
    let next = two.lock("promoted").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(next.token() > guard.token(), "the tokens went back");
    next.release().await?;
    Ok(())
}

/// When a session crashes, PostgreSQL ends all others and forgets locks and unlogged tables, without a
/// new start of its own.
async fn a_crash_of_one_session_is_no_way_to_a_second_holder(lab: &Lab) -> Result<()> {
    for name in ["advisory", "for-update"] {
        let recipe = Recipe { kind: Kind::Postgres, name };
        let server = recipe.start(lab)?;
        let (proxy, url) = network(&server).await?;
        let one = recipe.keeper(&url, "session=6s").await?;
        let guard = one.lock("crashed").ttl(LONG).acquire().await?;
        proxy.control().partition();
        let ours = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lockkeeper' LIMIT 1";
        let pid = recipe.query(&server, ours)?.pop().context("unknown: there is no session")?;
        let killed = std::process::Command::new("kill").args(["-9", &pid]).status()?;
        ensure!(killed.success(), "unknown: the session was not killed");
        let two = loop {
            match recipe.keeper(&server.url(), "session=2s").await {
                Ok(keeper) => break keeper,
                // It recovers.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let mut early = 0;
        while guard.is_held() {
            let taken = two.lock("crashed").try_acquire().await?;
            ensure!(taken.is_none() || !guard.is_held(), "{name}: two hold it");
            early += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(early > 3, "unknown: the server took longer than the lease to recover");
        let next = two.lock("crashed").ttl(LONG).acquire_within(PATIENT).await?;
        ensure!(next.token() > guard.token(), "{name}: the tokens went back");
        next.release().await?;
    }
    Ok(())
}
