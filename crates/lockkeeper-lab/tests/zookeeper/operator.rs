//! What people and other programs do to the nodes.

use crate::raw::Raw;
use crate::{LONG, PATIENT, cases, eventually, keeper};
use anyhow::{Result, ensure};
use lockkeeper::{ErrorKind, LossReason};
use lockkeeper_lab::server::Lab;
use std::time::{Duration, Instant};

cases![
    a_node_deleted_by_hand_is_a_loss_at_once,
    a_waiter_whose_node_was_deleted_queues_again,
    a_lock_whose_parent_was_removed_can_be_taken,
    claims_of_another_layout_are_reported,
    recipes_do_not_overlook_each_other,
    a_late_release_spares_the_next_holder,
    a_try_at_what_is_held_writes_nothing,
];

async fn a_node_deleted_by_hand_is_a_loss_at_once(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let one = keeper(&format!("{}/l", server.url()), "session=10s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let mut raw = Raw::connect(&server.address())?;
    // Later than the first look at it, so that it is by a watch.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = Instant::now();
    let node = raw.children("/l/n")?.remove(0);
    raw.delete(&format!("/l/n/{node}"))?;
    tokio::time::timeout(PATIENT, guard.lost().cancelled()).await?;
    // The first renewal would come after a third of five seconds.
    ensure!(before.elapsed() < Duration::from_secs(1), "told after {:?}", before.elapsed());
    ensure!(guard.lost_reason() == Some(LossReason::Gone), "{:?}", guard.lost_reason());
    Ok(())
}

async fn a_waiter_whose_node_was_deleted_queues_again(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let one = keeper(&format!("{}/l", server.url()), "session=10s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let lock = one.lock("n").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    crate::queue_of(&one, "n", 1).await?;
    let mut raw = Raw::connect(&server.address())?;
    let mut nodes = raw.children("/l/n")?;
    nodes.sort_by_key(|node| node[node.len() - 10..].to_owned());
    raw.delete(&format!("/l/n/{}", nodes[1]))?;
    guard.release().await?;
    waiter.await??.release().await?;
    Ok(())
}

async fn a_lock_whose_parent_was_removed_can_be_taken(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let one = keeper(&format!("{}/a/b", server.url()), "session=10s").await?;
    let mut raw = Raw::connect(&server.address())?;
    let mut last = None;
    for _ in 0..3 {
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        ensure!(guard.token() > last, "{:?} came after {last:?}", guard.token());
        last = guard.token();
        guard.release().await?;
        for node in ["/a/b/n", "/a/b", "/a"] {
            raw.delete(node)?;
        }
    }
    Ok(())
}

async fn claims_of_another_layout_are_reported(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let mut raw = Raw::connect(&server.address())?;
    raw.create("/l", false)?;
    let curator = keeper(&format!("{}/l", server.url()), "session=10s").await?;
    let kazoo = keeper(&format!("{}/l", server.url()), "session=10s&layout=kazoo").await?;
    for (name, child, mistaken, right) in [
        ("k", "0123456789abcdef0123456789abcdef__lock__0000000000", &curator, &kazoo),
        ("c", "_c_658e40f9-714a-4667-8607-f50059b5ee9d-lock-0000000000", &kazoo, &curator),
    ] {
        raw.create(&format!("/l/{name}"), false)?;
        raw.create(&format!("/l/{name}/{child}"), true)?;
        for outcome in [
            mistaken.lock(name).acquire_within(PATIENT).await.map(drop),
            mistaken.lock(name).try_acquire().await.map(drop),
        ] {
            let error = outcome.err().map(|error| (error.kind(), error.to_string()));
            let told =
                matches!(&error, Some((ErrorKind::Config, text)) if text.contains("layout="));
            ensure!(told, "{name}: {error:?}");
        }
        ensure!(right.lock(name).try_acquire().await?.is_none(), "{name} is not held");
        let left = async || raw.children(&format!("/l/{name}")).is_ok_and(|nodes| nodes.len() == 1);
        eventually("nothing of the refused is left", left).await?;
    }
    Ok(())
}

async fn recipes_do_not_overlook_each_other(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let fair = keeper(&server.url(), "session=10s").await?;
    let single = keeper(&server.url(), "session=10s&recipe=ephemeral").await?;
    for (one, two) in [(&fair, &single), (&single, &fair)] {
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        let refused = two.lock("n").try_acquire().await.err().map(|error| error.kind());
        ensure!(refused == Some(ErrorKind::Config), "{refused:?}");
        guard.release().await?;
    }
    Ok(())
}

async fn a_late_release_spares_the_next_holder(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let options = "session=10s&recipe=ephemeral";
    let one = keeper(&format!("{}/l", server.url()), options).await?;
    let two = keeper(&format!("{}/l", server.url()), options).await?;
    let mut raw = Raw::connect(&server.address())?;
    for _ in 0..10 {
        let first = one.lock("n").ttl(LONG).acquire().await?;
        raw.delete("/l/n/lock")?;
        let second = two.lock("n").ttl(LONG).try_acquire().await?;
        ensure!(second.is_some(), "what was deleted is not free");
        // The first does not know yet, or does: either way the node is not its own.
        let _ = first.release().await;
        ensure!(raw.children("/l/n")? == ["lock"], "a late release took it from the next");
        drop(second);
        ensure!(two.close(PATIENT).await, "it was not given back");
    }
    Ok(())
}

async fn a_try_at_what_is_held_writes_nothing(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    for recipe in ["fair", "barging", "ephemeral"] {
        let options = format!("session=20s&recipe={recipe}");
        let one = keeper(&format!("{}/{recipe}", server.url()), &options).await?;
        let two = keeper(&format!("{}/{recipe}", server.url()), &options).await?;
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        let zxid = || -> Result<Option<String>> {
            let text = crate::raw::word(&server.address(), "srvr")?;
            Ok(text.lines().find(|line| line.starts_with("Zxid")).map(str::to_owned))
        };
        let before = zxid()?;
        for _ in 0..20 {
            ensure!(two.lock("n").try_acquire().await?.is_none(), "it is not held");
        }
        ensure!(before.is_some() && zxid()? == before, "{recipe}: a try wrote something");
        guard.release().await?;
    }
    Ok(())
}
