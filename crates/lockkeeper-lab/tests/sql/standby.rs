//! Two databases: a primary, and a real replica that is promoted when the primary is gone.

use super::{PATIENT, network};
use crate::{KIND, USER, promote, query, replica, replicating, sessions};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::Moment;
use lockkeeper::{ErrorKind, Keeper, LossReason};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

cases!(
    a_promoted_standby_is_moved_to_and_holders_are_told,
    holders_are_told_by_the_move_itself,
    nothing_is_granted_that_a_holder_of_before_may_believe_in,
    a_token_that_would_go_back_is_refused,
    two_servers_that_take_writes_grant_twice,
    a_standby_that_follows_is_not_moved_to,
    a_keeper_moves_back_when_told,
    a_closed_keeper_leaves_no_session_at_either_server,
    what_no_standby_can_keep_is_refused,
);

const TAKEOVER: Duration = Duration::from_secs(4);

async fn keeper(primary: &str, standby: &str) -> Result<Keeper> {
    keeper_with(primary, standby, TAKEOVER).await
}

async fn keeper_with(primary: &str, standby: &str, takeover: Duration) -> Result<Keeper> {
    let (primary, standby) = (of(primary), of(standby).replace('@', "%40"));
    let takeover = takeover.as_secs();
    let url = format!("{primary}?takeover={takeover}s&standby={standby}");
    Ok(lockkeeper::connect(&url).await?)
}

fn of(address: &str) -> String {
    format!("{}://{USER}@{address}/lockkeeper", KIND.word())
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
    let standby = replica(lab, primary.port(), false)?;
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

/// Not by the next renewal, and not by the end of the lease, which are far away here.
async fn holders_are_told_by_the_move_itself(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let standby = replica(lab, primary.port(), false)?;
    let takeover = Duration::from_secs(120);
    let one = keeper_with(&primary.address(), &standby.address(), takeover).await?;
    follows(&primary, &standby).await?;
    let (held, before) = (one.lock("job").ttl(takeover).acquire().await?, Moment::now());
    primary.kill()?;
    promote(&standby)?;
    let moves = async || Ok(one.lock("other").ttl(takeover).try_acquire().await.ok());
    let granted = eventually("the keeper moves", moves).await;
    ensure!(granted.is_none(), "the standby granted at once");
    let told = matches!(held.lost_reason(), Some(LossReason::Broken { reason }) if reason.contains("moved"));
    let took = Moment::now().since(before);
    ensure!(took < takeover / 3, "unknown: a renewal came in between");
    ensure!(told && !held.is_held(), "the holder was not told: {:?}", held.lost_reason());
    Ok(())
}

/// The grant was never replicated, and its holder hears nothing of the move.
async fn nothing_is_granted_that_a_holder_of_before_may_believe_in(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let (wire, cable) = (network(&primary).await?, network(&primary).await?);
    let standby = replica(lab, wire.control().address().port(), false)?;
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

/// A grant that was never replicated, and a standby whose clock is an hour behind.
async fn a_token_that_would_go_back_is_refused(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let wire = network(&primary).await?;
    let standby = replica(lab, wire.control().address().port(), true)?;
    let one = keeper(&primary.address(), &standby.address()).await?;
    follows(&primary, &standby).await?;
    wire.control().partition();
    standby.set_clock_back(Duration::from_secs(3600))?;
    one.lock("job").ttl(TAKEOVER).acquire().await?.release().await?;
    primary.kill()?;
    promote(&standby)?;
    let granted = one.lock("job").ttl(TAKEOVER).acquire_within(PATIENT).await;
    let Err(error) = granted else { anyhow::bail!("its token went back") };
    ensure!(error.kind() == ErrorKind::Store, "{error:?}");
    ensure!(error.to_string().contains("set the clock"), "{error}");
    Ok(())
}

/// What no keeper can help: the standby was promoted while the primary still took writes, against
/// the first rule of the switch. A resource that checks tokens is safe all the same.
async fn two_servers_that_take_writes_grant_twice(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let cable = network(&primary).await?;
    let standby = replica(lab, primary.port(), false)?;
    let one = keeper(&primary.address(), &standby.address()).await?;
    let two = keeper(&cable.control().address().to_string(), &standby.address()).await?;
    let held = one.lock("job").ttl(TAKEOVER).acquire().await?;
    follows(&primary, &standby).await?;
    cable.control().partition();
    promote(&standby)?;
    let next = two.lock("job").ttl(TAKEOVER).acquire_within(PATIENT * 2).await?;
    ensure!(held.is_held() && next.is_held(), "unknown: one of them was lost");
    ensure!(next.token() > held.token(), "{:?} and then {:?}", held.token(), next.token());
    Ok(())
}

async fn a_standby_that_follows_is_not_moved_to(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let standby = replica(lab, primary.port(), false)?;
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
    let first = replica(lab, took_over.port(), false)?;
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

/// Neither where it was, nor where it was not let in.
async fn a_closed_keeper_leaves_no_session_at_either_server(lab: &Lab) -> Result<()> {
    let primary = replicating(lab)?;
    let standby = replica(lab, primary.port(), false)?;
    let one = keeper(&primary.address(), &standby.address()).await?;
    follows(&primary, &standby).await?;
    primary.kill()?;
    let refused = one.lock("job").ttl(TAKEOVER).try_acquire().await;
    ensure!(refused.is_err(), "granted by a replica");
    let gone = async |server| Ok((sessions(server)? == 0).then_some(()));
    eventually("no session where it was not let in", async || gone(&standby).await).await;
    primary.restart()?;
    one.lock("job").ttl(TAKEOVER).acquire_within(PATIENT).await?.release().await?;
    ensure!(sessions(&primary)? > 0, "unknown: it has no session where it is");
    // One that was not let in by the first server already when it was opened.
    let two = keeper(&standby.address(), &primary.address()).await?;
    let closed = one.close(PATIENT).await && two.close(PATIENT).await;
    ensure!(closed, "they did not come to rest");
    eventually("no session where it was", async || gone(&primary).await).await;
    eventually("no session at the other server", async || gone(&standby).await).await;
    Ok(())
}

async fn what_no_standby_can_keep_is_refused(lab: &Lab) -> Result<()> {
    let server = replicating(lab)?;
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
