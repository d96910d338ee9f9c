//! Locks in ZooKeeper compared with the bare protocol, Curator and kazoo: ratios within one run.

mod bare;

use anyhow::{Context, Result};
use bare::Bare;
use lockkeeper::Keeper;
use lockkeeper_lab::interop::{Cache, Peer};
use lockkeeper_lab::server::Lab;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often each is measured, interleaved, so that a busy moment affects all of them.
const TURNS: usize = 7;
const CYCLES: u32 = 400;
const TASKS: usize = 64;
/// How long a lock is held before it is handed over.
const HELD: Duration = Duration::from_millis(3);

fn main() -> Result<()> {
    let lab = Lab::open()?;
    let server = lab.zookeeper().tick(2000).start()?;
    let cache = Cache::open()?;
    let url = format!("{}/bench", server.url());
    let mut curator = Peer::start(cache.curator()?, &url)?;
    let mut kazoo = Peer::start(cache.kazoo()?, &format!("{}/bench-kazoo", server.url()))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let (bare, keeper) = runtime.block_on(async {
        let bare = Arc::new(Bare::connect(&server.address()).await?);
        let keeper = lockkeeper::connect(&format!("{url}?session=20s")).await?;
        bare.make("/bare", 0).await;
        anyhow::Ok((bare, keeper))
    })?;
    let mut times: [Vec<Duration>; 6] = Default::default();
    for turn in 0..=TURNS {
        let measured = [
            runtime.block_on(bare_cycles(&bare, 1))?,
            runtime.block_on(our_cycles(&keeper, 1))?,
            peer_cycles(&mut curator)?,
            peer_cycles(&mut kazoo)?,
            runtime.block_on(bare_cycles(&bare, TASKS))?,
            runtime.block_on(our_cycles(&keeper, TASKS))?,
        ];
        // The first turn warms everything up, the JVM most of all.
        if turn > 0 {
            times.iter_mut().zip(measured).for_each(|(times, time)| times.push(time));
        }
    }
    let [alone, ours, curator, kazoo, alone_64, ours_64] = times.map(median);
    println!("acquire and release, one task: {ours:?}");
    ratio("of the bare protocol", alone, ours, 0.9);
    ratio("times Curator", curator, ours, 1.3);
    ratio("times kazoo", kazoo, ours, 2.0);
    println!("{TASKS} tasks, {TASKS} names, one session: {ours_64:?} each");
    ratio("of the bare protocol", alone_64, ours_64, 0.9);
    let least = runtime.block_on(bare_hand_overs(&server.address()))?;
    println!("bare delete until its watch tells: p50 {least:?}");
    for waiters in [16, 1000] {
        let time = runtime.block_on(our_hand_overs(&url, waiters))?;
        let share = time.as_secs_f64() / least.as_secs_f64();
        println!("hand-over with {waiters} waiters: p50 {time:?}, {share:.2} of that (goal 1.5)");
    }
    Ok(())
}

fn ratio(what: &str, other: Duration, ours: Duration, goal: f64) {
    let ratio = other.as_secs_f64() / ours.as_secs_f64();
    println!("  {ratio:.2} {what} ({other:?}; goal {goal})");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

async fn bare_cycles(bare: &Arc<Bare>, tasks: usize) -> Result<Duration> {
    for number in 0..tasks {
        bare.make(&format!("/bare/{number}"), 0).await;
    }
    let cycle = async |parent: &str| {
        let node = bare.create_and_list(parent).await;
        bare.delete(&node).await;
    };
    let begin = Instant::now();
    if tasks == 1 {
        for _ in 0..CYCLES {
            cycle("/bare/0").await;
        }
        return Ok(begin.elapsed() / CYCLES);
    }
    let each = CYCLES / 8;
    let mut running = tokio::task::JoinSet::new();
    for number in 0..tasks {
        let bare = bare.clone();
        running.spawn(async move {
            let parent = format!("/bare/{number}");
            for _ in 0..each {
                let node = bare.create_and_list(&parent).await;
                bare.delete(&node).await;
            }
        });
    }
    running.join_all().await;
    Ok(begin.elapsed() / each / u32::try_from(tasks)?)
}

async fn our_cycles(keeper: &Keeper, tasks: usize) -> Result<Duration> {
    let begin = Instant::now();
    if tasks == 1 {
        let lock = keeper.lock("one");
        for _ in 0..CYCLES {
            lock.acquire().await?.release().await?;
        }
        return Ok(begin.elapsed() / CYCLES);
    }
    let each = CYCLES / 8;
    let mut running = tokio::task::JoinSet::new();
    for number in 0..tasks {
        let lock = keeper.lock(format!("many-{number}"));
        running.spawn(async move {
            for _ in 0..each {
                lock.acquire().await?.release().await?;
            }
            Ok::<(), lockkeeper::Error>(())
        });
    }
    while let Some(task) = running.join_next().await {
        task??;
    }
    Ok(begin.elapsed() / each / u32::try_from(tasks)?)
}

fn peer_cycles(peer: &mut Peer) -> Result<Duration> {
    peer.tell(&format!("bench one {CYCLES}"))?;
    let said = peer.hear()?;
    let seconds = said.strip_prefix("took ").context("no time")?.parse()?;
    Ok(Duration::from_secs_f64(seconds) / CYCLES)
}

/// From the delete of a node in one session until another session knows of it.
async fn bare_hand_overs(address: &str) -> Result<Duration> {
    let (one, two) = (Bare::connect(address).await?, Bare::connect(address).await?);
    let mut times = Vec::new();
    for _ in 0..500 {
        let node = one.make("/bare/watched-", 3).await;
        let gone = two.watch(&node).await;
        // As long as our lock is held: after idle time everything is slower to wake.
        tokio::time::sleep(HELD).await;
        let begin = Instant::now();
        let (_, ()) = tokio::join!(
            async { gone.await.map(|()| times.push(begin.elapsed())) },
            one.delete(&node)
        );
    }
    Ok(median(times))
}

/// From the start of a release until the next waiter in the queue knows that it holds the lock.
async fn our_hand_overs(url: &str, waiters: usize) -> Result<Duration> {
    let url = format!("{url}?session=20s&timeout=20s");
    let keepers = [lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?];
    let name = format!("hot-{waiters}");
    let released = Arc::new(Mutex::new((Instant::now(), Vec::new())));
    let first = keepers[0].lock(&name).acquire().await?;
    let mut running = tokio::task::JoinSet::new();
    for number in 0..waiters {
        let (lock, released) = (keepers[number % 2].lock(&name), released.clone());
        let rounds = (600 / waiters).max(1);
        running.spawn(async move {
            for _ in 0..rounds {
                let guard = lock.acquire().await?;
                {
                    let mut released = released.lock().unwrap_or_else(PoisonError::into_inner);
                    let now = Instant::now();
                    let took = now - released.0;
                    released.1.push(took);
                }
                // So that all other tasks are waiting, and watching, again.
                tokio::time::sleep(HELD).await;
                released.lock().unwrap_or_else(PoisonError::into_inner).0 = Instant::now();
                guard.release().await?;
            }
            Ok::<(), lockkeeper::Error>(())
        });
    }
    while keepers[0].show(&name).await?.waiters.len() < waiters {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    released.lock().unwrap_or_else(PoisonError::into_inner).0 = Instant::now();
    first.release().await?;
    while let Some(task) = running.join_next().await {
        task??;
    }
    let times = std::mem::take(&mut released.lock().unwrap_or_else(PoisonError::into_inner).1);
    Ok(median(times))
}
