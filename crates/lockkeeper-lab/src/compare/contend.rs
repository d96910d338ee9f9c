//! `lab contend`: the program that takes locks on command for our recipes and for rslock, as the
//! programs in the folder `interop` do for other libraries; `interop` tells of the orders.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use lockkeeper::{Guard, Keeper};
use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fmt::Write;
use std::process::exit;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The ttl of locks that are only measured.
const MEASURED: Duration = Duration::from_secs(30);
/// How long one who waits goes on after the time is over.
const GRACE: Duration = Duration::from_secs(2);

/// Whose locks are taken.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Whose {
    /// Our own.
    Ours,
    /// Those of rslock.
    Rslock,
}

/// Takes locks at `url` as ordered on the input, and answers on the output.
///
/// # Errors
/// When the store cannot be opened.
pub fn contend(whose: Whose, url: &str) -> Result<()> {
    // The end of the input also ends this process, but not while it is paused.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let client = Arc::new(runtime.block_on(Client::open(whose, url))?);
    let (order, orders) = mpsc::channel();
    // In its own thread: a process that waits for a lock must still notice that the input ended.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if order.send(line).is_err() {
                return;
            }
        }
        exit(0);
    });
    println!("ready");
    let mut held = HashMap::new();
    for line in orders {
        if line == "quit" {
            break;
        }
        match runtime.block_on(obey(&client, &mut held, &line)) {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error {}", format!("{error:#}").replace('\n', " ")),
        }
    }
    Ok(())
}

enum Client {
    Ours(Keeper),
    Rslock(rslock::LockManager),
}

enum Held {
    Ours(Guard),
    Rslock(rslock::Lock, Instant),
}

impl Held {
    /// Whether it may still believe that it holds the lock.
    fn believes(&self) -> bool {
        match self {
            Self::Ours(guard) => guard.is_held(),
            Self::Rslock(lock, had) => had.elapsed().as_millis() < lock.validity_time as u128,
        }
    }
}

impl Client {
    async fn open(whose: Whose, url: &str) -> Result<Self> {
        match whose {
            Whose::Ours => Ok(Self::Ours(lockkeeper::connect(url).await?)),
            Whose::Rslock => {
                let (_, hosts) = url.split_once("://").context("a URL with hosts")?;
                let hosts = hosts.split(',').map(|host| format!("redis://{host}")).collect();
                Ok(Self::Rslock(rslock::LockManager::new(hosts)))
            }
        }
    }

    async fn take(&self, name: &str, ttl: Duration) -> Result<Held> {
        match self {
            Self::Ours(keeper) => Ok(Held::Ours(keeper.lock(name).ttl(ttl).acquire().await?)),
            // Tries without end, where `lock` gives up after a few times.
            Self::Rslock(manager) => {
                let lock = manager.acquire_no_guard(name.as_bytes(), ttl).await;
                // It tells how long the lock is valid from now on.
                Ok(Held::Rslock(lock.context("rslock does not get it")?, Instant::now()))
            }
        }
    }

    async fn give_back(&self, held: Held) -> Result<()> {
        match (self, held) {
            (_, Held::Ours(guard)) => guard.release().await?,
            (Self::Rslock(manager), Held::Rslock(lock, _)) => manager.unlock(&lock).await,
            (Self::Ours(_), Held::Rslock(..)) => bail!("a lock of somebody else"),
        }
        Ok(())
    }
}

async fn obey(
    client: &Arc<Client>,
    held: &mut HashMap<String, Held>,
    line: &str,
) -> Result<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| -> Result<u64> {
        words.get(at).context("a number is missing")?.parse().context("a number")
    };
    let name = *words.get(1).context("no name")?;
    match words[0] {
        "lock" => {
            let taken = client.take(name, Duration::from_millis(number(2)?)).await?;
            held.insert(name.to_owned(), taken);
            Ok("held".to_owned())
        }
        "unlock" => {
            let Some(taken) = held.remove(name) else { return Ok("not-held".to_owned()) };
            client.give_back(taken).await?;
            Ok("unlocked".to_owned())
        }
        "holds" => {
            let holds = held.get(name).is_some_and(Held::believes);
            Ok(if holds { "holds" } else { "lost" }.to_owned())
        }
        "wait" => {
            for _ in 0..number(2)? {
                let (client, name) = (client.clone(), name.to_owned());
                // Until this process is killed; one that cannot wait must not be taken for one that does.
                tokio::spawn(async move {
                    match client.take(&name, MEASURED).await {
                        Ok(_) => println!("held"),
                        Err(error) => println!("error {}", format!("{error:#}").replace('\n', " ")),
                    }
                });
            }
            Ok("waiting".to_owned())
        }
        "turns" => {
            let length = Duration::from_millis(number(3)?);
            turns(client, name, number(2)?, length, words.get(4) == Some(&"own")).await
        }
        other => bail!("unknown: {other}"),
    }
}

/// So many tasks take the lock again and again, or each one of its own.
async fn turns(
    client: &Arc<Client>,
    name: &str,
    tasks: u64,
    length: Duration,
    own: bool,
) -> Result<String> {
    let end = Instant::now() + length;
    let task = |number: u64| {
        let client = client.clone();
        let name = if own { format!("{name}/{number}") } else { name.to_owned() };
        tokio::spawn(async move {
            let mut turns = Vec::new();
            while Instant::now() < end {
                let asked = now()?;
                let taking =
                    tokio::time::timeout_at((end + GRACE).into(), client.take(&name, MEASURED));
                let Ok(taken) = taking.await else { break };
                let (taken, held) = (taken?, now()?);
                let releasing = now()?;
                client.give_back(taken).await?;
                turns.push([asked, held, releasing, now()?]);
            }
            anyhow::Ok(turns)
        })
    };
    let running: Vec<_> = (0..tasks).map(task).collect();
    let mut answer = "turns".to_owned();
    for task in running {
        for [asked, held, releasing, released] in task.await?? {
            write!(answer, " {asked},{held},{releasing},{released}")?;
        }
    }
    Ok(answer)
}

/// Microseconds of a clock that all processes of the machine share.
fn now() -> Result<u64> {
    let time = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(time.as_micros())?)
}
