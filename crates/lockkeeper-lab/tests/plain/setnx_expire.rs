//! How `setnx-expire` fails.

use super::proxy::Proxy;
use super::{Case, LONG, PATIENT, SHORT, Table};
use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;
use std::thread::sleep;

pub(crate) const CASES: &[Case] = &[
    ("a_crash_between_its_two_commands_locks_for_ever", a_crash_locks_for_ever),
    ("a_lost_answer_locks_for_ever", a_lost_answer_locks_for_ever),
    ("one_who_is_late_frees_the_lock_of_another", one_who_is_late_frees_the_lock_of_another),
    ("everybody_has_the_same_value", everybody_has_the_same_value),
    ("work_longer_than_the_ttl_loses_it", work_longer_than_the_ttl_loses_it),
];

/// F1: the key has no time to live, and nobody is left to give it one.
fn a_crash_locks_for_ever(table: &Table) -> Result<()> {
    let proxy = Proxy::to(table.port)?;
    let mut process = table.process(proxy.port)?;
    proxy.hold("\r\nEXPIRE\r\n");
    process.tell(&format!("lock {} {}", table.lock, SHORT.as_millis()))?;
    proxy.applied()?;
    process.kill()?;
    is_locked_for_ever(table)
}

/// F7: the command is sent once more on a new connection, and finds what it did itself.
fn a_lost_answer_locks_for_ever(table: &Table) -> Result<()> {
    let proxy = Proxy::to(table.port)?;
    let keeper = table.keeper_at(proxy.port)?;
    proxy.lose_answer_to("\r\nSETNX\r\n");
    let guard = keeper.lock(&table.lock).ttl(SHORT).try_acquire()?;
    proxy.applied()?;
    ensure!(guard.is_none(), "it knew its own");
    is_locked_for_ever(table)
}

fn is_locked_for_ever(table: &Table) -> Result<()> {
    ensure!(table.lives_for()? == -1, "it lives for {} ms", table.lives_for()?);
    let next = table.keeper()?.lock(&table.lock).ttl(SHORT).acquire_within(SHORT * 2);
    let kind = next.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::TimedOut), "the next one got {kind:?}");
    Ok(())
}

/// F2, the story of A, B and C: A was delayed past its ttl, B got the lock, A deletes it, and C
/// gets in beside B.
fn one_who_is_late_frees_the_lock_of_another(table: &Table) -> Result<()> {
    let mut a = table.process(table.port)?;
    a.must(&format!("lock {} {}", table.lock, SHORT.as_millis()), "held")?;
    a.pause()?;
    let (b, c) = (table.keeper()?, table.keeper()?);
    let b = b.lock(&table.lock).ttl(LONG).acquire_within(PATIENT)?;
    ensure!(c.lock(&table.lock).try_acquire()?.is_none(), "unknown: B does not keep C out");
    a.go_on()?;
    a.must(&format!("unlock {}", table.lock), "not-held")?;
    let c = c.lock(&table.lock).ttl(LONG).acquire_within(PATIENT)?;
    ensure!(b.is_held() && c.is_held(), "B and C do not hold it both");
    Ok(())
}

fn everybody_has_the_same_value(table: &Table) -> Result<()> {
    for _ in 0..2 {
        let guard = table.keeper()?.lock(&table.lock).ttl(LONG).acquire()?;
        ensure!(table.value()?.as_deref() == Some("1"), "{:?}", table.value()?);
        guard.release()?;
    }
    Ok(())
}

fn work_longer_than_the_ttl_loses_it(table: &Table) -> Result<()> {
    let guard = table.keeper()?.lock(&table.lock).ttl(SHORT).acquire()?;
    sleep(SHORT);
    guard.lost_reason().context("it was renewed")?;
    let next = table.keeper()?.lock(&table.lock).ttl(LONG).acquire_within(PATIENT)?;
    Ok(next.release()?)
}
