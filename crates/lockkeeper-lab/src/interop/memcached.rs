//! A plain `add` by pymemcache, on keys that are the bare names.

use super::install::Cache;
use super::peer::{Peer, lose_no_update};
use crate::server::wire::line;
use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A ttl that no case waits out.
const LONG: u64 = 60_000;
/// A ttl short enough to wait out.
const SHORT: u64 = 3_000;
/// Long enough for a waiter to have asked several times.
const WHILE: Duration = Duration::from_millis(600);

type Run = fn(&Table) -> Result<()>;

const CASES: &[(&str, Run)] = &[
    ("they_hold_it_and_we_do_not_get_in", |t| keeps_out(t, t.them()?, t.us()?)),
    ("we_hold_it_and_they_do_not_get_in", |t| keeps_out(t, t.us()?, t.them()?)),
    ("they_get_it_when_we_release", |t| hands_over(t, t.us()?, t.them()?)),
    ("we_get_it_when_they_release", |t| hands_over(t, t.them()?, t.us()?)),
    ("they_get_it_after_our_crash_and_not_before", |t| survives(t, t.us()?, t.them()?, SHORT)),
    // Theirs is kept for up to a second less than they ask for.
    ("we_get_it_after_their_crash_and_not_before", |t| {
        survives(t, t.them()?, t.us()?, SHORT - 1000)
    }),
    ("we_keep_it_for_longer_than_its_ttl", outlives),
    ("our_late_release_leaves_theirs_alone", our_late_release),
    ("a_name_that_is_not_plain_has_the_key_that_we_show", coded),
    ("with_our_prefix_it_is_another_lock", another_lock),
    ("together_we_lose_no_update", no_update_is_lost),
];

pub(super) fn trials(url: &str, cache: &Arc<Cache>) -> Vec<Trial> {
    let trial = |&(name, case): &(&'static str, Run)| {
        let (url, cache) = (url.to_owned(), cache.clone());
        Trial::test(format!("memcached::pymemcache::{name}"), move || {
            let table = Table { url, cache, lock: format!("shared/{name}") };
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
        Peer::ours(&format!("{}?prefix=", self.url))
    }

    fn them(&self) -> Result<Peer> {
        Peer::start(self.cache.pymemcache()?, &self.url)
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

    /// Deletes the lock, as if the store had evicted it.
    fn forget(&self) -> Result<()> {
        let (_, port) = self.url.rsplit_once(':').context("a URL with a port")?;
        let said = line::ask(port.parse()?, &format!("md {}\r\nquit\r\n", self.lock))?;
        ensure!(said.starts_with("HD"), "{said:?}");
        Ok(())
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
    holder.must(&table.take(LONG), "held")?;
    waiter.tell(&table.take(LONG))?;
    sleep(WHILE);
    waiter.must_be_silent()?;
    holder.must(&table.give_back(), "unlocked")?;
    waiter.must_say("held")?;
    holder.must(&table.attempt(), "busy")
}

fn survives(table: &Table, mut holder: Peer, mut waiter: Peer, least: u64) -> Result<()> {
    let before = Instant::now();
    holder.must(&table.take(SHORT), "held")?;
    holder.kill()?;
    waiter.must(&table.take(LONG), "held")?;
    let after = before.elapsed();
    ensure!(after >= Duration::from_millis(least), "it was free after {after:?}");
    Ok(())
}

/// Ours is renewed for as long as its process runs.
fn outlives(table: &Table) -> Result<()> {
    let (mut us, mut them) = (table.us()?, table.them()?);
    us.must(&table.take(SHORT), "held")?;
    for _ in 0..10 {
        sleep(Duration::from_millis(SHORT / 4));
        them.must(&table.attempt(), "busy")?;
    }
    us.must(&table.give_back(), "unlocked")?;
    them.must(&table.attempt(), "held")
}

fn our_late_release(table: &Table) -> Result<()> {
    let (mut us, mut them, mut third) = (table.us()?, table.them()?, table.us()?);
    us.must(&table.take(SHORT), "held")?;
    us.pause()?;
    them.must(&table.take(LONG), "held")?;
    us.go_on()?;
    us.must(&table.give_back(), "not-held")?;
    third.must(&table.attempt(), "busy")?;
    them.must(&table.give_back(), "unlocked")?;
    // While we still believe that we hold it: the server must refuse our release.
    us.must(&table.take(LONG), "held")?;
    table.forget()?;
    them.must(&table.take(LONG), "held")?;
    us.must(&table.give_back(), "not-held")?;
    third.must(&table.attempt(), "busy")?;
    them.must(&table.give_back(), "unlocked")
}

/// They must use the key that `Keeper::keys` shows, which is not the name.
fn coded(table: &Table) -> Result<()> {
    let keeper = lockkeeper::blocking::connect(&format!("{}?prefix=", table.url))?;
    let (name, mut them) = ("größe 7", table.them()?);
    let guard = keeper.lock(name).acquire()?;
    let keys = keeper.keys(name)?;
    ensure!(keys == ["gr%C3%B6%C3%9Fe%207"], "{keys:?}");
    them.must(&format!("try {} {LONG}", keys[0]), "busy")?;
    guard.release()?;
    them.must(&format!("try {} {LONG}", keys[0]), "held")?;
    ensure!(keeper.lock(name).try_acquire()?.is_none(), "we got in beside them");
    them.must(&format!("unlock {}", keys[0]), "unlocked")
}

/// The documentation warns of this: equal names alone do not make the same lock.
fn another_lock(table: &Table) -> Result<()> {
    let (mut us, mut them) = (Peer::ours(&table.url)?, table.them()?);
    them.must(&table.attempt(), "held")?;
    us.must(&table.attempt(), "held")
}

fn no_update_is_lost(table: &Table) -> Result<()> {
    let peers = vec![table.us()?, table.them()?, table.us()?, table.them()?];
    lose_no_update(peers, &table.take(LONG), &table.give_back())
}
