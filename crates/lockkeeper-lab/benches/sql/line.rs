//! Many tasks that contend for one name.

use crate::bare::{BareMariaDb, BarePostgres};
use crate::figures::{at_most, median};
use crate::timed::timed;
use anyhow::{Context, Result};
use lockkeeper::Keeper;
use lockkeeper_lab::server::Server;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Set for a process that must contend: the URL.
pub(crate) const PROCESS: &str = "LOCKKEEPER_BENCH_SQL";
const TASKS: u32 = 16;
const TURNS: u32 = 20;
const SLICES: usize = 9;

/// What one slice of a queue showed.
struct Slice {
    /// From one hold to the next, the middle one.
    middle: f64,
    /// How many others were served while one waited: the most, of the mean.
    turns: f64,
    /// The longest wait, of the mean.
    wait: f64,
}

/// Sixteen tasks on one name, in turn with two commits of the bare statements.
pub(crate) async fn one_name(kind: &str, server: &Server) -> Result<()> {
    let keeper = lockkeeper::connect(&server.url()).await?;
    let bare = if kind == "postgres" {
        (Some(Arc::new(BarePostgres::open(server.port()).await?)), None)
    } else {
        (None, Some(Arc::new(BareMariaDb::open(server.port()).await?)))
    };
    let commits = move |task| {
        let bare = bare.clone();
        async move {
            match bare {
                (Some(bare), _) => bare.row(task).await,
                (_, Some(bare)) => bare.row(task).await,
                _ => Ok(()),
            }
        }
    };
    let (mut ratios, mut turns, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let (mut middles, mut pairs) = (Vec::new(), Vec::new());
    for slice in 0..=SLICES {
        let before = timed(1, 60, commits.clone()).await?.as_secs_f64();
        let seen = queue(&keeper).await?;
        let after = timed(1, 60, commits.clone()).await?.as_secs_f64();
        if slice > 0 {
            let pair = f64::midpoint(before, after);
            ratios.push(seen.middle / pair);
            turns.push(seen.turns);
            waits.push(seen.wait);
            middles.push(seen.middle);
            pairs.push(pair);
        }
    }
    let what = format!("{kind} table, 16 tasks on one name");
    let shown = |times| Duration::from_secs_f64(median(times));
    println!("{what}: hand-over p50 {:.1?}, two commits {:.1?}", shown(middles), shown(pairs));
    at_most(&format!("{what}: hand-over p50, of two commits"), median(ratios), 1.5);
    at_most(&format!("{what}: longest wait of the mean, in turns"), median(turns), 2.0);
    println!("{what}: longest wait of the mean, in time: {:.2}", median(waits));
    keeper.close(Duration::from_secs(5)).await;
    Ok(())
}

/// `TASKS` tasks take one name repeatedly.
async fn queue(keeper: &Keeper) -> Result<Slice> {
    let served = Arc::new(AtomicU32::new(0));
    let held = Arc::new(Mutex::new(Vec::new()));
    let task = |_| {
        let (keeper, served, held) = (keeper.clone(), served.clone(), held.clone());
        tokio::spawn(async move {
            let mut waits = Vec::new();
            for _ in 0..TURNS {
                let (begin, before) = (Instant::now(), served.load(Ordering::SeqCst));
                let guard = keeper.lock("handed").acquire().await?;
                let meanwhile = served.fetch_add(1, Ordering::SeqCst) - before;
                waits.push((begin.elapsed().as_secs_f64(), f64::from(meanwhile)));
                held.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                guard.release().await?;
            }
            anyhow::Ok(waits)
        })
    };
    let running: Vec<_> = (0..TASKS).map(task).collect();
    let mut waits = Vec::new();
    for task in running {
        waits.extend(task.await??);
    }
    let held = held.lock().unwrap_or_else(PoisonError::into_inner);
    let gaps = held.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let (times, turns): (Vec<f64>, Vec<f64>) = waits.into_iter().unzip();
    Ok(Slice { middle: median(gaps), turns: spread(&turns), wait: spread(&times) })
}

/// The largest, of the mean.
fn spread(figures: &[f64]) -> f64 {
    let count = figures.iter().map(|_| 1.0).sum::<f64>();
    let mean = figures.iter().sum::<f64>() / count;
    figures.iter().copied().fold(0.0, f64::max) / mean
}

/// Five processes with 16 waiters and with 500.
pub(crate) fn many_waiters(kind: &str, url: &str) -> Result<()> {
    const GRANTS: u32 = 1000;
    let (mut ratios, mut times) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..5 {
        let few = crowd(url, 5, 16, GRANTS)?.as_secs_f64();
        let many = crowd(url, 5, 500, GRANTS)?.as_secs_f64();
        ratios.push(many / few);
        times[0].push(few);
        times[1].push(many);
    }
    let [few, many] = times.map(|times| Duration::from_secs_f64(median(times)));
    println!(
        "{kind} table, 16 and 500 waiters in 5 processes: {few:.1?} and {many:.1?} a hand-over"
    );
    let what = format!("{kind} table, 500 waiters in 5 processes: a hand-over, of that with 16");
    at_most(&what, median(ratios), 1.2);
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
    let gate = tokio::runtime::Runtime::new()?;
    let keeper = gate.block_on(lockkeeper::connect(url))?;
    // Held while the tasks queue up.
    let held = gate.block_on(keeper.lock("crowd").acquire())?;
    for child in &mut children {
        let mut ready = [0; 6];
        child.stdout.as_mut().context("an output")?.read_exact(&mut ready)?;
    }
    for child in &mut children {
        child.stdin.take().context("an input")?.write_all(b"go\n")?;
    }
    let queued = async {
        while keeper.show("crowd").await?.waiters.len() < usize::try_from(waiters)? {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    gate.block_on(queued)?;
    let begin = Instant::now();
    gate.block_on(held.release())?;
    for child in &mut children {
        let mut said = String::new();
        child.stdout.as_mut().context("an output")?.read_to_string(&mut said)?;
        child.wait()?;
    }
    let took = begin.elapsed() / grants;
    gate.block_on(keeper.close(Duration::from_secs(5)));
    Ok(took)
}

/// One process of a crowd: its tasks queue, and queue again after each turn until there were enough
/// grants.
pub(crate) fn contend(url: &str) -> Result<()> {
    let number = |name: &str| -> Result<u32> { Ok(std::env::var(name)?.parse()?) };
    let (tasks, grants) = (number("TASKS")?, number("GRANTS")?);
    let runtime = tokio::runtime::Runtime::new()?;
    let keeper = runtime.block_on(lockkeeper::connect(url))?;
    println!("ready");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go)?;
    runtime.block_on(async {
        let left = Arc::new(AtomicU32::new(grants));
        let task = |_| {
            let (keeper, left) = (keeper.clone(), left.clone());
            tokio::spawn(async move {
                let (seq, one_less) = (Ordering::SeqCst, |left: u32| left.checked_sub(1));
                while left.fetch_update(seq, seq, one_less).is_ok() {
                    keeper.lock("crowd").acquire().await?.release().await?;
                }
                anyhow::Ok(())
            })
        };
        let running: Vec<_> = (0..tasks).map(task).collect();
        for task in running {
            task.await??;
        }
        Ok(())
    })
}
