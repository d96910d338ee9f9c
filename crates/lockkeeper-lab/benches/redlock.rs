//! The cost of `redlock://` on five servers, as ratios within one run, against rslock and Go's redsync on
//! the same five. Starts its own servers.
//!
//! redsync is measured as it comes and with its option `WithFailFast`, which does not wait for the slowest
//! server; that is the one to be ahead of.

#[allow(dead_code, reason = "here ratios are taken slice by slice, which needs a few of them")]
#[path = "redis/figures.rs"]
mod figures;

use anyhow::{Context, Result, ensure};
use figures::{at_most, each, median};
use lockkeeper::Keeper;
use lockkeeper_lab::interop::{Cache, Crowd, Peer};
use lockkeeper_lab::server::{Lab, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Short, and one of each in turn: what else the machine does hits all of them.
const SLICES: usize = 101;
const TURNS: u32 = 40;
/// How often the same is done while one server stands still, which has to be told to every time.
const HANGS: usize = 21;
/// What a library that waits for a server that stands still is given, and for how long.
const FEW: u32 = 3;
const LIMIT: Duration = Duration::from_secs(20);
const TASKS: u32 = 16;
const TURNS_OF_EACH: u32 = 200;
const TTL: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    // Cargo runs benchmarks with --bench, and `cargo test` runs them without.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let lab = Lab::open()?;
    let servers = lab.redis().start_many(5)?;
    let hosts: Vec<_> = servers.iter().map(Server::address).collect();
    // The servers were started just now, which the others do not mind either.
    let url = format!("redlock://{}?min_uptime=0s", hosts.join(","));
    let cache = Cache::open()?;
    let theirs = format!("redlock://{}", hosts.join(","));
    let runtime = tokio::runtime::Runtime::new()?;
    let (keeper, plain) = runtime.block_on(async {
        let plain = lockkeeper::connect(&format!("{url}&token=false")).await?;
        anyhow::Ok((lockkeeper::connect(&url).await?, plain))
    })?;
    let mut bench = Bench {
        runtime,
        keeper,
        plain,
        url,
        rslock: rslock::LockManager::new(servers.iter().map(Server::url).collect()),
        redsync: Peer::start(cache.redsync()?, &theirs)?,
        fast: Peer::start(cache.redsync()?, &format!("{theirs}?fail_fast=true"))?,
        cache,
        theirs,
        servers,
    };
    println!("{:<72} {:>9} {:>9}   {:>6}", "redlock", "ours", "theirs", "ratio");
    bench.free()?;
    bench.one_hangs()?;
    bench.contended()?;
    bench.contended_keepers()?;
    bench.nothing_is_left()
}

struct Bench {
    runtime: tokio::runtime::Runtime,
    keeper: Keeper,
    plain: Keeper,
    url: String,
    rslock: rslock::LockManager,
    redsync: Peer,
    fast: Peer,
    cache: Cache,
    /// The servers, as a peer wants them.
    theirs: String,
    servers: Vec<Server>,
}

async fn ours(keeper: &Keeper, name: &str, count: u32) {
    for _ in 0..count {
        let guard = keeper.lock(name).ttl(TTL).acquire().await.expect("acquired");
        guard.release().await.expect("released");
    }
}

async fn rslock(manager: &rslock::LockManager, name: &str, count: u32) {
    for _ in 0..count {
        let lock = manager.acquire_no_guard(name.as_bytes(), TTL).await.expect("acquired");
        manager.unlock(&lock).await;
    }
}

impl Bench {
    /// The time of each of so many turns.
    fn timed(&self, turns: u32, work: impl Future<Output = ()>) -> Duration {
        self.runtime.block_on(each(turns, work))
    }

