//! Many tasks that contend for one name.

use crate::figures::{at_most, each, median, speed};
use anyhow::{Context, Result};
use lockkeeper::Keeper;
use lockkeeper_lab::server::Server;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Set for a process that must contend: the URL.
pub(crate) const PROCESS: &str = "LOCKKEEPER_BENCH_REDIS";
const TASKS: u32 = 16;
const TURNS: u32 = 400;
const ROUNDS: usize = 5;

/// `TASKS` tasks take one name repeatedly; returns how long each waited, and how many others were
/// served meanwhile.
async fn queue(keeper: &Keeper, name: &'static str) -> (Vec<Duration>, Vec<Duration>) {
    let served = Arc::new(AtomicU32::new(0));
    let take = |keeper: Keeper, served: Arc<AtomicU32>| async move {
        let mut waits = Vec::new();
        for _ in 0..TURNS {
            let (start, before) = (Instant::now(), served.load(Ordering::SeqCst));
            let guard = keeper.lock(name).acquire().await.expect("acquired");
            let meanwhile = served.fetch_add(1, Ordering::SeqCst) - before;
            waits.push((start.elapsed(), Duration::from_secs(meanwhile.into())));
            guard.release().await.expect("released");
        }
        waits
    };
    let tasks: Vec<_> =
        (0..TASKS).map(|_| tokio::spawn(take(keeper.clone(), served.clone()))).collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.expect("no panic"));
    }
    waits.into_iter().unzip()
}

/// The minimal hand-over: a task that is done pushes an element, the next one pops it. Returns how
/// long each waited.
async fn floor(url: &str, tasks: u32, turns: u32) -> Vec<Duration> {
    let client = redis::Client::open(url).expect("a client");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut first = client.get_multiplexed_async_connection().await.expect("connected");
    redis::cmd("RPUSH").arg("floor").arg(1).query_async::<()>(&mut first).await.expect("pushed");
    let mut running = Vec::new();
    for _ in 0..tasks {
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.expect("connected");
        running.push(tokio::spawn(async move {
            let mut waits = Vec::new();
            for _ in 0..turns {
                let start = Instant::now();
                let mut pop = redis::cmd("BLPOP");
                pop.arg("floor").arg(0).query_async::<()>(&mut connection).await.expect("popped");
                waits.push(start.elapsed());
                let mut push = redis::cmd("RPUSH");
                push.arg("floor").arg(1).query_async::<()>(&mut connection).await.expect("pushed");
            }
            waits
        }));
    }
    let mut waits = Vec::new();
    for task in running {
        waits.extend(task.await.expect("no panic"));
    }
    redis::cmd("DEL").arg("floor").query_async::<()>(&mut first).await.expect("deleted");
    waits
}

/// The longest wait, divided by the mean.
fn spread(waits: &[Duration]) -> Result<f64> {
    let mean = waits.iter().sum::<Duration>() / u32::try_from(waits.len())?;
    let longest = waits.iter().max().context("someone waited")?;
    Ok(longest.as_secs_f64() / mean.as_secs_f64())
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

async fn rslock(url: &str, tasks: u32, turns: u32) {
    let manager = rslock::LockManager::new(vec![url.to_owned()]);
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move {
                for _ in 0..turns {
                    let ttl = Duration::from_secs(30);
                    let lock = manager.acquire_no_guard(b"rs/hot", ttl).await.expect("acquired");
                    manager.unlock(&lock).await;
                }
            })
        })
        .collect();
    for task in running {
        task.await.expect("no panic");
    }
}

/// How many of our commands the server has executed.
fn commands(server: &Server) -> Result<u64> {
    let said = server.redis()?.info("commandstats")?;
    let calls = said.lines().filter(|line| line.starts_with("cmdstat_eval")).map(|line| {
        let calls = line.split("calls=").nth(1).and_then(|rest| rest.split(',').next());
        calls.and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0)
    });
    Ok(calls.sum())
}

