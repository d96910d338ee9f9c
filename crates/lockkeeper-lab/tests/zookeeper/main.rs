//! What `zookeeper://` promises beyond the contract: on servers that fail, and beside others.

mod answers;
mod crowd;
mod disk;
mod door;
mod ensemble;
mod handover;
mod numbers;
mod operator;
mod outage;
mod raw;
mod session;
mod snapshot;
mod strangers;
mod tap;

use anyhow::{Result, anyhow, ensure};
use lockkeeper::Keeper;
use lockkeeper_lab::cases;
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Kind, Lab, Server};
use lockkeeper_lab::trials::{arguments, trials, trials_on_disks};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for anything but a stuck test.
const PATIENT: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let cases = [
        answers::CASES,
        crowd::CASES,
        door::CASES,
        ensemble::CASES,
        handover::CASES,
        numbers::CASES,
        operator::CASES,
        outage::CASES,
        session::CASES,
        strangers::CASES,
    ];
    let mut trials = trials(&lab, Kind::ZooKeeper, &cases);
    trials.extend(trials_on_disks(&lab, Kind::ZooKeeper, &[disk::CASES]));
    // They mostly wait.
    let conclusion = libtest_mimic::run(&arguments(6), trials);
    drop(lab);
    conclusion.exit();
}

/// A server whose sessions are long enough to outlast a restart of it.
fn patient_server(lab: &Lab) -> Result<Server> {
    lab.zookeeper().tick(1000).start()
}

/// A proxy in front of the server. It has a runtime of its own, so it is started outside of ours.
fn proxy(server: &Server, seed: u64) -> Result<Proxy> {
    let address = server.address().parse()?;
    let started = std::thread::spawn(move || Proxy::start(address, seed)).join();
    Ok(started.map_err(|_| anyhow!("no proxy"))??)
}

async fn keeper(url: &str, options: &str) -> Result<Keeper> {
    Ok(lockkeeper::connect(&format!("{url}?{options}")).await?)
}

/// Waits until it is so.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !is_so().await {
        ensure!(begin.elapsed() < PATIENT, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Waits until so many wait for `name`.
async fn queue_of(keeper: &Keeper, name: &str, length: usize) -> Result<()> {
    eventually("the queue is as long as it should be", async || {
        keeper.show(name).await.is_ok_and(|view| view.waiters.len() == length)
    })
    .await
}
