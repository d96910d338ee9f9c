//! `redis+cluster://` while a node is silent or gone, while slots move, and with few rights.

use crate::{LONG, PATIENT, cases, eventually, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::server::{Cluster, Lab, Server};
use std::time::{Duration, Instant};

cases!(
    a_silent_node_costs_only_the_locks_on_it,
    one_host_is_enough_although_it_dies,
    a_lock_lives_through_the_move_of_its_slot,
    a_shared_lock_lives_through_the_move_of_its_slot,
    the_documented_rights_are_enough,
);

/// A hold that is not renewed for so long is lost.
const SHORT: Duration = Duration::from_secs(3);

async fn keeper(nodes: &[Server]) -> Result<Keeper> {
    let hosts: Vec<_> = nodes.iter().map(Server::address).collect();
    Ok(lockkeeper::connect(&format!("redis+cluster://{}", hosts.join(","))).await?)
}

fn slot_of(cluster: &Cluster, key: &str) -> Result<u16> {
    let slot = cluster.nodes[1].redis()?.ask(&["CLUSTER", "KEYSLOT", key])?;
    Ok(u16::try_from(slot.number().context("a slot")?)?)
}

/// A name whose key is on the master of this number, and which differs for each `n`.
fn name_at(cluster: &Cluster, master: usize, n: usize) -> Result<String> {
    for number in 0.. {
        let name = format!("{n}/{number}");
        let slot = slot_of(cluster, &format!("lockkeeper:{{{name}}}"))?;
        if cluster.master_of(slot, &cluster.nodes[1])?.map(Server::port)
            == Some(cluster.nodes[master].port())
        {
            return Ok(name);
        }
    }
    unreachable!("the numbers do not end")
}

async fn a_silent_node_costs_only_the_locks_on_it(lab: &Lab) -> Result<()> {
    // Its replica stays one, so that the node is missed for as long as it is silent.
    let plan = lab.redis().config("cluster-replica-no-failover yes");
    let cluster = plan.config("cluster-require-full-coverage no").start_cluster()?;
    let keeper = keeper(&cluster.nodes).await?;
    let (there, silent) = (name_at(&cluster, 1, 0)?, name_at(&cluster, 0, 1)?);
    let held = keeper.lock(&there).ttl(SHORT).acquire().await?;
    keeper.lock(&silent).ttl(SHORT).acquire().await?.release().await?;
    cluster.nodes[0].pause()?;
    let begin = Instant::now();
    let knocking = async {
        while begin.elapsed() < 3 * SHORT {
            ensure!(keeper.lock(&silent).ttl(SHORT).try_acquire().await.is_err(), "answered");
        }
        Ok(())
    };
    let mut answers = 0;
    let working = async {
        while begin.elapsed() < 3 * SHORT {
            ensure!(keeper.lock(&there).ttl(SHORT).try_acquire().await?.is_none(), "not held");
            answers += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    let (knocked, worked) = tokio::join!(knocking, working);
    cluster.nodes[0].resume()?;
    knocked?;
    worked.context("at the healthy node")?;
    ensure!(held.is_held(), "lost, although its node was well: {:?}", held.lost_reason());
    // A waiter of the silent node waits for two seconds each time.
    ensure!(answers > 30, "the healthy node answered only {answers} times");
    held.release().await?;
    Ok(())
}

async fn one_host_is_enough_although_it_dies(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let keeper = keeper(&cluster.nodes[..1]).await?;
    let (there, gone) = (name_at(&cluster, 1, 0)?, name_at(&cluster, 0, 1)?);
    for name in [&there, &gone] {
        keeper.lock(name).ttl(LONG).acquire().await?.release().await?;
    }
    // Not a word of it, so that the connection is given up; and there is no other host to turn to
    // but those that it told of.
    cluster.nodes[0].pause()?;
    for name in [&there, &gone] {
        eventually("it is reached", async || {
            let Ok(Some(guard)) = keeper.lock(name).ttl(LONG).try_acquire().await else {
                return Ok(None);
            };
            guard.release().await?;
            Ok(Some(()))
        })
        .await;
    }
    // Messages are heard again too.
    let held = keeper.lock(&there).ttl(LONG).acquire().await?;
    let lock = keeper.lock(&there).ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&keeper, &there, 1).await;
    held.release().await?;
    waiter.await??.release().await?;
    cluster.nodes[0].resume()?;
    Ok(())
}

/// A slot on its way from the first master to the second.
struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
}

impl<'a> Move<'a> {
    fn begin(cluster: &'a Cluster, name: &str) -> Result<Self> {
        let slot = slot_of(cluster, &format!("lockkeeper:{{{name}}}"))?.to_string();
        let [from, to, ..] = &cluster.nodes[..] else { unreachable!("it has six") };
        let (from_id, to_id) = (id_of(from)?, id_of(to)?);
        to.redis()?.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])?;
        from.redis()?.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])?;
        Ok(Self { cluster, slot })
    }

    /// Moves what is there by now.
    fn keys(&self) -> Result<usize> {
        let [from, to, ..] = &self.cluster.nodes[..] else { unreachable!("it has six") };
        let mut redis = from.redis()?;
        let found = redis.ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"])?;
        let keys: Vec<_> = found.list().unwrap_or_default().iter().flat_map(|k| k.text()).collect();
        for key in &keys {
            let port = to.port().to_string();
            redis.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])?;
        }
        Ok(keys.len())
    }

    fn end(self) -> Result<()> {
        let to = id_of(&self.cluster.nodes[1])?;
        for node in [&self.cluster.nodes[1], &self.cluster.nodes[0], &self.cluster.nodes[2]] {
            node.redis()?.ask(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &to])?;
        }
        Ok(())
    }
}

