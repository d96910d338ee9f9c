//! What happens while somebody waits: requests at the server, and how soon a lock is free whose holder
//! is gone. All of it mostly waits, so all of it is measured at once.

use super::super::cell::Cell;
use super::Bench;
use super::speed::take_turns;
use super::wire::Counting;
use crate::workload::{Network, url};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::Reach;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// The ttl of a claim whose holder goes away, in milliseconds.
const TTL: u32 = 4000;
/// How long a holder has had the lock, and the other one waited for it, before something happens.
const BEFORE: Duration = Duration::from_millis(300);
/// When somebody who waits must have it at the latest.
const LATEST: Duration = Duration::from_secs(30);

const NO_SERVER: &str = "there is no server";

/// One row's cells.
pub(super) fn measure(bench: &mut Bench<'_>) {
    let one: &Bench<'_> = bench;
    let (crashed, cut, one_waiter, many, trips) = scope(|threads| {
        let crashed = threads.spawn(|| after_a_crash(one));
        let cut = threads.spawn(|| after_a_cut(one));
        let few = threads.spawn(|| requests(one, 1));
        let many = threads.spawn(|| requests(one, 100));
        // The others have not begun to count yet.
        let trips = threads.spawn(|| round_trips(one));
        let joined = |thread: std::thread::ScopedJoinHandle<'_, Cell>| {
            thread.join().unwrap_or_else(|_| Cell::Unknown("the lab panicked".to_owned()))
        };
        (joined(crashed), joined(cut), joined(few), joined(many), joined(trips))
    });
    bench.put("free-crash", crashed);
    bench.put("free-cut", cut);
    bench.put("requests-1", one_waiter);
    bench.put("requests-100", many);
    bench.put("round-trips", trips);
}

fn after_a_crash(bench: &Bench<'_>) -> Cell {
    if bench.contender.reach() == Reach::Process {
        return Cell::not_applicable("its locks end with the process");
    }
    let measured = || -> Result<f64> {
        let (mut holder, mut waiter) = (bench.peer()?, bench.peer()?);
        holder.must(&format!("lock crash {TTL}"), "held")?;
        waiter.tell(&format!("lock crash {TTL}"))?;
        sleep(BEFORE);
        waiter.must_be_silent()?;
        let begin = Instant::now();
        holder.kill()?;
        waiter.must_say_within("held", LATEST)?;
        Ok(begin.elapsed().as_secs_f64())
    };
    Cell::of(measured())
}

fn after_a_cut(bench: &Bench<'_>) -> Cell {
    if bench.kind.is_none() {
        return Cell::not_applicable(NO_SERVER);
    }
    let measured = || -> Result<f64> {
        let network = Network::before_url(&bench.url, 1)?;
        let url = url::with_hosts(&bench.url, &network.addresses())?;
        let (mut holder, mut waiter) = (bench.peer_at(&url)?, bench.peer()?);
        holder.must(&format!("lock cut {TTL}"), "held")?;
        waiter.tell(&format!("lock cut {TTL}"))?;
        sleep(BEFORE);
        waiter.must_be_silent()?;
        let begin = Instant::now();
        network.each(|proxy| proxy.partition());
        waiter.must_say_within("held", LATEST)?;
        Ok(begin.elapsed().as_secs_f64())
    };
    Cell::of(measured())
}

/// Requests per second while so many wait.
fn requests(bench: &Bench<'_>, waiters: u32) -> Cell {
    let Some(kind) = bench.kind else { return Cell::not_applicable(NO_SERVER) };
    let measured = || -> Result<f64> {
        let counting = Counting::before(&bench.url, kind)?;
        let (mut holder, mut waiting) = (bench.peer()?, bench.peer_at(&counting.url(&bench.url)?)?);
        let name = format!("waited/{waiters}");
        holder.must(&format!("lock {name} 60000"), "held")?;
        waiting.must(&format!("wait {name} {waiters}"), "waiting")?;
        sleep(bench.pace.settling);
        let (before, begin) = (counting.requests(), Instant::now());
        ensure!(before > 0, "nobody asked");
        sleep(bench.pace.watching);
        let asked = counting.requests() - before;
        let rate = f64::from(u32::try_from(asked)?) / begin.elapsed().as_secs_f64();
        waiting.must_be_silent().context("one who waited is done")?;
        Ok(rate)
    };
    Cell::of(measured())
}

/// How often a client waits for the server in one acquire and release.
fn round_trips(bench: &Bench<'_>) -> Cell {
    let Some(kind) = bench.kind else { return Cell::not_applicable(NO_SERVER) };
    let measured = || -> Result<f64> {
        let counting = Counting::before(&bench.url, kind)?;
        let mut peer = bench.peer_at(&counting.url(&bench.url)?)?;
        // The first turn connects, and teaches the server scripts.
        take_turns(&mut peer, "trips", 1, Duration::from_millis(200), true)?;
        let before = counting.trips();
        let turns = take_turns(&mut peer, "trips", 1, Duration::from_secs(1), true)?.len();
        let trips = counting.trips() - before;
        ensure!(turns >= 10, "only {turns} turns in the time");
        // One of several servers is asked at the same time as the others.
        let servers = f64::from(u32::try_from(url::hosts(&bench.url)?.len())?);
        let trips = f64::from(u32::try_from(trips)?) / f64::from(u32::try_from(turns)?) / servers;
        // Heartbeats come in between now and then: a tenth is none of the lock's.
        Ok((trips * 10.0).round() / 10.0)
    };
    Cell::of(measured())
}
