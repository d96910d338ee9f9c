//! Worker numbers of processes that are killed and paused.

use super::sequences::{needing, process};
use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use lockkeeper::id::{Generator, Layout, Lease, WorkerView};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::ids::given;
use lockkeeper_lab::server::{Kind, Lab};
use lockkeeper_lab::trials::eventually_so;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_MS: u64 = 1000;
const KEY: &str = "lab/ids";

pub(crate) fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    type Case = fn(&str) -> Result<()>;
    let cases: [(&str, Case); 2] = [
        ("a_number_of_a_killed_process_rests", a_number_rests),
        ("a_paused_generator_gives_nothing_of_its_successor", a_paused_generator),
    ];
    let each = [Kind::Redis, Kind::Postgres].into_iter().flat_map(|kind| {
        cases.map(|(name, case)| {
            let lab = lab.clone();
            needing(kind, format!("{kind}::{name}"), move || {
                // A server of its own: the key is that of every process of the lab.
                let server = lab.start(kind)?;
                case(&server.url())
            })
        })
    });
    each.collect()
}

/// Sixteen workers in all.
fn narrow() -> Result<Layout> {
    Ok(Layout::new(41, 4, 12)?)
}

fn lease() -> Lease {
    Lease { window: Some(WINDOW), ..Lease::default() }
}

/// Takes every worker number but `left`, so that those who come have no choice.
async fn fill(keeper: &Keeper, left: usize) -> Result<Vec<lockkeeper::id::Snowflake>> {
    let mut all = Vec::new();
    for _ in left..16 {
        all.push(keeper.ids(KEY).lease(lease()).snowflake(narrow()?).await?);
    }
    Ok(all)
}

async fn worker_of(keeper: &Keeper, number: u32) -> Result<WorkerView> {
    let workers = keeper.id_workers(Some(KEY)).await?;
    workers.into_iter().find(|view| view.number == number).context("no such worker")
}

fn signal(child: &Child, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(child.id())?), signal)?)
}

/// The number of the only process that is not this one.
async fn number_of_other(keeper: &Keeper, own: &[lockkeeper::id::Snowflake]) -> Result<u32> {
    let own: HashSet<_> = own.iter().filter_map(|ids| ids.health().worker).collect();
    let workers = keeper.id_workers(Some(KEY)).await?;
    let other = workers.iter().find(|view| !own.contains(&view.number));
    Ok(other.context("the other process has no number")?.number)
}

/// The number of a process that was killed is taken again only when its mark and a window are past; and
/// what the successor gives is later than all that the killed one gave.
fn a_number_rests(url: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("killed");
    let runtime = tokio::runtime::Runtime::new()?;
    let keeper = runtime.block_on(lockkeeper::connect(url))?;
    let own = runtime.block_on(fill(&keeper, 1))?;
    let mut child = process("snowflake-narrow", url, WINDOW_MS, &file, &[])?;
    eventually_so("the process gives ids", || Ok(given(&file).is_ok_and(|ids| ids.len() > 100)));
    child.kill()?;
    child.wait()?;
    runtime.block_on(async {
        let number = number_of_other(&keeper, &own).await?;
        let left = worker_of(&keeper, number).await?;
        ensure!(left.held, "a killed process gives nothing back");
        let successor = loop {
            match keeper.ids(KEY).lease(lease()).snowflake(narrow()?).await {
                Ok(ids) => break ids,
                Err(error) => ensure!(error.kind() == ErrorKind::Exhausted, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let now = SystemTime::now();
        ensure!(successor.health().worker == Some(number), "{:?}", successor.health());
        let rested = now.duration_since(left.mark).unwrap_or_default();
        ensure!(rested >= WINDOW - Duration::from_millis(100), "taken {rested:?} after the mark");
        let last = given(&file)?.into_iter().max().context("no ids")?;
        ensure!(successor.next().await?.get() > last, "the successor went back");
        Ok(())
    })
}

/// A process that is paused for more than two windows, meanwhile another takes its number, then wakes up:
/// no id of either is of the other.
fn a_paused_generator(url: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("paused");
    let runtime = tokio::runtime::Runtime::new()?;
    let keeper = runtime.block_on(lockkeeper::connect(url))?;
    let own = runtime.block_on(fill(&keeper, 1))?;
    let mut child = process("snowflake-narrow", url, WINDOW_MS, &file, &[])?;
    eventually_so("the process gives ids", || Ok(given(&file).is_ok_and(|ids| ids.len() > 100)));
    signal(&child, Signal::SIGSTOP)?;
    let number = runtime.block_on(number_of_other(&keeper, &own))?;
    let before = given(&file)?.len();
    let ids = runtime.block_on(async {
        let successor = loop {
            match keeper.ids(KEY).lease(lease()).snowflake(narrow()?).await {
                Ok(ids) => break ids,
                Err(error) => ensure!(error.kind() == ErrorKind::Exhausted, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        ensure!(successor.health().worker == Some(number), "{:?}", successor.health());
        let mut ids = successor.next_n(1000).await?;
        // It wakes up while the successor gives ids, and there is a number for it to take.
        drop(own);
        signal(&child, Signal::SIGCONT)?;
        let begin = std::time::Instant::now();
        while begin.elapsed() < WINDOW || given(&file)?.len() < before + 1000 {
            ids.extend(successor.next_n(100).await?);
            tokio::time::sleep(Duration::from_millis(1)).await;
            ensure!(begin.elapsed() < Duration::from_secs(30), "it gives no ids any more");
        }
        Ok(ids)
    })?;
    drop(child.stdin.take());
    ensure!(child.wait()?.success(), "the process failed");
    let mut all: HashSet<u64> = ids.iter().map(|id| id.get()).collect();
    ensure!(all.len() == ids.len(), "the successor repeats itself");
    for id in given(&file)? {
        ensure!(all.insert(id), "{id} came twice");
    }
    Ok(())
}