fn id_of(node: &Server) -> Result<String> {
    Ok(node.redis()?.ask(&["CLUSTER", "MYID"])?.text().context("an id")?.to_owned())
}

async fn a_lock_lives_through_the_move_of_its_slot(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let (one, two) = (keeper(&cluster.nodes).await?, keeper(&cluster.nodes).await?);
    let name = name_at(&cluster, 0, 0)?;
    let held = one.lock(&name).ttl(SHORT).acquire().await?;
    let moving = Move::begin(&cluster, &name)?;
    // Still where it was, for longer than it would last by itself.
    tokio::time::sleep(SHORT + SHORT / 2).await;
    ensure!(held.is_held(), "lost before it moved: {:?}", held.lost_reason());
    // Who waits for it there cannot be noted where nobody waited before: that is an outage.
    match two.lock(&name).try_acquire().await {
        Ok(None) => {}
        Err(error) => ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}"),
        Ok(Some(_)) => anyhow::bail!("two have it"),
    }
    // Given back and taken again while it is still there.
    held.release().await?;
    let held = two.lock(&name).ttl(SHORT).try_acquire().await?.context("it was free")?;
    ensure!(moving.keys()? > 0, "there was nothing to move");
    tokio::time::sleep(SHORT + SHORT / 2).await;
    ensure!(held.is_held(), "lost when it moved: {:?}", held.lost_reason());
    // At its new place others wait for it, while the slot is still moving.
    let lock = one.lock(&name).ttl(SHORT);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&two, &name, 1).await;
    let token = held.token();
    held.release().await?;
    let held = waiter.await??;
    ensure!(held.token() > token, "{token:?} and then {:?}", held.token());
    moving.keys()?;
    moving.end()?;
    tokio::time::sleep(SHORT + SHORT / 2).await;
    ensure!(held.is_held(), "lost after the move: {:?}", held.lost_reason());
    held.release().await?;
    two.lock(&name).ttl(SHORT).try_acquire().await?.context("it was free")?.release().await?;
    Ok(())
}

/// As a lock of Redisson, which has other keys.
async fn a_shared_lock_lives_through_the_move_of_its_slot(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let hosts: Vec<_> = cluster.nodes.iter().map(Server::address).collect();
    let url = format!("redis+cluster://{}?recipe=reentrant", hosts.join(","));
    let keeper = lockkeeper::connect(&url).await?;
    // The same tag, and so the same slot.
    let name = name_at(&cluster, 0, 0)?;
    let held = keeper.lock(&name).ttl(SHORT).acquire().await?;
    let moving = Move::begin(&cluster, &name)?;
    tokio::time::sleep(SHORT + SHORT / 2).await;
    ensure!(held.is_held(), "lost before it moved: {:?}", held.lost_reason());
    ensure!(moving.keys()? > 0, "there was nothing to move");
    tokio::time::sleep(SHORT + SHORT / 2).await;
    ensure!(held.is_held(), "lost when it moved: {:?}", held.lost_reason());
    held.release().await?;
    let held = keeper.lock(&name).ttl(SHORT).try_acquire().await?.context("it was free")?;
    moving.keys()?;
    moving.end()?;
    tokio::time::sleep(SHORT + SHORT / 2).await;
    ensure!(held.is_held(), "lost after the move: {:?}", held.lost_reason());
    held.release().await?;
    Ok(())
}

async fn the_documented_rights_are_enough(lab: &Lab) -> Result<()> {
    let user = format!("user app on >secret {}", crate::RIGHTS);
    let cluster = lab.redis().config(&user).start_cluster()?;
    let hosts: Vec<_> = cluster.nodes.iter().map(Server::address).collect();
    let url = format!("redis+cluster://app:secret@{}", hosts.join(","));
    let (one, two) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
    for master in 0..3 {
        crate::rights::do_everything(&one, &two, &name_at(&cluster, master, 0)?).await?;
    }
    Ok(())
}
