//! One peer holds the lock; the others wait, take it afterwards, or are killed.

use super::{Kind, LOCK, LONG, PAIRS, READ, SHORT, SOON, Table, WHILE, WRITE};
use crate::interop::peer::Peer;
use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) fn they_hold_it_and_we_do_not_get_in(table: &Table) -> Result<()> {
    let (mut them, mut us) = (table.them()?, table.us()?);
    for (number, (theirs, ours)) in PAIRS.into_iter().enumerate() {
        keeps_out(&table.name(&number.to_string()), (&mut them, theirs), (&mut us, ours))?;
    }
    Ok(())
}

pub(super) fn we_hold_it_and_they_do_not_get_in(table: &Table) -> Result<()> {
    let (mut them, mut us) = (table.them()?, table.us()?);
    for (number, (theirs, ours)) in PAIRS.into_iter().enumerate() {
        keeps_out(&table.name(&number.to_string()), (&mut us, ours), (&mut them, theirs))?;
    }
    Ok(())
}

fn keeps_out(name: &str, holder: (&mut Peer, Kind), other: (&mut Peer, Kind)) -> Result<()> {
    let ((holder, kind), (other, wanted)) = (holder, other);
    // Not vacuous: once it is free, the other one does get it.
    other.must(&wanted.attempt(name), "held")?;
    other.must(&wanted.give_back(name), "unlocked")?;
    holder.must(&kind.attempt(name), "held")?;
    other.must(&wanted.attempt(name), "busy")?;
    holder.must(&kind.give_back(name), "unlocked")?;
    other.must(&wanted.attempt(name), "held")?;
    other.must(&wanted.give_back(name), "unlocked")
}

pub(super) fn our_release_wakes_them(table: &Table) -> Result<()> {
    let (mut them, mut us) = (table.them()?, table.us()?);
    for (number, (theirs, ours)) in PAIRS.into_iter().enumerate() {
        hands_over(&table.name(&number.to_string()), (&mut us, ours), (&mut them, theirs))?;
    }
    Ok(())
}

pub(super) fn their_release_wakes_us(table: &Table) -> Result<()> {
    let (mut them, mut us) = (table.them()?, table.us()?);
    for (number, (theirs, ours)) in PAIRS.into_iter().enumerate() {
        hands_over(&table.name(&number.to_string()), (&mut them, theirs), (&mut us, ours))?;
    }
    Ok(())
}

fn hands_over(name: &str, holder: (&mut Peer, Kind), waiter: (&mut Peer, Kind)) -> Result<()> {
    let ((holder, kind), (waiter, wanted)) = (holder, waiter);
    holder.must(&kind.take(name, LONG), "held")?;
    waiter.tell(&wanted.take(name, LONG))?;
    sleep(WHILE);
    waiter.must_be_silent()?;
    let before = Instant::now();
    holder.must(&kind.give_back(name), "unlocked")?;
    waiter.must_say("held")?;
    let woken = before.elapsed();
    ensure!(woken < SOON, "{name}: it was found free after {woken:?}, without being told");
    waiter.must(&wanted.give_back(name), "unlocked")
}

pub(super) fn we_get_it_after_their_crash_and_not_before(table: &Table) -> Result<()> {
    survives(&table.name("lock"), table.them()?, table.us()?, LOCK)?;
    survives(&table.name("write"), table.them()?, table.us()?, WRITE)
}

pub(super) fn they_get_it_after_our_crash_and_not_before(table: &Table) -> Result<()> {
    survives(&table.name("lock"), table.us()?, table.them()?, LOCK)?;
    survives(&table.name("write"), table.us()?, table.them()?, WRITE)
}

fn survives(name: &str, mut holder: Peer, mut waiter: Peer, kind: Kind) -> Result<()> {
    let before = Instant::now();
    holder.must(&kind.take(name, SHORT), "held")?;
    holder.kill()?;
    waiter.must(&kind.take(name, LONG), "held")?;
    let after = before.elapsed();
    ensure!(after >= Duration::from_millis(SHORT), "it was free after {after:?}, before its ttl");
    Ok(())
}

pub(super) fn our_renewals_keep_them_out(table: &Table) -> Result<()> {
    let (mut us, mut them) = (table.us()?, table.them()?);
    for (ours, theirs) in [(LOCK, LOCK), (READ, WRITE), (READ, LOCK)] {
        let name = table.name(ours.lock);
        us.must(&ours.take(&name, SHORT), "held")?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(SHORT * 3) {
            them.must(&theirs.attempt(&name), "busy")?;
            sleep(Duration::from_millis(50));
        }
        us.must(&ours.give_back(&name), "unlocked")?;
        them.must(&theirs.attempt(&name), "held")?;
        them.must(&theirs.give_back(&name), "unlocked")?;
    }
    Ok(())
}