    /// Acquire and release of a name that nobody else wants.
    fn free(&mut self) -> Result<()> {
        let [mut with, mut without, mut rs, mut go, mut fast] = [const { Vec::new() }; 5];
        for slice in 0..SLICES {
            // Each follows the same one as often as it is followed by it.
            for turn in 0..5 {
                match if slice % 2 == 0 { turn } else { 4 - turn } {
                    0 => with.push(self.timed(TURNS, ours(&self.keeper, "free", TURNS))),
                    1 => without.push(self.timed(TURNS, ours(&self.plain, "free", TURNS))),
                    2 => rs.push(self.timed(TURNS, rslock(&self.rslock, "free/rs", TURNS))),
                    3 => go.push(self.redsync.bench("free/go", TURNS)? / TURNS),
                    _ => fast.push(self.fast.bench("free/go", TURNS)? / TURNS),
                }
            }
        }
        let (plain, token) = ("acquire + release, ?token=false", "acquire + release, with a token");
        speeds(&format!("{plain}: of rslock"), &without, &rs, Some(1.2));
        speeds(&format!("{token}: of rslock"), &with, &rs, Some(0.8));
        for (ours, what) in [(&without, plain), (&with, token)] {
            speeds(&format!("{what}: of redsync"), ours, &go, Some(1.0));
            speeds(&format!("{what}: of redsync that fails fast"), ours, &fast, Some(1.0));
        }
        Ok(())
    }

    /// The same while one of the five stands still.
    fn one_hangs(&mut self) -> Result<()> {
        let [mut healthy, mut plainly, mut with, mut without] = [const { Vec::new() }; 4];
        for round in 0..HANGS {
            healthy.push(self.timed(TURNS, ours(&self.keeper, "hung", TURNS)));
            plainly.push(self.timed(TURNS, ours(&self.plain, "hung", TURNS)));
            self.servers[round % 5].pause()?;
            with.push(self.timed(TURNS, ours(&self.keeper, "hung", TURNS)));
            without.push(self.timed(TURNS, ours(&self.plain, "hung", TURNS)));
            self.servers[round % 5].resume()?;
            // What was sent to it is answered before the next one stands still.
            std::thread::sleep(Duration::from_millis(300));
        }
        at_most("one of five stands still: time, of all healthy", ratio(&with, &healthy), 1.2);
        at_most("the same with ?token=false", ratio(&without, &plainly), 1.2);
        self.servers[0].pause()?;
        let rs = each(FEW, rslock(&self.rslock, "hung/rs", FEW));
        let rs = self.runtime.block_on(async { tokio::time::timeout(LIMIT, rs).await.ok() });
        let per_turn = |crowd: Option<Crowd>| crowd.map(|crowd| crowd.took / crowd.done);
        let go = per_turn(self.redsync.crowd("hung/go", FEW, 1, LIMIT)?);
        let fast = per_turn(self.fast.crowd("hung/fast", FEW, 1, LIMIT)?);
        self.servers[0].resume()?;
        let mine = median(with);
        for (theirs, whose) in [(rs, "rslock"), (go, "redsync"), (fast, "redsync that fails fast")]
        {
            let what = format!("one of five stands still: of {whose}");
            match theirs {
                Some(theirs) => speeds(&what, &[mine], &[theirs], Some(1.0)),
                None => println!("{what}, which did not finish {FEW} turns in {LIMIT:?}"),
            }
        }
        // One that was waited for in vain may be at it still.
        self.redsync = Peer::start(self.cache.redsync()?, &self.theirs)?;
        self.fast = Peer::start(self.cache.redsync()?, &format!("{}?fail_fast=true", self.theirs))?;
        Ok(())
    }

    /// Tasks of one keeper, and of one of theirs, that want one name.
    fn contended(&mut self) -> Result<()> {
        let turns = TASKS * TURNS_OF_EACH;
        let mut mine = Vec::new();
        let (mut longest, mut of_theirs) = (0.0_f64, f64::MAX);
        for _ in 0..3 {
            let keepers = vec![self.keeper.clone(); TASKS as usize];
            let began = Instant::now();
            let waits = self.runtime.block_on(crowd(keepers))?;
            mine.push(began.elapsed() / turns);
            longest = longest.max(spread(&waits)?);
        }
        let (mine, what) = (median(mine), format!("{TASKS} tasks on one name"));
        let rs = self.runtime.block_on(rslock_crowd(&self.rslock))?;
        speeds(&format!("{what}: of rslock"), &[mine], &[rs], Some(3.0));
        let peers = [(&mut self.redsync, "redsync"), (&mut self.fast, "redsync that fails fast")];
        for (peer, whose) in peers {
            let crowd = peer.crowd("hot/go", TURNS_OF_EACH, TASKS, LIMIT)?;
            let crowd = crowd.context("redsync waits longer than one may")?;
            speeds(&format!("{what}: of {whose}"), &[mine], &[crowd.took / crowd.done], Some(1.0));
            of_theirs = of_theirs.min(crowd.longest.as_secs_f64() / crowd.mean.as_secs_f64());
        }
        at_most(&format!("{what}: longest wait of the mean"), longest, 5.0);
        at_most(&format!("{what}: the same, of redsync's"), longest / of_theirs, 1.0);
        Ok(())
    }

