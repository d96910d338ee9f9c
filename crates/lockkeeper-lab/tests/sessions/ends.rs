//! Sessions that end, and holders that must know before anybody else gets in.

use crate::{LONG, PATIENT, Recipe, every, lost, network, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::LossReason;
use lockkeeper::backend::Moment;
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

every!(
    a_session_ended_by_an_operator_is_told_to_its_holder,
    a_connection_that_is_reset_is_told_to_its_holder,
    a_session_that_is_used_again_is_never_taken_for_an_ended_one,
    a_holder_behind_a_black_hole_stops_believing_before_the_next_gets_in,
    a_silent_partition_frees_the_lock_within_its_lease,
    a_crowd_in_one_keeper_has_one_waiter_in_the_server,
    no_more_sessions_than_allowed_and_then_a_clear_error,
    a_closed_keeper_leaves_no_session,
    a_keeper_that_is_gone_leaves_no_session,
);

async fn a_session_ended_by_an_operator_is_told_to_its_holder(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let one = recipe.keeper(&server.url(), "session=60s").await?;
    // Its first renewal comes after 20 s, so it is not that which tells.
    let guard = one.lock("ended").ttl(LONG).acquire().await?;
    recipe.end_sessions(&server)?;
    tokio::time::timeout(Duration::from_secs(10), guard.lost())
        .await
        .context("the holder was not told before its first renewal")?;
    ensure!(guard.lost_reason() == Some(LossReason::Gone), "{:?}", guard.lost_reason());
    let next = one.lock("ended").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(next.token() > guard.token(), "{:?} after {:?}", next.token(), guard.token());
    next.release().await?;
    Ok(())
}

async fn a_connection_that_is_reset_is_told_to_its_holder(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let one = recipe.keeper(&url, "session=60s").await?;
    let two = recipe.keeper(&server.url(), "session=60s").await?;
    let guard = one.lock("reset").ttl(LONG).acquire().await?;
    let next = waiting(&two, "reset");
    proxy.control().reset();
    tokio::time::timeout(Duration::from_secs(10), guard.lost())
        .await
        .context("the holder was not told before its first renewal")?;
    next.await??.release().await?;
    Ok(())
}

/// The look after sessions asks while claims come and go in the same session.
async fn a_session_that_is_used_again_is_never_taken_for_an_ended_one(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let one = recipe.keeper(&server.url(), "").await?;
    let until = Moment::now() + Duration::from_secs(3);
    let task = |number: usize| {
        let keeper = one.clone();
        tokio::spawn(async move {
            let mut turns = 0;
            while !until.remaining().is_zero() {
                let name = format!("again/{number}/{}", turns % 2);
                keeper.lock(&name).acquire().await?.release().await?;
                turns += 1;
            }
            anyhow::Ok(turns)
        })
    };
    let mut turns = 0;
    for task in (0..4).map(task).collect::<Vec<_>>() {
        turns += task.await??;
    }
    ensure!(turns > 100, "unknown: {turns} turns");
    Ok(())
}

async fn a_holder_behind_a_black_hole_stops_believing_before_the_next_gets_in(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let one = recipe.keeper(&url, "session=3s").await?;
    let two = recipe.keeper(&server.url(), "session=3s").await?;
    let guard = one.lock("dark").ttl(LONG).acquire().await?;
    let next = waiting(&two, "dark");
    // A renewal or two go through before.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    ensure!(guard.is_held(), "it was lost before: {:?}", guard.lost_reason());
    proxy.control().partition();
    let over = async {
        lost(&guard).await?;
        anyhow::Ok(Moment::now())
    };
    let granted = async {
        let next = next.await??;
        anyhow::Ok((Moment::now(), next))
    };
    let (over, (granted, next)) = tokio::try_join!(over, granted)?;
    ensure!(granted > over, "granted {:?} before the first holder knew", over.since(granted));
    ensure!(next.token() > guard.token(), "the tokens went back");
    next.release().await?;
    Ok(())
}

async fn a_silent_partition_frees_the_lock_within_its_lease(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let one = recipe.keeper(&url, "session=3s").await?;
    let two = recipe.keeper(&server.url(), "session=3s").await?;
    let guard = one.lock("silent").ttl(LONG).acquire().await?;
    proxy.control().partition();
    let begin = Moment::now();
    let next = two.lock("silent").ttl(LONG).acquire_within(PATIENT).await?;
    let took = Moment::now().since(begin);
    println!("{}: free {took:.1?} after a silent partition, with session=3s", recipe.name);
    // The server may have heard a last request just before.
    ensure!(!guard.is_held(), "two hold it");
    ensure!(took > Duration::from_secs(1), "so soon: {took:?}");
    next.release().await?;
    Ok(())
}

async fn a_crowd_in_one_keeper_has_one_waiter_in_the_server(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let one = recipe.keeper(&server.url(), "session=30s").await?;
    let two = recipe.keeper(&server.url(), "session=30s&sessions=3").await?;
    let held = one.lock("crowd").ttl(LONG).acquire().await?;
    let wait = || {
        let lock = two.lock("crowd").ttl(LONG);
        tokio::spawn(async move { lock.acquire_within(PATIENT).await?.release().await })
    };
    let crowd: Vec<_> = (0..40).map(|_| wait()).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    held.release().await?;
    for waiter in crowd {
        waiter.await??;
    }
    Ok(())
}

async fn no_more_sessions_than_allowed_and_then_a_clear_error(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let keeper = recipe.keeper(&server.url(), "sessions=2").await?;
    let (one, two) = (keeper.lock("1").acquire().await?, keeper.lock("2").acquire().await?);
    for _ in 0..3 {
        let error = keeper.lock("3").try_acquire().await.err().context("a third of two")?;
        ensure!(error.kind() == lockkeeper::ErrorKind::Exhausted, "{error:?}");
        ensure!(error.to_string().contains("sessions="), "what to do is missing: {error}");
    }
    one.release().await?;
    let three = keeper.lock("3").acquire_within(PATIENT).await?;
    ensure!(two.is_held(), "the refusals cost another its lock");
    three.release().await?;
    Ok(())
}

/// Holds and waits, so that every session is begun that there may be.
async fn work(keeper: &lockkeeper::Keeper) -> Result<()> {
    let held = keeper.lock("worked").ttl(LONG).acquire().await?;
    let next = waiting(keeper, "worked");
    tokio::time::sleep(Duration::from_millis(300)).await;
    held.release().await?;
    next.await??.release().await?;
    Ok(())
}

async fn a_closed_keeper_leaves_no_session(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    let keeper = recipe.keeper(&server.url(), "session=30s").await?;
    work(&keeper).await?;
    ensure!(recipe.sessions(&server)? > 0, "unknown: there was no session to be seen");
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    let none = async || Ok((recipe.sessions(&server)? == 0).then_some(()));
    eventually("every session is ended", none).await;
    // It can be used again, and was not ended by going away.
    work(&keeper).await?;
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    Ok(())
}

async fn a_keeper_that_is_gone_leaves_no_session(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    let keeper = recipe.keeper(&server.url(), "session=30s").await?;
    work(&keeper).await?;
    ensure!(recipe.sessions(&server)? > 0, "unknown: there was no session to be seen");
    drop(keeper);
    let none = async || Ok((recipe.sessions(&server)? == 0).then_some(()));
    eventually("every session is ended", none).await;
    Ok(())
}
