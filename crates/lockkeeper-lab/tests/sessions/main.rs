//! What the recipes promise beyond the contract whose locks live in sessions of a database:
//! `advisory`, `get-lock`, `for-update`.

mod debts;
mod doors;
mod ends;
mod fences;
mod full;
mod own_transaction;
mod rights;
mod servers;

use anyhow::{Context, Result};
use libtest_mimic::{Failed, Trial};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::wire::{mariadb, postgres};
use lockkeeper_lab::server::{Kind, Lab, Server, missing};
use lockkeeper_lab::trials::{Case, arguments, trials};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Long enough for anything but a stuck test.
const PATIENT: Duration = Duration::from_secs(20);
/// A ttl that nobody waits out.
const LONG: Duration = Duration::from_secs(120);

/// A recipe on its server.
#[derive(Debug, Clone, Copy)]
struct Recipe {
    kind: Kind,
    name: &'static str,
}

const RECIPES: [Recipe; 4] = [
    Recipe { kind: Kind::Postgres, name: "advisory" },
    Recipe { kind: Kind::Postgres, name: "for-update" },
    Recipe { kind: Kind::MariaDb, name: "get-lock" },
    Recipe { kind: Kind::MariaDb, name: "for-update" },
];

type OfRecipe = for<'a> fn(&'a Lab, Recipe) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
/// A case that every recipe has to pass.
type Every = (&'static str, OfRecipe);

/// Makes the table `EVERY` of functions that take a lab and a recipe.
macro_rules! every {
    ($($case:ident),+ $(,)?) => {
        pub(crate) const EVERY: &[crate::Every] =
            &[$((stringify!($case), |lab, recipe| Box::pin($case(lab, recipe)))),+];
    };
}
pub(crate) use every;

impl Recipe {
    fn start(self, lab: &Lab) -> Result<Server> {
        lab.start(self.kind)
    }

    async fn keeper(self, url: &str, options: &str) -> Result<Keeper> {
        Ok(lockkeeper::connect(&format!("{url}?recipe={}&{options}", self.name)).await?)
    }

    /// Runs a statement of an operator.
    fn query(self, server: &Server, sql: &str) -> Result<Vec<String>> {
        match self.kind {
            Kind::Postgres => postgres::query(server.port(), sql),
            _ => mariadb::query(server.port(), sql),
        }
    }

    /// How many sessions of ours there are.
    fn sessions(self, server: &Server) -> Result<usize> {
        let ours = match self.kind {
            Kind::Postgres => {
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'lockkeeper'"
            }
            _ => {
                "SELECT id FROM information_schema.processlist \
                 WHERE db = 'lockkeeper' AND id <> CONNECTION_ID()"
            }
        };
        Ok(self.query(server, ours)?.len())
    }

    /// Ends every session of ours, as an operator would.
    fn end_sessions(self, server: &Server) -> Result<()> {
        if self.kind == Kind::Postgres {
            let ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                        WHERE application_name = 'lockkeeper'";
            postgres::query(server.port(), ours)?;
            return Ok(());
        }
        let ours = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()";
        for id in mariadb::query(server.port(), ours)? {
            // It may have ended by itself.
            let _ = mariadb::query(server.port(), &format!("KILL CONNECTION {id}"));
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let every: Vec<Every> =
        [debts::EVERY, ends::EVERY, fences::EVERY, rights::EVERY, servers::EVERY].concat();
    let mut all: Vec<Trial> = Vec::new();
    for recipe in RECIPES {
        all.extend(every.iter().map(|case| trial(&lab, recipe, *case)));
    }
    let postgres: &[&[Case]] =
        &[doors::postgres::CASES, own_transaction::postgres::CASES, servers::CASES];
    all.extend(trials(&lab, Kind::Postgres, postgres));
    all.extend(trials(&lab, Kind::MariaDb, &[debts::CASES]));
    all.extend(trials(
        &lab,
        Kind::MariaDb,
        &[doors::mariadb::CASES, full::CASES, own_transaction::mariadb::CASES],
    ));
    // They mostly wait.
    let conclusion = libtest_mimic::run(&arguments(4), all);
    drop(lab);
    conclusion.exit();
}

fn trial(lab: &Arc<Lab>, recipe: Recipe, (name, case): Every) -> Trial {
    let lab = lab.clone();
    let trial =
        Trial::test(format!("{}::{}::{name}", recipe.kind.word(), recipe.name), move || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(case(&lab, recipe)).map_err(|error| Failed::from(format!("{error:?}")))
        });
    match missing(&[recipe.kind]) {
        Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
        None => trial,
    }
}

/// A network in front of the server, and the server's URL through it.
async fn network(server: &Server) -> Result<(Proxy, String)> {
    let upstream = server.address().parse()?;
    // It has a runtime of its own.
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(upstream, 7)).await??;
    let url = server.url().replace(&server.address(), &proxy.control().address().to_string());
    Ok((proxy, url))
}

/// The loss is signalled without anyone looking.
async fn lost(guard: &Guard) -> Result<()> {
    let signalled = tokio::time::timeout(PATIENT, guard.lost()).await;
    signalled.context("the loss was not signalled")
}

/// Waits for a lock in the background.
fn waiting(keeper: &Keeper, name: &str) -> tokio::task::JoinHandle<lockkeeper::Result<Guard>> {
    let lock = keeper.lock(name).ttl(LONG);
    tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await })
}
