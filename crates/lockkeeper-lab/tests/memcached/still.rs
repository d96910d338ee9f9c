//! A server that stands still, and what it stores on waking.

use crate::{LONG, PATIENT, SHORT, behind, cases, has, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::LossReason;
use lockkeeper::backend::Moment;
use lockkeeper_lab::proxy::{Direction, Flow};
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

cases!(
    a_hold_ends_by_our_own_clock_while_the_server_stands_still,
    what_was_asked_for_while_it_stood_still_is_kept_for_its_whole_time,
    what_was_renewed_while_it_stood_still_is_kept_for_its_whole_time,
);

async fn a_hold_ends_by_our_own_clock_while_the_server_stands_still(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("n").ttl(SHORT).acquire().await?;
    server.pause()?;
    let deadline = Moment::now() + held.remaining();
    tokio::time::timeout(PATIENT, held.lost()).await.context("the loss is noticed")?;
    ensure!(deadline.remaining().is_zero(), "it was given up before its deadline");
    ensure!(held.lost_reason() == Some(LossReason::Expired), "{:?}", held.lost_reason());
    server.resume()?;
    two.lock("n").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

/// memcached may store it with the time at which the pause began, and let go of it as soon as its
/// clock has caught up.
async fn what_was_asked_for_while_it_stood_still_is_kept_for_its_whole_time(
    lab: &Lab,
) -> Result<()> {
    let server = lab.memcached().start()?;
    let url = format!("{}?timeout=20s", server.url());
    let (one, two) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
    one.lock("other").ttl(LONG).acquire().await?.release().await?;
    for round in 0..6 {
        let name = format!("n{round}");
        server.pause()?;
        // Longer than a claim of this ttl is kept.
        tokio::time::sleep(Duration::from_millis(4300)).await;
        let lock = one.lock(&name).ttl(SHORT);
        let asking = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.resume()?;
        let held = asking.await??;
        let end = Moment::now() + Duration::from_millis(1500);
        while !end.remaining().is_zero() {
            let taken = two.lock(&name).ttl(LONG).try_acquire().await?;
            // Looked at after the answer: what it believes then it believed before.
            ensure!(taken.is_none() || !held.is_held(), "round {round}: two hold it");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ensure!(held.is_held(), "round {round}: {:?}", held.lost_reason());
        held.release().await?;
    }
    Ok(())
}

/// A renewal is on its way when the server stops, and is carried out when it wakes.
async fn what_was_renewed_while_it_stood_still_is_kept_for_its_whole_time(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let (one, proxy) = behind(&server, "20s").await?;
    let two = keeper(&server).await?;
    for round in 0..3 {
        let name = format!("n{round}");
        let ttl = Duration::from_secs(9);
        let held = one.lock(&name).ttl(ttl).acquire().await?;
        // The renewal comes after three seconds and is held back on its way; the server stops
        // meanwhile, and gets the renewal as soon as it goes on.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        proxy.set(Direction::ToServer, Flow::Hold);
        server.pause()?;
        tokio::time::sleep(Duration::from_millis(4500)).await;
        proxy.set(Direction::ToServer, Flow::Pass);
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.resume()?;
        // With the time of before the pause it would end within these.
        let end = Moment::now() + ttl;
        while !end.remaining().is_zero() {
            let taken = two.lock(&name).ttl(LONG).try_acquire().await?;
            ensure!(taken.is_none() || !held.is_held(), "round {round}: two hold it");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ensure!(held.is_held(), "round {round}: {:?}", held.lost_reason());
        held.release().await?;
        let key = format!("lockkeeper:{name}");
        eventually("it is free", async || Ok((!has(&server, &key)?).then_some(()))).await;
    }
    Ok(())
}
