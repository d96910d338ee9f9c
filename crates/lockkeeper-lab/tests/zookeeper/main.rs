//! What `zookeeper://` promises beyond the contract: on servers that fail, and beside others.

mod answers;
mod crowd;
mod door;
mod ensemble;
mod handover;
mod operator;
mod raw;
mod session;
mod suite;
mod tap;

use anyhow::{Result, anyhow, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper::Keeper;
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Kind, Lab, Server, missing};
use std::pin::Pin;
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
const PATIENT: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    if std::env::var_os(suite::TAKER).is_some() {
        return suite::take();
    }
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(6);
    let lab = Arc::new(Lab::open()?);
    let cases = [
        answers::CASES,
        crowd::CASES,
        door::CASES,
        ensemble::CASES,
        handover::CASES,
        operator::CASES,
        session::CASES,
    ];
    let reason = missing(&[Kind::ZooKeeper]);
    let mut trials: Vec<Trial> = Vec::new();
    let mut server = None;
    if reason.is_none() {
        let started = lab.zookeeper().tick(500).start()?;
        trials.extend(suite::trials(&started)?);
        server = Some(started);
    }
    trials.extend(cases.into_iter().flatten().map(|(name, case)| {
        let lab = lab.clone();
        let trial = Trial::test(*name, move || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(case(&lab)).map_err(|error| Failed::from(format!("{error:#}")))
        });
        match &reason {
            Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
            None => trial,
        }
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(server) = server.filter(|_| conclusion.has_failed()) {
        let log = server.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        eprintln!("-- the end of the log of the server that all shared\n{tail}");
    }
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
