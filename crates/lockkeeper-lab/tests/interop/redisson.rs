//! `recipe=reentrant` and Redisson's `RLock` and `RReadWriteLock`.

use crate::peer::Peer;
use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nobody waits this out.
const LONG: u64 = 60_000;
/// A ttl to wait out.
const SHORT: u64 = 1_500;
/// Long enough for one who waits to listen by then.
const WHILE: Duration = Duration::from_millis(700);
/// Sooner than anyone who was not told would look again.
const SOON: Duration = Duration::from_secs(2);

type Case = (&'static str, fn(&Table) -> Result<()>);

const CASES: &[Case] = &[
    ("they_hold_it_and_we_do_not_get_in", they_hold_it_and_we_do_not_get_in),
    ("we_hold_it_and_they_do_not_get_in", we_hold_it_and_they_do_not_get_in),
    ("our_release_wakes_them", our_release_wakes_them),
    ("their_release_wakes_us", their_release_wakes_us),
    ("the_last_reader_to_leave_wakes_a_writer", the_last_reader_to_leave_wakes_a_writer),
    ("we_get_it_after_their_crash_and_not_before", we_get_it_after_their_crash_and_not_before),
    ("they_get_it_after_our_crash_and_not_before", they_get_it_after_our_crash_and_not_before),
    ("our_renewals_keep_them_out", our_renewals_keep_them_out),
    ("readers_share_and_keep_writers_out", readers_share_and_keep_writers_out),
    ("our_reader_outlasts_theirs_that_leaves", our_reader_outlasts_theirs_that_leaves),
    ("their_reader_outlasts_ours_that_leaves", their_reader_outlasts_ours_that_leaves),
    ("our_reader_that_crashed_lets_their_writer_in", our_reader_that_crashed_lets_their_writer_in),
    ("their_reader_that_crashed_lets_our_writer_in", their_reader_that_crashed_lets_our_writer_in),
    ("they_enter_again_and_we_wait_for_both_to_end", they_enter_again_and_we_wait_for_both_to_end),
    ("we_enter_again_and_they_wait_for_both_to_end", we_enter_again_and_they_wait_for_both_to_end),
    ("our_late_release_leaves_theirs_alone", our_late_release_leaves_theirs_alone),
    ("their_late_release_leaves_ours_alone", their_late_release_leaves_ours_alone),
    ("together_we_lose_no_update", together_we_lose_no_update),
];

pub(crate) fn trials(url: &str) -> Vec<Trial> {
    let built = Arc::new(OnceLock::new());
    let trial = |&(name, case): &Case| {
        let (url, built) = (url.to_owned(), built.clone());
        Trial::test(format!("redis::reentrant::redisson::{name}"), move || {
            let table = Table { url, built, name };
            case(&table).map_err(|error| Failed::from(format!("{error:?}")))
        })
    };
    CASES.iter().map(trial).collect()
}

/// The words for one side of one kind of lock, and of the other of the two that excludes it.
#[derive(Clone, Copy)]
struct Kind {
    lock: &'static str,
    attempt: &'static str,
    unlock: &'static str,
}

const LOCK: Kind = Kind { lock: "lock", attempt: "try", unlock: "unlock" };
const READ: Kind = Kind { lock: "read-lock", attempt: "try-read", unlock: "read-unlock" };
const WRITE: Kind = Kind { lock: "write-lock", attempt: "try-write", unlock: "write-unlock" };

/// Theirs and ours that keep each other out.
const PAIRS: [(Kind, Kind); 6] =
    [(LOCK, LOCK), (WRITE, WRITE), (WRITE, LOCK), (LOCK, READ), (READ, WRITE), (WRITE, READ)];

/// What a case works with.
struct Table {
    url: String,
    built: Arc<OnceLock<Result<PathBuf, String>>>,
    name: &'static str,
}

impl Table {
    fn us(&self) -> Result<Peer> {
        Peer::ours(&format!("{}?recipe=reentrant", self.url))
    }

    fn them(&self) -> Result<Peer> {
        let built = self.built.get_or_init(|| build().map_err(|error| format!("{error:?}")));
        let folder = match built {
            Ok(folder) => folder,
            Err(error) => bail!("{error}"),
        };
        let mut command = Command::new("java");
        // Many short lives: what compiles them well takes longer than they last.
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp"]);
        let (classes, libraries) = (folder.join("classes"), folder.join("libraries/*"));
        command.arg(format!("{}:{}", classes.display(), libraries.display())).arg("Peer");
        Peer::start(command, &self.url)
    }

    /// The name of a lock of this case alone.
    fn name(&self, tail: &str) -> String {
        format!("interop/{}/{tail}", self.name)
    }
}

/// Compiles the program around Redisson, and fetches Redisson.
fn build() -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/redis/redisson/pom.xml");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redisson");
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "package"])
        .arg(format!("-Doutput={}", folder.display()))
        .arg("--file")
        .arg(&source)
        .output()
        .context("cannot run mvn")?;
    ensure!(output.status.success(), "mvn: {}", String::from_utf8_lossy(&output.stdout));
    Ok(folder)
}

impl Kind {
    fn take(self, name: &str, ttl: u64) -> String {
        format!("{} {name} {ttl}", self.lock)
    }

    fn attempt(self, name: &str) -> String {
        format!("{} {name} {LONG}", self.attempt)
    }

