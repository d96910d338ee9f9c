//! Sessions that end, and holders that must know before anybody else gets in.

use crate::{LONG, PATIENT, Recipe, every, lost, network, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::Moment;
use lockkeeper::{Guard, Keeper, LossReason};
use lockkeeper_lab::proxy::{Flow, Proxy};
use lockkeeper_lab::server::{Kind, Lab, Server};
use lockkeeper_lab::trials::eventually;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

every!(
    a_session_ended_by_an_operator_is_told_to_its_holder,
    a_connection_that_is_reset_is_told_to_its_holder,
    a_cut_session_is_waited_for_until_its_holder_has_stopped_believing,
    those_who_wait_come_one_by_one_after_a_cut_session,
    a_debt_is_no_longer_than_its_lease,
    a_session_that_ends_frees_its_lock_at_once_where_that_is_asked_for,
    a_session_that_is_used_again_is_never_taken_for_an_ended_one,
    a_holder_behind_a_black_hole_stops_believing_before_the_next_gets_in,
    a_silent_partition_frees_the_lock_within_its_lease,
    a_crowd_in_one_keeper_has_one_waiter_in_the_server,
    no_more_sessions_than_allowed_and_then_a_clear_error,
    a_session_that_is_being_given_back_is_waited_for,
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
    // Else its lease would be waited for.
    break_hold(&one, "ended", &guard).await?;
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
    break_hold(&two, "reset", &guard).await?;
    next.await??.release().await?;
    Ok(())
}

/// Breaks a hold whose session is gone.
async fn break_hold(keeper: &Keeper, name: &str, guard: &Guard) -> Result<()> {
    let token = guard.token().context("no token")?;
    keeper.break_hold(name, token, "its session is gone").await?;
    Ok(())
}

/// Ends the sessions of a keeper on the server's side, while nothing arrives on the keeper's.
pub(crate) fn cut(recipe: Recipe, server: &Server, proxy: &Proxy) -> Result<()> {
    proxy.control().partition();
    recipe.end_sessions(server)
}

async fn a_cut_session_is_waited_for_until_its_holder_has_stopped_believing(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let one = recipe.keeper(&url, "session=5s").await?;
    let guard = one.lock("cut").ttl(LONG).acquire().await?;
    // A renewal or two go through before.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    cut(recipe, &server, &proxy)?;
    let two = recipe.keeper(&server.url(), "session=5s").await?;
    let mut early = 0;
    while guard.is_held() {
        let taken = two.lock("cut").try_acquire().await?;
        ensure!(taken.is_none() || !guard.is_held(), "two hold it after {early} tries");
        let seen = two.show("cut").await?;
        if guard.is_held() {
            let token = seen.holders.first().and_then(|holder| holder.token);
            ensure!(token == guard.token(), "it is not shown: {seen:?}");
            early += 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(early > 3, "unknown: the holder was told too soon");
    let next = two.lock("cut").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(next.token() > guard.token(), "the tokens went back");
    next.release().await?;
    Ok(())
}

async fn those_who_wait_come_one_by_one_after_a_cut_session(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let one = recipe.keeper(&url, "session=4s").await?;
    let guard = one.lock("line").ttl(LONG).acquire().await?;
    cut(recipe, &server, &proxy)?;
    let two = recipe.keeper(&server.url(), "session=4s").await?;
    let tokens = Arc::new(Mutex::new(vec![guard.token()]));
    let guard = Arc::new(guard);
    let turn = || {
        let (lock, guard, tokens) = (two.lock("line").ttl(LONG), guard.clone(), tokens.clone());
        tokio::spawn(async move {
            let next = lock.acquire_within(PATIENT * 2).await?;
            ensure!(!guard.is_held(), "two hold it");
            tokens.lock().await.push(next.token());
            next.release().await?;
            Ok(())
        })
    };
    for waiter in (0..3).map(|_| turn()).collect::<Vec<_>>() {
        waiter.await??;
    }
    let tokens = tokens.lock().await;
    ensure!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    Ok(())
}

/// A clock that went back makes a debt look longer than any lease.
async fn a_debt_is_no_longer_than_its_lease(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let one = recipe.keeper(&url, "session=3s").await?;
    let guard = one.lock("back").ttl(LONG).acquire().await?;
    cut(recipe, &server, &proxy)?;
    let table = match recipe.name {
        "for-update" => "lockkeeper_for_update_holder",
        "advisory" => "lockkeeper_advisory",
        _ => "lockkeeper_get_lock",
    };
    let later = match recipe.kind {
        Kind::Postgres => {
            format!("UPDATE {table} SET believed = believed + interval '1 hour' WHERE pid <> 0")
        }
        _ => format!(
            "UPDATE lockkeeper.{table} SET believed = believed + 3600000000 WHERE session <> 0"
        ),
    };
    recipe.query(&server, &later)?;
    let two = recipe.keeper(&server.url(), "session=3s").await?;
    let next = two.lock("back").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(!guard.is_held(), "two hold it");
    next.release().await?;
    Ok(())
}

/// And what that gives up: two believe.
async fn a_session_that_ends_frees_its_lock_at_once_where_that_is_asked_for(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let options = "session=60s&free_on_disconnect=true";
    let one = recipe.keeper(&url, options).await?;
    let guard = one.lock("freed").ttl(LONG).acquire().await?;
    cut(recipe, &server, &proxy)?;
    let two = recipe.keeper(&server.url(), options).await?;
    ensure!(!two.capability().sound && two.capability().frees_dead, "{:?}", two.capability());
    let next = two.lock("freed").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(guard.is_held(), "unknown: the first holder was told");
    ensure!(next.token() > guard.token(), "only the token tells them apart, and it went back");
    next.release().await?;
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
    let next = next.await??;
    // By the holder's own clock: when a task of it is woken to see that, says nothing.
    ensure!(!guard.is_held(), "granted before the first holder stopped believing");
    lost(&guard).await?;
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

async fn a_session_that_is_being_given_back_is_waited_for(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let keeper = recipe.keeper(&url, "sessions=1").await?;
    let held = keeper.lock("1").ttl(LONG).acquire().await?;
    let slow = Flow::Delay { base: Duration::from_millis(100), jitter: Duration::ZERO };
    proxy.control().set_both(slow);
    let release = tokio::spawn(held.release());
    tokio::time::sleep(Duration::from_millis(20)).await;
    ensure!(!release.is_finished(), "unknown: it was given back before anybody asked");
    let next = keeper.lock("2").ttl(LONG).try_acquire().await?.context("nobody has it")?;
    release.await??;
    next.release().await?;
    Ok(())
}

/// Holds and waits, so that every session is begun that there may be.
async fn work(keeper: &Keeper) -> Result<()> {
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
