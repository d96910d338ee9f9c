//! What `redis://` promises beyond the contract: on servers that fail, forget and are full.

mod connections;
mod failover;
mod forgetting;
mod full;
mod likeness;
mod messages;
mod reaching;
mod shards;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper::Keeper;
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
const PATIENT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(6);
    let lab = Arc::new(Lab::open()?);
    let cases = [
        reaching::CASES,
        connections::CASES,
        messages::CASES,
        forgetting::CASES,
        full::CASES,
        likeness::CASES,
        failover::CASES,
        shards::CASES,
    ];
    let reason = missing(&[Kind::Redis]);
    let trials = cases.into_iter().flatten().map(|(name, case)| {
        let lab = lab.clone();
        let trial = Trial::test(*name, move || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(case(&lab)).map_err(|error| Failed::from(format!("{error:?}")))
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

async fn keeper(server: &Server) -> Result<Keeper> {
    Ok(lockkeeper::connect(&server.url()).await?)
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
