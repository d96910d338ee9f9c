//! Servers that take over from others.

use crate::{LONG, PATIENT, cases, eventually, hosts, waiting};
use anyhow::{Context, Result};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases!(
    replicas_do_not_cost_a_connection_each,
    sentinels_lead_to_the_new_primary,
    a_silent_sentinel_holds_up_no_one,
    a_cluster_fails_over,
    any_seed_leads_to_a_cluster,
    names_of_every_slot_work_in_a_cluster,
    replicas_must_have_it_where_the_url_says_so,
    a_lock_that_did_not_survive_is_lost_and_tokens_still_grow,
    a_stale_sentinel_is_not_believed,
    the_latest_failover_counts_when_sentinels_are_down,
    a_demotion_while_replicas_are_waited_for_is_an_outage,
);

/// Holds a lock over a failover, has another wait for it, and takes new ones afterwards.
async fn survives(keeper: &Keeper, name: &str, fail: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = keeper.lock(name).ttl(LONG).acquire().await?;
    let lock = keeper.lock(name).ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(keeper, name, 1).await;
    // The replica has it.
    tokio::time::sleep(Duration::from_millis(200)).await;
    fail()?;
    let token = before.token();
    eventually("the holder can release", async || Ok(keeper.show(name).await.ok())).await;
    before.release().await?;
    let after = waiter.await?.context("the waiter waits still")?;
    assert!(after.token() > token, "{token:?} and then {:?}", after.token());
    after.release().await?;
    keeper.lock("new").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

async fn sentinels_lead_to_the_new_primary(lab: &Lab) -> Result<()> {
    let group = lab.redis().start_sentinel(1)?;
    let url = format!("redis+sentinel://{}/{}", hosts(&group.sentinels), group.name());
    let keeper = lockkeeper::connect(&url).await?;
    survives(&keeper, "watched", || group.primary.kill()).await?;
    // Not all of them hear of it at once, and we went by the first that did.
    eventually("the sentinels have another primary", async || {
        Ok((group.primary_port()? != group.primary.port()).then_some(()))
    })
    .await;
    let wrong = format!("redis+sentinel://{}/nobody", hosts(&group.sentinels));
    let error = lockkeeper::connect(&wrong).await.expect_err("no such primary");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("name"), "{error}");
    Ok(())
}

async fn a_silent_sentinel_holds_up_no_one(lab: &Lab) -> Result<()> {
    let group = lab.redis().start_sentinel(1)?;
    // Takes connections, as the kernel does for it, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (address, others) = (silent.local_addr()?, hosts(&group.sentinels));
    let url = format!("redis+sentinel://{address},{others}/{}", group.name());
    let direct = lockkeeper::connect(&group.primary.url()).await?;
    let keeper = lockkeeper::connect(&url).await?;
    let held = direct.lock("unheld").ttl(LONG).acquire().await?;
    let lock = keeper.lock("unheld").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&direct, "unheld", 1).await;
    // The sentinels are asked more than once in this time, by signs of life.
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(8) {
        assert_eq!(direct.show("unheld").await?.waiters.len(), 1, "it counts as dead");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.release().await?;
    waiter.await??.release().await?;
    Ok(())
}

async fn a_cluster_fails_over(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let keeper = lockkeeper::connect(&format!("redis+cluster://{}", hosts(&cluster.nodes))).await?;
    let slot = cluster.nodes[0].redis()?.ask(&["CLUSTER", "KEYSLOT", "lockkeeper:{moved}"])?;
    let slot = u16::try_from(slot.number().context("a slot")?)?;
    let master = cluster.master_of(slot, &cluster.nodes[0])?.context("a master")?;
    survives(&keeper, "moved", || master.kill()).await
}

async fn any_seed_leads_to_a_cluster(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let url = format!("redis+cluster://127.0.0.1:1,{}", hosts(&cluster.nodes));
    let keeper = lockkeeper::connect(&url).await.context("one of the seeds is dead")?;
    keeper.lock("seed").ttl(LONG).acquire().await?.release().await?;
    Ok(())
}

