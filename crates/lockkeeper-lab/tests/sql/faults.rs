//! Connections, servers, disks and clocks that fail.

use super::{LONG, PATIENT, keeper, network, queue_of, start, through, waiting};
use crate::{KIND, kill_sessions, query};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, LossReason};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Kind, Lab};
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

cases!(
    sessions_that_the_server_ends_cost_nothing,
    connections_that_are_reset_cost_nothing,
    a_restart_is_outlasted,
    a_server_killed_under_a_hold_comes_back_with_it,
    a_server_paused_past_the_ttl_ends_what_was_held,
    a_black_hole_ends_a_hold_in_time_and_a_wait_goes_on,
    a_clock_that_goes_back_takes_no_token_back,
    a_full_disk_is_told_and_passes,
);

async fn sessions_that_the_server_ends_cost_nothing(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let (one, two) = (keeper(&server, "").await?, keeper(&server, "").await?);
    let held = one.lock("killed").ttl(LONG).acquire().await?;
    let next = waiting(&two, "killed");
    queue_of(&one, "killed", 1).await;
    for _ in 0..3 {
        ensure!(kill_sessions(&server)? > 0, "there was no session to end");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    ensure!(held.is_held() && !next.is_finished(), "it went with its session");
    let token = held.token();
    held.release().await?;
    let next = next.await??;
    ensure!(next.token() > token, "{token:?} and then {:?}", next.token());
    next.release().await?;
    Ok(())
}

async fn connections_that_are_reset_cost_nothing(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let proxy = network(&server).await?;
    let (one, two) = (through(&proxy, "").await?, through(&proxy, "").await?);
    let held = one.lock("reset").ttl(LONG).acquire().await?;
    let next = waiting(&two, "reset");
    queue_of(&one, "reset", 1).await;
    proxy.control().reset();
    held.release().await?;
    next.await??.release().await?;
    Ok(())
}

async fn a_restart_is_outlasted(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let (one, two) = (keeper(&server, "").await?, keeper(&server, "").await?);
    let held = one.lock("restarted").ttl(LONG).acquire().await?;
    let next = waiting(&two, "restarted");
    queue_of(&one, "restarted", 1).await;
    server.stop()?;
    server.restart()?;
    ensure!(held.is_held() && !next.is_finished(), "it went with the server");
    queue_of(&one, "restarted", 1).await;
    held.release().await?;
    next.await??.release().await?;
    Ok(())
}

async fn a_server_killed_under_a_hold_comes_back_with_it(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let one = keeper(&server, "").await?;
    let held = one.lock("killed").ttl(LONG).acquire().await?;
    server.kill()?;
    server.restart()?;
    let two = keeper(&server, "").await?;
    ensure!(two.lock("killed").try_acquire().await?.is_none(), "the server forgot a grant");
    let token = held.token();
    held.release().await?;
    let next = two.lock("killed").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(next.token() > token, "{token:?} and then {:?}", next.token());
    Ok(())
}

async fn a_server_paused_past_the_ttl_ends_what_was_held(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let one = keeper(&server, "timeout=1s").await?;
    let held = one.lock("paused").ttl(Duration::from_secs(2)).acquire().await?;
    server.pause()?;
    let told = tokio::time::timeout(PATIENT, held.lost()).await;
    server.resume()?;
    ensure!(told.is_ok(), "the holder was not told");
    ensure!(held.lost_reason() == Some(LossReason::Expired), "{:?}", held.lost_reason());
    let next = keeper(&server, "").await?.lock("paused").acquire_within(PATIENT).await?;
    ensure!(next.token() > held.token(), "{:?} and then {:?}", held.token(), next.token());
    Ok(())
}

async fn a_black_hole_ends_a_hold_in_time_and_a_wait_goes_on(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let proxy = network(&server).await?;
    let (cut_off, other) = (through(&proxy, "timeout=1s").await?, keeper(&server, "").await?);
    let held = cut_off.lock("held").ttl(Duration::from_secs(3)).acquire().await?;
    let kept = other.lock("waited").ttl(LONG).acquire().await?;
    let next = waiting(&cut_off, "waited");
    queue_of(&other, "waited", 1).await;
    proxy.control().partition();
    let taken = other.lock("held").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(!held.is_held(), "two believe that they hold it");
    ensure!(taken.token() > held.token(), "{:?} {:?}", held.token(), taken.token());
    proxy.control().heal();
    kept.release().await?;
    next.await??.release().await?;
    Ok(())
}

async fn a_clock_that_goes_back_takes_no_token_back(lab: &Lab) -> Result<()> {
    let server = match KIND {
        Kind::Postgres => lab.postgres().clock().start()?,
        _ => lab.mariadb().clock().start()?,
    };
    let one = keeper(&server, "").await?;
    let before = one.lock("clock").ttl(LONG).acquire().await?;
    let token = before.token();
    before.release().await?;
    server.set_clock_back(Duration::from_secs(3600))?;
    let after = one.lock("clock").ttl(LONG).acquire().await?;
    ensure!(after.token() > token, "{token:?} and then {:?}", after.token());
    ensure!(one.lock("clock").try_acquire().await?.is_none(), "two hold it");
    let view = one.show("clock").await?;
    let left = view.holders.first().context("nobody is shown")?.expires_in;
    ensure!(left <= LONG && left > LONG / 2, "{left:?} is left");
    Ok(())
}

async fn a_full_disk_is_told_and_passes(lab: &Lab) -> Result<()> {
    let bytes = 220 << 20;
    let server = match KIND {
        Kind::Postgres => lab.postgres().disk(bytes).start()?,
        _ => lab.mariadb().disk(bytes).start()?,
    };
    let one = keeper(&server, "timeout=2s").await?;
    one.lock("before").acquire().await?.release().await?;
    server.fill_disk()?;
    // The server goes on while there is room in files that it has already.
    let table = "CREATE TABLE filler (word text)";
    let _ = query(&server, table);
    let long = "x".repeat(60_000);
    let mut refused = None;
    for _ in 0..2000 {
        if let Err(error) = query(&server, &format!("INSERT INTO filler VALUES ('{long}')")) {
            refused = Some(error);
            break;
        }
    }
    ensure!(refused.is_some(), "the disk did not get full");
    let tried = one.lock("full").ttl(LONG).note(&"y".repeat(200)).try_acquire().await;
    if let Err(error) = tried {
        let told = matches!(error.kind(), ErrorKind::Store | ErrorKind::Unavailable);
        ensure!(told, "{error:?}");
    }
    server.free_disk()?;
    if server.answers().is_err() {
        server.restart()?;
    }
    eventually("it works again", async || {
        Ok(one.lock("after").try_acquire().await.ok().flatten().map(|_| ()))
    })
    .await;
    Ok(())
}
