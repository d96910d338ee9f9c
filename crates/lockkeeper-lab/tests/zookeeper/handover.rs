//! From one to the next: what that costs, and that nobody is let in by mistake.

use crate::raw::Raw;
use crate::tap::Tap;
use crate::{LONG, PATIENT, cases, keeper, proxy, queue_of};
use anyhow::{Context, Result, ensure};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::proxy::{Direction, Flow};
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;
use tokio::task::JoinHandle;

cases![
    what_a_keeper_knows_is_not_asked,
    few_of_a_crowd_have_to_ask,
    permits_and_readers_are_let_in_unasked,
    one_who_waits_in_between_and_goes_lets_nobody_in,
    one_whose_own_node_went_first_is_not_next,
    one_who_was_away_meanwhile_looks_again,
    nothing_is_known_of_a_lock_made_anew,
    a_session_that_was_silent_is_asked_first,
];

type Waiter = JoinHandle<lockkeeper::Result<Guard>>;

/// Long enough for a mistake to show.
const MOMENT: Duration = Duration::from_millis(400);

async fn other(server: &Server) -> Result<Keeper> {
    keeper(&format!("{}/l", server.url()), "session=20s").await
}

/// One more in the queue, which then has `length`, as `seer` sees it.
async fn waiter(keeper: &Keeper, seer: &Keeper, length: usize) -> Result<Waiter> {
    let lock = keeper.lock("n").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queue_of(seer, "n", length).await?;
    Ok(waiter)
}

/// Deletes the node at this place of the queue.
fn delete(raw: &mut Raw, place: usize) -> Result<()> {
    let nodes = nodes(raw)?;
    raw.delete(nodes.get(place).context("the queue is too short")?)
}

/// The nodes of the queue, in order.
fn nodes(raw: &mut Raw) -> Result<Vec<String>> {
    let mut nodes = raw.children("/l/n")?;
    nodes.sort_by_key(|node| node[node.len() - 10..].to_owned());
    Ok(nodes.into_iter().map(|node| format!("/l/n/{node}")).collect())
}

async fn what_a_keeper_knows_is_not_asked(lab: &Lab) -> Result<()> {
    const WAITERS: usize = 12;
    let server = lab.zookeeper().tick(2000).start()?;
    let seer = other(&server).await?;
    // All of one keeper; then of two that take turns, so that each sees the other's go.
    for count in [1, 2] {
        let (mut taps, mut keepers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let tap = Tap::before(&server.address())?;
            keepers.push(keeper(&format!("{}/l", tap.url()), "session=20s").await?);
            taps.push(tap);
        }
        let first = keepers[0].lock("n").ttl(LONG).acquire().await?;
        let mut waiters = Vec::new();
        for number in 1..=WAITERS {
            waiters.push(waiter(&keepers[number % count], &seer, number).await?);
        }
        // Until they watch what they are to watch.
        tokio::time::sleep(MOMENT).await;
        taps.iter().for_each(Tap::clear);
        first.release().await?;
        let mut last = None;
        for waiter in waiters {
            let guard = waiter.await??;
            ensure!(guard.token() > last, "out of turn");
            last = guard.token();
            guard.release().await?;
        }
        let sum = |what: fn(&Tap) -> usize| taps.iter().map(what).sum::<usize>();
        ensure!(sum(Tap::deletes) == WAITERS + 1, "{} were deleted", sum(Tap::deletes));
        ensure!(sum(Tap::listings) == 0, "{count} keepers listed {}", sum(Tap::listings));
        ensure!(sum(Tap::syncs) == 0, "{count} keepers asked {} times", sum(Tap::syncs));
    }
    Ok(())
}

async fn few_of_a_crowd_have_to_ask(lab: &Lab) -> Result<()> {
    const WAITERS: usize = 600;
    let server = lab.zookeeper().tick(2000).start()?;
    let (mut taps, mut keepers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let tap = Tap::before(&server.address())?;
        keepers.push(keeper(&format!("{}/l", tap.url()), "session=20s&timeout=15s").await?);
        taps.push(tap);
    }
    let first = keepers[0].lock("n").ttl(LONG).acquire().await?;
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..WAITERS {
        let lock = keepers[number % 2].lock("n").ttl(LONG);
        waiters.spawn(async move { lock.acquire_within(PATIENT * 4).await?.release().await });
    }
    queue_of(&keepers[0], "n", WAITERS).await?;
    tokio::time::sleep(MOMENT).await;
    taps.iter().for_each(Tap::clear);
    first.release().await?;
    while let Some(waiter) = waiters.join_next().await {
        waiter??;
    }
    let listings: usize = taps.iter().map(Tap::listings).sum();
    println!("{listings} listings for {WAITERS} hand-overs");
    ensure!(listings * 3 < WAITERS, "{listings} listings for {WAITERS} hand-overs");
    Ok(())
}

