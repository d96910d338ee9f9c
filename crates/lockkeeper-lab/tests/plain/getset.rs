//! How `getset` fails.

use super::proxy::Proxy;
use super::{Case, LONG, PATIENT, SHORT, Table};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const CASES: &[Case] = &[
    ("one_whose_clock_is_ahead_takes_what_is_held", one_whose_clock_is_ahead_takes_what_is_held),
    ("one_whose_clock_is_behind_has_it_taken", one_whose_clock_is_behind_has_it_taken),
    ("one_who_is_beaten_sets_the_time_of_the_winner", beaten_sets_the_time_of_the_winner),
    ("a_delayed_release_frees_the_lock_of_another", a_delayed_release_frees_anothers),
    ("the_value_tells_no_owner", the_value_tells_no_owner),
    ("a_crash_is_over_with_the_ttl", a_crash_is_over_with_the_ttl),
];

fn now() -> Result<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())
}

impl Table {
    fn expiry(&self) -> Result<u128> {
        Ok(self.value()?.context("no key")?.parse()?)
    }
}

/// The steps by hand, by one whose clock goes two minutes ahead: it takes a lock that has a
/// minute to go.
fn one_whose_clock_is_ahead_takes_what_is_held(table: &Table) -> Result<()> {
    let guard = table.keeper()?.lock(&table.lock).ttl(LONG).acquire()?;
    let mut other = table.by_hand()?;
    let ahead = now()? + 120_000;
    let mine = (ahead + 60_000).to_string();
    ensure!(other.ask(&["SETNX", &table.lock, &mine])?.number() == Some(0), "it was free");
    let old = other.ask(&["GET", &table.lock])?;
    let expired = old.text().context("no key")?.parse::<u128>()? < ahead;
    ensure!(expired, "unknown: the clock is not far enough ahead");
    let current = other.ask(&["GETSET", &table.lock, &mine])?;
    ensure!(current == old, "it was kept out");
    ensure!(guard.is_held(), "the first one knows: {:?}", guard.lost_reason());
    Ok(())
}

/// The other way round: one whose clock is two minutes behind takes the lock for a minute, and
/// we take it from it at once.
fn one_whose_clock_is_behind_has_it_taken(table: &Table) -> Result<()> {
    let until = (now()? - 120_000 + 60_000).to_string();
    let first = table.by_hand()?.ask(&["SETNX", &table.lock, &until])?;
    ensure!(first.number() == Some(1), "it was not free");
    let guard = table.keeper()?.lock(&table.lock).ttl(LONG).try_acquire()?;
    ensure!(guard.is_some(), "we were kept out for the minute");
    Ok(())
}

/// Both found it expired; the one who comes second does not get the lock, but has written its own
/// time into it: now it is over when the loser said, not when the holder did.
fn beaten_sets_the_time_of_the_winner(table: &Table) -> Result<()> {
    let mut loser = table.by_hand()?;
    let past = (now()? - 1000).to_string();
    loser.ask(&["SET", &table.lock, &past])?;
    let old = loser.ask(&["GET", &table.lock])?;
    let guard = table.keeper()?.lock(&table.lock).ttl(SHORT).try_acquire()?;
    let guard = guard.context("we did not take what was over")?;
    let winners = table.expiry()?;
    let losers = now()? + 3_600_000;
    let current = loser.ask(&["GETSET", &table.lock, &losers.to_string()])?;
    ensure!(current != old, "unknown: the loser won");
    ensure!(guard.is_held(), "unknown: our time is over already");
    ensure!(table.expiry()? == losers && losers > winners, "the holder's time still stands");
    // The holder goes without a word, and its lock outlives it by an hour.
    guard.detach();
    sleep(SHORT * 2);
    ensure!(table.keeper()?.lock(&table.lock).try_acquire()?.is_none(), "it ended after its ttl");
    Ok(())
}

/// The check of step 5 and the DEL are two steps: who is delayed between them deletes what is
/// another's by then.
fn a_delayed_release_frees_anothers(table: &Table) -> Result<()> {
    let proxy = Proxy::to(table.port)?;
    let a = table.keeper_at(proxy.port)?.lock(&table.lock).ttl(SHORT).acquire()?;
    proxy.hold("\r\nDEL\r\n");
    drop(a);
    proxy.applied()?;
    let (b, c) = (table.keeper()?, table.keeper()?);
    let b = b.lock(&table.lock).ttl(LONG).acquire_within(PATIENT)?;
    ensure!(c.lock(&table.lock).try_acquire()?.is_none(), "unknown: B does not keep C out");
    proxy.pass();
    let c = c.lock(&table.lock).ttl(LONG).acquire_within(PATIENT)?;
    ensure!(b.is_held() && c.is_held(), "B and C do not hold it both");
    Ok(())
}

fn the_value_tells_no_owner(table: &Table) -> Result<()> {
    let before = now()?;
    let guard = table.keeper()?.lock(&table.lock).ttl(LONG).acquire()?;
    let expiry = table.expiry()?;
    ensure!((before + 60_000..=now()? + 60_000).contains(&expiry), "{expiry} is no expiry");
    ensure!(table.lives_for()? == -1, "the key has a time to live");
    Ok(guard.release()?)
}

/// What it was made for, and does.
fn a_crash_is_over_with_the_ttl(table: &Table) -> Result<()> {
    let mut process = table.process(table.port)?;
    process.must(&format!("lock {} {}", table.lock, SHORT.as_millis()), "held")?;
    process.kill()?;
    let next = table.keeper()?.lock(&table.lock).ttl(LONG).acquire_within(PATIENT)?;
    ensure!(next.remaining() > Duration::ZERO, "it is over");
    Ok(next.release()?)
}
