//! Operators who take keys and leases away, and forget the past.

use crate::{
    LASTING, LONG, cases, etcdctl, eventually, keeper, keys, lost, network, queue_of, waiting,
};
use anyhow::{Context, Result, ensure};
use lockkeeper::{LossReason, Mode};
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases!(
    a_deleted_key_is_lost_at_once,
    a_deleted_key_is_lost_while_others_are_held,
    a_revoked_lease_is_lost_at_once,
    one_who_waits_is_told_too,
    a_wait_outlasts_a_compaction,
    a_hold_outlasts_a_compaction_and_a_broken_connection,
    it_is_seen_since_when_claims_are_asked_for,
    closing_ends_a_session_that_nobody_uses,
    a_claim_of_a_later_version_keeps_all_others_out,
);

async fn closing_ends_a_session_that_nobody_uses(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let leases = || {
        let said = etcdctl(&server, &["lease", "list"])?;
        anyhow::Ok(said.lines().filter(|line| !line.contains("found")).count())
    };
    let one = keeper(&server, LASTING).await?;
    let held = one.lock("held").ttl(LONG).acquire().await?;
    ensure!(one.close(LONG).await, "it did not come to rest");
    ensure!(leases()? == 1 && held.is_held(), "the session went under a claim");
    held.release().await?;
    // A detached claim stays for its ttl.
    one.lock("left").ttl(Duration::from_secs(3)).acquire().await?.detach();
    ensure!(one.close(LONG).await, "it did not come to rest");
    ensure!(!keys(&server, "left")?.is_empty(), "a detached claim went with the session");
    eventually("the detached claim runs out", async || {
        Ok(keys(&server, "left")?.is_empty().then_some(()))
    })
    .await;
    ensure!(one.close(LONG).await, "it did not come to rest");
    ensure!(leases()? == 0, "the session is still there");
    one.lock("again").ttl(LONG).acquire().await?.release().await?;
    Ok(())
}

async fn a_deleted_key_is_lost_at_once(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let guard = one.lock("deleted").ttl(LONG).acquire().await?;
    let next = waiting(&two, "deleted");
    queue_of(&one, "deleted", 1).await;
    etcdctl(&server, &["del", &keys(&server, "deleted")?[0]])?;
    lost(&guard).await?;
    assert_eq!(guard.lost_reason(), Some(LossReason::Gone));
    let next = next.await??;
    assert!(next.token() > guard.token());
    assert!(guard.release().await.is_err());
    assert!(next.is_held(), "the late release took it from the next");
    Ok(())
}

async fn a_deleted_key_is_lost_while_others_are_held(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let keeper = keeper(&server, LASTING).await?;
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(keeper.lock(format!("many/{number}")).ttl(LONG).acquire().await?);
    }
    etcdctl(&server, &["del", &keys(&server, "many/17")?[0]])?;
    lost(&guards[17]).await?;
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, 49);
    Ok(())
}

async fn a_revoked_lease_is_lost_at_once(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let (first, second) = (
        one.lock("first").ttl(LONG).acquire().await?,
        one.rw_lock("second").read().ttl(LONG).acquire().await?,
    );
    let next = waiting(&two, "first");
    queue_of(&one, "first", 1).await;
    etcdctl(&server, &["lease", "revoke", &lease_of(&server, "first")?])?;
    for guard in [&first, &second] {
        lost(guard).await?;
        assert_eq!(guard.lost_reason(), Some(LossReason::Gone));
    }
    next.await??.release().await?;
    // The keeper itself goes on, with another lease.
    one.lock("first").ttl(LONG).acquire().await?.release().await?;
    Ok(())
}

fn lease_of(server: &Server, name: &str) -> Result<String> {
    let key = keys(server, name)?.into_iter().next().context("no key")?;
    let (_, last) = key.rsplit_once('/').context("no slash")?;
    Ok(last.split('-').next().unwrap_or_default().to_owned())
}

