//! What `etcd://` promises beyond the contract: when servers and networks fail, operators
//! interfere, and many wait.

mod answers;
mod crowd;
mod door;
mod keepers;
mod members;
mod operators;
mod servers;
mod tickets;
mod users;

use anyhow::{Context, Result, ensure};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::cases;
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Certificates, Kind, Lab, Server};
use lockkeeper_lab::trials::{arguments, eventually, trials, trials_on_disks};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Long enough for anything but a stuck test.
const PATIENT: Duration = Duration::from_secs(20);
/// A ttl, and with [`LASTING`] a session, that nobody waits out.
const LONG: Duration = Duration::from_secs(120);
/// What is lost within `PATIENT` was not found out by a renewal, which comes after 40 s.
const LASTING: &str = "session=120s";

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let cases = [
        answers::CASES,
        crowd::CASES,
        door::CASES,
        keepers::CASES,
        members::paused::CASES,
        operators::CASES,
        servers::CASES,
        tickets::CASES,
        users::CASES,
    ];
    let mut trials = trials(&lab, Kind::Etcd, &cases);
    trials.extend(trials_on_disks(&lab, Kind::Etcd, &[members::CASES]));
    // They mostly wait.
    let conclusion = libtest_mimic::run(&arguments(4), trials);
    drop(lab);
    conclusion.exit();
}

async fn keeper(server: &Server, options: &str) -> Result<Keeper> {
    Ok(lockkeeper::connect(&format!("{}?{options}", server.url())).await?)
}

/// A network in front of the server.
async fn network(server: &Server) -> Result<Proxy> {
    let upstream = server.address().parse()?;
    // It has a runtime of its own.
    Ok(tokio::task::spawn_blocking(move || Proxy::start(upstream, 7)).await??)
}

/// Has an operator at work.
fn etcdctl(server: &Server, words: &[&str]) -> Result<String> {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3");
    if server.url().contains("tls=true") {
        let authority = Certificates::in_folder(server.folder()).authority;
        command.arg(format!("--endpoints=https://{}", server.address()));
        command.arg("--cacert").arg(authority);
    } else {
        command.arg(format!("--endpoints=http://{}", server.address()));
    }
    let output = command.args(words).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "etcdctl {words:?}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The keys of a lock, oldest first.
fn keys(server: &Server, name: &str) -> Result<Vec<String>> {
    let start = format!("lockkeeper/{name}/");
    let words = ["get", "--prefix", &start, "--keys-only", "--sort-by=CREATE"];
    let text = etcdctl(server, &words)?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Waits for a lock in the background.
fn waiting(keeper: &Keeper, name: &str) -> tokio::task::JoinHandle<lockkeeper::Result<Guard>> {
    let lock = keeper.lock(name).ttl(LONG);
    tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await })
}

async fn queue_of(keeper: &Keeper, name: &str, length: usize) {
    eventually("so many wait", async || {
        Ok((keeper.show(name).await?.waiters.len() == length).then_some(()))
    })
    .await;
}

/// The loss is signalled without anyone looking.
async fn lost(guard: &Guard) -> Result<()> {
    let signalled = tokio::time::timeout(PATIENT, guard.lost()).await;
    signalled.context("the loss was not signalled")
}
