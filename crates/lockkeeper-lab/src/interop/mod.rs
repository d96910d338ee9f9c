//! `lab interop`: do we and other libraries exclude each other?
//!
//! The others are small programs of ours around each library, in the folder `interop` of this
//! crate. All of them, and our own (`lab peer`), get the URL of the store as argument and read
//! orders from their input, one per line:
//!
//! | order | answer |
//! |---|---|
//! | | `ready`, once, when it can take orders |
//! | `lock NAME TTL` | `held`, when it is |
//! | `try NAME TTL` | `held` or `busy` |
//! | `unlock NAME` | `unlocked`, or `not-held` when it was lost |
//! | `read-lock`, `try-read`, `read-unlock` | the same for readers, and with `write` for writers (some peers) |
//! | `bench NAME COUNT` | `took SECONDS`, for COUNT locks one after another (some peers) |
//! | `crowd NAME COUNT TASKS LIMIT` | `took SECONDS LONGEST MEAN DONE`, for COUNT locks of each of so many at once, their waits, and how many locks were had before the limit (redsync's) |
//! | `turns NAME TASKS TIME [own]` | `turns`, and for each turn when it asked, had the lock, gave it back and was done, in microseconds with commas between: tasks that take the lock, or with `own` each one of its own, again and again for this long |
//! | `holds NAME` | `holds` or `lost`: what the library itself says of a lock that was held; `asks` where it knows only by asking the server (some peers) |
//! | `wait NAME COUNT` | `waiting`; so many wait for the lock until the process ends |
//! | `quit` | |
//!
//! Times are in milliseconds. An order may end with one more word that names who gives it: an
//! owner's id for our peer; for Redisson's a thread, whose answers end in its name. Any other
//! problem is answered with `error` and the reason. A peer ends when its input ends, so no peer
//! outlives a killed run.

mod etcd;
mod install;
mod memcached;
mod ours;
mod peer;
mod redis;
mod zookeeper;

pub use install::Cache;
pub use ours::serve;
pub use peer::{Crowd, Peer};

use crate::server::{Kind, Lab};
use crate::stores::STORES;
use anyhow::{Result, bail};
use libtest_mimic::{Arguments, Conclusion};
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the trials of one store, or of all stores that other libraries share, like a test program;
/// `words` are its arguments. Stops at the first store that fails.
///
/// # Errors
/// When a store cannot be started, or no other library is tried on it.
pub fn run(store: Option<&str>, words: &[String]) -> Result<ExitCode> {
    let shared = || STORES.iter().filter(|store| store.interop).map(|store| store.kind);
    let kinds: Vec<Kind> =
        shared().filter(|kind| store.is_none_or(|it| it == kind.word())).collect();
    if kinds.is_empty() {
        let known: Vec<_> = shared().map(Kind::word).collect();
        bail!("no other library is tried there: name one of {}", known.join(", "));
    }
    for kind in kinds {
        let conclusion = run_on(kind, words)?;
        if conclusion.has_failed() {
            return Ok(conclusion.exit_code());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_on(kind: Kind, words: &[String]) -> Result<Conclusion> {
    let program = "lab interop".to_owned();
    let mut arguments = Arguments::from_iter(std::iter::once(&program).chain(words));
    // The trials mostly wait, so several can run at once.
    arguments.test_threads.get_or_insert(4);
    let lab = Lab::open()?;
    let cache = Arc::new(Cache::open()?);
    let mut cluster = None;
    let (server, trials) = match kind {
        Kind::Redis => {
            let server = lab.redis().start()?;
            let cluster = cluster.insert(lab.redis().start_cluster()?);
            let mut trials = redis::trials(&server.url(), &cache, lab.folder());
            trials.extend(redis::trials_in_a_cluster(cluster, &cache, lab.folder()));
            (server, trials)
        }
        Kind::Redlock => {
            let server = lab.redlock().start()?;
            let url = server.url();
            (server, redis::trials_on_several(&url, &cache, lab.folder()))
        }
        Kind::ZooKeeper => {
            let server = lab.zookeeper().tick(500).start()?;
            let url = server.url();
            (server, zookeeper::trials(&url, &cache, lab.folder()))
        }
        Kind::Etcd => {
            let server = lab.etcd().start()?;
            let url = server.url();
            (server, etcd::trials(&url, &cache))
        }
        Kind::Memcached => {
            let server = lab.memcached().start()?;
            let url = server.url();
            (server, memcached::trials(&url, &cache))
        }
        other => bail!("no trials against other libraries are written for {other}"),
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    let whole = !conclusion.has_failed() && conclusion.num_filtered_out == 0 && !arguments.list;
    if whole && kind == Kind::Redis {
        redis::figures(&server.url(), &cache)?;
    }
    drop((server, cluster));
    drop(lab);
    Ok(conclusion)
}
