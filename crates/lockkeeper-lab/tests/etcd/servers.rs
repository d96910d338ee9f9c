//! Servers that are killed, paused and started again.

use crate::{LONG, PATIENT, cases, etcdctl, eventually, keeper, keys, lost, queue_of, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::LossReason;
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases!(
    the_leader_of_three_may_be_killed,
    a_member_that_stands_still_is_left,
    a_server_paused_past_the_session_ends_what_was_held,
    a_restart_is_outlasted,
    nothing_is_left_of_what_was_asked_while_the_server_stood_still,
    nothing_comes_of_what_a_member_carries_out_late,
);

pub(crate) fn leader(servers: &[Server]) -> Result<&Server> {
    let is_leader = |server: &&Server| {
        let said = etcdctl(server, &["endpoint", "status", "--write-out=fields"]);
        said.is_ok_and(|said| {
            let field = |name: &str| {
                let line = said.lines().find(|line| line.starts_with(&format!("\"{name}\"")));
                line.and_then(|line| line.split(" : ").nth(1)).map(str::to_owned)
            };
            field("MemberID").is_some() && field("MemberID") == field("Leader")
        })
    };
    servers.iter().find(is_leader).context("nobody leads")
}

async fn the_leader_of_three_may_be_killed(lab: &Lab) -> Result<()> {
    let servers = lab.etcd().start_group(3)?;
    let (one, two) =
        (keeper(&servers[0], "session=8s").await?, keeper(&servers[0], "session=8s").await?);
    let held = one.lock("led").ttl(LONG).acquire().await?;
    let next = waiting(&two, "led");
    queue_of(&one, "led", 1).await;
    let token = held.token();
    leader(&servers)?.kill()?;
    // A heartbeat or two go to the new leader.
    tokio::time::sleep(Duration::from_secs(6)).await;
    ensure!(held.is_held(), "the hold did not outlast the leader: {:?}", held.lost_reason());
    ensure!(!next.is_finished(), "it was granted although it is held");
    held.release().await?;
    let next = next.await??;
    ensure!(next.token() > token, "{token:?} and then {:?}", next.token());
    next.release().await?;
    one.lock("another").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

async fn a_member_that_stands_still_is_left(lab: &Lab) -> Result<()> {
    let servers = lab.etcd().start_group(3)?;
    let follower = {
        let leader = leader(&servers)?.port();
        servers.iter().position(|server| server.port() != leader).context("no follower")?
    };
    let others = servers.iter().enumerate().filter(|(number, _)| *number != follower);
    let others: Vec<String> = others.map(|(_, server)| server.address()).collect();
    // The one that will stand still comes first, so it is the one in use.
    let hosts = format!("{},{}", servers[follower].address(), others.join(","));
    let one = lockkeeper::connect(&format!("etcd://{hosts}?session=8s&timeout=500ms")).await?;
    let two = lockkeeper::connect(&format!("etcd://{}?session=8s", others.join(","))).await?;
    let held = two.lock("left").ttl(LONG).acquire().await?;
    let next = waiting(&one, "left");
    queue_of(&two, "left", 1).await;
    let kept = one.lock("kept").ttl(LONG).acquire().await?;
    servers[follower].pause()?;
    tokio::time::sleep(Duration::from_secs(9)).await;
    ensure!(kept.is_held(), "{:?}", kept.lost_reason());
    held.release().await?;
    next.await??.release().await?;
    kept.release().await?;
    servers[follower].resume()
}

async fn a_server_paused_past_the_session_ends_what_was_held(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, "session=3s").await?, keeper(&server, "session=3s").await?);
    let held = one.lock("frozen").ttl(LONG).acquire().await?;
    let token = held.token();
    server.pause()?;
    lost(&held).await?;
    assert_eq!(held.lost_reason(), Some(LossReason::Expired));
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.resume()?;
    let next = eventually("the next gets it", async || {
        Ok(Some(two.lock("frozen").ttl(LONG).acquire_within(PATIENT).await?))
    })
    .await;
    ensure!(!held.is_held(), "what was lost came back");
    ensure!(next.token() > token, "{token:?} and then {:?}", next.token());
    assert!(held.release().await.is_err());
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(next.is_held(), "the late release took it from the next");
    Ok(())
}

async fn a_restart_is_outlasted(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, "session=15s").await?, keeper(&server, "session=15s").await?);
    let held = one.lock("restarted").ttl(LONG).acquire().await?;
    let next = waiting(&two, "restarted");
    queue_of(&one, "restarted", 1).await;
    server.kill()?;
    server.restart()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(held.is_held(), "{:?}", held.lost_reason());
    ensure!(!next.is_finished(), "it was granted although it is held");
    held.release().await?;
    next.await??.release().await?;
    Ok(())
}

async fn nothing_is_left_of_what_was_asked_while_the_server_stood_still(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let one = keeper(&server, "session=120s&timeout=300ms&outage=100ms").await?;
    let kept = one.lock("kept").ttl(LONG).acquire().await?;
    for round in 0..10 {
        let name = format!("asked/{round}");
        server.pause()?;
        // Its request waits in the server's socket, and so does its withdrawal.
        let asked = one.lock(&name).ttl(LONG).acquire().await;
        ensure!(asked.is_err(), "a paused server answered");
        drop(asked);
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.resume()?;
        ensure!(one.close(PATIENT).await, "the withdrawal did not end");
    }
    // The requests were all carried out or refused by now, in whatever order.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for round in 0..10 {
        let left = keys(&server, &format!("asked/{round}"))?;
        ensure!(left.is_empty(), "left behind: {left:?}");
    }
    ensure!(kept.is_held(), "{:?}", kept.lost_reason());
    kept.release().await?;
    Ok(())
}

async fn nothing_comes_of_what_a_member_carries_out_late(lab: &Lab) -> Result<()> {
    let servers = lab.etcd().start_group(3)?;
    let leader = leader(&servers)?.port();
    let (leaders, followers): (Vec<_>, Vec<_>) =
        servers.iter().partition(|server| server.port() == leader);
    let hosts: Vec<String> = followers.iter().chain(&leaders).map(|s| s.address()).collect();
    let url = format!("etcd://{}?session=120s&timeout=300ms", hosts.join(","));
    for round in 0..6 {
        // A new one, so that it begins with the member that will stand still.
        let one = lockkeeper::connect(&url).await?;
        one.lock("warm").ttl(LONG).acquire().await?.release().await?;
        let (name, tried) = (format!("late/{round}"), format!("tried/{round}"));
        followers[0].pause()?;
        let taking = (one.lock(&name).ttl(LONG), one.lock(&tried).ttl(LONG));
        let (taken, tried_it) = tokio::join!(taking.0.acquire(), taking.1.try_acquire());
        // It was asked first, and has not answered; another did.
        taken?.release().await?;
        tried_it?.context("it is free")?.release().await?;
        followers[0].resume()?;
        tokio::time::sleep(Duration::from_millis(700)).await;
        for name in [&name, &tried] {
            let left = keys(leaders[0], name)?;
            ensure!(left.is_empty(), "carried out late: {left:?}");
        }
    }
    Ok(())
}
