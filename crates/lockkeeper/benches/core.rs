//! What the core costs, measured against one loopback round trip of the same run.
//!
//! `cargo bench -p lockkeeper --bench core`

#![allow(missing_docs, reason = "a program, not an interface")]

#[path = "common/mod.rs"]
mod common;

use common::{Goal, each, median, report};
use lockkeeper::Keeper;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const ROUNDS: usize = 15;
const TURNS: u32 = 4000;
const HOLDS: usize = 10_000;

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let keeper = runtime.block_on(lockkeeper::connect("memory:")).expect("memory:");
    println!("{:<58} {:>9} {:>9}   ratio", "", "ours", "floor");
    let mut echo = runtime.block_on(echo());
    let (mut trips, mut spawned, mut blocked) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        trips.push(each(TURNS, || runtime.block_on(round_trips(&mut echo))));
        let task = runtime.spawn(pairs(keeper.clone()));
        spawned.push(each(1, || runtime.block_on(task).expect("the task")) / TURNS);
        blocked.push(each(TURNS, || runtime.block_on(pairs(keeper.clone()))));
    }
    let trip = median(trips);
    let goal = Goal::TimeAtMost(0.1);
    report("acquire + release, in a spawned task : round trip", median(spawned), trip, goal);
    let goal = Goal::TimeAtMost(0.5);
    report("acquire + release, on block_on's thread : round trip", median(blocked), trip, goal);
    many(&runtime);
}

async fn pairs(keeper: Keeper) {
    let lock = keeper.lock("bench");
    for _ in 0..TURNS {
        lock.acquire().await.expect("a guard").release().await.expect("released");
    }
}

/// A connection to a task that sends back what it gets.
async fn echo() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("nodelay");
        let mut byte = [0; 32];
        while stream.read_exact(&mut byte).await.is_ok() {
            stream.write_all(&byte).await.expect("written");
        }
    });
    let stream = TcpStream::connect(address).await.expect("connected");
    stream.set_nodelay(true).expect("nodelay");
    stream
}

async fn round_trips(stream: &mut TcpStream) {
    let mut bytes = [7; 32];
    for _ in 0..TURNS {
        stream.write_all(&bytes).await.expect("written");
        stream.read_exact(&mut bytes).await.expect("read");
    }
}

/// Ten thousand locks held and renewed: processor time and memory.
fn many(runtime: &Runtime) {
    let before = resident();
    let keeper = runtime.block_on(lockkeeper::connect("memory:")).expect("memory:");
    let guards = runtime.block_on(async {
        let mut guards = Vec::with_capacity(HOLDS);
        for number in 0..HOLDS {
            guards.push(keeper.lock(format!("bench/{number}")).acquire().await.expect("a guard"));
        }
        guards
    });
    let bytes = resident().saturating_sub(before) / HOLDS as u64;
    let span = Duration::from_secs(25);
    let (start, used) = (Instant::now(), processor());
    std::thread::sleep(span);
    let share = (processor() - used).as_secs_f64() / start.elapsed().as_secs_f64();
    assert!(guards.iter().all(lockkeeper::Guard::is_held), "all are still held");
    let kept = |good: bool| if good { "kept" } else { "MISSED" };
    println!(
        "{HOLDS} held for {span:?}: {:.2} % of a core   < 3 %      {}",
        share * 100.0,
        kept(share < 0.03)
    );
    println!(
        "{HOLDS} held: {bytes} bytes each, the store's record included   < 2048     {}",
        kept(bytes < 2048)
    );
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = fields[12..14].iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
