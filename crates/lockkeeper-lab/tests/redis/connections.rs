//! How many connections there are, and what happens when they break.

use crate::{LONG, PATIENT, cases, eventually, far_keeper, keeper};
use anyhow::{Context, Result};
use lockkeeper::{FencingToken, Keeper};
use lockkeeper_lab::proxy::Afterwards;
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases!(
    two_connections_serve_any_number_of_locks,
    scripts_that_redis_forgot_are_sent_again,
    every_connection_can_be_cut_at_any_time,
    a_server_that_is_paused_is_waited_for,
    a_server_that_is_away_for_a_moment_is_waited_for,
    a_waiter_that_hears_nothing_keeps_its_place,
    all_helper_keys_expire,
    a_break_whose_answer_is_lost_is_done_once,
);

fn clients(server: &Server) -> Result<usize> {
    let said = server.redis()?.ask(&["CLIENT", "LIST"])?;
    let lines = said.text().context("text")?.lines();
    Ok(lines.filter(|line| line.contains("lib-name=lockkeeper") || line.contains("resp=3")).count())
}

async fn two_connections_serve_any_number_of_locks(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(one.lock(format!("many/{number}")).ttl(LONG).acquire().await?);
    }
    let waiting: Vec<_> = (0..50)
        .map(|number| {
            let lock = two.lock(format!("many/{number}")).ttl(LONG);
            tokio::spawn(async move { lock.acquire_within(PATIENT).await })
        })
        .collect();
    eventually("all wait", async || Ok((waiters(&two).await? == 50).then_some(()))).await;
    assert_eq!(clients(&server)?, 4, "two for each keeper");
    drop(held);
    for waiter in waiting {
        waiter.await??.release().await?;
    }
    assert_eq!(clients(&server)?, 4);
    Ok(())
}

async fn waiters(keeper: &Keeper) -> Result<usize> {
    Ok(keeper.list("").await?.iter().map(|view| view.waiters.len()).sum())
}

async fn scripts_that_redis_forgot_are_sent_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = keeper(&server).await?;
    let guard = keeper.lock("forgotten").ttl(LONG).acquire().await?;
    server.redis()?.ask(&["SCRIPT", "FLUSH"])?;
    guard.release().await?;
    assert!(keeper.show("forgotten").await?.holders.is_empty());
    keeper.lock("forgotten").ttl(LONG).acquire().await?.release().await?;
    Ok(())
}

async fn every_connection_can_be_cut_at_any_time(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    for _ in 0..5 {
        let held = one.lock("cut").ttl(LONG).acquire().await?;
        let lock = two.lock("cut").ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        eventually("one waits", async || Ok((waiters(&one).await? == 1).then_some(()))).await;
        let mut redis = server.redis()?;
        redis.ask(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
        redis.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
        held.release().await?;
        waiter.await??.release().await?;
    }
    Ok(())
}

async fn a_server_that_is_paused_is_waited_for(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("paused").ttl(Duration::from_secs(1)).acquire().await?;
    let lock = two.lock("paused").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    eventually("one waits", async || Ok((waiters(&two).await? == 1).then_some(()))).await;
    server.pause()?;
    // By our own clock, while Redis says nothing.
    tokio::time::timeout(PATIENT, held.lost()).await.context("the loss is noticed")?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.resume()?;
    waiter.await?.context("the waiter waits still")?.release().await?;
    Ok(())
}

async fn a_server_that_is_away_for_a_moment_is_waited_for(lab: &Lab) -> Result<()> {
    let server = lab.redis().durable().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("away").ttl(LONG).acquire().await?;
    let lock = two.lock("away").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await });
    eventually("one waits", async || Ok((waiters(&two).await? == 1).then_some(()))).await;
    // Just when the roll of those who wait is called.
    tokio::time::sleep(Duration::from_secs(9)).await;
    server.kill()?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.restart()?;
    held.release().await?;
    waiter.await?.context("the waiter waits still")?.release().await?;
    Ok(())
}

async fn a_waiter_that_hears_nothing_keeps_its_place(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (far, proxy) = far_keeper(&server).await?;
    let direct = keeper(&server).await?;
    let held = direct.lock("deaf").ttl(LONG).acquire().await?;
    let lock = far.lock("deaf").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await });
    eventually("one waits", async || Ok((waiters(&direct).await? == 1).then_some(()))).await;
    // The connection for commands is all there is from now on.
    proxy.refuse(true);
    server.redis()?.ask(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(12) {
        assert_eq!(waiters(&direct).await?, 1, "it counts as dead");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.release().await?;
    let guard = waiter.await?.context("the waiter waits still")?;
    guard.release().await?;
    tokio::task::spawn_blocking(move || drop(proxy)).await?;
    Ok(())
}

async fn all_helper_keys_expire(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("expiring").ttl(LONG).acquire().await?;
    let reading = one.rw_lock("read").read().ttl(LONG).acquire().await?;
    let also = two.rw_lock("read").read().ttl(LONG).acquire().await?;
    let busy = |name: &str| {
        let lock = two.lock(name).ttl(LONG);
        tokio::spawn(async move { lock.acquire_within(Duration::from_secs(1)).await.map(drop) })
    };
    let waiting = [busy("expiring"), busy("read")];
    eventually("both wait", async || Ok((waiters(&two).await? == 2).then_some(()))).await;
    let check = || -> Result<usize> {
        let mut redis = server.redis()?;
        let keys = redis.ask(&["KEYS", "*"])?;
        let keys = keys.list().context("a list")?;
        for key in keys {
            let key = key.text().context("a key")?;
            let left = redis.ask(&["PTTL", key])?.number();
            assert!(left.is_some_and(|left| left != -1), "{key} never expires");
        }
        Ok(keys.len())
    };
    assert!(check()? >= 5, "there is something to look at");
    for waiter in waiting {
        assert!(waiter.await?.is_err());
    }
    drop((reading, also));
    held.release().await?;
    one.close(PATIENT).await;
    two.close(PATIENT).await;
    check()?;
    Ok(())
}

async fn a_break_whose_answer_is_lost_is_done_once(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (operator, proxy) = far_keeper(&server).await?;
    let holder = keeper(&server).await?;
    let held = holder.lock("cut").ttl(LONG).acquire().await?;
    let token = held.token().context("a token")?;
    // Once, so that the server knows the script.
    operator.break_hold("cut", FencingToken::new(1).context("one")?, "").await.unwrap_err();
    proxy.control().swallow_reply(1, Afterwards::Silence);
    let broken = tokio::spawn(async move { operator.break_hold("cut", token, "to see").await });
    tokio::time::timeout(PATIENT, held.lost()).await.context("it was done")?;
    assert!(!broken.is_finished(), "nobody has been told");
    proxy.control().reset();
    proxy.control().heal();
    broken.await?.context("it was broken")?;
    Ok(())
}