    fn give_back(self, name: &str) -> String {
        format!("{} {name}", self.unlock)
    }
}

fn they_hold_it_and_we_do_not_get_in(table: &Table) -> Result<()> {
    let (mut them, mut us) = (table.them()?, table.us()?);
    for (number, (theirs, ours)) in PAIRS.into_iter().enumerate() {
        keeps_out(&table.name(&number.to_string()), (&mut them, theirs), (&mut us, ours))?;
    }
    Ok(())
}

fn we_hold_it_and_they_do_not_get_in(table: &Table) -> Result<()> {
    let (mut them, mut us) = (table.them()?, table.us()?);
    for (number, (theirs, ours)) in PAIRS.into_iter().enumerate() {
        keeps_out(&table.name(&number.to_string()), (&mut us, ours), (&mut them, theirs))?;
    }
    Ok(())
}

fn keeps_out(name: &str, holder: (&mut Peer, Kind), other: (&mut Peer, Kind)) -> Result<()> {
    let ((holder, kind), (other, wanted)) = (holder, other);
    // Not vacuous: free, the other one does get it.
    other.must(&wanted.attempt(name), "held")?;
    other.must(&wanted.give_back(name), "unlocked")?;
    holder.must(&kind.attempt(name), "held")?;
    other.must(&wanted.attempt(name), "busy")?;
    holder.must(&kind.give_back(name), "unlocked")?;
    other.must(&wanted.attempt(name), "held")?;
    other.must(&wanted.give_back(name), "unlocked")
}

fn our_release_wakes_them(table: &Table) -> Result<()> {
    let (mut them, mut us) = (table.them()?, table.us()?);
    for (number, (theirs, ours)) in PAIRS.into_iter().enumerate() {
        hands_over(&table.name(&number.to_string()), (&mut us, ours), (&mut them, theirs))?;
    }
    Ok(())
}

fn their_release_wakes_us(table: &Table) -> Result<()> {
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
    println!("{name}: {} to {} in {woken:?}", kind.lock, wanted.lock);
    ensure!(woken < SOON, "{name}: it was found free after {woken:?}, without being told");
    waiter.must(&wanted.give_back(name), "unlocked")
}

fn the_last_reader_to_leave_wakes_a_writer(table: &Table) -> Result<()> {
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
        // Either may be first, and wakes the other.
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

fn we_get_it_after_their_crash_and_not_before(table: &Table) -> Result<()> {
    survives(&table.name("lock"), table.them()?, table.us()?, LOCK)?;
    survives(&table.name("write"), table.them()?, table.us()?, WRITE)
}

fn they_get_it_after_our_crash_and_not_before(table: &Table) -> Result<()> {
    survives(&table.name("lock"), table.us()?, table.them()?, LOCK)?;
    survives(&table.name("write"), table.us()?, table.them()?, WRITE)
}

fn our_reader_that_crashed_lets_their_writer_in(table: &Table) -> Result<()> {
    crashed_reader(table, table.us()?, table.them()?, table.them()?)
}

fn their_reader_that_crashed_lets_our_writer_in(table: &Table) -> Result<()> {
    crashed_reader(table, table.them()?, table.us()?, table.us()?)
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

/// One reader dies; another of the other side leaves; a writer gets in once the dead one is over,
/// although the other had taken it for much longer.
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

fn our_renewals_keep_them_out(table: &Table) -> Result<()> {
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

fn readers_share_and_keep_writers_out(table: &Table) -> Result<()> {
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

/// Redisson ends a read lock with the last reader it believes alive: ours must look so, also after
/// a renewal.
fn our_reader_outlasts_theirs_that_leaves(table: &Table) -> Result<()> {
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

fn their_reader_outlasts_ours_that_leaves(table: &Table) -> Result<()> {
    let (mut us, mut them, mut third) = (table.us()?, table.them()?, table.us()?);
    let name = table.name("lock");
    us.must(&READ.take(&name, SHORT), "held")?;
    // By the watchdog, for half a minute and on.
    them.must(&READ.take(&name, 0), "held")?;
    us.must(&READ.give_back(&name), "unlocked")?;
    sleep(Duration::from_millis(SHORT * 2));
    third.must(&WRITE.attempt(&name), "busy")?;
    third.must(&LOCK.attempt(&name), "busy")?;
    them.must(&READ.give_back(&name), "unlocked")?;
    third.must(&WRITE.attempt(&name), "held")
}

fn they_enter_again_and_we_wait_for_both_to_end(table: &Table) -> Result<()> {
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

fn we_enter_again_and_they_wait_for_both_to_end(table: &Table) -> Result<()> {
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

/// Ours is renewed for as long as its process runs: only one that stands still loses it.
fn our_late_release_leaves_theirs_alone(table: &Table) -> Result<()> {
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

fn their_late_release_leaves_ours_alone(table: &Table) -> Result<()> {
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

/// Everybody adds to a number in a file, in two steps that must not be interleaved.
fn together_we_lose_no_update(table: &Table) -> Result<()> {
    const ROUNDS: usize = 25;
    let folder = tempfile::tempdir()?;
    let number = folder.path().join("number");
    fs::write(&number, "0")?;
    let name = table.name("lock");
    // Started here and not in the threads: ours die with the thread that started them. Theirs take
    // the lock one way only: among themselves the two ways do not keep each other out.
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

/// Whether the lock was taken by another when it was first asked for.
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
