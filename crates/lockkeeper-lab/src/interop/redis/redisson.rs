//! `recipe=reentrant` and Redisson's `RLock` and `RReadWriteLock`.

mod exclusion;
mod readers;

use crate::interop::install::Cache;
use crate::interop::peer::Peer;
use anyhow::Result;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A ttl that no case waits out.
const LONG: u64 = 60_000;
/// A ttl short enough to wait out.
const SHORT: u64 = 1_500;
/// Long enough for a waiter to have subscribed.
const WHILE: Duration = Duration::from_millis(700);
/// Sooner than a waiter that was not notified would poll again.
const SOON: Duration = Duration::from_secs(2);

type Case = (&'static str, fn(&Table) -> Result<()>);

const CASES: &[Case] = &[
    ("they_hold_it_and_we_do_not_get_in", exclusion::they_hold_it_and_we_do_not_get_in),
    ("we_hold_it_and_they_do_not_get_in", exclusion::we_hold_it_and_they_do_not_get_in),
    ("our_release_wakes_them", exclusion::our_release_wakes_them),
    ("their_release_wakes_us", exclusion::their_release_wakes_us),
    ("the_last_reader_to_leave_wakes_a_writer", readers::the_last_reader_to_leave_wakes_a_writer),
    (
        "we_get_it_after_their_crash_and_not_before",
        exclusion::we_get_it_after_their_crash_and_not_before,
    ),
    (
        "they_get_it_after_our_crash_and_not_before",
        exclusion::they_get_it_after_our_crash_and_not_before,
    ),
    ("our_renewals_keep_them_out", exclusion::our_renewals_keep_them_out),
    ("readers_share_and_keep_writers_out", readers::readers_share_and_keep_writers_out),
    ("our_reader_outlasts_theirs_that_leaves", readers::our_reader_outlasts_theirs_that_leaves),
    ("their_reader_outlasts_ours_that_leaves", readers::their_reader_outlasts_ours_that_leaves),
    (
        "our_reader_that_crashed_lets_their_writer_in",
        readers::our_reader_that_crashed_lets_their_writer_in,
    ),
    (
        "their_reader_that_crashed_lets_our_writer_in",
        readers::their_reader_that_crashed_lets_our_writer_in,
    ),
    (
        "they_enter_again_and_we_wait_for_both_to_end",
        exclusion::they_enter_again_and_we_wait_for_both_to_end,
    ),
    (
        "we_enter_again_and_they_wait_for_both_to_end",
        exclusion::we_enter_again_and_they_wait_for_both_to_end,
    ),
    ("our_late_release_leaves_theirs_alone", exclusion::our_late_release_leaves_theirs_alone),
    ("their_late_release_leaves_ours_alone", exclusion::their_late_release_leaves_ours_alone),
    ("together_we_lose_no_update", exclusion::together_we_lose_no_update),
];

/// The cases that depend on which node the messages go through.
const IN_A_CLUSTER: &[Case] = &[
    ("they_hold_it_and_we_do_not_get_in", exclusion::they_hold_it_and_we_do_not_get_in),
    ("we_hold_it_and_they_do_not_get_in", exclusion::we_hold_it_and_they_do_not_get_in),
    ("our_release_wakes_them", exclusion::our_release_wakes_them),
    ("their_release_wakes_us", exclusion::their_release_wakes_us),
    ("the_last_reader_to_leave_wakes_a_writer", readers::the_last_reader_to_leave_wakes_a_writer),
    ("together_we_lose_no_update", exclusion::together_we_lose_no_update),
];

pub(super) fn trials(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    trials_of(CASES, "redisson", url, cache, folder)
}

pub(super) fn trials_in_a_cluster(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    trials_of(IN_A_CLUSTER, "redisson-in-a-cluster", url, cache, folder)
}

fn trials_of(
    cases: &[Case],
    label: &'static str,
    url: &str,
    cache: &Arc<Cache>,
    folder: &Path,
) -> Vec<Trial> {
    let trial = |&(name, case): &Case| {
        let (url, cache, folder) = (url.to_owned(), cache.clone(), folder.join(label));
        Trial::test(format!("redis::reentrant::{label}::{name}"), move || {
            fs::create_dir_all(&folder)?;
            let table = Table { url, cache, folder, name };
            case(&table).map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    cases.iter().map(trial).collect()
}

/// Prints how fast two recipes of ours are beside Redisson, one lock after another.
pub(super) fn figures(url: &str, cache: &Cache) -> Result<()> {
    const COUNT: u32 = 500;
    const ROUNDS: usize = 5;
    let mut peers = [
        Peer::start(cache.redisson()?, url)?,
        Peer::ours(&format!("{url}?recipe=reentrant"))?,
        Peer::ours(&format!("{url}?recipe=queue"))?,
    ];
    let mut best = [Duration::MAX; 3];
    // Interleaved, so that other load slows all of them; the first rounds are warm-up.
    for _ in 0..ROUNDS {
        for (number, peer) in peers.iter_mut().enumerate() {
            let took = peer.bench(&format!("interop/bench/{number}"), COUNT)?;
            best[number] = best[number].min(took);
        }
    }
    let [theirs, reentrant, queue] = best.map(|it| it.as_secs_f64());
    let build = if cfg!(debug_assertions) { ", in a debug build" } else { "" };
    println!(
        "acquire + release, of Redisson's speed{build}: reentrant {:.2}, queue {:.2}",
        theirs / reentrant,
        theirs / queue
    );
    Ok(())
}

/// The words for one side of one kind of lock.
#[derive(Clone, Copy)]
struct Kind {
    lock: &'static str,
    attempt: &'static str,
    unlock: &'static str,
}

const LOCK: Kind = Kind { lock: "lock", attempt: "try", unlock: "unlock" };
const READ: Kind = Kind { lock: "read-lock", attempt: "try-read", unlock: "read-unlock" };
const WRITE: Kind = Kind { lock: "write-lock", attempt: "try-write", unlock: "write-unlock" };

/// Pairs of their lock and ours that exclude each other.
const PAIRS: [(Kind, Kind); 6] =
    [(LOCK, LOCK), (WRITE, WRITE), (WRITE, LOCK), (LOCK, READ), (READ, WRITE), (WRITE, READ)];

/// What a case works with.
struct Table {
    url: String,
    cache: Arc<Cache>,
    /// A folder for files.
    folder: PathBuf,
    name: &'static str,
}

impl Table {
    fn us(&self) -> Result<Peer> {
        Peer::ours(&format!("{}?recipe=reentrant", self.url))
    }

    fn them(&self) -> Result<Peer> {
        Peer::start(self.cache.redisson()?, &self.url)
    }

    /// A lock name that only this case uses.
    fn name(&self, tail: &str) -> String {
        format!("interop/{}/{tail}", self.name)
    }
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
