//! memcached: a lock compared with the bare commands on the same client, and what waiting costs the
//! server.
//!
//! A client of the same make as the library's: one connection for all tasks, each writing its own
//! request, one task reading the answers in order, a time limit for each. On top of it there is the
//! least `add` and compare-and-delete, and nothing of a lock.

#[path = "common/timed.rs"]
mod timed;

use anyhow::{Context, Result, ensure};
use lockkeeper::Keeper;
use lockkeeper_lab::server::wire::line;
use lockkeeper_lab::server::{Lab, Server};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use timed::timed;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::oneshot;

const ROUNDS: usize = 101;
/// Of each side and round: few, so that whatever else the machine does slows both.
const CYCLES: u32 = 320;
const TASKS: u32 = 16;
/// How long the server's requests are counted while many wait.
const WINDOW: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let lab = Lab::open()?;
    // One thread serves both sides: where the scheduler puts two of them makes one side faster than the
    // other by half, whatever they do.
    let server = lab.memcached().options(&["-t", "1"]).start()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(cycles(&server))?;
    let mut seen = Vec::new();
    for waiters in [10, 1000] {
        seen.push(runtime.block_on(requests(&server, waiters))?);
    }
    println!(
        "requests per second while 10 and 1,000 claims of one keeper wait: {:.1} and {:.1} \
         (goal: no more)",
        seen[0], seen[1]
    );
    Ok(())
}

/// The bare client, without any lock logic.
struct Bare {
    slots: Arc<Mutex<VecDeque<oneshot::Sender<String>>>>,
    writer: OwnedWriteHalf,
}

impl Bare {
    async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut reader, writer) = stream.into_split();
        let slots: Arc<Mutex<VecDeque<oneshot::Sender<String>>>> = Arc::default();
        let waiting = slots.clone();
        tokio::spawn(async move {
            let mut inbox: Vec<u8> = Vec::with_capacity(16 << 10);
            while reader.read_buf(&mut inbox).await.is_ok_and(|read| read > 0) {
                let mut at = 0;
                while let Some(end) = inbox[at..].iter().position(|byte| *byte == b'\n') {
                    let said = String::from_utf8_lossy(&inbox[at..at + end]).into_owned();
                    at += end + 1;
                    let first = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    first.map(|slot| slot.send(said));
                }
                inbox.drain(..at);
            }
        });
        Ok(Self { slots, writer })
    }

    async fn ask(&self, request: &[u8]) -> Result<String> {
        let (answer, answered) = oneshot::channel();
        {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.push_back(answer);
            ensure!(self.writer.try_write(request)? == request.len(), "the socket is full");
        }
        Ok(tokio::time::timeout(Duration::from_secs(2), answered).await??)
    }

    /// The least a lock is made of: `add`, and a delete that compares.
    async fn cycle(&self, key: &str, value: &[u8]) -> Result<()> {
        let line = format!("ms {key} {} ME T32 c O1\r\n", value.len());
        let added = self.ask(&[line.as_bytes(), value, b"\r\n"].concat()).await?;
        let cas = added.strip_prefix("HD c").and_then(|rest| rest.split(' ').next());
        let cas: u64 = cas.with_context(|| added.clone())?.parse()?;
        let deleted = self.ask(format!("md {key} C{cas} O2\r\n").as_bytes()).await?;
        ensure!(deleted.starts_with("HD"), "{deleted}");
        Ok(())
    }
}

async fn lock(keeper: &Keeper, name: &str) -> Result<()> {
    Ok(keeper.lock(name).acquire().await?.release().await?)
}

async fn cycles(server: &Server) -> Result<()> {
    let keeper = lockkeeper::connect(&server.url()).await?;
    let bare = Arc::new(Bare::connect(&server.address()).await?);
    // As long as the value of a lock.
    let value: Arc<[u8]> = vec![b'x'; 150].into();
    // Interleaved; a round's ratio compares what followed at once, and the median counts.
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (rounds, tasks) in [(&mut one, 1), (&mut many, TASKS)] {
            let (client, text) = (bare.clone(), value.clone());
            let work = move |task: u32| {
                let (client, text) = (client.clone(), text.clone());
                async move { client.cycle(&format!("bare/{task}"), &text).await }
            };
            let bare = timed(tasks, CYCLES / tasks, work).await?;
            let client = keeper.clone();
            let work = move |task: u32| {
                let client = client.clone();
                async move { lock(&client, &format!("many/{task}")).await }
            };
            rounds.push((bare, timed(tasks, CYCLES / tasks, work).await?));
        }
    }
    for (what, rounds) in [("one task", one), ("16 tasks, 16 names", many)] {
        let median = |of: fn(&(Duration, Duration)) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[ROUNDS / 2]
        };
        println!(
            "acquire and release, {what}: {:.1} µs, bare {:.1} µs: {:.2} of bare (goal: 0.9)",
            median(|(_, ours)| ours.as_secs_f64() * 1e6),
            median(|(bare, _)| bare.as_secs_f64() * 1e6),
            median(|(bare, ours)| bare.as_secs_f64() / ours.as_secs_f64())
        );
    }
    Ok(())
}

/// What the server counted.
fn counted(server: &Server) -> Result<u64> {
    let said = line::ask(server.port(), "stats\r\nquit\r\n")?;
    let number = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok()).context("no such number")
    };
    Ok(number("STAT cmd_set ")? + number("STAT cmd_get ")?)
}

/// Requests per second while so many claims of one keeper wait for one name.
async fn requests(server: &Server, waiters: usize) -> Result<f64> {
    let (one, two) =
        (lockkeeper::connect(&server.url()).await?, lockkeeper::connect(&server.url()).await?);
    let name = format!("waited/{waiters}");
    let held = one.lock(&name).ttl(Duration::from_secs(120)).acquire().await?;
    let mut tasks = Vec::new();
    for _ in 0..waiters {
        let lock = two.lock(&name);
        tasks.push(tokio::spawn(async move { lock.acquire().await }));
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = counted(server)?;
    tokio::time::sleep(WINDOW).await;
    let after = counted(server)?;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    held.release().await?;
    let asked = u32::try_from(after - before)?;
    Ok(f64::from(asked) / WINDOW.as_secs_f64())
}
