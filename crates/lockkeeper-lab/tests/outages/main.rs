//! What every store on a network promises while it does not answer: limits are kept, claims that
//! wait outlive an outage, and no runtime of a caller is needed for it.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::server::{Fitness, Kind, Lab, Server};
use lockkeeper_lab::stores::{STORES, Store};
use lockkeeper_lab::trials::{Outcome, arguments, queued};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENT: Duration = Duration::from_secs(60);
/// A request is given up after this: longer than any test waits for an answer.
const SLOW: &str = "timeout=45s&session=60s";

/// How many runtimes end under their keeper.
const RUNTIMES: u32 = 40;

type Case = (&'static str, for<'a> fn(&'a Server) -> Outcome<'a>);

const CASES: &[Case] = &[
    ("a_limit_is_kept_while_the_store_stands_still", |s| Box::pin(a_limit_is_kept(s))),
    ("a_new_claim_outlives_a_restart", |s| Box::pin(a_new_claim_outlives_a_restart(s))),
    ("an_outage_that_lasts_is_told", |s| Box::pin(an_outage_that_lasts_is_told(s))),
    ("a_runtime_that_nobody_drives_keeps_nothing", |s| Box::pin(an_idle_runtime(s))),
    ("a_runtime_that_ends_takes_no_wait_with_it", |s| Box::pin(a_runtime_that_ends(s))),
];

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let mut trials = Vec::new();
    for Store { kind, .. } in STORES {
        let kind = *kind;
        for (name, case) in CASES {
            let lab = lab.clone();
            let trial = Trial::test(format!("{}::{name}", kind.word()), move || {
                let server = start(&lab, kind)?;
                let runtime = tokio::runtime::Runtime::new()?;
                runtime.block_on(case(&server)).map_err(|error| Failed::from(format!("{error:?}")))
            });
            trials.push(match lockkeeper_lab::server::missing(&[kind]) {
                Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
                None => trial,
            });
        }
    }
    let conclusion = libtest_mimic::run(&arguments(4), trials);
    drop(lab);
    conclusion.exit();
}

fn start(lab: &Lab, kind: Kind) -> Result<Server> {
    lab.start_fit(kind, Fitness { durable: true, ..Fitness::default() })
}

async fn keeper(server: &Server, options: &str) -> Result<Keeper> {
    // What a store does not have is not asked of it.
    let kind = STORES.iter().find(|store| server.url().starts_with(store.kind.word()));
    let options = match kind.is_some_and(|store| store.session.is_none()) {
        true => options.replace("&session=60s", "").replace("session=4s&", ""),
        false => options.to_owned(),
    };
    Ok(lockkeeper::connect(&format!("{}?{options}", server.url())).await?)
}

/// The server answers nothing until the call is over, so only the limit can have ended it.
async fn a_limit_is_kept(server: &Server) -> Result<()> {
    let keeper = keeper(server, SLOW).await?;
    keeper.lock("n").acquire().await?.release().await?;
    server.pause()?;
    let begin = Instant::now();
    let one = keeper.lock("n").acquire_within(Duration::from_millis(5)).await;
    let two = keeper.multi(["a", "b"]).acquire_within(Duration::from_millis(5)).await;
    let took = begin.elapsed();
    server.resume()?;
    for error in [one.unwrap_err(), two.unwrap_err()] {
        ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    }
    ensure!(took < Duration::from_secs(20), "it waited for the store: {took:?}");
    // Nothing is left of what was carried out late.
    let free = keeper.multi(["a", "b", "n"]).acquire_within(PATIENT).await?;
    free.release().await?;
    Ok(())
}

async fn a_new_claim_outlives_a_restart(server: &Server) -> Result<()> {
    let keeper = Arc::new(keeper(server, "session=4s&outage=60s").await?);
    keeper.lock("n").acquire().await?.release().await?;
    server.kill()?;
    let error = keeper.lock("n").try_acquire().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    let waits = |limit: Option<Duration>, name: &'static str| {
        let keeper = keeper.clone();
        tokio::spawn(async move {
            match limit {
                Some(limit) => keeper.lock(name).acquire_within(limit).await,
                None => keeper.lock(name).acquire().await,
            }
        })
    };
    let (limited, endless) = (waits(Some(PATIENT), "n"), waits(None, "m"));
    // Long enough for a session to be over, which has to be opened anew.
    tokio::time::sleep(Duration::from_secs(6)).await;
    ensure!(!limited.is_finished() && !endless.is_finished(), "one gave up at once");
    server.restart()?;
    limited.await?.context("limited")?.release().await?;
    endless.await?.context("endless")?.release().await?;
    Ok(())
}

async fn an_outage_that_lasts_is_told(server: &Server) -> Result<()> {
    let keeper = keeper(server, "session=4s&outage=3s").await?;
    keeper.lock("n").acquire().await?.release().await?;
    server.kill()?;
    let begin = Instant::now();
    let error = keeper.lock("n").acquire().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains("silent for"), "{error}");
    ensure!(begin.elapsed() >= Duration::from_secs(3), "it gave up early");
    Ok(())
}

/// The keeper is opened on a runtime that stands still from then on.
async fn an_idle_runtime(server: &Server) -> Result<()> {
    let url = server.url();
    let opening = move || -> Result<(Keeper, tokio::runtime::Runtime)> {
        let idle = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let keeper = idle.block_on(async {
            let keeper = lockkeeper::connect(&url).await?;
            keeper.lock("n").acquire().await?.release().await?;
            anyhow::Ok(keeper)
        })?;
        Ok((keeper, idle))
    };
    let (keeper, idle) = tokio::task::spawn_blocking(opening).await??;
    let guard = keeper.lock("n").ttl(Duration::from_secs(2)).try_acquire().await?;
    let guard = guard.context("not free")?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    guard.release().await?;
    // It may not be dropped here, where blocking is not allowed.
    idle.shutdown_background();
    Ok(())
}

async fn a_runtime_that_ends(server: &Server) -> Result<()> {
    // Most rounds, nothing is under way on the runtime in the instant it ends.
    for _ in 0..RUNTIMES {
        a_runtime_that_ends_once(server).await?;
    }
    Ok(())
}

async fn a_runtime_that_ends_once(server: &Server) -> Result<()> {
    let first =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let url = server.url();
    let keeper = first.spawn(async move { lockkeeper::connect(&url).await }).await??;
    let mut events = keeper.events();
    let on_first = keeper.lock("n").ttl(Duration::from_secs(20));
    let guard = first.spawn(async move { on_first.acquire().await }).await??;
    let lock = keeper.lock("n").ttl(Duration::from_secs(20));
    let waits = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    for _ in 0..5 {
        let lock = keeper.lock("n");
        first.spawn(async move { lock.acquire().await.map(lockkeeper::Guard::detach) });
    }
    queued(&mut events, 6).await?;
    first.shutdown_background();
    guard.release().await?;
    waits.await??.release().await?;
    keeper.lock("n").acquire_within(PATIENT).await?.release().await?;
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    ensure!(keeper.list("").await?.is_empty(), "{:?}", keeper.list("").await?);
    Ok(())
}
