//! Go's concurrency package and `etcdctl lock`, which use the same lock layout as we do.
//!
//! Every case names the lock on both sides as the table in docs/backends/etcd.md does: their name
//! unchanged, and our URL with an empty prefix, unless the case tests another row.

use super::install::Cache;
use super::peer::{Peer, lose_no_update};
use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use lockkeeper::blocking::connect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::sleep;
use std::time::Duration;

/// A ttl that no case waits out.
const LONG: u64 = 60_000;
/// The session timeout on both sides, short enough to wait out: a crash costs one session.
const SHORT: u64 = 3_000;
/// Long enough for a waiter to be in the queue with its watch established: Go's watch is served
/// every 100 ms.
const WHILE: Duration = Duration::from_millis(400);
const PATIENT: Duration = Duration::from_secs(30);

type Run = fn(&Table) -> Result<()>;

const CASES: &[(&str, Run)] = &[
    ("go::they_hold_it_and_we_do_not_get_in", |t| keeps_out(t, t.them()?, t.us()?)),
    ("go::we_hold_it_and_they_do_not_get_in", |t| keeps_out(t, t.us()?, t.them()?)),
    ("go::they_get_it_when_we_release", |t| hands_over(t, t.us()?, t.them()?)),
    ("go::we_get_it_when_they_release", |t| hands_over(t, t.them()?, t.us()?)),
    ("go::they_get_it_after_our_crash", |t| survives(t, t.us()?, t.them()?)),
    ("go::we_get_it_after_their_crash", |t| survives(t, t.them()?, t.us()?)),
    ("go::a_waiter_of_theirs_that_crashes_does_not_hold_us_up", |t| {
        passes_by(t, t.them()?, t.us()?)
    }),
    ("go::a_waiter_of_ours_that_crashes_does_not_hold_them_up", |t| {
        passes_by(t, t.us()?, t.them()?)
    }),
    ("go::we_stand_in_one_queue", one_queue),
    ("go::they_wait_for_our_readers_and_our_readers_for_them", readers),
    ("go::together_we_lose_no_update", no_update_is_lost),
    ("etcdctl::it_holds_and_we_do_not_get_in", etcdctl_holds),
    ("etcdctl::we_hold_and_it_waits", etcdctl_waits),
    ("etcdctl::below_our_default_prefix_it_is_the_same_lock", below_our_prefix),
    ("etcdctl::below_a_prefix_of_theirs_it_is_the_same_lock", below_their_prefix),
    ("etcdctl::without_the_prefix_it_is_another_lock", another_lock),
];

