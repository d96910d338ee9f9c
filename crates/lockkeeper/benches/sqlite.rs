//! `sqlite:` against the bare statements through the same driver at the same durability.
//!
//! `cargo bench -p lockkeeper --bench sqlite`

#![allow(missing_docs, reason = "a program, not an interface")]

#[path = "common/mod.rs"]
mod common;

use common::{Goal, each, median, report};
use lockkeeper::Keeper;
use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const ROUNDS: usize = 9;
const TURNS: u32 = 2000;
const PROCESSES: usize = 16;
const TURNS_PER_PROCESS: usize = 40;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, url] = arguments.as_slice()
        && role == "contend"
    {
        return contend(url);
    }
    let folder = tempfile::tempdir().expect("a folder");
    println!("{:<58} {:>9} {:>9}   ratio", "", "ours", "floor");
    for tasks in [1, 16] {
        pairs(folder.path(), tasks);
    }
    fairness(folder.path());
}

/// Acquire and release of `tasks` tasks, each on a name of its own.
fn pairs(folder: &Path, tasks: u32) {
    let runtime = Runtime::new().expect("a runtime");
    let url = format!("sqlite:{}", folder.join(format!("ours-{tasks}.db")).display());
    let keeper = runtime.block_on(lockkeeper::connect(&url)).expect("the store");
    let bare = Arc::new(Mutex::new(bare(&folder.join(format!("bare-{tasks}.db")))));
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (keeper, bare) = (&keeper, &bare);
        ours.push(each(TURNS, || {
            all(&runtime, tasks, |task| {
                let keeper = keeper.clone();
                async move { ours_once(&keeper, task, TURNS / tasks).await }
            })
        }));
        floor.push(each(TURNS, || {
            all(&runtime, tasks, |task| {
                let bare = bare.clone();
                async move { bare_once(&bare, task, TURNS / tasks) }
            })
        }));
    }
    let what = format!("acquire + release, {tasks} task(s), {tasks} name(s) : bare statements");
    report(&what, median(ours), median(floor), Goal::SpeedAtLeast(0.8));
}

fn all<F: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    tasks: u32,
    work: impl Fn(u32) -> F,
) {
    let tasks: Vec<_> = (0..tasks).map(|task| runtime.spawn(work(task))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("the task");
        }
    });
}

async fn ours_once(keeper: &Keeper, task: u32, turns: u32) {
    let lock = keeper.lock(&format!("bench/{task}"));
    for _ in 0..turns {
        lock.acquire().await.expect("a guard").release().await.expect("released");
    }
}

/// The least a lock table can do: one statement takes, one gives back, each its own commit.
fn bare(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("a database");
    connection.pragma_update(None, "journal_mode", "wal").expect("wal");
    connection.pragma_update(None, "synchronous", "normal").expect("normal");
    connection
        .execute_batch(
            "CREATE TABLE lk(name TEXT PRIMARY KEY, owner TEXT, token INTEGER, expires INTEGER)
             WITHOUT ROWID",
        )
        .expect("a table");
    connection
}

fn bare_once(connection: &Mutex<Connection>, task: u32, turns: u32) {
    let name = format!("bench/{task}");
    for turn in 0..turns {
        let owner = format!("{task}-{turn:032}");
        let taken = connection
            .lock()
            .expect("the connection")
            .prepare_cached(
                "INSERT INTO lk VALUES (?1, ?2, 1, 1000) ON CONFLICT(name) DO UPDATE SET
                   owner = excluded.owner, token = token + 1, expires = excluded.expires
                 WHERE lk.expires <= 500",
            )
            .expect("a statement")
            .execute((&name, &owner))
            .expect("taken");
        assert_eq!(taken, 1);
        let freed = connection
            .lock()
            .expect("the connection")
            .prepare_cached("UPDATE lk SET owner = '', expires = 0 WHERE name = ?1 AND owner = ?2")
            .expect("a statement")
            .execute((&name, &owner))
            .expect("freed");
        assert_eq!(freed, 1);
    }
}

/// Sixteen processes on one name: how much longer than the mean is the longest wait?
fn fairness(folder: &Path) {
    let url = format!("sqlite:{}", folder.join("fair.db").display());
    let program = std::env::current_exe().expect("this program");
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(&program);
            command.args(["contend", &url]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("a process")
        })
        .collect();
    // Each waits for its input to end before it begins.
    let outputs: Vec<_> = children
        .into_iter()
        .map(|mut child| (child.stdin.take(), child))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(stdin, child)| {
            drop(stdin);
            child
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|child| child.wait_with_output().expect("its output"))
        .collect();
    let waits: Vec<f64> = outputs
        .iter()
        .flat_map(|output| {
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter_map(|line| line.parse().ok())
        .collect();
    assert_eq!(waits.len(), PROCESSES * (TURNS_PER_PROCESS / 2), "every turn was counted");
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    let longest = waits.iter().copied().fold(0.0, f64::max);
    let verdict = if longest <= 3.0 * mean { "kept" } else { "MISSED" };
    println!(
        "{PROCESSES} processes, one name: mean wait {:.1?}, longest {:.1?}   {:.2} ≤ 3   {verdict}",
        Duration::from_secs_f64(mean),
        Duration::from_secs_f64(longest),
        longest / mean,
    );
}

fn contend(url: &str) {
    let mut end = String::new();
    std::io::stdin().read_line(&mut end).expect("input");
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let keeper = lockkeeper::connect(url).await.expect("the store");
        for turn in 0..TURNS_PER_PROCESS {
            let start = Instant::now();
            let guard = keeper.lock("one").acquire().await.expect("a guard");
            let waited = start.elapsed();
            tokio::time::sleep(Duration::from_millis(1)).await;
            guard.release().await.expect("released");
            // The middle half: before and after, not all of them contend.
            if (TURNS_PER_PROCESS / 4..TURNS_PER_PROCESS * 3 / 4).contains(&turn) {
                println!("{}", waited.as_secs_f64());
            }
        }
    });
}
