//! A name that is handed on by the very statement that gives it back: to whom, and to whom not.

use super::{LONG, PATIENT, keeper, number, queue_of, start, waiting};
use crate::intruder::Intruder;
use crate::query;
use anyhow::{Result, ensure};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

cases!(
    a_reader_that_goes_lets_no_writer_in_beside_another,
    a_writer_that_goes_lets_all_readers_in,
    a_dead_waiter_is_handed_nothing,
    one_who_left_meanwhile_is_handed_nothing,
    one_whose_row_is_gone_queues_again,
    one_who_comes_back_at_once_keeps_nobody_out,
);

/// How often the row of a name is changed under one who steps into its queue. Two are enough; a server
/// may tell of a wait a moment after it is over.
const CHANGES: u32 = 12;

type Waiting = tokio::task::JoinHandle<lockkeeper::Result<Guard>>;

fn reading(keeper: &Keeper, name: &str) -> Waiting {
    let lock = keeper.rw_lock(name).read().ttl(LONG);
    tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await })
}

fn writing(keeper: &Keeper, name: &str) -> Waiting {
    let lock = keeper.rw_lock(name).write().ttl(LONG);
    tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await })
}

/// A holder that was handed the name while others waited, so that it hands it on likewise.
async fn handed(keeper: &Keeper, name: &str, take: fn(&Keeper, &str) -> Waiting) -> Result<Guard> {
    let first = keeper.rw_lock(name).write().ttl(LONG).acquire().await?;
    let next = take(keeper, name);
    queue_of(keeper, name, 1).await;
    let behind = waiting(keeper, name);
    queue_of(keeper, name, 2).await;
    first.release().await?;
    let next = next.await??;
    behind.abort();
    queue_of(keeper, name, 0).await;
    Ok(next)
}

async fn a_reader_that_goes_lets_no_writer_in_beside_another(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let keeper = keeper(&server, "").await?;
    let one = keeper.rw_lock("read").read().ttl(LONG).acquire().await?;
    let two = keeper.rw_lock("read").read().ttl(LONG).acquire().await?;
    let writer = writing(&keeper, "read");
    queue_of(&keeper, "read", 1).await;
    two.release().await?;
    let seen = keeper.show("read").await?;
    ensure!(seen.holders.len() == 1 && seen.waiters.len() == 1, "{seen:?}");
    ensure!(!writer.is_finished(), "a writer is beside a reader");
    one.release().await?;
    writer.await??.release().await?;
    Ok(())
}

async fn a_writer_that_goes_lets_all_readers_in(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let keeper = keeper(&server, "").await?;
    let writer = handed(&keeper, "written", writing).await?;
    let readers = [reading(&keeper, "written"), reading(&keeper, "written")];
    queue_of(&keeper, "written", 2).await;
    writer.release().await?;
    let seen = keeper.show("written").await?;
    ensure!(seen.holders.len() == 2, "one comes after the other: {seen:?}");
    for reader in readers {
        reader.await??.release().await?;
    }
    Ok(())
}

/// The smallest ticket of those who wait for the name.
fn first(server: &Server, name: &str) -> Result<i64> {
    number(
        server,
        &format!("SELECT min(ticket) FROM lockkeeper_claim WHERE name = '{name}' AND state = 9"),
    )
}

async fn a_dead_waiter_is_handed_nothing(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let keeper = keeper(&server, "").await?;
    let held = handed(&keeper, "dead", writing).await?;
    let next = waiting(&keeper, "dead");
    queue_of(&keeper, "dead", 1).await;
    let before = first(&server, "dead")? - 1;
    query(
        &server,
        &format!(
            "INSERT INTO lockkeeper_claim SELECT name, state, {before}, id, owner, 'dead', mode, \
             token, ttl, since, expires, identity, note FROM lockkeeper_claim \
             WHERE name = 'dead' AND state = 9"
        ),
    )?;
    query(&server, "UPDATE lockkeeper SET waiting = waiting + 1 WHERE name = 'dead'")?;
    held.release().await?;
    let left = "SELECT count(*) FROM lockkeeper_claim WHERE process = 'dead'";
    ensure!(number(&server, left)? == 0, "it was handed to a dead process");
    next.await??.release().await?;
    Ok(())
}

