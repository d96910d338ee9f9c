//! Answers that are lost, or come late.

use crate::{LONG, PATIENT, SHORT, behind, by_hand, cases, has, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::event::EventKind;
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::proxy::{Direction, Flow};
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

cases!(
    a_claim_whose_answer_was_lost_is_withdrawn,
    a_claim_that_was_sent_twice_knows_its_own,
    a_release_whose_answer_was_lost_is_no_loss,
    a_renewal_whose_answer_was_lost_is_found_again,
    an_answer_that_comes_late_is_nobodys,
    a_connection_that_is_reset_loses_nothing,
);

const LOCK: &str = "lockkeeper:n";

async fn a_claim_whose_answer_was_lost_is_withdrawn(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let (one, proxy) = behind(&server, "500ms").await?;
    proxy.set(Direction::ToClient, Flow::Swallow);
    let error = one.lock("n").ttl(LONG).try_acquire().await.err().context("it was answered")?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(has(&server, LOCK)?, "unknown: nothing was left of it");
    proxy.heal();
    // Long before its ttl.
    eventually("it is withdrawn", async || Ok((!has(&server, LOCK)?).then_some(()))).await;
    keeper(&server).await?.lock("n").ttl(LONG).acquire().await?.release().await?;
    Ok(())
}

async fn a_claim_that_was_sent_twice_knows_its_own(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let (one, proxy) = behind(&server, "20s").await?;
    proxy.set(Direction::ToClient, Flow::Swallow);
    let lock = one.lock("n").ttl(LONG);
    let asking = tokio::spawn(async move { lock.try_acquire().await });
    eventually("the claim is stored", async || Ok(has(&server, LOCK)?.then_some(()))).await;
    // The connection breaks, and the claim is sent again on the next.
    proxy.heal();
    let held = asking.await??.context("it was kept out by itself")?;
    ensure!(held.is_held(), "{:?}", held.lost_reason());
    let shown = keeper(&server).await?.show("n").await?;
    ensure!(shown.holders[0].token == held.token(), "{shown:?} is not {:?}", held.token());
    ensure!(keeper(&server).await?.lock("n").try_acquire().await?.is_none(), "taken twice");
    held.release().await?;
    ensure!(!has(&server, LOCK)?, "the key is still there");
    Ok(())
}

async fn a_release_whose_answer_was_lost_is_no_loss(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let (one, proxy) = behind(&server, "500ms").await?;
    let mut events = one.events();
    let held = one.lock("n").ttl(LONG).acquire().await?;
    proxy.set(Direction::ToClient, Flow::Swallow);
    ensure!(held.release().await.is_err(), "unknown: it was answered");
    ensure!(!has(&server, LOCK)?, "unknown: it did not reach the server");
    proxy.heal();
    ensure!(one.close(PATIENT).await, "it insisted on and on");
    while let Ok(Some(event)) = tokio::time::timeout(SHORT / 20, events.next()).await {
        ensure!(!matches!(event.kind, EventKind::Lost(_)), "{event:?}");
    }
    Ok(())
}

async fn cas(server: &lockkeeper_lab::server::Server) -> Result<String> {
    by_hand(server, &format!("mg {LOCK} c"))
}

async fn a_renewal_whose_answer_was_lost_is_found_again(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let (one, proxy) = behind(&server, "500ms").await?;
    let held = one.lock("n").ttl(SHORT * 3).acquire().await?;
    let before = cas(&server).await?;
    proxy.set(Direction::ToClient, Flow::Swallow);
    eventually("it is renewed", async || Ok((cas(&server).await? != before).then_some(()))).await;
    proxy.heal();
    let after = cas(&server).await?;
    eventually("it is renewed again", async || Ok((cas(&server).await? != after).then_some(())))
        .await;
    ensure!(held.is_held(), "{:?}", held.lost_reason());
    held.release().await?;
    Ok(())
}

/// Held back for longer than a request may take, and delivered when others are asked.
async fn an_answer_that_comes_late_is_nobodys(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let (one, proxy) = behind(&server, "300ms").await?;
    let other = keeper(&server).await?.lock("taken").ttl(LONG).acquire().await?;
    for round in 0..10 {
        proxy.set(Direction::ToClient, Flow::Hold);
        // Its answer would be "stored".
        let name = format!("free{round}");
        let error = one.lock(&name).ttl(LONG).try_acquire().await.err().context("answered")?;
        ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
        proxy.set(Direction::ToClient, Flow::Pass);
        // The answer to this one is "not stored".
        let taken = ask(&one, "taken").await?;
        ensure!(!taken, "round {round}: the answer to another claim was believed");
    }
    ensure!(other.is_held(), "{:?}", other.lost_reason());
    other.release().await?;
    Ok(())
}

async fn ask(keeper: &Keeper, name: &str) -> Result<bool> {
    let asked = eventually("the store answers", async || {
        Ok(Some(keeper.lock(name).ttl(LONG).try_acquire().await?.is_some()))
    });
    Ok(asked.await)
}

async fn a_connection_that_is_reset_loses_nothing(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let (one, proxy) = behind(&server, "2s").await?;
    let held = one.lock("held").ttl(SHORT * 3).acquire().await?;
    for round in 0..20 {
        let name = format!("n{round}");
        let lock = one.lock(&name).ttl(LONG);
        let asking = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        proxy.reset();
        asking.await??.release().await?;
        ensure!(!has(&server, &format!("lockkeeper:{name}"))?, "{name} was left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(held.is_held(), "{:?}", held.lost_reason());
    held.release().await?;
    Ok(())
}