async fn names_of_every_slot_work_in_a_cluster(lab: &Lab) -> Result<()> {
    let cluster = lab.redis().start_cluster()?;
    let url = format!("redis+cluster://{}", hosts(&cluster.nodes));
    let (one, two) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
    let names = ["a", "b{c}d", "{}", "}{", "x{", "%7D", "über", "0", "1", "2", "3", "4", "5"];
    for name in names {
        let held = one.lock(name).ttl(LONG).acquire().await?;
        let lock = two.lock(name).ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        waiting(&one, name, 1).await;
        held.release().await?;
        std::mem::forget(waiter.await??);
    }
    let listed: Vec<_> = one.list("").await?.into_iter().map(|view| view.name).collect();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(listed.iter().map(|name| name.as_str()).collect::<Vec<_>>(), expected);
    Ok(())
}

async fn replicas_must_have_it_where_the_url_says_so(lab: &Lab) -> Result<()> {
    let group = lab.redis().start_replicated(1)?;
    let url = format!("{}?replicas=1&timeout=1s", group.primary.url());
    let keeper = lockkeeper::connect(&url).await?;
    let held = keeper.lock("safe").ttl(LONG).acquire().await?;
    let there = group.replicas[0].redis()?.ask(&["EXISTS", "lockkeeper:{safe}"])?;
    assert_eq!(there.number(), Some(1), "the replica has what was granted");
    let lock = keeper.lock("safe").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&keeper, "safe", 1).await;
    held.release().await?;
    waiter.await??.release().await?;

    group.replicas[0].pause()?;
    let error = keeper.lock("unsafe").ttl(LONG).try_acquire().await.expect_err("no replica");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("replicas"), "{error}");
    assert!(keeper.close(PATIENT).await);
    assert!(keeper.show("unsafe").await?.holders.is_empty(), "the claim was taken back");
    group.replicas[0].resume()?;
    Ok(())
}

async fn a_lock_that_did_not_survive_is_lost_and_tokens_still_grow(lab: &Lab) -> Result<()> {
    let group = lab.redis().start_sentinel(1)?;
    let url = format!("redis+sentinel://{}/{}", hosts(&group.sentinels), group.name());
    let keeper = lockkeeper::connect(&url).await?;
    // From here on the replica hears nothing, also not what is on its way.
    group.replicas[0].pause()?;
    group.primary.redis()?.ask(&["CLIENT", "KILL", "TYPE", "replica"])?;
    let held = keeper.lock("unheard").ttl(Duration::from_secs(3)).acquire().await?;
    let before = held.token().context("a token")?;
    group.primary.kill()?;
    group.replicas[0].resume()?;
    let after = eventually("another gets it", async || {
        Ok(keeper.lock("unheard").ttl(LONG).try_acquire().await?)
    })
    .await;
    assert!(after.token() > Some(before), "{before} and then {:?}", after.token());
    tokio::time::timeout(PATIENT, held.lost()).await.context("the loss is noticed")?;
    Ok(())
}