async fn permits_and_readers_are_let_in_unasked(lab: &Lab) -> Result<()> {
    const OF: u32 = 2;
    let server = lab.zookeeper().tick(2000).start()?;
    let (seer, tap) = (other(&server).await?, Tap::before(&server.address())?);
    let one = keeper(&format!("{}/l", tap.url()), "session=20s").await?;
    let gate = one.semaphore("n", OF).ttl(LONG);
    let (left, right) = (gate.acquire().await?, gate.acquire().await?);
    let mut waiters = Vec::new();
    for number in 1..=4 {
        let gate = one.semaphore("n", OF).ttl(LONG);
        waiters.push(tokio::spawn(async move { gate.acquire_within(PATIENT).await }));
        queue_of(&seer, "n", number).await?;
    }
    tokio::time::sleep(MOMENT).await;
    tap.clear();
    // Out of turn: the later one goes first.
    right.release().await?;
    let mut held = vec![left];
    while !waiters.is_empty() {
        held.push(waiters.remove(0).await??);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let more = waiters.iter().filter(|waiter| waiter.is_finished()).count();
        ensure!(held.len() == 2 && more == 0, "{} are in, and {more} more", held.len());
        held.remove(0).release().await?;
    }
    drop(held);
    // One who is woken with another still before it has to look; it is not everyone.
    ensure!(tap.listings() <= 2, "it listed {} times", tap.listings());

    // Readers and writers of Curator's layout may have a number twice: they always look.
    let writing = one.rw_lock("n").write().ttl(LONG).acquire().await?;
    let lock = one.rw_lock("n").read().ttl(LONG);
    let reading = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queue_of(&seer, "n", 1).await?;
    tap.clear();
    writing.release().await?;
    reading.await??.release().await?;
    ensure!(tap.listings() > 0, "a number that may be there twice was trusted");
    Ok(())
}

async fn one_who_waits_in_between_and_goes_lets_nobody_in(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(2000).start()?;
    let (one, two) = (other(&server).await?, other(&server).await?);
    let mut raw = Raw::connect(&server.address())?;
    // Whether the holder is of the same keeper or of another.
    for holder in [&one, &two] {
        let guard = holder.lock("n").ttl(LONG).acquire().await?;
        let killed = other(&server).await?;
        let middle = waiter(&killed, &two, 1).await?;
        let last = waiter(&one, &two, 2).await?;
        tokio::time::sleep(MOMENT).await;
        delete(&mut raw, 1)?;
        // That one asks again, behind the last.
        queue_of(&two, "n", 2).await?;
        tokio::time::sleep(MOMENT).await;
        ensure!(!last.is_finished() && !middle.is_finished(), "someone was let in");
        guard.release().await?;
        last.await??.release().await?;
        middle.await??.release().await?;
    }
    Ok(())
}

async fn one_whose_own_node_went_first_is_not_next(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(2000).start()?;
    let proxy = proxy(&server, 21)?;
    let one = keeper(&format!("zookeeper://{}/l", proxy.address()), "session=20s").await?;
    let (two, mut raw) = (other(&server).await?, Raw::connect(&server.address())?);
    for _ in 0..5 {
        let guard = two.lock("n").ttl(LONG).acquire().await?;
        let robbed = waiter(&one, &two, 1).await?;
        let behind = waiter(&two, &two, 2).await?;
        tokio::time::sleep(MOMENT).await;
        // It hears of both at once.
        proxy.set(Direction::ToClient, Flow::Hold);
        delete(&mut raw, 1)?;
        guard.release().await?;
        let next = behind.await??;
        proxy.heal();
        tokio::time::sleep(MOMENT).await;
        ensure!(!robbed.is_finished(), "two hold it");
        next.release().await?;
        let guard = robbed.await??;
        ensure!(guard.is_held(), "it is not held");
        guard.release().await?;
    }
    Ok(())
}

