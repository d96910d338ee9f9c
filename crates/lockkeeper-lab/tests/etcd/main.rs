//! What `etcd://` promises beyond the contract: when servers and networks fail, operators
//! interfere, and many wait.

mod answers;
mod crowd;
mod door;
mod operators;
mod servers;
mod users;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Certificates, Kind, Lab, Server, missing};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
type Case = (&'static str, for<'a> fn(&'a Lab) -> Outcome<'a>);

/// A case of the table: its name and what it does.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        pub(crate) const CASES: &[crate::Case] =
            &[$((stringify!($case), |lab| Box::pin($case(lab)))),+];
    };
}
pub(crate) use cases;

/// Long enough for anything but a stuck test.
const PATIENT: Duration = Duration::from_secs(20);
/// A ttl, and with [`LASTING`] a session, that nobody waits out.
const LONG: Duration = Duration::from_secs(120);
/// What is lost within `PATIENT` was not found out by a renewal, which comes after 40 s.
const LASTING: &str = "session=120s";

fn main() -> Result<()> {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(4);
    let lab = Arc::new(Lab::open()?);
    let cases =
        [answers::CASES, crowd::CASES, door::CASES, operators::CASES, servers::CASES, users::CASES];
    let reason = missing(&[Kind::Etcd]);
    let trials = cases.into_iter().flatten().map(|(name, case)| {
        let lab = lab.clone();
        let trial = Trial::test(*name, move || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(case(&lab)).map_err(|error| Failed::from(format!("{error:#}")))
        });
        match &reason {
            Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
            None => trial,
        }
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
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
    let signalled = tokio::time::timeout(PATIENT, guard.lost().cancelled()).await;
    signalled.context("the loss was not signalled")
}

/// Tries until it works, for half a minute at most.
async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<Option<T>>) -> T {
    let begin = Instant::now();
    loop {
        match attempt().await {
            Ok(Some(found)) => return found,
            outcome => {
                let said = outcome.err().map(|error| format!("{error:#}"));
                assert!(begin.elapsed().as_secs() < 30, "in vain: {what} ({said:?})");
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
