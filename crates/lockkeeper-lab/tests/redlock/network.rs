//! Networks that are cut in two, and replies that are lost.

use super::stage::{CALM, Five, PATIENT, TTL, held, url_of};
use anyhow::{Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::cases;
use lockkeeper_lab::proxy::{Direction, Flow, Proxy};
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::eventually;

cases!(
    a_holder_with_two_of_five_loses_it_and_the_other_side_gets_it,
    a_holder_with_three_of_five_keeps_it,
    every_reply_of_one_node_is_lost,
);

fn url(proxies: &[Proxy], options: &str) -> String {
    url_of(proxies.iter().map(|proxy| proxy.address().to_string()), options)
}

/// 2|3 with the holder on the smaller side.
async fn a_holder_with_two_of_five_loses_it_and_the_other_side_gets_it(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let proxies = five.proxies()?;
    let holder = lockkeeper::connect(&url(&proxies, "timeout=200ms&min_uptime=0s")).await?;
    let other = five.keeper(CALM).await?;
    let guard = held(&holder).await?;
    proxies[..3].iter().for_each(|proxy| proxy.partition());
    let waits = other.lock("a").ttl(TTL);
    let next = tokio::spawn(async move { waits.acquire_within(PATIENT).await });
    guard.lost().await;
    // Not before the holder knows: its keys on all five last until then.
    let next = next.await??;
    ensure!(!guard.is_held() && next.token() > guard.token(), "{:?}", next.token());
    let error = holder.lock("b").try_acquire().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    proxies.iter().for_each(|proxy| proxy.heal());
    next.release().await?;
    drop(guard);
    held(&holder).await?.release().await?;
    Ok(())
}

/// 3|2 with the holder on the larger side.
async fn a_holder_with_three_of_five_keeps_it(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (ours, theirs) = (five.proxies()?, five.proxies()?);
    let holder = lockkeeper::connect(&url(&ours, "timeout=200ms&min_uptime=0s")).await?;
    let other = lockkeeper::connect(&url(&theirs, "timeout=200ms&min_uptime=0s")).await?;
    let guard = held(&holder).await?;
    ours[3..].iter().for_each(|proxy| proxy.partition());
    theirs[..3].iter().for_each(|proxy| proxy.partition());
    tokio::time::sleep(TTL * 3).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    let error = other.lock("a").try_acquire().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    guard.release().await?;
    theirs.iter().chain(&ours).for_each(|proxy| proxy.heal());
    held(&other).await?.release().await?;
    ensure!(holder.close(PATIENT).await && other.close(PATIENT).await, "something is left undone");
    eventually("none has it", async || Ok((five.taken("a")? == 0).then_some(()))).await;
    Ok(())
}

/// The node does what it is asked, and nobody hears of it.
async fn every_reply_of_one_node_is_lost(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let proxies = five.proxies()?;
    let keeper = lockkeeper::connect(&url(&proxies, "timeout=200ms&min_uptime=0s")).await?;
    held(&keeper).await?.release().await?;
    proxies[0].set(Direction::ToClient, Flow::Swallow);
    for _ in 0..20 {
        held(&keeper).await?.release().await?;
    }
    let guard = held(&keeper).await?;
    tokio::time::sleep(TTL * 2).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    guard.release().await?;
    proxies[0].heal();
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    eventually("none has it", async || Ok((five.taken("a")? == 0).then_some(()))).await;
    Ok(())
}
