//! Answers that are lost on the way.

use crate::{LASTING, LONG, PATIENT, cases, eventually, keeper, keys, lost, network};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, Guard, Lock, LossReason};
use lockkeeper_lab::proxy::{Direction, Flow};
use lockkeeper_lab::server::Lab;
use std::time::Duration;
use tokio::task::JoinHandle;

cases!(
    a_connection_that_breaks_before_the_answer_is_no_second_claim,
    an_acquire_that_is_not_answered_leaves_nothing,
    a_try_that_is_not_answered_leaves_nothing,
    a_release_that_is_not_answered_is_made,
    one_who_is_cut_off_loses_before_the_next_gets_it,
);

async fn a_connection_that_breaks_before_the_answer_is_no_second_claim(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let proxy = network(&server).await?;
    let one = lockkeeper::connect(&format!("etcd://{}?{LASTING}", proxy.address())).await?;
    // The session begins with the first.
    one.lock("warm").acquire().await?.release().await?;
    proxy.set(Direction::ToClient, Flow::Hold);
    let lock = one.lock("broken").ttl(LONG);
    let taking = tokio::spawn(async move { lock.acquire().await });
    eventually(
        "the key is there",
        async || Ok((keys(&server, "broken")?.len() == 1).then_some(())),
    )
    .await;
    proxy.reset();
    proxy.set(Direction::ToClient, Flow::Pass);
    let guard = taking.await??;
    ensure!(keys(&server, "broken")?.len() == 1, "there are two");
    guard.release().await?;
    ensure!(keys(&server, "broken")?.is_empty(), "it was not given back");
    Ok(())
}

async fn an_acquire_that_is_not_answered_leaves_nothing(lab: &Lab) -> Result<()> {
    unanswered(lab, |lock| tokio::spawn(async move { lock.acquire().await.map(Some) })).await
}

async fn a_try_that_is_not_answered_leaves_nothing(lab: &Lab) -> Result<()> {
    unanswered(lab, |lock| tokio::spawn(async move { lock.try_acquire().await })).await
}

async fn unanswered(
    lab: &Lab,
    take: impl FnOnce(Lock) -> JoinHandle<lockkeeper::Result<Option<Guard>>>,
) -> Result<()> {
    let server = lab.etcd().start()?;
    let proxy = network(&server).await?;
    let url = format!("etcd://{}?{LASTING}&timeout=2s", proxy.address());
    let (one, two) = (lockkeeper::connect(&url).await?, keeper(&server, LASTING).await?);
    // Its session goes on, so nothing ends by itself.
    let kept = one.lock("kept").ttl(LONG).acquire().await?;
    proxy.set(Direction::ToClient, Flow::Swallow);
    let taken = take(one.lock("unanswered").ttl(LONG));
    eventually("the request is carried out", async || {
        Ok((keys(&server, "unanswered")?.len() == 1).then_some(()))
    })
    .await;
    let kind = taken.await?.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "a lost answer gave {kind:?}");
    proxy.heal();
    two.lock("unanswered").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    ensure!(kept.is_held(), "{:?}", kept.lost_reason());
    // And the keeper is not the worse for it.
    one.lock("unanswered").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    one.lock("unanswered").try_acquire().await?.context("busy")?.release().await?;
    Ok(())
}

async fn a_release_that_is_not_answered_is_made(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let proxy = network(&server).await?;
    let url = format!("etcd://{}?{LASTING}&timeout=500ms", proxy.address());
    let (one, two) = (lockkeeper::connect(&url).await?, keeper(&server, LASTING).await?);
    let guard = one.lock("released").ttl(LONG).acquire().await?;
    proxy.partition();
    assert!(guard.release().await.is_err());
    proxy.heal();
    two.lock("released").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

async fn one_who_is_cut_off_loses_before_the_next_gets_it(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let proxy = network(&server).await?;
    let url = format!("etcd://{}?session=3s&timeout=500ms", proxy.address());
    let (one, two) = (lockkeeper::connect(&url).await?, keeper(&server, LASTING).await?);
    let guard = one.lock("cut off").ttl(LONG).acquire().await?;
    // Past the first renewals.
    tokio::time::sleep(Duration::from_secs(4)).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    proxy.partition();
    let next = two.lock("cut off").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(guard.remaining().is_zero(), "two believe in it");
    lost(&guard).await?;
    assert_eq!(guard.lost_reason(), Some(LossReason::Expired));
    proxy.heal();
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(next.is_held(), "{:?}", next.lost_reason());
    Ok(())
}
