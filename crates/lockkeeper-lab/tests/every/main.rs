//! What holds for every store with a server: a keeper that is closed leaves nothing behind, lost
//! answers give no number twice, and tokens go on growing when one moves from one store to another. And
//! the adapters of `lockkeeper::fence`.

mod fences;
mod numbers;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::{Failed, Trial};
use lockkeeper::Keeper;
use lockkeeper_lab::server::{Kind, Lab, Server, missing};
use lockkeeper_lab::stores::{STORES, Store};
use lockkeeper_lab::trials::{Outcome, arguments, eventually, queued};
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PATIENT: Duration = Duration::from_secs(30);

type Case = (&'static str, for<'a> fn(&'a Server) -> Outcome<'a>);

const CASES: &[Case] = &[
    ("a_closed_keeper_leaves_no_connection", |s| Box::pin(closed(s))),
    ("a_closed_keeper_can_be_used_again", |s| Box::pin(used_again(s))),
    ("closing_leaves_those_that_wait_in_peace", |s| Box::pin(waiting(s))),
    ("a_keeper_that_is_gone_leaves_no_thread", |s| Box::pin(gone(s))),
    ("a_keeper_needs_no_runtime", |s| Box::pin(without_a_runtime(s))),
];

/// For stores with sequences.
const NUMBERS: &[Case] = &[
    ("lost_answers_give_no_number_twice", |s| Box::pin(numbers::no_number_twice(s))),
    ("lost_answers_repeat_no_write", |s| Box::pin(numbers::no_write_repeated(s))),
];

/// For stores that have an adapter of fences.
const FENCES: &[(Kind, Case)] = &[
    (Kind::Postgres, ("a_stale_writer_is_refused", |s| Box::pin(fences::postgres(s)))),
    (Kind::MariaDb, ("a_stale_writer_is_refused", |s| Box::pin(fences::mariadb(s)))),
    (Kind::Redis, ("a_stale_writer_is_refused", |s| Box::pin(fences::redis(s)))),
];

/// The cases of a kind of store.
fn cases(kind: Kind) -> impl Iterator<Item = &'static Case> {
    let first = lockkeeper::recipes().iter().find(|recipe| recipe.scheme == kind.word());
    let counts = first.is_some_and(|recipe| recipe.capability.sequences);
    let fences = FENCES.iter().filter(move |(of, _)| *of == kind).map(|(_, case)| case);
    CASES.iter().chain(if counts { NUMBERS } else { &[] }).chain(fences)
}

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let mut trials = Vec::new();
    for store @ Store { kind, .. } in STORES {
        let servers = lab.clone();
        let name = format!("{}::each_recipe_says_its_name", kind.word());
        trials.push(needing(*kind, name, move || {
            let server = servers.start(*kind)?;
            tokio::runtime::Runtime::new()?.block_on(names(&server, store))
        }));
        for (name, case) in cases(*kind) {
            let lab = lab.clone();
            let name = format!("{}::{name}", kind.word());
            trials.push(needing(*kind, name, move || {
                let server = lab.start(*kind)?;
                tokio::runtime::Runtime::new()?.block_on(case(&server))
            }));
        }
    }
    trials.push(Trial::test("sqlite::a_closed_keeper_leaves_no_thread", || {
        let tried = tokio::runtime::Runtime::new()?.block_on(closed_file());
        tried.map_err(|error| Failed::from(format!("{error:?}")))
    }));
    let redis = lab.clone();
    trials.push(needing(Kind::Redis, "tokens_grow_from_store_to_store".into(), move || {
        let server = redis.start(Kind::Redis)?;
        tokio::runtime::Runtime::new()?.block_on(moving(&server))
    }));
    // One at a time: they count the threads of this process.
    let conclusion = libtest_mimic::run(&arguments(1), trials);
    drop(lab);
    conclusion.exit();
}

fn needing(kind: Kind, name: String, case: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    let trial = Trial::test(name, || case().map_err(|error| Failed::from(format!("{error:?}"))));
    match missing(&[kind]) {
        Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
        None => trial,
    }
}

/// As the list of recipes has it, which metrics are labelled by.
async fn names(server: &Server, store: &Store) -> Result<()> {
    let known = || lockkeeper::recipes().iter().filter(|it| it.scheme == store.kind.word());
    for variant in store.contract {
        let backend = lockkeeper::open(&format!("{}{}", server.url(), variant.tail)).await?;
        let named = variant.tail.split(['?', '&']).find_map(|it| it.strip_prefix("recipe="));
        let first = known().next().map(|recipe| recipe.name);
        let wanted = named.or(first).context("the store has no recipe")?;
        let (said, label) = (backend.recipe(), variant.label);
        ensure!(said == wanted && known().any(|it| it.name == said), "{label} says {said:?}");
    }
    Ok(())
}

/// Open connections of this process to the server, by the numbers of their sockets. Its own to itself
/// are not ours: the table of connections is the whole machine's.
fn connections(server: &Server) -> Result<HashSet<String>> {
    let mut ours = HashSet::new();
    for file in std::fs::read_dir("/proc/self/fd")? {
        // A file may be closed between the two looks.
        let target = std::fs::read_link(file?.path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        ours.extend(inode.map(str::to_owned));
    }
    let ports: Vec<_> = server.place().ports().iter().map(|port| format!(":{port:04X}")).collect();
    let text = std::fs::read_to_string("/proc/self/net/tcp")?;
    let open = text.lines().skip(1).filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let (remote, inode) = (columns.get(2)?, columns.get(9)?);
        let leads_there = ports.iter().any(|port| remote.ends_with(port));
        (leads_there && ours.contains(*inode)).then(|| (*inode).to_owned())
    });
    Ok(open.collect())
}