async fn replicas_do_not_cost_a_connection_each(lab: &Lab) -> Result<()> {
    let group = lab.redis().start_replicated(1)?;
    let keeper = lockkeeper::connect(&format!("{}?replicas=1", group.primary.url())).await?;
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            let lock = keeper.lock(format!("many/{n}")).ttl(LONG);
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    let mut held = Vec::new();
    let mut errors = Vec::new();
    for task in tasks {
        match task.await? {
            Ok(guard) => held.push(guard),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let said = group.primary.redis()?.ask(&["CLIENT", "LIST"])?;
    let count = said
        .text()
        .context("text")?
        .lines()
        .filter(|l| l.contains("resp=3") || l.contains("lib-name=lockkeeper"))
        .count();
    assert!(
        count < 50 && errors.is_empty(),
        "{count} connections; {} errors {:?}",
        errors.len(),
        errors.first()
    );
    Ok(())
}

/// The url of a primary that these sentinels watch.
fn watched<'a>(sentinels: impl IntoIterator<Item = &'a Server>) -> String {
    let hosts: Vec<_> = sentinels.into_iter().map(Server::address).collect();
    format!("redis+sentinel://{}/lockkeeper", hosts.join(","))
}

/// How many keys a server has.
fn keys_at(server: &Server) -> Result<i64> {
    server.redis()?.ask(&["DBSIZE"])?.number().context("a number")
}

/// A group of its own stands for what a sentinel knows that heard of no failover: it names another
/// primary, which is alive.
async fn a_stale_sentinel_is_not_believed(lab: &Lab) -> Result<()> {
    let (group, past) = (lab.redis().start_sentinel(1)?, lab.redis().start_sentinel(0)?);
    let url = watched([&past.sentinels[0], &group.sentinels[0], &group.sentinels[1]]);
    for n in 0..20 {
        let keeper = lockkeeper::connect(&url).await?;
        let held = keeper.lock(format!("at/{n}")).ttl(LONG).acquire().await?;
        assert_eq!(keys_at(&past.primary)?, 0, "keeper {n} went to the old primary");
        drop(held);
    }
    let keeper = lockkeeper::connect(&url).await?;
    let held = keeper.lock("held").ttl(Duration::from_secs(2)).acquire().await?;
    let begin = std::time::Instant::now();
    // The sentinels are asked again in this time.
    while begin.elapsed() < Duration::from_secs(8) {
        let other = keeper.lock("held").ttl(LONG).try_acquire().await?;
        assert!(other.is_none(), "two hold it, one at the old primary");
        assert_eq!(keys_at(&past.primary)?, 0, "it went to the old primary");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(held.is_held(), "{:?}", held.lost_reason());
    Ok(())
}

async fn the_latest_failover_counts_when_sentinels_are_down(lab: &Lab) -> Result<()> {
    let (group, past) = (lab.redis().start_sentinel(1)?, lab.redis().start_sentinel(0)?);
    group.fail_over()?;
    eventually("another is primary", async || {
        Ok((group.primary_port()? == group.replicas[0].port()).then_some(()))
    })
    .await;
    // Of three, one knows of the failover, one does not, and one is down.
    let down = &group.sentinels[2];
    down.kill()?;
    let url = watched([&past.sentinels[0], &group.sentinels[0], down]);
    for n in 0..10 {
        let keeper = lockkeeper::connect(&url).await?;
        let _held = keeper.lock(format!("at/{n}")).ttl(LONG).acquire().await?;
        assert_eq!(keys_at(&past.primary)?, 0, "keeper {n} went to the old primary");
    }
    // One of three that answers may be the one that is wrong.
    group.sentinels[1].kill()?;
    let url = watched([&past.sentinels[0], &group.sentinels[1], down]);
    let error = lockkeeper::connect(&url).await.expect_err("one of three is no majority");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("1 of the 3 sentinels"), "{error}");
    Ok(())
}

async fn a_demotion_while_replicas_are_waited_for_is_an_outage(lab: &Lab) -> Result<()> {
    let group = lab.redis().start_replicated(1)?;
    let (primary, replica) = (&group.primary, &group.replicas[0]);
    let url = format!("{}?replicas=1&timeout=4s", primary.url());
    let keeper = lockkeeper::connect(&url).await?;
    keeper.lock("before").ttl(LONG).acquire().await?.release().await?;
    replica.pause()?;
    let lock = keeper.lock("demoted").ttl(LONG);
    let asking = tokio::spawn(async move { lock.try_acquire().await });
    eventually("it waits for the replica", async || {
        let said = primary.redis()?.info("clients")?;
        Ok(said.contains("blocked_clients:1").then_some(()))
    })
    .await;
    primary.redis()?.ask(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()])?;
    let error = asking.await?.expect_err("it was demoted");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    // While it is one, nobody gets anything.
    let error = keeper.lock("other").ttl(LONG).try_acquire().await.expect_err("a replica");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    primary.redis()?.ask(&["REPLICAOF", "NO", "ONE"])?;
    replica.resume()?;
    assert!(keeper.close(PATIENT).await, "the claims are taken back");
    for name in ["demoted", "other"] {
        assert!(keeper.show(name).await?.holders.is_empty(), "{name} stayed behind");
    }
    Ok(())
}
