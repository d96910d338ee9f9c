//! memcached forgets: restarts, evictions, flushes. Exclusion is best effort then, and the token is
//! what holds.

use crate::{LONG, PATIENT, SHORT, behind, by_hand, cases, has, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::Moment;
use lockkeeper::fence::Register;
use lockkeeper::{ErrorKind, FencingToken, Guard, Keeper, LossReason};
use lockkeeper_lab::server::{Lab, Server};
use lockkeeper_lab::trials::eventually;

cases!(
    a_holder_learns_of_a_restart_at_its_next_renewal,
    a_holder_learns_of_a_server_that_is_gone_at_its_deadline,
    tokens_grow_over_restarts,
    a_version_of_before_a_restart_changes_nothing_after_it,
    what_is_evicted_another_gets_and_the_fence_refuses_the_first,
    a_flush_is_noticed_and_tokens_still_grow,
    a_server_that_may_not_evict_says_that_it_is_full,
);

fn token(guard: &Guard) -> Result<FencingToken> {
    guard.token().context("a token")
}

async fn a_holder_learns_of_a_restart_at_its_next_renewal(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    let held = keeper.lock("a").ttl(LONG / 4).acquire().await?;
    let deadline = Moment::now() + held.remaining();
    server.kill()?;
    server.restart()?;
    tokio::time::timeout(PATIENT, held.lost()).await.context("the loss is noticed")?;
    ensure!(held.lost_reason() == Some(LossReason::Gone), "{:?}", held.lost_reason());
    ensure!(!deadline.remaining().is_zero(), "unknown: its deadline had come as well");
    keeper.lock("a").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

async fn a_holder_learns_of_a_server_that_is_gone_at_its_deadline(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    let held = keeper.lock("a").ttl(SHORT).acquire().await?;
    server.kill()?;
    let deadline = Moment::now() + held.remaining();
    tokio::time::timeout(PATIENT, held.lost()).await.context("the loss is noticed")?;
    ensure!(held.lost_reason() == Some(LossReason::Expired), "{:?}", held.lost_reason());
    ensure!(deadline.remaining().is_zero(), "it was given up before its deadline");
    Ok(())
}

async fn tokens_grow_over_restarts(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    let mut last = None;
    for round in 0..4 {
        // As many as fit, so that a counter alone would be ahead of the next life's.
        for _ in 0..200 {
            let guard = keeper.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
            let token = token(&guard)?;
            ensure!(Some(token) > last, "round {round}: {token} after {last:?}");
            last = Some(token);
            guard.release().await?;
        }
        server.kill()?;
        // At once: two lives may begin in one second.
        server.restart()?;
    }
    Ok(())
}

/// The CAS begins at one with every life, so that the claim of the second has the very CAS that the
/// first one remembers of its own.
async fn a_version_of_before_a_restart_changes_nothing_after_it(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let ((one, proxy), two) = (behind(&server, "2s").await?, keeper(&server).await?);
    let first = one.lock("n").ttl(LONG).acquire().await?;
    // The first one hears nothing of the restart until the second has the lock.
    proxy.partition();
    server.kill()?;
    server.restart()?;
    let second = two.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
    let shown = by_hand(&server, "mg lockkeeper:n c")?;
    ensure!(shown.starts_with("HD c1\r\n"), "unknown: the second has another CAS: {shown:?}");
    ensure!(first.is_held(), "unknown: the first knows already");
    proxy.heal();
    // Its next request, a renewal or the release, is on a connection to the second life.
    tokio::time::sleep(SHORT / 4).await;
    drop(first);
    ensure!(one.close(PATIENT).await, "it did not come to rest");
    let shown = two.show("n").await?;
    ensure!(shown.holders.first().is_some_and(|it| it.token == second.token()), "{shown:?}");
    ensure!(second.is_held(), "{:?}", second.lost_reason());
    second.release().await?;
    Ok(())
}

/// Stores until the lock's key is gone.
fn evict(server: &Server, key: &str) -> Result<()> {
    for round in 0..400 {
        // Items are kept by size, and only those of the lock's size make it go.
        let size = 120 + 20 * (round % 16);
        let value = "x".repeat(size);
        let item = |number| format!("ms filler{round}-{number} {size} q\r\n{value}\r\n");
        let batch: String = (0..2000).map(item).collect();
        by_hand(server, batch.trim_end())?;
        // `me` looks without being counted as a use, which would keep the item.
        if by_hand(server, &format!("me {key}"))?.starts_with("EN") {
            return Ok(());
        }
    }
    anyhow::bail!("unknown: {key} was not evicted")
}

async fn what_is_evicted_another_gets_and_the_fence_refuses_the_first(lab: &Lab) -> Result<()> {
    let server = lab.memcached().options(&["-m", "2"]).start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let first = one.lock("n").ttl(LONG).note(&"n".repeat(100)).acquire().await?;
    let account = Register::new(100);
    let seen_by_first = account.enter(token(&first)?)?;
    evict(&server, "lockkeeper:n")?;
    let second = two.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
    // This is what best effort means: the first cannot know yet.
    ensure!(first.is_held(), "unknown: the first was told before it could write");
    let seen_by_second = account.enter(token(&second)?)?;
    account.write(token(&second)?, seen_by_second - 20)?;
    let refused = account.write(token(&first)?, seen_by_first - 10);
    ensure!(refused.is_err(), "a stale writer was let in");
    ensure!(account.read() == 80, "an update was lost");
    let released = first.release().await;
    ensure!(released.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost), "{released:?}");
    ensure!(second.is_held() && has(&server, "lockkeeper:n")?, "the first took the second's");
    second.release().await?;
    Ok(())
}

async fn a_flush_is_noticed_and_tokens_still_grow(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper: Keeper = keeper(&server).await?;
    let held = keeper.lock("n").ttl(SHORT).acquire().await?;
    let before = token(&held)?;
    // A flush takes what is older than the present second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    by_hand(&server, "flush_all")?;
    tokio::time::timeout(PATIENT, held.lost()).await.context("the loss is noticed")?;
    let next = keeper.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(token(&next)? > before, "{before} and then {:?}", next.token());
    Ok(())
}

async fn a_server_that_may_not_evict_says_that_it_is_full(lab: &Lab) -> Result<()> {
    let server = lab.memcached().options(&["-m", "2", "-M"]).start()?;
    let keeper = keeper(&server).await?;
    let held = keeper.lock("held").ttl(LONG).acquire().await?;
    let note = "n".repeat(600);
    let value = "x".repeat(700);
    let mut round = 0;
    eventually("it is full", async || {
        round += 1;
        let item = |number| format!("ms filler{round}-{number} 700 q\r\n{value}\r\n");
        let batch: String = (0..500).map(item).collect();
        Ok(by_hand(&server, batch.trim_end())?.contains("out of memory").then_some(()))
    })
    .await;
    let error = eventually("a claim is refused", async || {
        Ok(keeper.lock("full").note(&note).ttl(LONG).try_acquire().await.err())
    })
    .await;
    ensure!(error.kind() == ErrorKind::Store, "{error:?}");
    ensure!(error.to_string().contains("-m"), "{error}");
    held.release().await?;
    Ok(())
}