pub(super) fn they_enter_again_and_we_wait_for_both_to_end(table: &Table) -> Result<()> {
    let (mut us, mut them) = (table.us()?, table.them()?);
    for kind in [LOCK, WRITE] {
        let name = table.name(kind.lock);
        them.must(&kind.take(&name, LONG), "held")?;
        us.must(&LOCK.attempt(&name), "busy")?;
        them.must(&kind.take(&name, LONG), "held")?;
        them.must(&kind.give_back(&name), "unlocked")?;
        us.must(&LOCK.attempt(&name), "busy")?;
        them.must(&kind.give_back(&name), "unlocked")?;
        us.must(&LOCK.attempt(&name), "held")?;
        them.must(&kind.give_back(&name), "not-held")?;
        us.must(&LOCK.give_back(&name), "unlocked")?;
    }
    Ok(())
}

pub(super) fn we_enter_again_and_they_wait_for_both_to_end(table: &Table) -> Result<()> {
    let (mut us, mut we, mut them) = (table.us()?, table.us()?, table.them()?);
    for (ours, theirs) in [(LOCK, LOCK), (WRITE, READ), (READ, WRITE)] {
        let name = table.name(ours.lock);
        us.must(&format!("{} me", ours.take(&name, LONG)), "held")?;
        them.must(&theirs.attempt(&name), "busy")?;
        we.must(&format!("{} me", ours.take(&name, LONG)), "held")?;
        us.must(&ours.give_back(&name), "unlocked")?;
        them.must(&theirs.attempt(&name), "busy")?;
        we.must(&ours.give_back(&name), "unlocked")?;
        them.must(&theirs.attempt(&name), "held")?;
        them.must(&theirs.give_back(&name), "unlocked")?;
    }
    Ok(())
}

/// Our lock is renewed while its process runs: only a paused process loses it.
pub(super) fn our_late_release_leaves_theirs_alone(table: &Table) -> Result<()> {
    let (mut us, mut them, mut third) = (table.us()?, table.them()?, table.us()?);
    let name = table.name("lock");
    us.must(&LOCK.take(&name, SHORT), "held")?;
    us.pause()?;
    them.must(&LOCK.take(&name, LONG), "held")?;
    us.go_on()?;
    us.must(&LOCK.give_back(&name), "not-held")?;
    third.must(&LOCK.attempt(&name), "busy")?;
    them.must(&LOCK.give_back(&name), "unlocked")
}

pub(super) fn their_late_release_leaves_ours_alone(table: &Table) -> Result<()> {
    let (mut us, mut them, mut third) = (table.us()?, table.them()?, table.us()?);
    for kind in [LOCK, READ, WRITE] {
        let name = table.name(kind.lock);
        them.must(&kind.take(&name, SHORT), "held")?;
        us.must(&LOCK.take(&name, LONG), "held")?;
        them.must(&kind.give_back(&name), "not-held")?;
        third.must(&LOCK.attempt(&name), "busy")?;
        us.must(&LOCK.give_back(&name), "unlocked")?;
    }
    Ok(())
}

/// Every peer adds to a number in a file, in two steps that must not be interleaved.
pub(super) fn together_we_lose_no_update(table: &Table) -> Result<()> {
    const ROUNDS: usize = 25;
    let number = table.folder.join("number");
    fs::write(&number, "0")?;
    let name = table.name("lock");
    // Started here and not in the threads: our peers die with the thread that started them.
    // Redisson's peers use only one kind of lock: its two kinds do not exclude each other.
    let peers = [
        (table.us()?, LOCK),
        (table.us()?, WRITE),
        (table.us()?, LOCK),
        (table.them()?, LOCK),
        (table.them()?, LOCK),
    ];
    let expected = ROUNDS * peers.len();
    let waited = std::thread::scope(|scope| {
        let (name, number) = (&name, &number);
        let add = move |(mut peer, kind): (Peer, Kind)| -> Result<usize> {
            (0..ROUNDS).map(|_| add_one(name, kind, &mut peer, number)).sum()
        };
        let threads: Vec<_> =
            peers.into_iter().map(|peer| scope.spawn(move || add(peer))).collect();
        let done = threads.into_iter().map(|it| it.join().expect("no panic"));
        done.sum::<Result<usize>>()
    })?;
    let sum: usize = fs::read_to_string(&number)?.parse()?;
    ensure!(sum == expected, "{} updates of {expected} were lost", expected.abs_diff(sum));
    ensure!(waited > 0, "unknown: nobody found the lock taken, so nothing kept anybody apart");
    Ok(())
}

/// Returns whether another peer held the lock at the first attempt.
fn add_one(name: &str, kind: Kind, peer: &mut Peer, number: &Path) -> Result<usize> {
    peer.tell(&kind.attempt(name))?;
    let waited = peer.hear()? == "busy";
    if waited {
        peer.must(&kind.take(name, LONG), "held")?;
    }
    let found: usize = fs::read_to_string(number)?.parse()?;
    sleep(Duration::from_millis(2));
    fs::write(number, (found + 1).to_string())?;
    peer.must(&kind.give_back(name), "unlocked")?;
    Ok(usize::from(waited))
}
