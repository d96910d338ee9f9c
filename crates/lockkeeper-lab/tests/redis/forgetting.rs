//! Redis that forgets: restarts, flushes, clocks.

use crate::{LONG, PATIENT, cases, keeper};
use anyhow::{Context, Result};
use lockkeeper::{FencingToken, Keeper};
use lockkeeper_lab::server::Lab;
use std::time::Duration;

cases!(
    a_durable_server_keeps_locks_over_a_crash,
    what_a_server_forgot_is_lost_and_tokens_still_grow,
    a_flush_is_noticed_and_tokens_still_grow,
    tokens_grow_while_the_clock_goes_back,
    a_token_ahead_of_the_clock_outlives_its_lock,
    the_dead_cost_no_more_when_the_clock_goes_back,
);

async fn token(keeper: &Keeper, name: &str) -> Result<FencingToken> {
    let guard = keeper.lock(name).ttl(LONG).acquire_within(PATIENT).await?;
    let token = guard.token().context("a token")?;
    guard.release().await?;
    Ok(token)
}

async fn a_durable_server_keeps_locks_over_a_crash(lab: &Lab) -> Result<()> {
    let server = lab.redis().durable().start()?;
    let keeper = keeper(&server).await?;
    let held = keeper.lock("kept").ttl(LONG).acquire().await?;
    let read = keeper.rw_lock("read").read().ttl(LONG).acquire().await?;
    let before = token(&keeper, "free").await?;
    server.kill()?;
    server.restart()?;
    assert!(keeper.lock("kept").try_acquire().await?.is_none());
    assert!(keeper.rw_lock("read").write().try_acquire().await?.is_none());
    held.release().await?;
    read.release().await?;
    assert!(keeper.lock("kept").try_acquire().await?.is_some());
    assert!(token(&keeper, "free").await? > before);
    Ok(())
}

async fn what_a_server_forgot_is_lost_and_tokens_still_grow(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = keeper(&server).await?;
    let held = keeper.lock("forgotten").ttl(Duration::from_secs(2)).acquire().await?;
    let before = held.token().context("a token")?;
    server.kill()?;
    server.restart_empty()?;
    tokio::time::timeout(PATIENT, held.lost()).await.context("the loss is noticed")?;
    let after = keeper.lock("forgotten").ttl(LONG).acquire_within(PATIENT).await?;
    assert!(after.token() > Some(before), "{before} and then {:?}", after.token());
    Ok(())
}

async fn a_flush_is_noticed_and_tokens_still_grow(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = keeper(&server).await?;
    // As many as fit, so that a counter alone would be far ahead of any clock.
    let mut last = token(&keeper, "flushed").await?;
    for _ in 0..500 {
        last = last.max(token(&keeper, "flushed").await?);
    }
    let held = keeper.lock("flushed").ttl(Duration::from_secs(2)).acquire().await?;
    last = last.max(held.token().context("a token")?);
    server.redis()?.ask(&["FLUSHALL"])?;
    assert!(token(&keeper, "flushed").await? > last);
    tokio::time::timeout(PATIENT, held.lost()).await.context("the loss is noticed")?;
    Ok(())
}

async fn tokens_grow_while_the_clock_goes_back(lab: &Lab) -> Result<()> {
    let server = lab.redis().clock().start()?;
    let keeper = keeper(&server).await?;
    let before = token(&keeper, "back").await?;
    server.set_clock_back(Duration::from_secs(3600))?;
    let after = token(&keeper, "back").await?;
    assert!(after > before, "{before} and then {after}");
    assert!(token(&keeper, "back").await? > after);
    // Forgotten and gone back at once: then the keeper's own memory is all there is.
    server.redis()?.ask(&["FLUSHALL"])?;
    server.set_clock_back(Duration::from_secs(7200))?;
    assert!(token(&keeper, "back").await? > after);
    Ok(())
}

async fn a_token_ahead_of_the_clock_outlives_its_lock(lab: &Lab) -> Result<()> {
    let server = lab.redis().clock().start()?;
    for crash in [false, true] {
        let name = format!("ahead/{crash}");
        server.set_clock_back(Duration::ZERO)?;
        // Each keeper knows of its own tokens, so that each is used once.
        let first = token(&keeper(&server).await?, &name).await?;
        server.set_clock_back(Duration::from_secs(3600))?;
        let two = keeper(&server).await?;
        let guard = two.lock(&name).ttl(Duration::from_secs(1)).acquire().await?;
        let second = guard.token().context("a token")?;
        if crash {
            guard.detach();
        } else {
            guard.release().await?;
            // As if more than a minute had passed.
            server.set_clock_back(Duration::from_secs(3600 - 70))?;
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let third = token(&keeper(&server).await?, &name).await?;
        assert!(first < second && second < third, "crash {crash}: {first}, {second}, {third}");
    }
    Ok(())
}

async fn the_dead_cost_no_more_when_the_clock_goes_back(lab: &Lab) -> Result<()> {
    let server = lab.redis().clock().start()?;
    let keeper = keeper(&server).await?;
    let ttl = Duration::from_secs(3);
    // Those who will not be heard of again: holders of two kinds, and one who waits.
    keeper.lock("crashed").ttl(ttl).acquire().await?.detach();
    keeper.rw_lock("read").read().ttl(ttl).acquire().await?.detach();
    let held = keeper.lock("waited for").ttl(LONG).acquire().await?;
    let url = server.url();
    let dying = std::thread::spawn(move || -> Result<()> {
        tokio::runtime::Runtime::new()?.block_on(async {
            let keeper = lockkeeper::connect(&url).await?;
            let lock = keeper.lock("waited for").ttl(LONG);
            tokio::spawn(async move { lock.acquire().await.map(std::mem::forget) });
            crate::waiting(&keeper, "waited for", 1).await;
            Ok(())
        })
    });
    dying.join().expect("no panic")?;
    server.set_clock_back(Duration::from_secs(3600))?;
    held.release().await?;
    for name in ["crashed", "read", "waited for"] {
        keeper.lock(name).ttl(LONG).acquire_within(PATIENT).await.context(name)?.release().await?;
    }
    Ok(())
}