    /// Keepers that know nothing of each other, as in as many processes.
    fn contended_keepers(&mut self) -> Result<()> {
        let keepers = self.runtime.block_on(async {
            let mut keepers = Vec::new();
            for _ in 0..TASKS {
                keepers.push(lockkeeper::connect(&self.url).await?);
            }
            anyhow::Ok(keepers)
        })?;
        let began = Instant::now();
        let waits = self.runtime.block_on(crowd(keepers))?;
        let mine = began.elapsed() / (TASKS * TURNS_OF_EACH);
        let go = self.redsync.crowd("keepers/go", TURNS_OF_EACH, TASKS, LIMIT)?;
        let go = go.context("redsync waits longer than one may")?;
        let what = format!("{TASKS} keepers on one name");
        let theirs = go.took / go.done;
        speeds(&format!("{what}: of redsync"), &[mine], &[theirs], Some(1.0));
        // There is no order between keepers, so no limit either.
        println!("{:<92}   {:>6.2}", format!("{what}: longest wait of the mean"), spread(&waits)?);
        Ok(())
    }

    fn nothing_is_left(&mut self) -> Result<()> {
        let closed = self
            .runtime
            .block_on(async { self.keeper.close(TTL).await && self.plain.close(TTL).await });
        ensure!(closed, "something was left undone");
        for server in &self.servers {
            for name in ["free", "hung", "hot"] {
                let found = server.redis()?.ask(&["EXISTS", name])?.number();
                ensure!(found == Some(0), "{name} is left on {}", server.address());
            }
        }
        println!("no lock key is left on any server");
        Ok(())
    }
}

/// How long each of them waited for each of its turns.
async fn crowd(keepers: Vec<Keeper>) -> Result<Vec<Duration>> {
    let tasks: Vec<_> = keepers
        .into_iter()
        .map(|keeper| {
            tokio::spawn(async move {
                let mut waits = Vec::new();
                for _ in 0..TURNS_OF_EACH {
                    let start = Instant::now();
                    let guard = keeper.lock("hot").ttl(TTL).acquire().await?;
                    waits.push(start.elapsed());
                    guard.release().await?;
                }
                anyhow::Ok(waits)
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await??);
    }
    Ok(waits)
}

/// The time of each turn; none begins after the limit.
async fn rslock_crowd(manager: &rslock::LockManager) -> Result<Duration> {
    let (began, done) = (Instant::now(), Arc::new(AtomicU32::new(0)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (manager, done) = (manager.clone(), done.clone());
            tokio::spawn(async move {
                for _ in 0..TURNS_OF_EACH {
                    if began.elapsed() < LIMIT {
                        rslock(&manager, "hot/rs", 1).await;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    Ok(began.elapsed() / done.load(Ordering::Relaxed))
}

/// The longest wait, divided by the mean.
fn spread(waits: &[Duration]) -> Result<f64> {
    let mean = waits.iter().sum::<Duration>() / u32::try_from(waits.len())?;
    let longest = waits.iter().max().context("someone waited")?;
    Ok(longest.as_secs_f64() / mean.as_secs_f64())
}

/// The median of how often the second goes into the first, slice by slice.
fn ratio(first: &[Duration], second: &[Duration]) -> f64 {
    let both = first.iter().zip(second);
    let mut ratios: Vec<_> = both.map(|(one, two)| one.as_secs_f64() / two.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Prints our speed as a fraction of theirs, and whether that is enough.
fn speeds(what: &str, ours: &[Duration], theirs: &[Duration], least: Option<f64>) {
    let (ratio, mine, others) =
        (ratio(theirs, ours), median(ours.to_vec()), median(theirs.to_vec()));
    let verdict = least.map_or_else(String::new, |least| {
        format!("≥ {least:<5} {}", if ratio >= least { "kept" } else { "MISSED" })
    });
    println!("{what:<72} {mine:>9.1?} {others:>9.1?}   {ratio:>6.2} {verdict}");
}
