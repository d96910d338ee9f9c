//! Nodes whose clocks jump.

use super::stage::{CALM, Five, PATIENT, held};
use anyhow::{Context, Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;
use std::time::Duration;

cases!(
    one_that_jumps_is_outvoted,
    three_that_jump_are_noticed,
    a_jump_may_let_a_second_in_whose_token_is_larger,
);

const TTL: Duration = Duration::from_secs(6);

async fn one_that_jumps_is_outvoted(lab: &Lab) -> Result<()> {
    let five = Five::with_clocks(lab)?;
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    let guard = one.lock("a").ttl(TTL).acquire().await?;
    five.servers[0].set_clock_ahead(Duration::from_secs(3600))?;
    five.servers[1].set_clock_back(Duration::from_secs(3600))?;
    ensure!(two.lock("a").ttl(TTL).try_acquire().await?.is_none(), "two hold it");
    tokio::time::sleep(TTL).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    let token = guard.token();
    guard.release().await?;
    // A clock that is an hour ahead is not the one that tokens go by.
    let next = held(&two).await?;
    ensure!(next.token() > token, "{:?} after {token:?}", next.token());
    next.release().await?;
    Ok(())
}

async fn three_that_jump_are_noticed(lab: &Lab) -> Result<()> {
    let five = Five::with_clocks(lab)?;
    let keeper = five.keeper(CALM).await?;
    let guard = keeper.lock("a").ttl(TTL).acquire().await?;
    five.all_have("a").await?;
    for server in &five.servers[..3] {
        // Less than the keys would have lasted: they are still there when they are looked at.
        server.set_clock_ahead(Duration::from_secs(3))?;
    }
    tokio::time::timeout(PATIENT, guard.lost()).await.context("it was not noticed")?;
    let reason = guard.lost_reason().context("a reason")?.to_string();
    ensure!(reason.contains("clock jumped"), "{reason}");
    Ok(())
}

/// The known failure that no client can prevent, and what is left to tell the two apart.
async fn a_jump_may_let_a_second_in_whose_token_is_larger(lab: &Lab) -> Result<()> {
    let five = Five::with_clocks(lab)?;
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    let guard = one.lock("a").ttl(TTL).acquire().await?;
    five.all_have("a").await?;
    for server in &five.servers[..3] {
        server.set_clock_ahead(TTL * 2)?;
    }
    let second = two.lock("a").ttl(TTL).try_acquire().await?;
    ensure!(guard.is_held(), "unknown: the first was told already");
    let second = second.context("unknown: the second did not get in")?;
    ensure!(second.token() > guard.token(), "{:?} after {:?}", second.token(), guard.token());
    // The first is told at its next renewal.
    tokio::time::timeout(PATIENT, guard.lost()).await.context("it was not noticed")?;
    Ok(())
}