pub(crate) fn one_name(url: &str, server: &Server) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let keeper = lockkeeper::connect(url).await?;
        let (mut mine, mut least, mut theirs) = (vec![], vec![], vec![]);
        let (mut our_spread, mut our_turns, mut least_spread) = (vec![], vec![], vec![]);
        let (mut longest, mut sent) = (vec![], 0);
        // Interleaved: the speed of a machine varies over time.
        for _ in 0..ROUNDS {
            let (start, before) = (Instant::now(), commands(server)?);
            let (waits, turns) = queue(&keeper, "hot").await;
            mine.push(start.elapsed() / (TASKS * TURNS));
            our_spread.push(spread(&waits)?);
            our_turns.push(spread(&turns)?);
            let our_longest = waits.into_iter().max().context("someone waited")?;
            sent += commands(server)? - before;
            let start = Instant::now();
            let waits = floor(url, TASKS, TURNS).await;
            least.push(start.elapsed() / (TASKS * TURNS));
            least_spread.push(spread(&waits)?);
            let their_longest = waits.into_iter().max().context("someone waited")?;
            longest.push(our_longest.as_secs_f64() / their_longest.as_secs_f64());
        }
        for _ in 0..2 {
            theirs.push(each(TASKS * 40, rslock(url, TASKS, 40)).await);
        }
        let what = format!("{TASKS} tasks on one name");
        speed(&format!("{what}: of a BLPOP hand-over"), median(mine.clone()), median(least), 0.7);
        speed(&format!("{what}: of rslock"), median(mine), median(theirs), 1.8);
        let (ours, floor) = (middle(our_spread), middle(least_spread));
        println!("{:<92}   {floor:>6.2}", format!("{what}: longest wait of the mean, BLPOP"));
        at_most(&format!("{what}: longest wait of the mean"), ours, 3.0);
        at_most(&format!("{what}: longest wait, of BLPOP's longest"), middle(longest), 1.0);
        // Waits counted in turns, which do not grow when the machine itself stands still.
        at_most(&format!("{what}: longest wait of the mean, in turns"), middle(our_turns), 3.0);
        let grants = f64::from(TASKS * TURNS) * f64::from(u32::try_from(ROUNDS)?);
        let sent = f64::from(u32::try_from(sent)?);
        at_most(&format!("{what}: commands for each acquisition"), sent / grants, 3.0);
        Ok(())
    })
}

pub(crate) fn many_waiters(url: &str) -> Result<()> {
    const GRANTS: u32 = 4000;
    for processes in [1, 5] {
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            few.push(crowd(url, processes, 16, GRANTS)?);
            many.push(crowd(url, processes, 1000, GRANTS)?);
        }
        let ratio = median(many).as_secs_f64() / median(few).as_secs_f64();
        let what = format!("1,000 waiters in {processes} processes: time of a hand-over, of 16");
        at_most(&what, ratio, 1.15);
    }
    Ok(())
}

/// The time per grant, for `grants` grants taken by `waiters` waiters in this many processes.
fn crowd(url: &str, processes: u32, waiters: u32, grants: u32) -> Result<Duration> {
    let mut children = Vec::new();
    for process in 0..processes {
        let tasks = waiters / processes + u32::from(process < waiters % processes);
        let child = Command::new(std::env::current_exe()?)
            .env(PROCESS, url)
            .env("TASKS", tasks.to_string())
            .env("GRANTS", (grants / processes).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        children.push(child);
    }
    for child in &mut children {
        let mut ready = [0; 6];
        child.stdout.as_mut().context("an output")?.read_exact(&mut ready)?;
    }
    for child in &mut children {
        child.stdin.take().context("an input")?.write_all(b"go\n")?;
    }
    let mut longest = Duration::ZERO;
    for child in &mut children {
        let mut said = String::new();
        child.stdout.as_mut().context("an output")?.read_to_string(&mut said)?;
        child.wait()?;
        longest = longest.max(Duration::from_secs_f64(said.trim().parse()?));
    }
    Ok(longest / grants)
}

/// One process of a crowd: all its tasks queue up before the clock starts, and queue again after
/// each turn until there were enough grants.
pub(crate) fn contend(url: &str) -> Result<()> {
    let number = |name: &str| -> Result<u32> { Ok(std::env::var(name)?.parse()?) };
    let (tasks, grants) = (number("TASKS")?, number("GRANTS")?);
    let runtime = tokio::runtime::Runtime::new()?;
    let keeper = runtime.block_on(lockkeeper::connect(url))?;
    runtime.block_on(async { keeper.lock("warm").acquire().await?.release().await })?;
    println!("ready");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go)?;
    runtime.block_on(async {
        // Held while the tasks queue up.
        let gate = keeper.lock("crowd").acquire().await?;
        let left = Arc::new(AtomicU32::new(grants));
        let running: Vec<_> = (0..tasks)
            .map(|_| {
                let (keeper, left) = (keeper.clone(), left.clone());
                tokio::spawn(async move {
                    let one_less = |left: u32| left.checked_sub(1);
                    let seq = Ordering::SeqCst;
                    while left.fetch_update(seq, seq, one_less).is_ok() {
                        let guard = keeper.lock("crowd").acquire().await.expect("acquired");
                        guard.release().await.expect("released");
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let start = Instant::now();
        gate.release().await?;
        for task in running {
            task.await?;
        }
        println!("{}", start.elapsed().as_secs_f64());
        Ok(())
    })
}
