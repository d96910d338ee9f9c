//! Nodes that come back without their data.

use super::stage::{Five, PATIENT, TTL, held};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, LossReason};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Fitness, Lab};
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

cases!(
    one_restarted_empty_does_not_let_a_second_in,
    without_the_delay_it_does,
    a_rolling_restart_of_all_five_keeps_the_lock,
    a_majority_that_forgets_is_told,
    nodes_that_remember_vote_at_once,
    nodes_that_lost_their_disk_do_not,
    tokens_grow_over_restarts_of_all,
);

/// As long as a ttl, and short enough to wait for.
const DELAY: Duration = Duration::from_secs(4);
const DELAYED: &str = "timeout=1s&min_uptime=4s";

/// The known failure: the holder has three of five, one of them forgets, and another would get the
/// majority of that one and the two.
async fn let_a_second_in(lab: &Lab, options: &str) -> Result<bool> {
    let five = Five::start(lab)?;
    tokio::time::sleep(DELAY + Duration::from_secs(1)).await;
    let (one, two) = (five.keeper(options).await?, five.keeper(options).await?);
    // Two are taken by nobody we know, so that the holder gets three.
    for server in &five.servers[3..] {
        server.redis()?.ask(&["SET", "a", "x"])?;
    }
    let guard = one.lock("a").ttl(DELAY).try_acquire().await?.context("three of five")?;
    for server in &five.servers[3..] {
        server.redis()?.ask(&["DEL", "a"])?;
    }
    five.servers[2].restart_empty()?;
    let second = two.lock("a").ttl(DELAY).try_acquire().await;
    let let_in = match &second {
        Ok(second) => second.is_some(),
        Err(error) => {
            ensure!(error.to_string().contains("min_uptime"), "{error}");
            false
        }
    };
    ensure!(guard.is_held(), "unknown: {:?}", guard.lost_reason());
    drop(second);
    guard.release().await.ok();
    Ok(let_in)
}

async fn one_restarted_empty_does_not_let_a_second_in(lab: &Lab) -> Result<()> {
    ensure!(!let_a_second_in(lab, DELAYED).await?, "two hold it");
    Ok(())
}

/// That the case before can fail.
async fn without_the_delay_it_does(lab: &Lab) -> Result<()> {
    ensure!(let_a_second_in(lab, "timeout=1s&min_uptime=0s").await?, "unknown: nobody got in");
    Ok(())
}

async fn a_rolling_restart_of_all_five_keeps_the_lock(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    tokio::time::sleep(DELAY).await;
    let (one, two) = (five.keeper(DELAYED).await?, five.keeper(DELAYED).await?);
    let guard = held(&one).await?;
    for server in &five.servers {
        server.restart_empty()?;
        eventually("all five have it", async || Ok((five.taken("a")? == 5).then_some(()))).await;
        tokio::time::sleep(DELAY + Duration::from_secs(1)).await;
        ensure!(guard.is_held(), "{:?}", guard.lost_reason());
        ensure!(two.lock("a").ttl(TTL).try_acquire().await?.is_none(), "two hold it");
    }
    guard.release().await?;
    held(&two).await?.release().await?;
    Ok(())
}

async fn a_majority_that_forgets_is_told(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    tokio::time::sleep(DELAY).await;
    let keeper = five.keeper(DELAYED).await?;
    let guard = held(&keeper).await?;
    for server in &five.servers[..3] {
        server.restart_empty()?;
    }
    guard.lost().await;
    let reason = guard.lost_reason().context("a reason")?;
    let told = matches!(&reason, LossReason::NoMajority { .. } | LossReason::Expired);
    ensure!(told, "{reason:?}");
    drop(guard);
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    // Nobody gets it until they are old enough.
    let error = keeper.lock("a").ttl(TTL).try_acquire().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains("min_uptime"), "{error}");
    held(&keeper).await?.release().await?;
    Ok(())
}

async fn nodes_that_remember_vote_at_once(lab: &Lab) -> Result<()> {
    // Five servers with every write on disk before it is answered.
    let server = lab.start_fit(
        lockkeeper_lab::server::Kind::Redlock,
        Fitness { durable: true, ..Fitness::default() },
    )?;
    let keeper = lockkeeper::connect(&format!("{}?timeout=1s", server.url())).await?;
    let guard = keeper.lock("a").ttl(PATIENT).try_acquire().await?.context("it is free")?;
    server.kill()?;
    server.restart()?;
    eventually("they say who has it", async || {
        Ok((keeper.show("a").await?.holders.len() == 1).then_some(()))
    })
    .await;
    ensure!(keeper.lock("a").try_acquire().await?.is_none(), "two hold it");
    guard.release().await?;
    Ok(())
}

/// They are set up to remember, and came back without what they should.
async fn nodes_that_lost_their_disk_do_not(lab: &Lab) -> Result<()> {
    let durable = Fitness { durable: true, ..Fitness::default() };
    let server = lab.start_fit(lockkeeper_lab::server::Kind::Redlock, durable)?;
    let url = format!("{}?{DELAYED}", server.url());
    let (one, two) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
    let guard = one.lock("a").ttl(DELAY).try_acquire().await?.context("it is free")?;
    server.restart_empty()?;
    // One that has seen them before, and one that has not.
    for keeper in [two, lockkeeper::connect(&url).await?] {
        let second = keeper.lock("a").ttl(DELAY).try_acquire().await;
        let error = second.err().context("two hold it, or nodes vote that forgot it")?;
        ensure!(error.to_string().contains("min_uptime"), "{error}");
    }
    drop(guard);
    held(&one).await?.release().await?;
    // With their data they vote at once again, however often they are restarted.
    tokio::time::sleep(DELAY).await;
    server.kill()?;
    server.restart()?;
    let three = lockkeeper::connect(&url).await?;
    let guard = three.lock("b").ttl(DELAY).try_acquire().await?.context("it is free")?;
    guard.release().await?;
    Ok(())
}

async fn tokens_grow_over_restarts_of_all(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (one, two) = (
        five.keeper("timeout=1s&min_uptime=0s").await?,
        five.keeper("timeout=1s&min_uptime=0s").await?,
    );
    let mut last = None;
    for round in 0..4 {
        for (number, server) in five.servers.iter().enumerate() {
            for keeper in [&one, &two] {
                let guard = held(keeper).await?;
                ensure!(guard.token() > last, "after {last:?} came {:?}", guard.token());
                last = guard.token();
                match round % 2 {
                    0 => guard.release().await?,
                    // Left to expire.
                    _ => guard.detach(),
                };
            }
            if number % 2 == round % 2 {
                server.restart_empty()?;
            }
        }
    }
    Ok(())
}