/// It leaves in a transaction of which the statement that gives back has seen nothing when it begins.
async fn one_who_left_meanwhile_is_handed_nothing(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let keeper = keeper(&server, "").await?;
    let held = handed(&keeper, "left", writing).await?;
    let leaves = waiting(&keeper, "left");
    queue_of(&keeper, "left", 1).await;
    let stays = waiting(&keeper, "left");
    queue_of(&keeper, "left", 2).await;
    let ticket = first(&server, "left")?;
    let mut leaving = Intruder::enter(server.port()).await?;
    leaving
        .run(&format!(
            "BEGIN; UPDATE lockkeeper SET version = version + 1, waiting = waiting - 1 \
             WHERE name = 'left'; DELETE FROM lockkeeper_claim WHERE name = 'left' \
             AND state = 9 AND ticket = {ticket}"
        ))
        .await?;
    let released = tokio::spawn(async move { held.release().await });
    eventually("the release waits for the row", async || {
        Ok(crate::is_waited_for(&server)?.then_some(()))
    })
    .await;
    leaving.run("COMMIT").await?;
    released.await??;
    let next = tokio::time::timeout(PATIENT, stays).await???;
    ensure!(!leaves.is_finished(), "one who had left holds it too");
    leaves.abort();
    next.release().await?;
    Ok(())
}

/// As after it was handed the name and did not hear of it in time, and another looked at the name.
async fn one_whose_row_is_gone_queues_again(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let keeper = keeper(&server, "").await?;
    let held = keeper.lock("gone").ttl(LONG).acquire().await?;
    let next = waiting(&keeper, "gone");
    queue_of(&keeper, "gone", 1).await;
    query(&server, "DELETE FROM lockkeeper_claim WHERE name = 'gone' AND state = 9")?;
    let gone = "UPDATE lockkeeper SET version = version + 1, waiting = 0 WHERE name = 'gone'";
    query(&server, gone)?;
    queue_of(&keeper, "gone", 1).await;
    held.release().await?;
    next.await??.release().await?;
    Ok(())
}

/// Others change the row of the name whenever the one who asks has read it: when that one waits for the
/// row, the next of them waits behind it before the row is let go. So does a holder that takes and frees
/// the name in a loop. The one who asks waits once for its try and once for its place in the queue; to go
/// by what it read before would be in vain each time.
async fn one_who_comes_back_at_once_keeps_nobody_out(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let (holder, other) = (keeper(&server, "").await?, keeper(&server, "").await?);
    let held = holder.lock("often").ttl(LONG).acquire().await?;
    let change = "BEGIN; UPDATE lockkeeper SET version = version + 1 WHERE name = 'often'";
    let port = server.port();
    let (mut changes, mut next) = (Intruder::enter(port).await?, Intruder::enter(port).await?);
    changes.run(change).await?;
    let asks = waiting(&other, "often");
    let mut times = 0;
    // Read while the row is locked.
    while holder.show("often").await?.waiters.is_empty() {
        ensure!(times < CHANGES, "not in the queue after the row was changed {times} times");
        if crate::is_waited_for(&server)? {
            let behind = tokio::spawn(async move { next.run(change).await.map(|()| next) });
            // It is behind the one who asks by then. Were it not, that one would only have it easier.
            tokio::time::sleep(Duration::from_millis(100)).await;
            changes.run("COMMIT").await?;
            next = std::mem::replace(&mut changes, behind.await??);
            times += 1;
        }
    }
    changes.run("COMMIT").await?;
    held.release().await?;
    asks.await??.release().await?;
    Ok(())
}
