//! Claims that wait while ZooKeeper is away.

use crate::raw::Raw;
use crate::{LONG, PATIENT, cases, keeper, proxy, queue_of};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Lab, Server};
use std::time::{Duration, Instant};

cases![
    one_who_comes_while_there_is_no_majority_waits_for_it,
    one_who_waits_goes_on_with_a_new_session,
    one_whose_session_is_given_up_goes_on_with_another,
    a_silence_longer_than_the_tolerance_is_told,
    who_does_not_wait_is_told_at_once,
];

/// How long it is away.
const AWAY: Duration = Duration::from_secs(3);
/// Longer than a session, and than anything but the tolerance for outages.
const LONG_AWAY: Duration = Duration::from_secs(11);

/// A keeper whose session has ended, and that knows it: the next claim needs a new one.
async fn without_session(proxy: &Proxy, options: &str) -> Result<Keeper> {
    let one = keeper(&format!("zookeeper://{}", proxy.address()), options).await?;
    let guard = one.lock("session").ttl(LONG).acquire().await?;
    proxy.refuse(true);
    proxy.reset();
    tokio::time::timeout(PATIENT, guard.lost()).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.heal();
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(one)
}

async fn one_who_comes_while_there_is_no_majority_waits_for_it(lab: &Lab) -> Result<()> {
    let servers = lab.zookeeper().tick(250).start_ensemble(3)?;
    let proxy = proxy(&servers[0], 41)?;
    let one = without_session(&proxy, "session=1s").await?;
    servers[1].kill()?;
    servers[2].kill()?;
    let lock = one.lock("n").ttl(LONG);
    let begin = Instant::now();
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    tokio::time::sleep(AWAY).await;
    ensure!(!waiter.is_finished(), "it gave up: {:?}", waiter.await?.err());
    servers[1].relaunch()?;
    servers[2].relaunch()?;
    let guard = waiter.await?.with_context(|| format!("after {:?}", begin.elapsed()))?;
    guard.release().await?;
    Ok(())
}

/// Its keeper learns that the session is over when ZooKeeper is back: until then it hopes.
async fn one_who_waits_goes_on_with_a_new_session(lab: &Lab) -> Result<()> {
    goes_on_after_an_outage(lab, "session=1s").await
}

/// Its keeper gives the session up while ZooKeeper is away: no other can be made for a long time.
async fn one_whose_session_is_given_up_goes_on_with_another(lab: &Lab) -> Result<()> {
    goes_on_after_an_outage(lab, "session=1s&tries=2").await
}

async fn goes_on_after_an_outage(lab: &Lab, options: &str) -> Result<()> {
    let server = lab.zookeeper().tick(250).start()?;
    let proxy = proxy(&server, 42)?;
    let one = keeper(&format!("zookeeper://{}", proxy.address()), options).await?;
    let two = keeper(&server.url(), "session=4s").await?;
    let guard = two.lock("n").ttl(LONG).acquire().await?;
    let lock = one.lock("n").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queue_of(&two, "n", 1).await?;
    proxy.refuse(true);
    proxy.reset();
    // Its session ends, and then there is nobody to make another with.
    queue_of(&two, "n", 0).await?;
    proxy.refuse(true);
    tokio::time::sleep(LONG_AWAY).await;
    ensure!(!waiter.is_finished(), "it gave up: {:?}", waiter.await?.err());
    proxy.heal();
    queue_of(&two, "n", 1).await?;
    guard.release().await?;
    waiter.await??.release().await?;
    Ok(())
}

async fn a_silence_longer_than_the_tolerance_is_told(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(250).start()?;
    let one = keeper(&server.url(), "session=2s&outage=2s").await?;
    let mut raw = Raw::connect(&server.address())?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    ensure!(raw.children("/lockkeeper/n")?.len() == 1, "it is elsewhere");
    let lock = one.lock("n").ttl(LONG);
    let queued = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queue_of(&one, "n", 1).await?;
    server.kill()?;
    let lock = one.lock("other").ttl(LONG);
    let fresh = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    for waiter in [queued, fresh] {
        let error = waiter.await?.err().context("granted by nobody")?;
        ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    }
    drop(guard);
    Ok(())
}

async fn who_does_not_wait_is_told_at_once(lab: &Lab) -> Result<()> {
    let server: Server = lab.zookeeper().tick(250).start()?;
    let one = keeper(&server.url(), "session=2s&outage=20s").await?;
    one.lock("n").ttl(LONG).acquire().await?.release().await?;
    server.kill()?;
    let begin = Instant::now();
    let kind = one.lock("n").try_acquire().await.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "{kind:?}");
    // Not the tolerance of those who wait.
    ensure!(begin.elapsed() < Duration::from_secs(10), "told after {:?}", begin.elapsed());
    let connected = keeper(&server.url(), "session=2s&outage=20s").await.err();
    ensure!(connected.is_some(), "connected to nobody");
    ensure!(begin.elapsed() < Duration::from_secs(15), "told after {:?}", begin.elapsed());
    Ok(())
}
