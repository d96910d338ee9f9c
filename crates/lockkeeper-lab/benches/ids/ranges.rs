//! Numbers out of reserved ranges, against a bare addition, and over real stores.

use crate::clocked::{Word, take};
use crate::rounds::{Bursts, Goal, compare};
use anyhow::Result;
use lockkeeper::id::{Generator, Segment};
use lockkeeper_lab::server::Lab;
use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long numbers are taken from a store, and how long before that they are not counted.
const RUN: Duration = Duration::from_secs(5);
const WARM_UP: Duration = Duration::from_secs(3);

fn open(runtime: &Runtime, url: &str) -> Result<Segment> {
    runtime.block_on(async { Ok(lockkeeper::connect(url).await?.ids("bench").segment().await?) })
}

pub(crate) fn against_an_addition(runtime: &Runtime) -> Result<()> {
    let ids = open(runtime, "memory:")?;
    // Until ranges are as large as they become.
    run(runtime, &ids, 1, Duration::from_secs(1))?;
    let word = Word(AtomicU64::new(0));
    let floor = |count: u64| {
        for _ in 0..count {
            black_box(word.0.fetch_add(1, Ordering::AcqRel));
        }
        count
    };
    let bursts = |threads| Bursts { threads, ids: 20_000, pause: Duration::from_micros(50) };
    for threads in [1, 2] {
        let what = format!("segment / addition, {threads} threads");
        compare(&what, bursts(threads), &|n| take(&ids, n), &floor, Goal::AtMost(1.2));
    }
    std::thread_local! {
        static BLOCK: RefCell<Option<lockkeeper::id::Block>> = const { RefCell::new(None) };
    }
    let by_block = |count: u64| {
        BLOCK.with_borrow_mut(|block| {
            let block = block.get_or_insert_with(|| ids.block(256));
            for got in 0..count {
                match block.try_next() {
                    Ok(Some(id)) => black_box(id),
                    _ => return got,
                };
            }
            count
        })
    };
    for threads in [1, 2] {
        let what = format!("blocks of 256 / addition, {threads} threads");
        compare(&what, bursts(threads), &by_block, &floor, Goal::Nanos(2.0));
    }
    Ok(())
}

pub(crate) fn over_stores(runtime: &Runtime) -> Result<()> {
    let lab = Lab::open()?;
    let folder = tempfile::tempdir()?;
    let sqlite = format!("sqlite:{}", folder.path().join("ids.db").display());
    let redis = lab.redis().start()?;
    let postgres = lab.postgres().config("fsync=on").start()?;
    for (name, url) in [("redis", redis.url()), ("postgres", postgres.url()), ("sqlite", sqlite)] {
        for threads in [1, 2] {
            let ids = open(runtime, &url)?;
            run(runtime, &ids, threads, WARM_UP)?;
            let before = ids.health();
            let begin = Instant::now();
            let taken = run(runtime, &ids, threads, RUN)?;
            let rate = taken as f64 / begin.elapsed().as_secs_f64() / 1e6;
            let after = ids.health();
            let waits = after.waits - before.waits;
            let ranges = after.reservations - before.reservations;
            let verdict = if rate >= 20.0 && waits == 0 { "kept" } else { "MISSED" };
            println!(
                "segment over {name}, {threads} threads: {rate:.0} million/s (goal: 20), {ranges} ranges, \
                 {waits} waits (goal: 0) {verdict}"
            );
        }
    }
    Ok(())
}

/// Takes numbers for so long, waiting where there are none, and returns how many.
fn run(runtime: &Runtime, ids: &Segment, threads: u32, time: Duration) -> Result<u64> {
    let thread = || -> Result<u64> {
        let (begin, mut taken) = (Instant::now(), 0);
        while begin.elapsed() < time {
            let got = take(ids, 10_000);
            taken += got;
            if got < 10_000 {
                black_box(runtime.block_on(ids.next())?);
                taken += 1;
            }
        }
        Ok(taken)
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(thread)).collect();
        all.into_iter()
            .map(|it| it.join().unwrap_or_else(|_| anyhow::bail!("a thread failed")))
            .sum()
    })
}
