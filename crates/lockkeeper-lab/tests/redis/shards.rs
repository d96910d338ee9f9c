//! `recipe=reentrant` in a cluster, where a lock's messages are on the node that it is on.

use crate::{LONG, PATIENT, cases, eventually};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::server::{Cluster, Lab, Server};
use std::time::{Duration, Instant};

cases!(
    a_release_at_a_shard_wakes_who_waits,
    those_who_wait_at_a_shard_follow_its_failover,
    those_who_wait_at_a_shard_follow_its_primary,
    names_of_every_shard_are_listed_and_split_ones_refused,
    a_lock_that_is_broken_at_a_shard_is_heard_of_at_once,
);

/// Sooner than anyone who was not told would look again.
const SOON: Duration = Duration::from_millis(2500);

async fn keeper(cluster: &Cluster) -> Result<Keeper> {
    let hosts: Vec<_> = cluster.nodes.iter().map(Server::address).collect();
    let url = format!("redis+cluster://{}?recipe=reentrant", hosts.join(","));
    Ok(lockkeeper::connect(&url).await?)
}

/// The primary of a lock, as this node says.
fn primary_of<'a>(cluster: &'a Cluster, name: &str, asked: &Server) -> Result<&'a Server> {
    let slot = asked.redis()?.ask(&["CLUSTER", "KEYSLOT", name])?;
    let slot = u16::try_from(slot.number().context("a slot")?)?;
    cluster.master_of(slot, asked)?.context("a primary")
}

/// Waits until someone listens to the channel of the lock, at any of these nodes: also at a
/// replica it is told what is said in its shard.
async fn someone_listens(nodes: &[&Server], name: &str) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually("someone listens", async || {
        for node in nodes {
            let said = node.redis()?.ask(&["PUBSUB", "SHARDNUMSUB", &channel])?;
            if said.list().and_then(|said| said.get(1)?.number()) > Some(0) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })
    .await;
}

/// One holds, the other waits, and is told.
async fn hands_over(holder: &Keeper, waiter: &Keeper, name: &str, shard: &[&Server]) -> Result<()> {
    let held = holder.lock(name).ttl(LONG).acquire_within(PATIENT).await?;
    let lock = waiter.lock(name).ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    someone_listens(shard, name).await;
    // It looks once more when it listens; what it is told from here on is what wakes it.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let freed = Instant::now();
    held.release().await?;
    let after = waiting.await??;
    ensure!(freed.elapsed() < SOON, "{name}: it was not told, and took {:?}", freed.elapsed());
    after.release().await?;
    Ok(())
}

async fn a_release_at_a_shard_wakes_who_waits(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let (one, two) = (keeper(&cluster).await?, keeper(&cluster).await?);
    for name in ["0", "1", "2", "3", "4", "5"] {
        let node = primary_of(&cluster, name, &cluster.nodes[0])?;
        hands_over(&one, &two, name, &[node]).await?;
        hands_over(&two, &two, name, &[node]).await?;
    }
    Ok(())
}

async fn those_who_wait_at_a_shard_follow_its_failover(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let (one, two) = (keeper(&cluster).await?, keeper(&cluster).await?);
    let held = one.lock("moved").ttl(LONG).acquire().await?;
    let primary = primary_of(&cluster, "moved", &cluster.nodes[0])?;
    let lock = two.lock("moved").ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire_within(LONG).await });
    someone_listens(&[primary], "moved").await;
    // The replica has it.
    tokio::time::sleep(Duration::from_millis(200)).await;
    primary.kill()?;
    let alive = cluster.nodes.iter().find(|node| node.port() != primary.port()).context("one")?;
    let next = eventually("another is primary", async || {
        let found = primary_of(&cluster, "moved", alive)?;
        Ok((found.port() != primary.port()).then_some(found))
    })
    .await;
    someone_listens(&[next], "moved").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (token, freed) = (held.token(), Instant::now());
    held.release().await?;
    let after = waiting.await?.context("the waiter waits still")?;
    ensure!(freed.elapsed() < SOON, "it was not told, and took {:?}", freed.elapsed());
    ensure!(after.token() > token, "{token:?} and then {:?}", after.token());
    after.release().await?;
    hands_over(&two, &one, "moved", &[next]).await
}

/// A primary that steps down keeps its connections.
async fn those_who_wait_at_a_shard_follow_its_primary(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let (one, two) = (keeper(&cluster).await?, keeper(&cluster).await?);
    let primary = primary_of(&cluster, "handed", &cluster.nodes[0])?;
    let at = cluster.nodes.iter().position(|node| node.port() == primary.port()).context("one")?;
    let replica = &cluster.nodes[at + cluster.nodes.len() / 2];
    hands_over(&one, &two, "handed", &[primary]).await?;
    let held = one.lock("handed").ttl(LONG).acquire().await?;
    let lock = two.lock("handed").ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    someone_listens(&[primary], "handed").await;
    replica.redis()?.ask(&["CLUSTER", "FAILOVER"])?;
    eventually("the replica is primary", async || {
        let found = primary_of(&cluster, "handed", replica)?;
        Ok((found.port() == replica.port()).then_some(()))
    })
    .await;
    held.release().await?;
    waiting.await??.release().await?;
    // Before it knows the other as its replica, it does not pass on to it what is said.
    eventually("the primary is its replica", async || {
        let said = replica.redis()?.ask(&["CLUSTER", "SLOTS"])?;
        let ports = said.list().unwrap_or_default().iter().filter_map(|range| {
            let [_, _, first, second, ..] = range.list()? else { return None };
            Some((first.list()?.get(1)?.number()?, second.list()?.get(1)?.number()?))
        });
        let wanted = (i64::from(replica.port()), i64::from(primary.port()));
        Ok(ports.into_iter().any(|found| found == wanted).then_some(()))
    })
    .await;
    for _ in 0..3 {
        hands_over(&one, &two, "handed", &[primary, replica]).await?;
    }
    Ok(())
}

async fn names_of_every_shard_are_listed_and_split_ones_refused(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let keeper = keeper(&cluster).await?;
    let names = ["0", "1", "2", "3", "4", "5", "a", "b{c}d"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(keeper.lock(name).ttl(LONG).acquire().await?);
    }
    let listed: Vec<_> = keeper.list("").await?.into_iter().map(|view| view.name).collect();
    assert_eq!(listed.iter().map(|name| name.as_str()).collect::<Vec<_>>(), names);
    for name in ["a{b", "x{}", "a}b"] {
        let error = keeper.lock(name).try_acquire().await.expect_err("Redisson cannot");
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{name}: {error}");
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn a_lock_that_is_broken_at_a_shard_is_heard_of_at_once(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let (one, two) = (keeper(&cluster).await?, keeper(&cluster).await?);
    for name in ["0", "1", "2"] {
        // So long that no renewal comes between.
        let held = one.lock(name).ttl(Duration::from_secs(3600)).acquire().await?;
        let token = held.token().context("a token")?;
        two.break_hold(name, token, "the host is on fire").await?;
        tokio::time::timeout(PATIENT, held.lost()).await.context("the message")?;
        let error = held.release().await.expect_err("it was lost");
        assert!(error.to_string().contains("on fire"), "{error}");
    }
    Ok(())
}