pub(super) fn trials(url: &str, cache: &Arc<Cache>) -> Vec<Trial> {
    let trial = |&(name, case): &(&'static str, Run)| {
        let (url, cache) = (url.to_owned(), cache.clone());
        Trial::test(format!("etcd::{name}"), move || {
            let table = Table { url, cache, lock: name.replace("::", "-") };
            case(&table).map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    CASES.iter().map(trial).collect()
}

/// What a case works with.
struct Table {
    url: String,
    cache: Arc<Cache>,
    /// A lock name that only this case uses.
    lock: String,
}

impl Table {
    fn us(&self) -> Result<Peer> {
        self.us_with("prefix=")
    }

    fn us_with(&self, options: &str) -> Result<Peer> {
        let url = format!("{}?session={SHORT}ms&{options}", self.url);
        Peer::ours(url.trim_end_matches('&'))
    }

    fn them(&self) -> Result<Peer> {
        Peer::start(self.cache.go_concurrency()?, &self.url)
    }

    fn etcdctl(&self) -> Result<Etcdctl> {
        Etcdctl::start(&self.url, &self.lock)
    }

    fn take(&self) -> String {
        format!("lock {} {SHORT}", self.lock)
    }

    fn attempt(&self) -> String {
        format!("try {} {LONG}", self.lock)
    }

    fn give_back(&self) -> String {
        format!("unlock {}", self.lock)
    }
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

fn hands_over(table: &Table, mut holder: Peer, mut waiter: Peer) -> Result<()> {
    holder.must(&table.take(), "held")?;
    waiter.tell(&table.take())?;
    // Longer than the sessions: both sides keep them alive.
    sleep(WHILE + Duration::from_millis(SHORT) * 3 / 2);
    waiter.must_be_silent()?;
    holder.must(&table.give_back(), "unlocked")?;
    waiter.must_say("held")?;
    holder.must(&table.attempt(), "busy")
}

fn survives(table: &Table, mut holder: Peer, mut waiter: Peer) -> Result<()> {
    holder.must(&table.take(), "held")?;
    waiter.tell(&table.take())?;
    sleep(WHILE);
    holder.kill()?;
    waiter.must_be_silent()?;
    waiter.must_say("held")
}

/// A waiter dies; the waiter behind it gets the lock anyway.
fn passes_by(table: &Table, mut dies: Peer, mut behind: Peer) -> Result<()> {
    let mut holder = table.us()?;
    holder.must(&table.take(), "held")?;
    dies.tell(&table.take())?;
    sleep(WHILE);
    behind.tell(&table.take())?;
    sleep(WHILE);
    dies.kill()?;
    holder.must(&table.give_back(), "unlocked")?;
    behind.must_say("held")
}

fn one_queue(table: &Table) -> Result<()> {
    let mut queue = [table.us()?, table.them()?, table.us()?, table.them()?, table.us()?];
    for peer in &mut queue {
        peer.tell(&table.take())?;
        sleep(WHILE);
    }
    for next in 0..queue.len() {
        queue[next].must_say("held")?;
        for peer in &mut queue[next + 1..] {
            peer.must_be_silent()?;
        }
        queue[next].must(&table.give_back(), "unlocked")?;
    }
    Ok(())
}

fn readers(table: &Table) -> Result<()> {
    // One thread may take its read lock again, so each reader has its own keeper.
    let reading = || -> Result<_> {
        let keeper = connect(&format!("{}?prefix=", table.url))?;
        Ok(keeper.rw_lock(&table.lock).read().ttl(Duration::from_millis(LONG)))
    };
    let (one, two) = (reading()?.acquire()?, reading()?.acquire()?);
    let reading = reading()?;
    let mut go = table.them()?;
    go.must(&table.attempt(), "busy")?;
    go.tell(&table.take())?;
    sleep(WHILE);
    ensure!(reading.try_acquire()?.is_none(), "a reader overtook one who waits");
    one.release()?;
    sleep(WHILE);
    go.must_be_silent()?;
    two.release()?;
    go.must_say("held")?;
    ensure!(reading.try_acquire()?.is_none(), "a reader got in beside Go");
    go.must(&table.give_back(), "unlocked")?;
    reading.acquire()?.release()?;
    Ok(())
}

fn no_update_is_lost(table: &Table) -> Result<()> {
    let peers = vec![table.us()?, table.them()?, table.us()?, table.them()?];
    lose_no_update(peers, &table.take(), &table.give_back())
}

/// `etcdctl lock`, which holds the lock for as long as it runs.
struct Etcdctl {
    child: Child,
    held: Receiver<String>,
}

impl Etcdctl {
    fn start(url: &str, name: &str) -> Result<Self> {
        let endpoints = url.replace("etcd://", "http://");
        let mut child = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args([&format!("--endpoints={endpoints}"), "lock", name, "--ttl=3"])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run etcdctl")?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        let (tell, held) = mpsc::channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok())
        });
        Ok(Self { child, held })
    }

    /// Waits until it prints the key it holds.
    fn holds(&self) -> Result<()> {
        self.held.recv_timeout(PATIENT).map(|_| ()).context("etcdctl does not get it")
    }

    fn release(&self) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT)?)
    }
}

impl Drop for Etcdctl {
    fn drop(&mut self) {
        // Both fail only if the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn etcdctl_holds(table: &Table) -> Result<()> {
    let etcdctl = table.etcdctl()?;
    etcdctl.holds()?;
    let mut us = table.us()?;
    us.must(&table.attempt(), "busy")?;
    us.tell(&table.take())?;
    sleep(WHILE);
    us.must_be_silent()?;
    etcdctl.release()?;
    us.must_say("held")
}

fn etcdctl_waits(table: &Table) -> Result<()> {
    let mut us = table.us()?;
    us.must(&table.take(), "held")?;
    let etcdctl = table.etcdctl()?;
    sleep(WHILE);
    ensure!(etcdctl.held.try_recv().is_err(), "etcdctl got in beside us");
    us.must(&table.give_back(), "unlocked")?;
    etcdctl.holds()?;
    us.must(&table.attempt(), "busy")
}

/// `etcdctl` locks a name with our default prefix in front, and our URL names no prefix.
fn below_our_prefix(table: &Table) -> Result<()> {
    same_lock(table, &format!("lockkeeper/{}", table.lock), "")
}

fn below_their_prefix(table: &Table) -> Result<()> {
    same_lock(table, &format!("/jobs/{}", table.lock), "prefix=/jobs/")
}

fn same_lock(table: &Table, theirs: &str, options: &str) -> Result<()> {
    let etcdctl = Etcdctl::start(&table.url, theirs)?;
    etcdctl.holds()?;
    let mut us = table.us_with(options)?;
    us.must(&table.attempt(), "busy")?;
    us.tell(&table.take())?;
    sleep(WHILE);
    us.must_be_silent()?;
    etcdctl.release()?;
    us.must_say("held")
}

/// The documentation warns of this: equal names alone do not make the same lock.
fn another_lock(table: &Table) -> Result<()> {
    let etcdctl = table.etcdctl()?;
    etcdctl.holds()?;
    table.us_with("")?.must(&table.attempt(), "held")?;
    table.us()?.must(&table.attempt(), "busy")
}