async fn one_who_was_away_meanwhile_looks_again(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(2000).start()?;
    let proxy = proxy(&server, 22)?;
    let one = keeper(&format!("zookeeper://{}/l", proxy.address()), "session=20s").await?;
    let (two, mut raw) = (other(&server).await?, Raw::connect(&server.address())?);
    // With its own node deleted meanwhile, and without.
    for robbed in [true, false] {
        let guard = two.lock("n").ttl(LONG).acquire().await?;
        let away = waiter(&one, &two, 1).await?;
        let behind = waiter(&two, &two, 2).await?;
        tokio::time::sleep(MOMENT).await;
        proxy.refuse(true);
        proxy.reset();
        if robbed {
            delete(&mut raw, 1)?;
        }
        guard.release().await?;
        if robbed {
            let next = behind.await??;
            proxy.heal();
            // Until it is in the queue again.
            queue_of(&two, "n", 1).await?;
            tokio::time::sleep(MOMENT).await;
            ensure!(!away.is_finished(), "two hold it");
            next.release().await?;
            away.await??.release().await?;
        } else {
            proxy.heal();
            let guard = away.await??;
            ensure!(!behind.is_finished() && guard.is_held(), "two hold it, or none");
            guard.release().await?;
            behind.await??.release().await?;
        }
    }
    Ok(())
}

async fn nothing_is_known_of_a_lock_made_anew(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(2000).start()?;
    let proxy = proxy(&server, 23)?;
    let one = keeper(&format!("zookeeper://{}/l", proxy.address()), "session=20s").await?;
    let (two, mut raw) = (other(&server).await?, Raw::connect(&server.address())?);
    for _ in 0..5 {
        two.lock("n").ttl(LONG).acquire().await?.release().await?;
    }
    let guard = two.lock("n").ttl(LONG).acquire().await?;
    let waiters = [waiter(&one, &two, 1).await?, waiter(&one, &two, 2).await?];
    tokio::time::sleep(MOMENT).await;
    // What they do about it waits until others have made the lock anew.
    proxy.set(Direction::ToServer, Flow::Hold);
    // The last first, so that nobody is let in on the way.
    for node in nodes(&mut raw)?.iter().rev() {
        raw.delete(node)?;
    }
    raw.delete("/l/n")?;
    tokio::time::timeout(PATIENT, guard.lost()).await?;
    drop(guard);
    let anew = two.lock("n").ttl(LONG).acquire().await?;
    let number = |node: &String| node.ends_with("0000000000");
    ensure!(nodes(&mut raw)?.first().is_some_and(number), "the numbers did not begin anew");
    let middle = waiter(&two, &two, 1).await?;
    proxy.heal();
    queue_of(&two, "n", 3).await?;
    tokio::time::sleep(MOMENT).await;
    // With the one in the middle gone they look, and it is not for want of smaller numbers.
    delete(&mut raw, 1)?;
    queue_of(&two, "n", 3).await?;
    tokio::time::sleep(MOMENT).await;
    ensure!(!waiters.iter().any(JoinHandle::is_finished), "two hold it");
    anew.release().await?;
    // In whichever order they came back.
    let through = async |waiter: Waiter| anyhow::Ok(waiter.await??.release().await?);
    let [first, second] = waiters;
    tokio::try_join!(through(first), through(second), through(middle))?;
    Ok(())
}

async fn a_session_that_was_silent_is_asked_first(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().tick(500).start()?;
    let (two, proxy) = (other(&server).await?, proxy(&server, 24)?);
    // A claim counts for two seconds of it at a time.
    let url = format!("zookeeper://{}/l", proxy.address());
    let one = keeper(&url, "session=4s&timeout=4s").await?;
    let guard = two.lock("n").ttl(LONG).acquire().await?;
    let next = waiter(&one, &two, 1).await?;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    proxy.set(Direction::ToServer, Flow::Hold);
    guard.release().await?;
    tokio::time::sleep(MOMENT).await;
    ensure!(!next.is_finished(), "it holds it by what was true long ago");
    proxy.heal();
    let guard = next.await??;
    // As much is left of it as of a hold that was just taken.
    ensure!(guard.remaining() > Duration::from_millis(1400), "{:?} is left", guard.remaining());
    guard.release().await?;
    Ok(())
}
