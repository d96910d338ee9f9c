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
const CROWD: usize = 500;
const WAITING: usize = 200;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, url] = arguments.as_slice() {
        match role.as_str() {
            "contend" => return contend(url),
            "pass" => return pass(url),
            "turn" => return turn(url),
            _ => {}
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    println!("{:<58} {:>9} {:>9}   ratio", "", "ours", "floor");
    for tasks in [1, 16] {
        pairs(folder.path(), tasks);
    }
    fairness(folder.path());
    hand_over(folder.path());
    crowd(folder.path());
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
    let lock = keeper.lock(format!("bench/{task}"));
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

/// Two processes by turns: from before the release of one to the grant of the other.
fn hand_over(folder: &Path) {
    let url = format!("sqlite:{}", folder.join("pass.db").display());
    let children = [(); 2].map(|()| start("pass", &url));
    let mut turns: Vec<(u128, u128)> = Vec::new();
    for child in children {
        let output = child.wait_with_output().expect("its output");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let (granted, released) = line.split_once(' ').expect("two moments");
            turns.push((granted.parse().expect("a moment"), released.parse().expect("a moment")));
        }
    }
    assert_eq!(turns.len(), 2 * TURNS_PER_PROCESS * 5, "every turn was counted");
    turns.sort_unstable();
    let mut gaps: Vec<u128> =
        turns.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1)).collect();
    gaps.sort_unstable();
    println!(
        "hand-over between two processes: p50 {} µs, p90 {} µs",
        gaps[gaps.len() / 2] / 1000,
        gaps[gaps.len() * 9 / 10] / 1000
    );
}

/// Nanoseconds on a clock that processes share.
fn now() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock").as_nanos()
}

fn start(role: &str, url: &str) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([role, url]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("a process")
}

fn pass(url: &str) {
    Runtime::new().expect("a runtime").block_on(async {
        let keeper = lockkeeper::connect(url).await.expect("the store");
        for _ in 0..TURNS_PER_PROCESS * 5 {
            let guard = keeper.lock("one").acquire().await.expect("a guard");
            let granted = now();
            // Long enough for the other to wait for it.
            tokio::time::sleep(Duration::from_millis(3)).await;
            println!("{granted} {}", now());
            guard.release().await.expect("released");
        }
    });
}

/// Many processes at once: whether all get their turn, in order, and what it costs to wait.
fn crowd(folder: &Path) {
    let url = format!("sqlite:{}", folder.join("crowd.db").display());
    let began = Instant::now();
    let children: Vec<_> = (0..CROWD).map(|_| start("turn", &url)).collect();
    let mut turns: Vec<(u128, u64)> = Vec::new();
    for child in children {
        let output = child.wait_with_output().expect("its output");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let turn = text.trim().split_once(' ').filter(|_| output.status.success());
        turns.extend(turn.and_then(|(at, token)| Some((at.parse().ok()?, token.parse().ok()?))));
    }
    turns.sort_unstable();
    let ordered = turns.is_sorted_by(|earlier, later| earlier.1 < later.1);
    println!(
        "{CROWD} processes at once: {} had their turn, {} order, in {:.1?}",
        turns.len(),
        if ordered { "in" } else { "OUT OF" },
        began.elapsed()
    );
    #[cfg(target_os = "linux")]
    cost_of_waiting(folder);
}

/// One turn, and when it was.
fn turn(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let keeper = lockkeeper::connect(url).await.expect("the store");
        let guard = keeper.lock("one").acquire().await.expect("a guard");
        println!("{} {}", now(), guard.token().expect("a token"));
        guard.release().await.expect("released");
    });
}

#[cfg(target_os = "linux")]
fn cost_of_waiting(folder: &Path) {
    const WATCHED: Duration = Duration::from_secs(6);
    let url = format!("sqlite:{}", folder.join("wait.db").display());
    let runtime = Runtime::new().expect("a runtime");
    let keeper = runtime.block_on(lockkeeper::connect(&url)).expect("the store");
    let held = runtime.block_on(keeper.lock("one").acquire()).expect("a guard");
    let mut children: Vec<_> = (0..WAITING).map(|_| start("turn", &url)).collect();
    let queued = || runtime.block_on(keeper.show("one")).map_or(0, |view| view.waiters.len());
    let limit = Instant::now() + Duration::from_secs(60);
    while queued() < WAITING && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(100));
    }
    let nanoseconds = || -> u64 { children.iter().map(|child| run_time(child.id())).sum() };
    let (before, began) = (nanoseconds(), Instant::now());
    std::thread::sleep(WATCHED);
    let share = (nanoseconds() - before) as f64 / began.elapsed().as_nanos() as f64;
    println!("{} waiting processes use {:.1} % of a core together", queued(), 100.0 * share);
    for child in &mut children {
        child.kill().expect("it can be ended");
        child.wait().expect("its end");
    }
    runtime.block_on(held.release()).expect("released");
}

/// How long the threads of a process have run.
#[cfg(target_os = "linux")]
fn run_time(process: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let of = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    threads.flatten().filter_map(|thread| of(thread.path())).sum()
}
