//! rslock on the same servers and the same name.

use super::stage::{CALM, Five, PATIENT, TTL, held};
use anyhow::{Context, Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};
use lockkeeper_lab::trials::eventually;

cases!(rslock_holds_it_and_we_do_not_get_in, we_hold_it_and_rslock_does_not_get_in,);

fn manager(five: &Five) -> rslock::LockManager {
    rslock::LockManager::new(five.servers.iter().map(Server::url).collect())
}

async fn rslock_holds_it_and_we_do_not_get_in(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (theirs, keeper) = (manager(&five), five.keeper(CALM).await?);
    let lock = theirs.lock("a", PATIENT).await?;
    ensure!(keeper.lock("a").try_acquire().await?.is_none(), "two hold it");
    let view = keeper.show("a").await?;
    ensure!(view.holders.len() == 1 && view.holders[0].identity.is_empty(), "{view:?}");
    let waits = keeper.lock("a").ttl(TTL);
    let next = tokio::spawn(async move { waits.acquire_within(PATIENT).await });
    theirs.unlock(&lock).await;
    next.await??.release().await?;
    Ok(())
}

async fn we_hold_it_and_rslock_does_not_get_in(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (theirs, keeper) = (manager(&five), five.keeper(CALM).await?);
    let guard = held(&keeper).await?;
    // Longer than the ttl: by renewal.
    tokio::time::sleep(TTL * 2).await;
    ensure!(theirs.lock("a", PATIENT).await.is_err(), "two hold it");
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    guard.release().await?;
    let lock = eventually("they get it", async || Ok(theirs.lock("a", PATIENT).await.ok())).await;
    let taken = keeper.lock("a").try_acquire().await?;
    ensure!(taken.is_none(), "two hold it");
    theirs.unlock(&lock).await;
    keeper.lock("a").try_acquire().await?.context("it is free")?.release().await?;
    Ok(())
}
