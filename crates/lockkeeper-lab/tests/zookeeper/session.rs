//! Sessions whose server or network fails.

use crate::raw::metric;
use crate::{LONG, PATIENT, cases, eventually, keeper, patient_server, proxy};
use anyhow::{Result, ensure};
use lockkeeper::{Keeper, LossReason};
use lockkeeper_lab::server::Lab;
use std::time::Duration;
use tokio::runtime::Runtime;

cases![
    a_restarted_server_puts_a_hold_in_jeopardy_and_no_more,
    a_server_paused_past_the_session_ends_the_claim_first,
    one_who_is_cut_off_loses_it_before_the_next_has_it,
    waiters_keep_their_places_over_a_restart,
    a_broken_connection_is_made_anew,
    a_session_that_ended_is_followed_by_another,
    a_keeper_outlives_its_runtime,
    a_closed_keeper_has_no_session_and_opens_another_when_used,
    a_session_with_claims_in_it_is_not_closed,
];

/// How many sessions the server has.
const SESSIONS: &str = "zk_global_sessions";

async fn a_restarted_server_puts_a_hold_in_jeopardy_and_no_more(lab: &Lab) -> Result<()> {
    let server = patient_server(lab)?;
    let one = keeper(&server.url(), "session=20s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    ensure!(!guard.is_in_jeopardy(), "in jeopardy from the start");
    let token = guard.token();
    server.kill()?;
    eventually("the hold is in jeopardy", async || guard.is_in_jeopardy()).await?;
    ensure!(guard.is_held(), "it was lost at once");
    server.restart()?;
    eventually("the hold is safe again", async || !guard.is_in_jeopardy()).await?;
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    let view = one.show("n").await?;
    ensure!(view.holders.len() == 1 && view.holders[0].token == token, "{view:?}");
    guard.release().await?;
    Ok(())
}

async fn a_server_paused_past_the_session_ends_the_claim_first(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(250).start()?;
    let (one, two) = (
        keeper(&server.url(), "session=2s&timeout=5s").await?,
        keeper(&server.url(), "session=2s&timeout=5s").await?,
    );
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let lock = two.lock("n").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    crate::queue_of(&one, "n", 1).await?;
    server.pause()?;
    tokio::time::timeout(PATIENT, guard.lost()).await?;
    ensure!(!guard.is_held() && guard.remaining().is_zero(), "lost, and yet held");
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.resume()?;
    let next = waiter.await??;
    ensure!(next.is_held() && next.token() > guard.token(), "the next is not the next");
    next.release().await?;
    Ok(())
}

async fn one_who_is_cut_off_loses_it_before_the_next_has_it(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(250).start()?;
    let proxy = proxy(&server, 1)?;
    let one = keeper(&format!("zookeeper://{}", proxy.address()), "session=2s&timeout=5s").await?;
    let two = keeper(&server.url(), "session=2s&timeout=5s").await?;
    for round in 0..3 {
        let guard = one.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
        proxy.partition();
        let next = two.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
        let left = guard.remaining();
        ensure!(left.is_zero() && !guard.is_held(), "round {round}: both, for {left:?}");
        ensure!(guard.lost_reason() == Some(LossReason::Expired), "{:?}", guard.lost_reason());
        proxy.heal();
        drop(guard);
        next.release().await?;
    }
    Ok(())
}

async fn waiters_keep_their_places_over_a_restart(lab: &Lab) -> Result<()> {
    let server = patient_server(lab)?;
    let one = keeper(&server.url(), "session=20s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let mut waiters = Vec::new();
    for number in 0..3 {
        let other = keeper(&server.url(), "session=20s").await?;
        let lock = other.lock("n").ttl(LONG).note(&number.to_string());
        waiters.push(tokio::spawn(async move { lock.acquire_within(PATIENT).await }));
        crate::queue_of(&one, "n", number + 1).await?;
    }
    server.kill()?;
    server.restart()?;
    eventually("the server answers", async || one.show("n").await.is_ok()).await?;
    guard.release().await?;
    let mut last = None;
    for waiter in waiters {
        let guard = waiter.await??;
        ensure!(guard.token() > last, "out of turn");
        last = guard.token();
        guard.release().await?;
    }
    Ok(())
}

async fn a_broken_connection_is_made_anew(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let proxy = proxy(&server, 2)?;
    let one = keeper(&format!("zookeeper://{}", proxy.address()), "session=10s").await?;
    let two = keeper(&server.url(), "session=10s").await?;
    for _ in 0..10 {
        let guard = one.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
        let lock = one.lock("n").ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        crate::queue_of(&two, "n", 1).await?;
        proxy.reset();
        ensure!(guard.is_held(), "a broken connection is no loss");
        guard.release().await?;
        waiter.await??.release().await?;
    }
    let view = two.show("n").await?;
    ensure!(view.holders.is_empty() && view.waiters.is_empty(), "left behind: {view:?}");
    Ok(())
}

async fn a_session_that_ended_is_followed_by_another(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(250).start()?;
    let proxy = proxy(&server, 3)?;
    let one = keeper(&format!("zookeeper://{}", proxy.address()), "session=1s&timeout=5s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    proxy.refuse(true);
    proxy.reset();
    tokio::time::timeout(PATIENT, guard.lost()).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.heal();
    let again = one.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(again.is_held() && !guard.is_held(), "two hold it");
    again.release().await?;
    Ok(())
}

async fn a_keeper_outlives_its_runtime(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let url = format!("{}?session=6s", server.url());
    let outcome = tokio::task::spawn_blocking(move || -> Result<()> {
        let (first, second) = (Runtime::new()?, Runtime::new()?);
        let keeper = first.block_on(lockkeeper::connect(&url))?;
        let guard = first.block_on(keeper.lock("n").ttl(LONG).acquire())?;
        second.block_on(async { keeper.lock("n").try_acquire().await.map(drop) })?;
        drop(first);
        second.block_on(async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            ensure!(guard.is_held(), "it was not renewed: {:?}", guard.lost_reason());
            Ok(guard.release().await?)
        })
    });
    outcome.await?
}

async fn a_closed_keeper_has_no_session_and_opens_another_when_used(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let sessions = || metric(&server.address(), SESSIONS);
    let one = keeper(&server.url(), "session=20s").await?;
    for round in 0..3 {
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        ensure!(sessions()? == 1, "round {round}: {} sessions", sessions()?);
        guard.release().await?;
        ensure!(one.close(PATIENT).await, "round {round}: not closed");
        eventually("the session is over", async || sessions().is_ok_and(|n| n == 0)).await?;
    }
    // Nothing is open, and closing that takes no time.
    ensure!(one.close(PATIENT).await, "not closed a second time");
    Ok(())
}

async fn a_session_with_claims_in_it_is_not_closed(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let store = lockkeeper::open(&format!("{}?session=20s", server.url())).await?;
    // Two keepers in one session: what one of them has the other does not know of.
    let (one, two) = (Keeper::new(store.clone())?, Keeper::new(store)?);
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let lock = one.lock("n").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    crate::queue_of(&two, "n", 1).await?;
    two.lock("another").acquire().await?.release().await?;
    ensure!(two.close(PATIENT).await, "not closed");
    ensure!(guard.is_held() && !guard.is_in_jeopardy(), "it was disturbed");
    crate::queue_of(&two, "n", 1).await?;
    guard.release().await?;
    let next = waiter.await??;
    ensure!(two.close(PATIENT).await, "not closed");
    ensure!(next.is_held() && !next.is_in_jeopardy(), "the next was disturbed");
    next.release().await?;
    ensure!(two.close(PATIENT).await, "not closed");
    let sessions = || metric(&server.address(), SESSIONS);
    eventually("the session is over", async || sessions().is_ok_and(|n| n == 0)).await
}
