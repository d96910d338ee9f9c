//! Answers that are lost on the way: the server did what was asked, and nobody heard of it.
//!
//! The connection ends in place of the answer to the nth piece that a client sends, for every n: so
//! also in place of the answer to each commit. Whatever a client believes then, no two hold the
//! lock, and what nobody holds is free again.

use super::{PATIENT, keeper, start};
use crate::KIND;
use anyhow::{Result, ensure};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::cases;
use lockkeeper_lab::proxy::{Proxy, Step};
use lockkeeper_lab::server::{Lab, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

cases!(
    a_lost_answer_leaves_one_holder_or_none_in_the_table,
    a_lost_answer_leaves_one_holder_or_none_of_a_locked_row,
    a_lost_answer_to_a_hand_over_leaves_one_holder_or_none,
);

/// How long a claim lasts that nobody gives back.
const TTL: Duration = Duration::from_secs(3);
/// More pieces than an acquisition and a release send, with a wait between them and heartbeats.
const PIECES: i64 = 20;

/// A network that loses an answer on command.
struct Lossy {
    proxy: Proxy,
    /// How many pieces pass before the one whose answer is lost; below zero when none is to be.
    passing: Arc<AtomicI64>,
}

impl Lossy {
    async fn before(server: &Server) -> Result<Self> {
        let upstream = server.address().parse()?;
        let passing = Arc::new(AtomicI64::new(-1));
        let left = passing.clone();
        let readers = move || -> lockkeeper_lab::proxy::Reader {
            let left = left.clone();
            Box::new(move |_| match left.fetch_sub(1, Ordering::SeqCst) {
                0 => Step::EndInstead,
                _ => Step::Pass,
            })
        };
        // It has a runtime of its own.
        let started = tokio::task::spawn_blocking(move || Proxy::start_read(upstream, readers));
        Ok(Self { proxy: started.await??, passing })
    }

    async fn keeper(&self, options: &str) -> Result<Keeper> {
        super::through(&self.proxy, options).await
    }

    /// Loses the answer to the piece behind so many.
    fn lose_after(&self, passing: i64) {
        self.passing.store(passing, Ordering::SeqCst);
    }

    /// Whether it was lost; none is from here on.
    fn has_lost(&self) -> bool {
        self.passing.swap(-1, Ordering::SeqCst) < 0
    }
}

async fn a_lost_answer_leaves_one_holder_or_none_in_the_table(lab: &Lab) -> Result<()> {
    alone(lab, "recipe=table", true).await
}

async fn a_lost_answer_leaves_one_holder_or_none_of_a_locked_row(lab: &Lab) -> Result<()> {
    alone(lab, "recipe=for-update&session=3s", false).await
}

/// One who takes the lock and gives it back, with each answer lost in turn; and another who looks.
/// What is in a row outlasts its connection, so that its release is asked for again, and well.
async fn alone(lab: &Lab, options: &str, outlasts: bool) -> Result<()> {
    let server = start(lab)?;
    let network = Lossy::before(&server).await?;
    let (one, other) = (network.keeper(options).await?, keeper(&server, options).await?);
    one.lock("doubt").ttl(TTL).acquire().await?.release().await?;
    let mut lost = 0;
    for passing in 0..PIECES {
        network.lose_after(passing);
        let held = one.lock("doubt").ttl(TTL).acquire_within(PATIENT).await.ok();
        judge(&other, "doubt", held.as_ref()).await?;
        if let Some(held) = held {
            // It may be this whose answer is lost.
            let released = held.release().await;
            ensure!(!outlasts || released.is_ok(), "it was given back, and {released:?}");
        }
        lost += i64::from(network.has_lost());
        is_free(&other, "doubt").await?;
    }
    ensure!(lost > 1, "unknown: {lost} answers were lost, and there are at least two commits");
    Ok(())
}

/// One who waits and is handed the lock, with each answer lost in turn.
async fn a_lost_answer_to_a_hand_over_leaves_one_holder_or_none(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let network = Lossy::before(&server).await?;
    let (one, other) = (network.keeper("").await?, keeper(&server, "").await?);
    let mut lost = 0;
    for passing in 0..PIECES {
        let first = other.lock("handed").ttl(super::LONG).acquire_within(PATIENT).await?;
        network.lose_after(passing);
        let lock = one.lock("handed").ttl(TTL);
        let waiting = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        first.release().await?;
        let held = waiting.await?.ok();
        judge(&other, "handed", held.as_ref()).await?;
        if let Some(held) = held {
            let released = held.release().await;
            ensure!(released.is_ok(), "it was given back, and {released:?}");
        }
        lost += i64::from(network.has_lost());
        is_free(&other, "handed").await?;
    }
    ensure!(lost > 3, "unknown: {lost} answers were lost");
    Ok(())
}

/// No two hold it: while the holder believes, the other is refused.
async fn judge(other: &Keeper, name: &str, held: Option<&Guard>) -> Result<()> {
    let second = other.lock(name).ttl(TTL).try_acquire().await?;
    if let (Some(second), Some(held)) = (&second, held) {
        ensure!(!held.is_held(), "two hold it: {:?} and {:?}", held.token(), second.token());
    }
    if let Some(second) = second {
        second.release().await?;
    }
    Ok(())
}

/// Nothing was left that lasts: a waiter that waits for as long as a claim lasts, gets it.
async fn is_free(other: &Keeper, name: &str) -> Result<()> {
    let limit = TTL + Duration::from_secs(10);
    match other.lock(name).ttl(TTL).acquire_within(limit).await {
        Ok(guard) => Ok(guard.release().await?),
        Err(error) => anyhow::bail!("a claim was left on {} that lasts: {error}", KIND.word()),
    }
}
