//! Two databases: a primary, and a real replica that is promoted when the primary is gone.

use super::{PATIENT, network};
use crate::{promote, query, replica, replicating};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::Moment;
use lockkeeper::{ErrorKind, Keeper, LossReason};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

cases!(
    a_promoted_standby_is_moved_to_and_holders_are_told,
    nothing_is_granted_that_a_holder_of_before_may_believe_in,
    a_standby_that_follows_is_not_moved_to,
    a_keeper_moves_back_when_told,
    what_no_standby_can_keep_is_refused,
);

const TAKEOVER: Duration = Duration::from_secs(4);

async fn keeper(primary: &str, standby: &str) -> Result<Keeper> {
    let url = format!(
        "{}?timeout=1s&takeover=4s&standby={}",
        of(primary),
        of(standby).replace('@', "%40")
    );
    Ok(lockkeeper::connect(&url).await?)
}

fn of(address: &str) -> String {
    format!("{}://lockkeeper@{address}/lockkeeper", crate::KIND.word())
}

/// Waits until the replica has a row of the primary's that was made just now.
async fn follows(primary: &Server, replica: &Server) -> Result<()> {
    query(primary, "CREATE TABLE IF NOT EXISTS mark (word text)")?;
    query(primary, "INSERT INTO mark VALUES ('here')")?;
    let count = "SELECT count(*) FROM mark";
    let wanted = query(primary, count)?;
    eventually("the replica follows", async || {
        Ok((query(replica, count).is_ok_and(|there| there == wanted)).then_some(()))
    })
    .await;
    Ok(())
}

async fn a_promoted_standby_is_moved_to_and_holders_are_told(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let standby = replica(lab, primary.port(), 2)?;
    let one = keeper(&primary.address(), &standby.address()).await?;
    let held = one.lock("job").ttl(TAKEOVER).acquire().await?;
    follows(&primary, &standby).await?;
    primary.kill()?;
    let before = Moment::now();
    promote(&standby)?;
    tokio::time::timeout(PATIENT, held.lost()).await.context("the holder was not told")?;
    let moved = matches!(held.lost_reason(), Some(LossReason::Broken { reason }) if reason.contains("moved"));
    ensure!(moved || held.lost_reason() == Some(LossReason::Expired), "{:?}", held.lost_reason());
    let next = one.lock("job").ttl(TAKEOVER).acquire_within(PATIENT).await?;
    let waited = Moment::now().since(before);
    ensure!(waited >= TAKEOVER, "granted {waited:?} after the standby was promoted");
    ensure!(next.token() > held.token(), "{:?} and then {:?}", held.token(), next.token());
    // It has been the one for long enough now: who comes later need not wait.
    let two = keeper(&primary.address(), &standby.address()).await?;
    ensure!(two.lock("other").ttl(TAKEOVER).try_acquire().await?.is_some(), "it waits again");
    Ok(())
}

/// The grant was never replicated, and its holder hears nothing of the move.
async fn nothing_is_granted_that_a_holder_of_before_may_believe_in(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let (wire, cable) = (network(&primary).await?, network(&primary).await?);
    let standby = replica(lab, wire.control().address().port(), 2)?;
    let two = keeper(&primary.address(), &standby.address()).await?;
    follows(&primary, &standby).await?;
    let lonely = cable.control().address().to_string();
    let one = keeper(&lonely, &lonely).await?;
    wire.control().partition();
    let held = one.lock("job").ttl(TAKEOVER).acquire().await?;
    cable.control().partition();
    primary.kill()?;
    promote(&standby)?;
    let mut early = 0;
    while held.is_held() {
        early += 1;
        let taken = two.lock("job").ttl(TAKEOVER).try_acquire().await;
        ensure!(!matches!(taken, Ok(Some(_))) || !held.is_held(), "two believe that they hold it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(early > 3, "unknown: the promotion took longer than the lease");
    let next = two.lock("job").ttl(TAKEOVER).acquire_within(PATIENT).await?;
    ensure!(next.token() > held.token(), "{:?} and then {:?}", held.token(), next.token());
    Ok(())
}

async fn a_standby_that_follows_is_not_moved_to(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let standby = replica(lab, primary.port(), 2)?;
    let one = keeper(&primary.address(), &standby.address()).await?;
    one.lock("job").ttl(TAKEOVER).acquire().await?.release().await?;
    follows(&primary, &standby).await?;
    primary.kill()?;
    let refused = one.lock("job").ttl(TAKEOVER).try_acquire().await;
    let Err(error) = refused else { anyhow::bail!("granted by a replica") };
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    primary.restart()?;
    let again = one.lock("job").ttl(TAKEOVER).acquire_within(PATIENT).await?;
    ensure!(again.is_held(), "the primary is not used again");
    Ok(())
}

/// A server that was made anew as the replica of the one that took its place.
async fn a_keeper_moves_back_when_told(lab: &Lab) -> Result<()> {
    let took_over = replicating(lab)?;
    keeper(&took_over.address(), &took_over.address()).await?;
    let first = replica(lab, took_over.port(), 2)?;
    follows(&took_over, &first).await?;
    let one = keeper(&first.address(), &took_over.address()).await?;
    let held = one.lock("job").ttl(TAKEOVER).acquire_within(PATIENT).await?;
    follows(&took_over, &first).await?;
    took_over.kill()?;
    promote(&first)?;
    let back = one.lock("back").ttl(TAKEOVER).acquire_within(PATIENT).await?;
    ensure!(!held.is_held(), "what was held is not lost with the move");
    ensure!(back.token() > held.token(), "{:?} and then {:?}", held.token(), back.token());
    let rows = query(&first, "SELECT id FROM lockkeeper WHERE name = 'back' AND place = 1")?;
    ensure!(rows.len() == 1, "the first server does not have the lock");
    Ok(())
}

async fn what_no_standby_can_keep_is_refused(lab: &Lab) -> Result<()> {
    let server = super::start(lab)?;
    let one = keeper(&server.address(), &server.address()).await?;
    let long = one.lock("job").ttl(TAKEOVER * 2).try_acquire().await;
    let Err(error) = long else { anyhow::bail!("a ttl longer than a move waits") };
    ensure!(error.kind() == ErrorKind::Config, "{error:?}");
    ensure!(error.to_string().contains("takeover"), "{error}");
    let numbers = one.reserve("numbers", 1, 0).await;
    ensure!(numbers.is_err_and(|error| error.kind() == ErrorKind::Unsupported), "numbers");
    let url = server.url();
    let other = format!("{url}?recipe=for-update&standby={}", url.replace('@', "%40"));
    let Err(error) = lockkeeper::connect(&other).await else { anyhow::bail!("for-update") };
    ensure!(error.kind() == ErrorKind::Unsupported, "{error:?}");
    ensure!(error.to_string().contains("recipe=table"), "{error}");
    Ok(())
}