async fn one_who_waits_is_told_too(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let held = one.lock("awaited").ttl(LONG).acquire().await?;
    let first = waiting(&two, "awaited");
    queue_of(&one, "awaited", 1).await;
    let behind = waiting(&one, "awaited");
    queue_of(&one, "awaited", 2).await;
    let key = keys(&server, "awaited")?[1].clone();
    // Longer than it takes until our own key is watched.
    tokio::time::sleep(Duration::from_millis(300)).await;
    etcdctl(&server, &["del", &key])?;
    // Struck off, it goes to the end of the queue, of its own accord.
    eventually("it is behind the other", async || {
        Ok((keys(&server, "awaited")?.get(2) == Some(&key)).then_some(()))
    })
    .await;
    held.release().await?;
    let behind = behind.await??;
    ensure!(!first.is_finished(), "both were granted it");
    behind.release().await?;
    first.await??.release().await?;
    Ok(())
}

/// Writes, and has etcd forget everything up to the last write.
fn compact(server: &Server) -> Result<()> {
    for number in 0..5 {
        etcdctl(server, &["put", "other", &number.to_string()])?;
    }
    let said = etcdctl(server, &["get", "other", "--write-out=fields"])?;
    let revision = said.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
    etcdctl(server, &["compaction", revision.context("no revision")?])?;
    Ok(())
}

async fn a_wait_outlasts_a_compaction(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let proxy = network(&server).await?;
    let one = keeper(&server, LASTING).await?;
    let two = lockkeeper::connect(&format!("etcd://{}?{LASTING}", proxy.address())).await?;
    let held = one.lock("compacted").ttl(LONG).acquire().await?;
    let next = waiting(&two, "compacted");
    queue_of(&one, "compacted", 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    compact(&server)?;
    proxy.reset();
    compact(&server)?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(!next.is_finished(), "it was granted although it is held");
    held.release().await?;
    next.await??.release().await?;
    Ok(())
}

async fn a_hold_outlasts_a_compaction_and_a_broken_connection(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let proxy = network(&server).await?;
    let keeper = lockkeeper::connect(&format!("etcd://{}?{LASTING}", proxy.address())).await?;
    let guard = keeper.lock("kept").ttl(LONG).acquire().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    compact(&server)?;
    // The watch is made anew from a revision that is forgotten by now.
    proxy.reset();
    tokio::time::sleep(Duration::from_millis(700)).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    etcdctl(&server, &["del", &keys(&server, "kept")?[0]])?;
    lost(&guard).await
}

async fn it_is_seen_since_when_claims_are_asked_for(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let guard = one.lock("aged").ttl(LONG).acquire().await?;
    let next = waiting(&two, "aged");
    queue_of(&one, "aged", 1).await;
    let while_ago = Duration::from_millis(300);
    tokio::time::sleep(while_ago).await;
    let view = one.show("aged").await?;
    ensure!(view.holders[0].held_for >= while_ago, "{view:?}");
    ensure!(view.waiters[0].waiting_for >= while_ago, "{view:?}");
    guard.release().await?;
    next.await??.release().await?;
    // Another program's says nothing of the kind.
    let lease = etcdctl(&server, &["lease", "grant", "60"])?;
    let lease = lease.split_whitespace().nth(1).context("a lease")?.to_owned();
    etcdctl(&server, &["put", "--lease", &lease, &format!("lockkeeper/aged/{lease}"), ""])?;
    let view = one.show("aged").await?;
    ensure!(view.holders[0].held_for.is_zero(), "{view:?}");
    Ok(())
}

async fn a_claim_of_a_later_version_keeps_all_others_out(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let keeper = keeper(&server, LASTING).await?;
    // Whatever its mode is called then.
    let value = "lockkeeper 2\nshared\nwhatever that means";
    etcdctl(&server, &["put", "lockkeeper/later/694d8a1b2c3d4e5f", value])?;
    for lock in [keeper.lock("later"), keeper.semaphore("later", 9)] {
        ensure!(lock.try_acquire().await?.is_none(), "taken twice");
    }
    ensure!(keeper.rw_lock("later").read().try_acquire().await?.is_none(), "taken twice");
    let view = keeper.show("later").await?;
    ensure!(view.holders.len() == 1 && view.holders[0].mode == Mode::Exclusive, "{view:?}");
    ensure!(etcdctl(&server, &["get", "lockkeeper/later/694d8a1b2c3d4e5f"])?.contains(value));
    Ok(())
}
