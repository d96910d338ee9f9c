//! Others who use a lock's node for something else, and rights and nodes that are not there.

use crate::raw::Raw;
use crate::{LONG, PATIENT, cases, eventually, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, LossReason};
use lockkeeper_lab::server::Lab;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;

cases![
    nodes_of_another_recipe_are_reported,
    a_holder_is_told_of_one_who_does_not_see_it,
    one_who_is_refused_disturbs_no_holder,
    a_lock_whose_nodes_are_reaped_under_it_is_not_denied,
    below_a_node_that_we_may_not_write_to_it_is_denied,
    what_the_store_no_longer_has_is_not_released,
];

/// No reason to wait for anything.
const SOON: Duration = Duration::from_secs(10);

const LATCH: &str = "_c_658e40f9-714a-4667-8607-f50059b5ee9d-latch-0000000000";
/// What a later version might call a claim, if it changed the layout.
const LATER: &str = "_c_658e40f9-714a-4667-8607-f50059b5ee9d-claim-0000000000";
const LEASES: &str = "leases";
const KAZOOS_LEASE: &str = "0123456789abcdef0123456789abcdef";

async fn nodes_of_another_recipe_are_reported(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let mut raw = Raw::connect(&server.address())?;
    raw.create("/l", false)?;
    for (index, child) in [LATCH, LEASES, KAZOOS_LEASE, LATER].into_iter().enumerate() {
        let name = index.to_string();
        raw.create(&format!("/l/{name}"), false)?;
        raw.create(&format!("/l/{name}/{child}"), false)?;
        for layout in ["curator", "kazoo"] {
            let url = format!("{}/l", server.url());
            let ours = keeper(&url, &format!("session=10s&layout={layout}")).await?;
            for outcome in [
                ours.lock(&name).acquire_within(PATIENT).await.map(drop),
                ours.lock(&name).try_acquire().await.map(drop),
                ours.rw_lock(&name).read().try_acquire().await.map(drop),
            ] {
                let error = outcome.err().map(|error| (error.kind(), error.to_string()));
                let told =
                    matches!(&error, Some((ErrorKind::Config, text)) if text.contains(child));
                ensure!(told, "{layout}, {child}: {error:?}");
            }
            // What has nothing to do with it is taken, and listed.
            let guard = ours.lock("free").ttl(LONG).acquire().await?;
            let listed = ours.list("").await?;
            ensure!(listed.len() == 1 && listed[0].name.as_str() == "free", "{listed:?}");
            guard.release().await?;
        }
        let alone = async || raw.children(&format!("/l/{name}")).is_ok_and(|c| c == [child]);
        eventually("nothing of the refused is left", alone).await?;
    }
    Ok(())
}

async fn a_holder_is_told_of_one_who_does_not_see_it(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let mut raw = Raw::connect(&server.address())?;
    for recipe in ["fair", "ephemeral"] {
        let url = format!("{}/{recipe}", server.url());
        let ours = keeper(&url, &format!("session=2s&recipe={recipe}")).await?;
        let guard = ours.lock("n").ttl(LONG).acquire().await?;
        raw.create(&format!("/{recipe}/n/{LATCH}"), false)?;
        timeout(PATIENT, guard.lost()).await?;
        let reason = guard.lost_reason();
        let told = matches!(&reason, Some(LossReason::Broken { reason }) if reason.contains(LATCH));
        ensure!(told, "{recipe}: {reason:?}");
    }
    Ok(())
}

async fn one_who_is_refused_disturbs_no_holder(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let url = format!("{}/l", server.url());
    let holder = keeper(&url, "session=2s&layout=kazoo").await?;
    let mistaken = keeper(&url, "session=10s&layout=curator").await?;
    let guard = holder.lock("n").ttl(LONG).acquire().await?;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        let refused = mistaken.lock("n").acquire_within(PATIENT).await.err();
        let kind = refused.map(|error| error.kind());
        ensure!(kind == Some(ErrorKind::Config), "{kind:?}");
    }
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    guard.release().await?;
    Ok(())
}

/// ZooKeeper removes containers that are empty, at whatever moment.
async fn a_lock_whose_nodes_are_reaped_under_it_is_not_denied(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let mut raw = Raw::connect(&server.address())?;
    let (done, reaped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let reaper = {
        let (done, reaped) = (done.clone(), reaped.clone());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for node in ["/l/m/n", "/l/m/e", "/l/m", "/l"] {
                    reaped.fetch_add(usize::from(raw.delete(node).is_ok()), Ordering::Relaxed);
                }
            }
        })
    };
    let mut tasks = Vec::new();
    for recipe in ["fair", "fair", "ephemeral", "ephemeral"] {
        let url = format!("{}/l/m", server.url());
        let ours = keeper(&url, &format!("session=10s&recipe={recipe}")).await?;
        let lock = ours.lock(if recipe == "fair" { "n" } else { "e" }).ttl(LONG);
        tasks.push(tokio::spawn(async move {
            let (begin, mut holds) = (Instant::now(), 0);
            // However long ten of them take on a busy machine.
            while holds <= 10 || begin.elapsed() < Duration::from_secs(3) {
                let guard = lock
                    .acquire_within(PATIENT)
                    .await
                    .with_context(|| format!("recipe={recipe}, after {holds} holds"))?;
                guard.release().await?;
                holds += 1;
                // For the others to leave too, so that it is empty.
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            anyhow::Ok(())
        }));
    }
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await?);
    }
    done.store(true, Ordering::Relaxed);
    ensure!(reaper.join().is_ok(), "no reaper");
    outcomes.into_iter().collect::<Result<()>>()?;
    ensure!(reaped.load(Ordering::Relaxed) > 10, "unknown: nothing was reaped");
    Ok(())
}

async fn below_a_node_that_we_may_not_write_to_it_is_denied(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let mut raw = Raw::connect(&server.address())?;
    raw.create_closed("/closed")?;
    for root in ["/closed", "/closed/below", "/closed/far/below"] {
        for recipe in ["fair", "ephemeral"] {
            let url = format!("{}{root}", server.url());
            let ours = keeper(&url, &format!("session=10s&recipe={recipe}")).await?;
            let lock = ours.lock("n");
            for outcome in [
                timeout(SOON, lock.acquire_within(PATIENT)).await.map(|told| told.map(drop)),
                timeout(SOON, lock.try_acquire()).await.map(|told| told.map(drop)),
            ] {
                let told = outcome.with_context(|| format!("{root}, {recipe}: not told"))?;
                let kind = told.err().map(|error| error.kind());
                ensure!(kind == Some(ErrorKind::Denied), "{root}, {recipe}: {kind:?}");
            }
        }
    }
    Ok(())
}

async fn what_the_store_no_longer_has_is_not_released(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let mut raw = Raw::connect(&server.address())?;
    for recipe in ["fair", "ephemeral"] {
        let url = format!("{}/{recipe}", server.url());
        let ours = keeper(&url, &format!("session=10s&recipe={recipe}")).await?;
        for _ in 0..10 {
            let guard = ours.lock("n").ttl(LONG).acquire().await?;
            // Often before the node is watched: then only the release can tell.
            let node = raw.children(&format!("/{recipe}/n"))?.remove(0);
            raw.delete(&format!("/{recipe}/n/{node}"))?;
            let kind = guard.release().await.err().map(|error| error.kind());
            ensure!(kind == Some(ErrorKind::Lost), "{recipe}: {kind:?}");
        }
        ours.lock("n").ttl(LONG).acquire().await?.release().await?;
    }
    Ok(())
}
