//! Locks whose node has nearly counted to the end of its numbers, or has.

use crate::raw::Raw;
use crate::snapshot::{Counted, restart_with};
use crate::{LONG, PATIENT, cases, eventually, keeper, queue_of};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, FencingToken, Keeper};
use lockkeeper_lab::server::{Lab, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

cases![
    at_the_last_number_one_holds_at_a_time,
    a_crowd_that_never_leaves_is_let_through,
    a_queue_near_the_end_keeps_its_order_and_starts_over,
    one_who_counts_on_beyond_the_end_is_refused_until_it_is_gone,
    a_node_that_starts_over_keeps_what_it_says,
    a_seal_near_the_end_is_still_one,
];

/// What ZooKeeper gives to every child from some time on.
const LAST: i32 = i32::MAX;
/// From here on the last client to leave has the numbers start over.
const LATE: i32 = 1 << 30;
/// And from here on those who would have to wait see to it.
const CLOSING: i32 = LATE + (1 << 28);
/// And from here on no number is relied on.
const END: i32 = LATE + (1 << 29);

async fn server_at(lab: &Lab, children: i32, version: i32) -> Result<Server> {
    let server = lab.zookeeper().start()?;
    let counted = Counted { children, version };
    restart_with(&server, &[("/l", Counted::default()), ("/l/n", counted)])?;
    let mut raw = Raw::connect(&server.address())?;
    ensure!(raw.children("/l")? == ["n"], "the snapshot was not read");
    Ok(server)
}

async fn keepers(server: &Server, count: usize, options: &str) -> Result<Vec<Keeper>> {
    let mut keepers = Vec::new();
    for _ in 0..count {
        keepers.push(keeper(&format!("{}/l", server.url()), options).await?);
    }
    Ok(keepers)
}

fn number_of(node: &str) -> Result<i32> {
    let digits = node.rsplit_once("lock-").context("no claim")?.1;
    Ok(digits.parse()?)
}

/// Everyone of them takes the lock so many times and stays a moment: never two at once, and each
/// with a larger token than the one before.
async fn take_turns(keepers: &[Keeper], rounds: usize, stay: Duration) -> Result<()> {
    let inside = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(tokio::sync::Mutex::new(None::<FencingToken>));
    let mut tasks = Vec::new();
    for keeper in keepers {
        let (lock, inside, last) = (keeper.lock("n").ttl(LONG), inside.clone(), last.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let guard = lock.acquire_within(PATIENT).await?;
                let others = inside.fetch_add(1, Ordering::SeqCst);
                let before = std::mem::replace(&mut *last.lock().await, guard.token());
                tokio::time::sleep(stay).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                ensure!(others == 0, "{others} others held it too");
                ensure!(before < guard.token(), "{:?} came after {before:?}", guard.token());
                guard.release().await?;
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn at_the_last_number_one_holds_at_a_time(lab: &Lab) -> Result<()> {
    for left in [0, 3] {
        let server = server_at(lab, LAST - left, 0).await?;
        take_turns(&keepers(&server, 6, "session=10s").await?, 5, Duration::from_millis(5)).await?;
    }
    Ok(())
}

async fn a_crowd_that_never_leaves_is_let_through(lab: &Lab) -> Result<()> {
    let server = server_at(lab, CLOSING - 10, 0).await?;
    let keepers = keepers(&server, 6, "session=10s").await?;
    take_turns(&keepers, 20, Duration::from_millis(2)).await?;
    let guard = keepers[0].lock("n").ttl(LONG).acquire_within(PATIENT).await?;
    let mut raw = Raw::connect(&server.address())?;
    let node = raw.children("/l/n")?.remove(0);
    ensure!(number_of(&node)? < 1000, "its numbers did not start over: {node}");
    guard.release().await?;
    Ok(())
}

async fn a_queue_near_the_end_keeps_its_order_and_starts_over(lab: &Lab) -> Result<()> {
    let server = server_at(lab, LATE, 0).await?;
    let keepers = keepers(&server, 4, "session=10s").await?;
    let guard = keepers[0].lock("n").ttl(LONG).acquire().await?;
    let mut waiters = Vec::new();
    for (place, keeper) in keepers.iter().enumerate() {
        let lock = keeper.lock("n").ttl(LONG);
        waiters.push(tokio::spawn(async move { lock.acquire_within(PATIENT).await }));
        queue_of(&keepers[0], "n", place + 1).await?;
    }
    let mut last = guard.token();
    guard.release().await?;
    for waiter in waiters {
        let guard = waiter.await??;
        ensure!(guard.token() > last, "out of turn");
        last = guard.token();
        guard.release().await?;
    }
    let guard = keepers[0].lock("n").ttl(LONG).acquire().await?;
    let mut raw = Raw::connect(&server.address())?;
    ensure!(number_of(&raw.children("/l/n")?.remove(0))? == 0, "its numbers did not start over");
    ensure!(guard.token() > last, "the tokens did");
    guard.release().await?;
    Ok(())
}

/// Another library goes on, and is neither overtaken nor believed.
async fn one_who_counts_on_beyond_the_end_is_refused_until_it_is_gone(lab: &Lab) -> Result<()> {
    const CURATORS: &str = "/l/n/_c_658e40f9-714a-4667-8607-f50059b5ee9d-lock-";
    for begin in [END, LAST] {
        let server = server_at(lab, begin, 0).await?;
        let ours = keepers(&server, 1, "session=10s").await?.remove(0);
        let mut raw = Raw::connect(&server.address())?;
        let node = raw.create_numbered(CURATORS)?;
        ensure!(ours.lock("n").ttl(LONG).try_acquire().await?.is_none(), "both hold {node}");
        let refused = ours.lock("n").ttl(LONG).acquire_within(PATIENT).await;
        let error = refused.err().map(|error| (error.kind(), error.to_string()));
        let told = matches!(&error, Some((ErrorKind::Store, text)) if text.contains("/l/n"));
        ensure!(told, "{error:?}");
        ensure!(raw.children("/l/n")?.len() == 1, "something of the refused is left");
        raw.delete(&node)?;
        take_turns(&[ours], 2, Duration::ZERO).await?;
    }
    Ok(())
}

async fn a_node_that_starts_over_keeps_what_it_says(lab: &Lab) -> Result<()> {
    let server = server_at(lab, LATE, 0).await?;
    let one = keepers(&server, 1, "session=10s").await?.remove(0);
    let mut raw = Raw::connect(&server.address())?;
    raw.write("/l/n", "a note")?;
    one.lock("n").ttl(LONG).acquire().await?.release().await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    ensure!(number_of(&raw.children("/l/n")?.remove(0))? == 0, "its numbers did not start over");
    ensure!(raw.read("/l/n")? == "a note", "what was written to it is gone");
    guard.release().await?;
    Ok(())
}

/// With `recipe=ephemeral` it is the version of the lock's node that ends, and one of its
/// numbers means 'any'.
async fn a_seal_near_the_end_is_still_one(lab: &Lab) -> Result<()> {
    let server = server_at(lab, 0, -2).await?;
    let keepers = keepers(&server, 2, "session=10s&recipe=ephemeral").await?;
    let mut raw = Raw::connect(&server.address())?;
    for round in 0..4 {
        let first = keepers[0].lock("n").ttl(LONG).acquire().await?;
        // Before it is watched, or the loss is known before the release.
        raw.delete("/l/n/lock")?;
        let second = keepers[1].lock("n").ttl(LONG).try_acquire().await?;
        ensure!(second.is_some(), "what was deleted is not free");
        let _ = first.release().await;
        let left = raw.children("/l/n")?;
        ensure!(left == ["lock"], "round {round}: a late release took it from the next");
        drop(second);
        let begin = Instant::now();
        eventually("it is given back", async || raw.children("/l/n").is_ok_and(|c| c.is_empty()))
            .await?;
        ensure!(begin.elapsed() < PATIENT, "it was not");
    }
    Ok(())
}
