//! Claims on leases of their own: handed out, or asked for by their ids.

use crate::{LASTING, LONG, PATIENT, cases, etcdctl, eventually, keeper, keys, lost, network};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ClaimId, ErrorKind, LossReason};
use lockkeeper_lab::server::{Lab, Server};
use std::time::{Duration, Instant};

cases!(
    asked_for_twice_by_id_it_has_one_key,
    what_is_handed_out_outlives_the_session,
    what_nobody_keeps_ends_at_its_ttl_and_with_its_lease,
    what_is_given_back_leaves_no_lease,
    a_longer_ttl_is_another_lease,
    one_who_waits_by_id_and_dies_is_soon_out_of_the_way,
    a_ticket_tells_why_it_is_lost,
    a_key_that_was_handed_out_is_not_taken_for_the_next_claim,
);

/// A ttl for what is to run out, and its [`keeper`]'s session.
const SOON: Duration = Duration::from_secs(3);

/// The leases that etcd has, in hex.
fn leases(server: &Server) -> Result<Vec<String>> {
    let said = etcdctl(server, &["lease", "list"])?;
    let is_lease = |line: &&str| !line.is_empty() && !line.contains("found");
    Ok(said.lines().filter(is_lease).map(str::to_owned).collect())
}

async fn asked_for_twice_by_id_it_has_one_key(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let id = ClaimId::random()?;
    let ask = |keeper: &lockkeeper::Keeper| keeper.lock("by id").ttl(LONG).claim(id);
    let first = ask(&one).acquire().await?;
    let second = ask(&two).try_acquire().await?.context("its own claim kept it out")?;
    ensure!(first.token() == second.token(), "{first:?}, then {second:?}");
    ensure!(keys(&server, "by id")? == [format!("lockkeeper/by id/{id}")], "more than one key");
    // The one that asked first goes on, wherever the key lives now.
    second.detach();
    ensure!(leases(&server)?.len() == 1, "a lease was left: {:?}", leases(&server)?);
    first.release().await?;
    ensure!(keys(&server, "by id")?.is_empty() && leases(&server)?.is_empty(), "it is still there");
    // Who waits for it does so at one key, too.
    let held = one.lock("by id").ttl(LONG).acquire().await?;
    let waiting = [&one, &two].map(|keeper| {
        let lock = ask(keeper);
        tokio::spawn(async move { lock.acquire_within(PATIENT).await })
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(keys(&server, "by id")?.len() == 2, "{:?}", keys(&server, "by id")?);
    held.release().await?;
    let mut tokens = Vec::new();
    for waiting in waiting {
        let guard = waiting.await??;
        tokens.push(guard.token());
        guard.detach();
    }
    ensure!(tokens[0] == tokens[1], "{tokens:?}");
    Ok(())
}

async fn what_is_handed_out_outlives_the_session(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let guard = one.lock("handed out").ttl(LONG).acquire().await?;
    let session = leases(&server)?;
    let token = guard.token();
    // One guard stays: the claim is renewed here, but does not depend on the session any more.
    let ticket = guard.share().hand_out().await?;
    etcdctl(&server, &["lease", "revoke", &session[0]])?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(keys(&server, "handed out")?.len() == 1, "it went with the session");
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    guard.detach();
    // The keeper ends, and leaves nothing to be done by it.
    ensure!(one.close(PATIENT).await, "it did not come to rest");
    drop(one);
    ensure!(two.keep(&ticket).await? > PATIENT, "it is not kept for its ttl");
    ensure!(leases(&server)?.len() == 1, "{:?}", leases(&server)?);
    let guard = two.take_over(&ticket).await?;
    ensure!(guard.token() == token, "{token:?}, then {:?}", guard.token());
    etcdctl(&server, &["del", &keys(&server, "handed out")?[0]])?;
    lost(&guard).await
}

async fn what_nobody_keeps_ends_at_its_ttl_and_with_its_lease(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let begun = Instant::now();
    let ticket = one.lock("left").ttl(SOON).acquire().await?.hand_out().await?;
    // Kept once, from elsewhere, and then by nobody.
    two.keep(&ticket).await?;
    let next = two.lock("left").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(begun.elapsed() >= SOON, "free after {:?}", begun.elapsed());
    let kept = one.keep(&ticket).await;
    ensure!(kept.is_err_and(|error| error.kind() == ErrorKind::Lost), "what is over was kept");
    next.release().await?;
    for keeper in [&one, &two] {
        ensure!(keeper.close(PATIENT).await, "it did not come to rest");
    }
    ensure!(leases(&server)?.is_empty(), "{:?}", leases(&server)?);
    Ok(())
}

async fn what_is_given_back_leaves_no_lease(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let ticket = one.lock("given back").ttl(LONG).acquire().await?.hand_out().await?;
    two.keep(&ticket.clone().with_ttl(PATIENT)).await?;
    // One who asks by an id, and does not get it.
    let other = one.lock("given back").claim(ClaimId::random()?).try_acquire().await?;
    ensure!(other.is_none(), "two hold it");
    let limit = Duration::from_millis(300);
    let waited = one.lock("given back").claim(ClaimId::random()?).acquire_within(limit).await;
    ensure!(waited.is_err(), "two hold it");
    two.give_back(&ticket).await?;
    let by_id = two.lock("given back").ttl(LONG).claim(ClaimId::random()?);
    by_id.acquire().await?.release().await?;
    // With `min_hold` it stays, on a lease of its own.
    by_id.min_hold(Duration::from_secs(2)).acquire().await?.release().await?;
    ensure!(keys(&server, "given back")?.len() == 1, "it did not stay");
    eventually("it ends", async || Ok(keys(&server, "given back")?.is_empty().then_some(()))).await;
    for keeper in [&one, &two] {
        ensure!(keeper.close(PATIENT).await, "it did not come to rest");
    }
    ensure!(leases(&server)?.is_empty(), "{:?}", leases(&server)?);
    Ok(())
}

/// etcd cannot change the length of a lease. One that is longer than what is asked for will do.
async fn a_longer_ttl_is_another_lease(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let one = keeper(&server, LASTING).await?;
    let ticket = one.lock("ttl").ttl(LONG).acquire().await?.hand_out().await?;
    ensure!(one.close(PATIENT).await, "it did not come to rest");
    let before = leases(&server)?;
    ensure!(before.len() == 1, "{before:?}");
    one.keep(&ticket).await?;
    ensure!(leases(&server)? == before, "the same ttl took another lease");
    // A lease lasts for whole seconds; what is promised is no longer than what was asked for.
    let shorter = ticket.clone().with_ttl(Duration::from_millis(5500));
    let left = one.keep(&shorter).await?;
    ensure!(left <= shorter.ttl, "promised for {left:?}");
    ensure!(leases(&server)? == before, "a shorter ttl took another lease");
    let longer = ticket.clone().with_ttl(LONG * 2);
    let left = one.keep(&longer).await?;
    ensure!(left > LONG, "promised for {left:?}");
    let after = leases(&server)?;
    ensure!(after.len() == 1 && after != before, "{before:?}, then {after:?}");
    one.keep(&longer).await?;
    ensure!(leases(&server)? == after, "the same ttl took another lease");
    one.give_back(&ticket).await?;
    ensure!(keys(&server, "ttl")?.is_empty(), "{:?}", keys(&server, "ttl")?);
    ensure!(leases(&server)?.is_empty(), "{:?}", leases(&server)?);
    Ok(())
}

async fn one_who_waits_by_id_and_dies_is_soon_out_of_the_way(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let proxy = network(&server).await?;
    let url = format!("etcd://{}?session=3s&timeout=500ms", proxy.address());
    let (one, two) = (lockkeeper::connect(&url).await?, keeper(&server, LASTING).await?);
    let held = two.lock("dies").ttl(LONG).acquire().await?;
    let lock = one.lock("dies").ttl(LONG).claim(ClaimId::random()?);
    let dies = tokio::spawn(async move { lock.acquire_within(LONG).await });
    // Longer than its lease lasts by itself: it keeps itself alive while it waits.
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(keys(&server, "dies")?.len() == 2, "{:?}", keys(&server, "dies")?);
    proxy.partition();
    held.release().await?;
    let next = two.lock("dies").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(next.is_held(), "{:?}", next.lost_reason());
    dies.abort();
    Ok(())
}

async fn a_ticket_tells_why_it_is_lost(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let ticket = one.lock("broken").ttl(LONG).acquire().await?.hand_out().await?;
    let taken_over = two.take_over(&ticket).await?;
    let token = ticket.token.context("no token")?;
    one.break_hold("broken", token, "it hung").await?;
    lost(&taken_over).await?;
    let reason = taken_over.lost_reason();
    let told =
        matches!(&reason, Some(LossReason::Broken { reason }) if reason.starts_with("it hung"));
    ensure!(told, "{reason:?}");
    // Also one who never saw the key finds the reason.
    for said in [one.keep(&ticket).await.map(drop), two.give_back(&ticket).await] {
        let error = said.err().context("a broken claim was kept")?;
        ensure!(error.kind() == ErrorKind::Lost, "{error}");
        ensure!(error.to_string().contains("it hung"), "{error}");
    }
    ensure!(one.close(PATIENT).await, "it did not come to rest");
    ensure!(leases(&server)?.is_empty(), "{:?}", leases(&server)?);
    Ok(())
}

/// A keeper uses its keys again.
async fn a_key_that_was_handed_out_is_not_taken_for_the_next_claim(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let read = || one.rw_lock("readers").ttl(SOON).read();
    let handed_out = two.take_over(&read().acquire().await?.hand_out().await?).await?;
    let beside = read().acquire().await?;
    ensure!(beside.token() > handed_out.token(), "one claim for two");
    beside.release().await?;
    // Longer than the keeper remembers that the key is not free.
    tokio::time::sleep(SOON + Duration::from_secs(6)).await;
    ensure!(handed_out.is_held(), "{:?}", handed_out.lost_reason());
    let tried = read().try_acquire().await?.context("a reader kept a reader out")?;
    let beside = read().acquire().await?;
    ensure!(tried.token() > handed_out.token(), "one claim for two");
    ensure!(beside.token() > tried.token(), "one claim for two");
    ensure!(keys(&server, "readers")?.len() == 3, "{:?}", keys(&server, "readers")?);
    for guard in [handed_out, beside, tried] {
        guard.release().await?;
    }
    ensure!(keys(&server, "readers")?.is_empty(), "{:?}", keys(&server, "readers")?);
    Ok(())
}
