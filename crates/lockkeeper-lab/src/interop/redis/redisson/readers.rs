//! Readers of both sides, and waiting writers.

use super::{LOCK, LONG, READ, SHORT, SOON, Table, WHILE, WRITE};
use crate::interop::peer::Peer;
use anyhow::{Result, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) fn the_last_reader_to_leave_wakes_a_writer(table: &Table) -> Result<()> {
    let (mut them, mut us) = (table.them()?, table.us()?);
    let (mut they_wait, mut we_wait) = (table.them()?, table.us()?);
    for (tail, last_is_ours) in [("ours", true), ("theirs", false)] {
        let name = table.name(tail);
        for reader in [&mut them, &mut us] {
            reader.must(&READ.take(&name, LONG), "held")?;
        }
        they_wait.tell(&WRITE.take(&name, LONG))?;
        sleep(WHILE);
        we_wait.tell(&LOCK.take(&name, LONG))?;
        sleep(WHILE);
        let (first, last) = if last_is_ours { (&mut them, &mut us) } else { (&mut us, &mut them) };
        first.must(&READ.give_back(&name), "unlocked")?;
        sleep(WHILE);
        they_wait.must_be_silent()?;
        we_wait.must_be_silent()?;
        let before = Instant::now();
        last.must(&READ.give_back(&name), "unlocked")?;
        // Either writer may be first, and then wakes the other.
        let mut writers = [(&mut they_wait, WRITE), (&mut we_wait, LOCK)];
        if writers[0].0.must_say_within("held", SOON).is_err() {
            writers.reverse();
            writers[0].0.must_say("held")?;
        }
        for (writer, kind) in &mut writers[..1] {
            writer.must(&kind.give_back(&name), "unlocked")?;
        }
        writers[1].0.must_say("held")?;
        ensure!(before.elapsed() < SOON * 2, "{:?} for both", before.elapsed());
        writers[1].0.must(&writers[1].1.give_back(&name), "unlocked")?;
    }
    Ok(())
}

pub(super) fn our_reader_that_crashed_lets_their_writer_in(table: &Table) -> Result<()> {
    crashed_reader(table, table.us()?, table.them()?, table.them()?)
}

pub(super) fn their_reader_that_crashed_lets_our_writer_in(table: &Table) -> Result<()> {
    crashed_reader(table, table.them()?, table.us()?, table.us()?)
}

/// One reader dies; a reader of the other side releases; a writer gets in once the dead reader has
/// expired, although the other reader had taken it for much longer.
fn crashed_reader(table: &Table, mut dies: Peer, mut leaves: Peer, mut writes: Peer) -> Result<()> {
    let name = table.name("lock");
    let before = Instant::now();
    dies.must(&READ.take(&name, SHORT), "held")?;
    leaves.must(&READ.take(&name, LONG), "held")?;
    dies.kill()?;
    writes.must(&WRITE.attempt(&name), "busy")?;
    leaves.must(&READ.give_back(&name), "unlocked")?;
    writes.must(&WRITE.take(&name, LONG), "held")?;
    let after = before.elapsed();
    ensure!(after >= Duration::from_millis(SHORT), "it was free after {after:?}, before its ttl");
    Ok(())
}

pub(super) fn readers_share_and_keep_writers_out(table: &Table) -> Result<()> {
    let (mut us, mut we, mut them) = (table.us()?, table.us()?, table.them()?);
    let name = table.name("lock");
    them.must(&READ.attempt(&name), "held")?;
    us.must(&READ.attempt(&name), "held")?;
    we.must(&READ.attempt(&name), "held")?;
    them.must(&format!("{} other", READ.attempt(&name)), "held other")?;
    for kind in [LOCK, WRITE] {
        them.must(&format!("{} writer", kind.attempt(&name)), "busy writer")?;
    }
    us.must(&READ.give_back(&name), "unlocked")?;
    us.must(&WRITE.attempt(&name), "busy")?;
    them.must(&READ.give_back(&name), "unlocked")?;
    us.must(&WRITE.attempt(&name), "busy")?;
    we.must(&READ.give_back(&name), "unlocked")?;
    us.must(&WRITE.attempt(&name), "busy")?;
    them.must(&format!("{} other", READ.give_back(&name)), "unlocked other")?;
    us.must(&WRITE.attempt(&name), "held")
}

/// Redisson ends a read lock with the last reader that it believes alive: our reader must look
/// alive to it, also after a renewal.
pub(super) fn our_reader_outlasts_theirs_that_leaves(table: &Table) -> Result<()> {
    let (mut us, mut them) = (table.us()?, table.them()?);
    let name = table.name("lock");
    us.must(&READ.take(&name, SHORT), "held")?;
    for _ in 0..2 {
        them.must(&READ.attempt(&name), "held")?;
        sleep(Duration::from_millis(SHORT * 2));
        them.must(&READ.give_back(&name), "unlocked")?;
        for kind in [WRITE, LOCK] {
            them.must(&kind.attempt(&name), "busy")?;
        }
    }
    us.must(&READ.give_back(&name), "unlocked")?;
    them.must(&WRITE.attempt(&name), "held")
}

pub(super) fn their_reader_outlasts_ours_that_leaves(table: &Table) -> Result<()> {
    let (mut us, mut them, mut third) = (table.us()?, table.them()?, table.us()?);
    let name = table.name("lock");
    us.must(&READ.take(&name, SHORT), "held")?;
    // Redisson's watchdog renews it, for half a minute at a time.
    them.must(&READ.take(&name, 0), "held")?;
    us.must(&READ.give_back(&name), "unlocked")?;
    sleep(Duration::from_millis(SHORT * 2));
    third.must(&WRITE.attempt(&name), "busy")?;
    third.must(&LOCK.attempt(&name), "busy")?;
    them.must(&READ.give_back(&name), "unlocked")?;
    third.must(&WRITE.attempt(&name), "held")
}
