//! Other libraries on the same servers, in turn with ours: the crate `distributed-lock`, which uses
//! the locks of sessions, and ShedLock, which uses a row.

use crate::figures::{line, median};
use anyhow::Result;
use lockkeeper_lab::interop::{Cache, Peer};
use std::time::{Duration, Instant};

const SLICES: u32 = 9;
const CYCLES: u32 = 60;
const QUICK: u32 = 300;

pub(crate) fn run(kind: &str, url: &str) -> Result<()> {
    let cache = Cache::open()?;
    let native = if kind == "postgres" { "advisory" } else { "get-lock" };
    let mut crate_of_theirs = Peer::start(cache.distributed_lock()?, url)?;
    for (what, tasks, cycles) in [("one task", 1, QUICK), ("16 tasks on one name", 16, QUICK / 15)]
    {
        let what = format!("{kind} {native}, {what}: of distributed-lock");
        against(&what, &mut crate_of_theirs, (url, native), tasks, cycles)?;
    }
    drop(crate_of_theirs);
    let mut shedlock = Peer::start(cache.shedlock()?, url)?;
    let what = format!("{kind} table, one task: of ShedLock");
    against(&what, &mut shedlock, (url, "table"), 1, CYCLES)
}

/// Each takes a lock so many times, in turn.
fn against(
    what: &str,
    peer: &mut Peer,
    (url, recipe): (&str, &str),
    tasks: u32,
    cycles: u32,
) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let keeper = runtime.block_on(lockkeeper::connect(&format!("{url}?recipe={recipe}")))?;
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for slice in 0..=SLICES {
        let count = f64::from(tasks * cycles);
        let theirs = peer.bench("peer", format!("{cycles} {tasks}"))?.as_secs_f64() / count;
        let begin = Instant::now();
        runtime.block_on(async {
            let task = |_| {
                let lock = keeper.lock("peer");
                tokio::spawn(async move {
                    for _ in 0..cycles {
                        lock.acquire().await?.release().await?;
                    }
                    anyhow::Ok(())
                })
            };
            let running: Vec<_> = (0..tasks).map(task).collect();
            for task in running {
                task.await??;
            }
            anyhow::Ok(())
        })?;
        let mine = begin.elapsed().as_secs_f64() / count;
        // The first two warm everything up, the JVM most of all.
        if slice > 1 {
            ratios.push(theirs / mine);
            times[0].push(mine);
            times[1].push(theirs);
        }
    }
    let [mine, theirs] = times.map(|times| Duration::from_secs_f64(median(times)));
    line(what, mine, theirs, median(ratios), 1.0);
    runtime.block_on(keeper.close(Duration::from_secs(5)));
    Ok(())
}
