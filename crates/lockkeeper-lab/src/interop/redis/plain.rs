//! `recipe=set-nx-px` and the other libraries that keep a lock in one key; `redlock://` and those that
//! keep it in one key on each of several servers.

use crate::interop::install::Cache;
use crate::interop::peer::Peer;
use crate::server::wire::resp::Resp;
use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A ttl that no case waits out.
const LONG: u64 = 60_000;
/// A ttl short enough to wait out, and the shortest of `redlock://`.
const SHORT: u64 = 2_000;
/// Long enough for a waiter to have polled several times.
const WHILE: Duration = Duration::from_millis(300);

/// Starts a peer of one kind.
type Start = fn(&Cache) -> Result<Command>;

type Libraries = [(&'static str, Start)];

const ON_ONE: &Libraries = &[("redis-py", Cache::redis_py), ("node-redlock", Cache::node_redlock)];
const ON_SEVERAL: &Libraries =
    &[("redsync", Cache::redsync), ("node-redlock", Cache::node_redlock)];

type Run = fn(&Table) -> Result<()>;

const CASES: &[(&str, Run)] = &[
    ("they_hold_it_and_we_do_not_get_in", they_hold_it_and_we_do_not_get_in),
    ("we_hold_it_and_they_do_not_get_in", we_hold_it_and_they_do_not_get_in),
    ("they_get_it_when_we_release", they_get_it_when_we_release),
    ("we_get_it_when_they_release", we_get_it_when_they_release),
    ("we_get_it_after_their_crash_and_not_before", we_get_it_after_their_crash_and_not_before),
    ("they_get_it_after_our_crash_and_not_before", they_get_it_after_our_crash_and_not_before),
    ("our_late_release_leaves_theirs_alone", our_late_release_leaves_theirs_alone),
    ("their_late_release_leaves_ours_alone", their_late_release_leaves_ours_alone),
    ("together_we_lose_no_update", together_we_lose_no_update),
];

/// On one server.
pub(super) fn trials(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    let urls = Urls { ours: format!("{url}?recipe=set-nx-px"), theirs: url.to_owned() };
    let mut trials = trials_at("redis::set-nx-px", ON_ONE, &urls, cache, folder);
    let only_they = "one_without_a_ttl_keeps_us_out_until_it_is_released";
    let endless = one_without_a_ttl_keeps_us_out_until_it_is_released;
    let start = vec![Cache::redis_py as Start];
    let make = Maker { store: "redis::set-nx-px", urls: &urls, cache, folder };
    trials.push(make.trial("redis-py", start, only_they, endless));
    trials
}

/// On several servers that know nothing of each other.
pub(super) fn trials_on_several(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    let urls = Urls { ours: url.to_owned(), theirs: url.to_owned() };
    trials_at("redlock", ON_SEVERAL, &urls, cache, folder)
}

/// Every case with each of the libraries, and the last with all of them at once.
fn trials_at(
    store: &'static str,
    libraries: &'static Libraries,
    urls: &Urls,
    cache: &Arc<Cache>,
    folder: &Path,
) -> Vec<Trial> {
    let make = Maker { store, urls, cache, folder };
    let mut trials = Vec::new();
    for &(library, start) in libraries {
        for &(name, case) in CASES {
            trials.push(make.trial(library, vec![start], name, case));
        }
    }
    let all = libraries.iter().map(|(_, start)| *start).collect();
    let together = "together_we_lose_no_update";
    trials.push(make.trial("everyone", all, together, together_we_lose_no_update));
    trials
}

/// The same servers, as we and as other libraries name them.
#[derive(Clone)]
struct Urls {
    ours: String,
    theirs: String,
}

/// What every trial of one store has in common.
struct Maker<'a> {
    store: &'static str,
    urls: &'a Urls,
    cache: &'a Arc<Cache>,
    folder: &'a Path,
}

impl Maker<'_> {
    fn trial(
        &self,
        library: &'static str,
        starts: Vec<Start>,
        name: &'static str,
        case: Run,
    ) -> Trial {
        let (urls, cache) = (self.urls.clone(), self.cache.clone());
        let folder = self.folder.to_owned();
        Trial::test(format!("{}::{library}::{name}", self.store), move || {
            let lock = format!("interop/{library}/{name}");
            let table = Table { urls, cache, folder, starts, lock };
            case(&table).map_err(|error| Failed::from(format!("{error:#}")))
        })
    }
}

/// What a case works with.
struct Table {
    urls: Urls,
    cache: Arc<Cache>,
    /// A folder for files.
    folder: PathBuf,
    starts: Vec<Start>,
    /// A lock name that only this case uses.
    lock: String,
}

impl Table {
    fn us(&self) -> Result<Peer> {
        Peer::ours(&self.urls.ours)
    }

    fn them(&self) -> Result<Peer> {
        self.one_of(self.starts.first().context("no library")?)
    }

    fn one_of(&self, start: &Start) -> Result<Peer> {
        Peer::start(start(&self.cache)?, &self.urls.theirs)
    }

    /// Deletes the lock, as if every server had lost it.
    fn forget(&self) -> Result<()> {
        let (_, hosts) = self.urls.theirs.split_once("://").context("a URL with hosts")?;
        for host in hosts.split(',') {
            let (_, port) = host.rsplit_once(':').context("a host with a port")?;
            Resp::connect(port.parse()?)?.ask(&["DEL", &self.lock])?;
        }
        Ok(())
    }

    fn take(&self, ttl: u64) -> String {
        format!("lock {} {ttl}", self.lock)
    }

    fn attempt(&self) -> String {
        format!("try {} {LONG}", self.lock)
    }

    fn give_back(&self) -> String {
        format!("unlock {}", self.lock)
    }
}

