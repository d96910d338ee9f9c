//! The recipes of Redis with one key per lock: what the sound one leaves in the store, and how
//! the two unsafe ones fail.

mod getset;
mod proxy;
mod set_nx_px;
mod setnx_expire;

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper::blocking::{Keeper, connect};
use lockkeeper_lab::interop::Peer;
use lockkeeper_lab::server::wire::resp::Resp;
use lockkeeper_lab::server::{Kind, Lab, missing};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

type Case = (&'static str, fn(&Table) -> Result<()>);

/// Nobody waits this out.
const LONG: Duration = Duration::from_secs(60);
/// A ttl to wait out; whole seconds are all that one of the recipes counts.
const SHORT: Duration = Duration::from_secs(1);
/// For what must come.
const PATIENT: Duration = Duration::from_secs(20);

/// What a case works with.
struct Table {
    port: u16,
    recipe: &'static str,
    /// A name of this case and this run alone.
    lock: String,
}

impl Table {
    fn url(&self, port: u16) -> String {
        // Longer than anything here is held back.
        format!("redis://127.0.0.1:{port}?recipe={}&timeout=10s", self.recipe)
    }

    fn keeper(&self) -> Result<Keeper> {
        self.keeper_at(self.port)
    }

    fn keeper_at(&self, port: u16) -> Result<Keeper> {
        Ok(connect(&self.url(port))?)
    }

    /// A process of its own, which can be paused and killed.
    fn process(&self, port: u16) -> Result<Peer> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.arg("peer");
        Peer::start(command, &self.url(port))
    }

    /// One who speaks to the store by hand.
    fn by_hand(&self) -> Result<Resp> {
        Resp::connect(self.port)
    }

    fn value(&self) -> Result<Option<String>> {
        Ok(self.by_hand()?.ask(&["GET", &self.lock])?.text().map(str::to_owned))
    }

    /// How long the key lives; -1 for ever, -2 when there is none.
    fn lives_for(&self) -> Result<i64> {
        self.by_hand()?.ask(&["PTTL", &self.lock])?.number().context("a number")
    }
}

fn main() -> Result<()> {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(8);
    let lab = Arc::new(Lab::open()?);
    let parts = [
        ("set-nx-px", set_nx_px::CASES),
        ("setnx-expire", setnx_expire::CASES),
        ("getset", getset::CASES),
    ];
    let trials = parts.into_iter().flat_map(|(recipe, cases)| {
        let lab = lab.clone();
        cases.iter().map(move |&(name, case)| trial(lab.clone(), recipe, name, case))
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    drop(lab);
    conclusion.exit();
}

fn trial(
    lab: Arc<Lab>,
    recipe: &'static str,
    name: &'static str,
    case: fn(&Table) -> Result<()>,
) -> Trial {
    let run = move || {
        let port = |url: String| url.rsplit(':').next().and_then(|port| port.parse().ok());
        let outcome = lab.shared(Kind::Redis).and_then(|url| {
            let lock = format!("{recipe}/{name}/{}", std::process::id());
            case(&Table { port: port(url).context("a port")?, recipe, lock })
        });
        outcome.map_err(|error| Failed::from(format!("{error:#}")))
    };
    let trial = Trial::test(format!("{recipe}::{name}"), run);
    match missing(&[Kind::Redis]) {
        Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
        None => trial,
    }
}
