//! Three servers, of which some fail.

use crate::raw::{Raw, word};
use crate::{LONG, PATIENT, cases, keeper, queue_of};
use anyhow::{Context, Result, ensure};
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases![
    the_leader_may_be_killed,
    each_server_may_be_restarted_in_turn,
    a_server_cut_off_from_the_others_vouches_for_nothing,
];

pub(crate) fn leader(servers: &[Server]) -> Result<&Server> {
    let leads = |server: &&Server| {
        word(&server.address(), "srvr").is_ok_and(|text| text.contains("Mode: leader"))
    };
    servers.iter().find(leads).context("nobody leads")
}

async fn the_leader_may_be_killed(lab: &Lab) -> Result<()> {
    let servers = lab.zookeeper().tick(1000).start_ensemble(3)?;
    let url = servers[0].url();
    let mut keepers = Vec::new();
    for server in &servers {
        // One at each server, with the others to go to.
        let others = servers.iter().filter(|other| other.port() != server.port());
        let hosts: Vec<_> = std::iter::once(server).chain(others).map(Server::address).collect();
        let url = format!("zookeeper://{}", hosts.join(","));
        keepers.push(keeper(&url, "session=20s").await?);
    }
    let guard = keepers[0].lock("n").ttl(LONG).acquire().await?;
    let mut waiters = Vec::new();
    for (number, keeper) in keepers.iter().enumerate() {
        let lock = keeper.lock("n").ttl(LONG);
        waiters.push(tokio::spawn(async move { lock.acquire_within(PATIENT).await }));
        queue_of(&keepers[0], "n", number + 1).await?;
    }
    let dead = leader(&servers)?;
    dead.kill()?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    let mut last = guard.token();
    // The release may meet an ensemble that has no leader yet: then it is tried again.
    let _ = guard.release().await;
    for waiter in waiters {
        let guard = waiter.await??;
        ensure!(guard.token() > last, "{:?} came after {last:?}", guard.token());
        last = guard.token();
        guard.release().await?;
    }
    let fresh = keeper(&url, "session=20s").await?;
    let guard = fresh.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(guard.token() > last, "{:?} came after {last:?}", guard.token());
    Ok(())
}

/// It goes on answering clients that only read, though the others may have given the lock away.
async fn a_server_cut_off_from_the_others_vouches_for_nothing(lab: &Lab) -> Result<()> {
    // Long enough without its leader before it notices: ten ticks.
    let servers = lab.zookeeper().tick(2000).start_ensemble(3)?;
    let lone = servers
        .iter()
        .find(|server| {
            word(&server.address(), "srvr").is_ok_and(|text| text.contains("Mode: follower"))
        })
        .context("nobody follows")?;
    let url = format!("zookeeper://{}/l", lone.address());
    let one = keeper(&url, "session=6s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    // Renewed at least once, so that it is by renewals that it lives.
    tokio::time::sleep(Duration::from_secs(4)).await;
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    let mut raw = Raw::connect(&lone.address())?;
    let others = || servers.iter().filter(|server| server.port() != lone.port());
    for other in others() {
        other.pause()?;
    }
    let lost = tokio::time::timeout(Duration::from_secs(6), guard.lost()).await;
    ensure!(raw.children("/l/n")?.len() == 1, "unknown: it did not answer those who read");
    ensure!(lost.is_ok() && !guard.is_held(), "it was believed");
    for other in others() {
        other.resume()?;
    }
    Ok(())
}

async fn each_server_may_be_restarted_in_turn(lab: &Lab) -> Result<()> {
    let servers = lab.zookeeper().tick(1000).start_ensemble(3)?;
    let one = keeper(&servers[0].url(), "session=20s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    for server in &servers {
        server.restart()?;
        ensure!(one.lock("n").try_acquire().await.is_ok_and(|taken| taken.is_none()), "not held");
    }
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    guard.release().await?;
    Ok(())
}