fn they_hold_it_and_we_do_not_get_in(table: &Table) -> Result<()> {
    keeps_out(table, table.them()?, table.us()?)
}

fn we_hold_it_and_they_do_not_get_in(table: &Table) -> Result<()> {
    keeps_out(table, table.us()?, table.them()?)
}

fn keeps_out(table: &Table, mut holder: Peer, mut other: Peer) -> Result<()> {
    // Not vacuous: once it is free, the other one does get it.
    other.must(&table.attempt(), "held")?;
    holder.must(&table.attempt(), "busy")?;
    other.must(&table.give_back(), "unlocked")?;
    holder.must(&table.attempt(), "held")?;
    other.must(&table.attempt(), "busy")?;
    holder.must(&table.give_back(), "unlocked")?;
    other.must(&table.attempt(), "held")
}

fn they_get_it_when_we_release(table: &Table) -> Result<()> {
    hands_over(table, table.us()?, table.them()?, LONG)
}

fn we_get_it_when_they_release(table: &Table) -> Result<()> {
    hands_over(table, table.them()?, table.us()?, LONG)
}

/// The default of redis-py: its lock never expires.
fn one_without_a_ttl_keeps_us_out_until_it_is_released(table: &Table) -> Result<()> {
    hands_over(table, table.them()?, table.us()?, 0)
}

fn hands_over(table: &Table, mut holder: Peer, mut waiter: Peer, ttl: u64) -> Result<()> {
    holder.must(&table.take(ttl), "held")?;
    waiter.tell(&table.take(LONG))?;
    sleep(WHILE);
    waiter.must_be_silent()?;
    holder.must(&table.give_back(), "unlocked")?;
    waiter.must_say("held")?;
    holder.must(&table.attempt(), "busy")
}

fn we_get_it_after_their_crash_and_not_before(table: &Table) -> Result<()> {
    survives(table, table.them()?, table.us()?)
}

fn they_get_it_after_our_crash_and_not_before(table: &Table) -> Result<()> {
    survives(table, table.us()?, table.them()?)
}

fn survives(table: &Table, mut holder: Peer, mut waiter: Peer) -> Result<()> {
    let before = Instant::now();
    holder.must(&table.take(SHORT), "held")?;
    holder.kill()?;
    waiter.must(&table.take(LONG), "held")?;
    let after = before.elapsed();
    ensure!(after >= Duration::from_millis(SHORT), "it was free after {after:?}, before its ttl");
    Ok(())
}

/// Our lock is renewed while its process runs: only a paused process loses it.
fn our_late_release_leaves_theirs_alone(table: &Table) -> Result<()> {
    let (mut us, mut them, mut third) = (table.us()?, table.them()?, table.us()?);
    // First after the ttl, when we know ourselves that there is nothing to release.
    us.must(&table.take(SHORT), "held")?;
    us.pause()?;
    them.must(&table.take(LONG), "held")?;
    us.go_on()?;
    us.must(&table.give_back(), "not-held")?;
    third.must(&table.attempt(), "busy")?;
    them.must(&table.give_back(), "unlocked")?;
    // Then while we still believe that we hold it: here the store must reject our release, and say
    // so.
    us.must(&table.take(LONG), "held")?;
    table.forget()?;
    them.must(&table.take(LONG), "held")?;
    us.must(&table.give_back(), "not-held")?;
    third.must(&table.attempt(), "busy")?;
    them.must(&table.give_back(), "unlocked")
}

fn their_late_release_leaves_ours_alone(table: &Table) -> Result<()> {
    let (mut them, mut us, mut third) = (table.them()?, table.us()?, table.them()?);
    them.must(&table.take(SHORT), "held")?;
    us.must(&table.take(LONG), "held")?;
    them.must(&table.give_back(), "not-held")?;
    third.must(&table.attempt(), "busy")?;
    us.must(&table.give_back(), "unlocked")
}

/// Every peer adds to a number in a file, in two steps that must not be interleaved.
fn together_we_lose_no_update(table: &Table) -> Result<()> {
    const ROUNDS: usize = 15;
    let number = table.folder.join(table.lock.replace('/', "-"));
    fs::write(&number, "0")?;
    // Started here and not in the threads: our peers die with the thread that started them.
    let mut peers = vec![table.us()?, table.us()?];
    for start in &table.starts {
        peers.extend([table.one_of(start)?, table.one_of(start)?]);
    }
    let expected = ROUNDS * peers.len();
    let waited = std::thread::scope(|scope| {
        let add = |mut peer: Peer| -> Result<usize> {
            (0..ROUNDS).map(|_| add_one(table, &mut peer, &number)).sum()
        };
        let threads: Vec<_> = peers.drain(..).map(|peer| scope.spawn(move || add(peer))).collect();
        let done = threads.into_iter().map(|it| it.join().expect("no panic"));
        done.sum::<Result<usize>>()
    })?;
    let sum: usize = fs::read_to_string(&number)?.parse()?;
    ensure!(sum == expected, "{} updates of {expected} were lost", expected.abs_diff(sum));
    ensure!(waited > 0, "unknown: nobody found the lock taken, so nothing kept anybody apart");
    Ok(())
}

/// Returns whether another peer held the lock at the first attempt.
fn add_one(table: &Table, peer: &mut Peer, number: &Path) -> Result<usize> {
    peer.tell(&table.attempt())?;
    let waited = peer.hear()? == "busy";
    if waited {
        peer.must(&table.take(LONG), "held")?;
    }
    let found: usize = fs::read_to_string(number)?.parse()?;
    sleep(Duration::from_millis(2));
    fs::write(number, (found + 1).to_string())?;
    peer.must(&table.give_back(), "unlocked")?;
    Ok(usize::from(waited))
}
