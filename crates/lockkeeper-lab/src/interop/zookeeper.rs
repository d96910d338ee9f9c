//! The libraries on ZooKeeper that use the same lock layout as our recipe `fair`.

use super::install::Cache;
use super::peer::Peer;
use anyhow::{Result, ensure};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Has no effect here: a claim lives as long as its session.
const TTL: u64 = 60_000;
/// The session timeout of every peer.
const SESSION: Duration = Duration::from_secs(4);
/// Long enough for a waiter to be in the queue.
const WHILE: Duration = Duration::from_millis(500);

/// The library's name, how its peer is started, the option in our URL that selects its layout, and
/// the option in its peer's URL that selects a recipe other than its lock.
type Library = (&'static str, fn(&Cache) -> Result<Command>, &'static str, &'static str);

const LIBRARIES: &[Library] = &[
    ("curator", Cache::curator, "layout=curator", ""),
    ("kazoo", Cache::kazoo, "layout=kazoo", ""),
];
/// Shares its layout only as a lock.
const LATCH: Library = ("curator-latch", Cache::curator, "layout=latch", "?latch");
/// Layouts that we do not share, and refuse.
const OTHERS: &[Library] = &[
    ("curator-latch-as-lock", Cache::curator, "layout=curator", "?latch"),
    ("curator-semaphore", Cache::curator, "layout=curator", "?semaphore"),
    ("kazoo-semaphore", Cache::kazoo, "layout=kazoo", "?semaphore"),
];

/// The orders for a lock with one holder at a time: to take it, to try, to release it.
type Words = [&'static str; 3];

/// A lock, and the write side of a read-write lock.
const ALONE: &[(&str, Words)] = &[
    ("lock", ["lock", "try", "unlock"]),
    ("write_side", ["write-lock", "try-write", "write-unlock"]),
];
const WRITE: Words = ALONE[1].1;
const READ: Words = ["read-lock", "try-read", "read-unlock"];

/// A case: its name and what it does.
type Case = (&'static str, fn(&Table) -> Result<()>);

const OF_EITHER: &[Case] = &[
    ("they_hold_it_and_we_do_not_get_in", |table| keeps_out(table, table.them()?, table.us()?)),
    ("we_hold_it_and_they_do_not_get_in", |table| keeps_out(table, table.us()?, table.them()?)),
    ("they_get_it_when_we_release", |table| hands_over(table, table.us()?, table.them()?)),
    ("we_get_it_when_they_release", |table| hands_over(table, table.them()?, table.us()?)),
    ("we_get_it_after_their_crash", |table| survives(table, table.them()?, table.us()?)),
    ("they_get_it_after_our_crash", |table| survives(table, table.us()?, table.them()?)),
    ("a_waiter_of_either_that_crashes_is_passed_over", a_waiter_that_crashes_is_passed_over),
    ("together_we_lose_no_update", together_we_lose_no_update),
];

const OF_BOTH_SIDES: &[Case] = &[
    ("our_readers_and_theirs_share", our_readers_and_theirs_share),
    ("our_reader_keeps_their_writer_out", |table| sides(table, table.us()?, table.them()?)),
    ("their_reader_keeps_our_writer_out", |table| sides(table, table.them()?, table.us()?)),
];

const OF_OTHERS: &[Case] = &[
    ("they_hold_it_and_we_are_refused", they_hold_it_and_we_are_refused),
    ("they_come_beside_us_and_we_are_told", they_come_beside_us_and_we_are_told),
];

/// The trials of every library, on the server at `url`. They write files to `folder`.
pub(super) fn trials(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |library: Library, kind: &'static str, words, cases: &[Case]| {
        for &(name, case) in cases {
            let url = format!("{url}/interop-{}", library.0);
            let (cache, folder) = (cache.clone(), folder.to_owned());
            let lock = format!("{kind}.{name}");
            let table = Table { url, cache, folder, library, words, lock };
            let title = format!("zookeeper::{}::{kind}::{name}", library.0);
            trials.push(Trial::test(title, move || {
                case(&table).map_err(|error| Failed::from(format!("{error:#}")))
            }));
        }
    };
    for &library in LIBRARIES {
        ALONE.iter().for_each(|(kind, words)| add(library, kind, *words, OF_EITHER));
        add(library, "both_sides", WRITE, OF_BOTH_SIDES);
    }
    let (lock, words) = ALONE[0];
    add(LATCH, lock, words, OF_EITHER);
    OTHERS.iter().for_each(|library| add(*library, lock, words, OF_OTHERS));
    trials
}

/// What a case works with.
struct Table {
    url: String,
    cache: Arc<Cache>,
    /// A folder for files.
    folder: PathBuf,
    library: Library,
    words: Words,
    /// A lock name that only this case uses.
    lock: String,
}

impl Table {
    fn us(&self) -> Result<Peer> {
        let (_, _, layout, _) = self.library;
        Peer::ours(&format!("{}?session={}s&{layout}", self.url, SESSION.as_secs()))
    }

    fn them(&self) -> Result<Peer> {
        let (_, start, _, recipe) = self.library;
        Peer::start(start(&self.cache)?, &format!("{}{recipe}", self.url))
    }

    fn say(&self, words: Words) -> [String; 3] {
        words.map(|verb| format!("{verb} {} {TTL}", self.lock))
    }

    /// To take it, to try, to release it.
    fn orders(&self) -> [String; 3] {
        self.say(self.words)
    }
}

fn keeps_out(table: &Table, mut holder: Peer, mut other: Peer) -> Result<()> {
    let [_, attempt, give_back] = table.orders();
    // Not vacuous: once it is free, the other one does get it.
    other.must(&attempt, "held")?;
    holder.must(&attempt, "busy")?;
    other.must(&give_back, "unlocked")?;
    holder.must(&attempt, "held")?;
    other.must(&attempt, "busy")?;
    holder.must(&give_back, "unlocked")?;
    other.must(&attempt, "held")
}

fn hands_over(table: &Table, mut holder: Peer, mut waiter: Peer) -> Result<()> {
    let [take, attempt, give_back] = table.orders();
    holder.must(&take, "held")?;
    waiter.tell(&take)?;
    sleep(WHILE);
    waiter.must_be_silent()?;
    holder.must(&give_back, "unlocked")?;
    waiter.must_say("held")?;
    holder.must(&attempt, "busy")
}

fn survives(table: &Table, mut holder: Peer, mut waiter: Peer) -> Result<()> {
    let [take, ..] = table.orders();
    holder.must(&take, "held")?;
    let before = Instant::now();
    holder.kill()?;
    waiter.must(&take, "held")?;
    let after = before.elapsed();
    // Its last heartbeat may be a third of the timeout old.
    ensure!(after >= SESSION / 2, "it was free after {after:?}, before the session ended");
    Ok(())
}

fn a_waiter_that_crashes_is_passed_over(table: &Table) -> Result<()> {
    let [take, _, give_back] = table.orders();
    for ours in [true, false] {
        let (mut holder, mut last) = (table.us()?, table.them()?);
        let mut dead = if ours { table.us()? } else { table.them()? };
        holder.must(&take, "held")?;
        for waiter in [&mut dead, &mut last] {
            waiter.tell(&take)?;
            sleep(WHILE);
        }
        dead.kill()?;
        holder.must(&give_back, "unlocked")?;
        last.must_say("held")?;
        last.must(&give_back, "unlocked")?;
    }
    Ok(())
}

fn they_hold_it_and_we_are_refused(table: &Table) -> Result<()> {
    let (mut us, mut them) = (table.us()?, table.them()?);
    let [take, attempt, give_back] = table.orders();
    them.must(&take, "held")?;
    us.must_fail(&attempt, "neither side would wait")?;
    us.must_fail(&take, "neither side would wait")?;
    // It is still theirs, and we have left nothing in their way.
    them.must(&give_back, "unlocked")?;
    them.must(&attempt, "held")
}

/// They do not see us, and get in: then the lock is no longer ours.
fn they_come_beside_us_and_we_are_told(table: &Table) -> Result<()> {
    let (mut us, mut them) = (table.us()?, table.them()?);
    let [take, attempt, give_back] = table.orders();
    us.must(&take, "held")?;
    them.must(&attempt, "held")?;
    // Two renewals, each after a third of half a session.
    sleep(SESSION / 2);
    us.must(&give_back, "not-held")?;
    us.must_fail(&attempt, "neither side would wait")
}

fn our_readers_and_theirs_share(table: &Table) -> Result<()> {
    let (mut us, mut them) = (table.us()?, table.them()?);
    let [_, attempt, give_back] = table.say(READ);
    us.must(&attempt, "held")?;
    them.must(&attempt, "held")?;
    us.must(&give_back, "unlocked")?;
    us.must(&attempt, "held")?;
    us.must(&give_back, "unlocked")?;
    them.must(&give_back, "unlocked")
}

/// A reader excludes a writer, and a waiting writer excludes the readers behind it.
fn sides(table: &Table, mut reader: Peer, mut writer: Peer) -> Result<()> {
    let ([_, try_read, end_read], [write, try_write, end_write]) =
        (table.say(READ), table.say(WRITE));
    reader.must(&try_read, "held")?;
    writer.must(&try_write, "busy")?;
    writer.tell(&write)?;
    sleep(WHILE);
    writer.must_be_silent()?;
    let mut late = table.us()?;
    late.must(&try_read, "busy")?;
    reader.must(&end_read, "unlocked")?;
    writer.must_say("held")?;
    reader.must(&try_read, "busy")?;
    writer.must(&end_write, "unlocked")?;
    reader.must(&try_read, "held")
}

/// Every peer adds to a number in a file, in two steps that must not be interleaved.
fn together_we_lose_no_update(table: &Table) -> Result<()> {
    const ROUNDS: usize = 15;
    let number = table.folder.join(format!("{}-{}", table.library.0, table.lock));
    fs::write(&number, "0")?;
    // Started here and not in the threads: our peers die with the thread that started them.
    let mut peers = vec![table.us()?, table.us()?, table.them()?, table.them()?];
    let expected = ROUNDS * peers.len();
    let [take, _, give_back] = &table.orders();
    let add_one = |peer: &mut Peer| -> Result<()> {
        peer.must(take, "held")?;
        let found: usize = fs::read_to_string(&number)?.parse()?;
        sleep(Duration::from_millis(2));
        fs::write(&number, (found + 1).to_string())?;
        peer.must(give_back, "unlocked")
    };
    std::thread::scope(|scope| {
        let add = |mut peer: Peer| (0..ROUNDS).try_for_each(|_| add_one(&mut peer));
        let threads: Vec<_> = peers.drain(..).map(|peer| scope.spawn(move || add(peer))).collect();
        threads.into_iter().try_for_each(|it| it.join().expect("no panic"))
    })?;
    let sum: usize = fs::read_to_string(&number)?.parse()?;
    ensure!(sum == expected, "{} updates of {expected} were lost", expected.abs_diff(sum));
    Ok(())
}