/// Threads of this process that keepers have started.
fn threads() -> Result<usize> {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        count += usize::from(name.starts_with("lockkeeper"));
    }
    Ok(count)
}

/// Holds and waits, so that everything a keeper may start is started.
async fn work(keeper: &Keeper) -> Result<()> {
    let held = keeper.lock("a").acquire().await?;
    let (lock, mut events) = (keeper.lock("a"), keeper.events());
    let waiting = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queued(&mut events, 1).await?;
    held.release().await?;
    waiting.await??.release().await?;
    drop(keeper.lock("b").acquire().await?);
    Ok(())
}

async fn closed(server: &Server) -> Result<()> {
    let keeper = lockkeeper::connect(&server.url()).await?;
    work(&keeper).await?;
    ensure!(!connections(server)?.is_empty(), "unknown: there was no connection to be seen");
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    let none = async || Ok(connections(server)?.is_empty().then_some(()));
    eventually("every connection is closed", none).await;
    // Not because the keeper went away.
    drop(keeper);
    Ok(())
}

async fn used_again(server: &Server) -> Result<()> {
    let keeper = lockkeeper::connect(&server.url()).await?;
    let guard = keeper.lock("held").acquire().await?;
    work(&keeper).await?;
    // A guard is still held: nothing of it may be closed.
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    ensure!(guard.is_held(), "closing took a lock away");
    guard.release().await?;
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    work(&keeper).await?;
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    Ok(())
}

async fn waiting(server: &Server) -> Result<()> {
    let holder = lockkeeper::connect(&server.url()).await?;
    let keeper = lockkeeper::connect(&server.url()).await?;
    let held = holder.lock("a").acquire().await?;
    let (lock, mut events) = (keeper.lock("a"), keeper.events());
    let waiting = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    queued(&mut events, 1).await?;
    let before = connections(server)?;
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    // Neither its place nor any of these very connections is taken from it. One that waits may make one
    // more at any time, to hear of a release.
    let after = connections(server)?;
    ensure!(before.is_subset(&after), "of {before:?} there are left {after:?}");
    // Where there are places.
    if keeper.capability().fair {
        ensure!(holder.show("a").await?.waiters.len() == 1, "it lost its place");
    }
    held.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

async fn gone(server: &Server) -> Result<()> {
    // A thread of the case before may be on its way out.
    eventually("no thread is there before", async || Ok((threads()? == 0).then_some(()))).await;
    let keeper = lockkeeper::connect(&server.url()).await?;
    work(&keeper).await?;
    ensure!(threads()? > 0, "unknown: no thread was seen");
    keeper.close(PATIENT).await;
    drop(keeper);
    eventually("no thread is left", async || Ok((threads()? == 0).then_some(()))).await;
    let none = async || Ok(connections(server)?.is_empty().then_some(()));
    eventually("no connection is left", none).await;
    Ok(())
}

/// A file has no connection to be counted, but a thread.
async fn closed_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let keeper = lockkeeper::connect(&url).await?;
    work(&keeper).await?;
    let before = threads()?;
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    let less = async || Ok((threads()? < before).then_some(()));
    eventually("the thread that looks after the file is gone", less).await;
    work(&keeper).await?;
    drop(keeper);
    eventually("no thread is left", async || Ok((threads()? == 0).then_some(()))).await;
    Ok(())
}

/// On an executor that knows nothing of tokio.
async fn without_a_runtime(server: &Server) -> Result<()> {
    let url = server.url();
    let plain = std::thread::spawn(move || -> Result<()> {
        let (woken, wake) = (Arc::new(Unpark(std::thread::current())), PATIENT);
        let waker = Waker::from(woken);
        let mut context = Context::from_waker(&waker);
        let mut work = pin!(async {
            let keeper = lockkeeper::connect(&url).await?;
            let held = keeper.lock("a").acquire().await?;
            ensure!(keeper.lock("a").try_acquire().await?.is_none(), "taken twice");
            ensure!(keeper.lock("a").acquire_within(wake / 300).await.is_err(), "taken twice");
            held.release().await?;
            ensure!(keeper.close(wake).await, "something was left undone");
            Ok(())
        });
        loop {
            match work.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park_timeout(wake),
            }
        }
    });
    let joined = tokio::task::spawn_blocking(move || plain.join()).await?;
    joined.map_err(|_| anyhow::anyhow!("it panicked"))?
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Every store that counts by its clock: a program that moves from one to another keeps the fence.
async fn moving(server: &Server) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("locks.db");
    let urls = [
        "memory:".to_owned(),
        format!("sqlite:{}", file.display()),
        server.url(),
        format!("{}?recipe=reentrant", server.url()),
    ];
    let mut keepers = Vec::new();
    for url in &urls {
        keepers.push((url, lockkeeper::connect(url).await?));
    }
    let mut last = None;
    for _ in 0..5 {
        for (url, keeper) in &keepers {
            let guard = keeper.lock("orders/42").acquire().await?;
            let token = guard.token().with_context(|| format!("{url} gave no token"))?;
            guard.release().await?;
            ensure!(Some(token) > last, "{url} gave {token} after {last:?}");
            last = Some(token);
            // Clocks of two processes on one machine are the same to the millisecond.
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
    Ok(())
}
