//! Short bursts of two kinds of work in turn, and the median of the ratios.
//!
//! A burst counts only if its threads had their cores for as long as they wanted them, and began together:
//! bursts last microseconds, and one turn of another process is a thousand of them. A thread that sleeps
//! of its own accord, as those of a library do that wait for a mutex, is not interrupted.

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bursts of each side at the most, and how long they may take.
const ROUNDS: u32 = 600;
const LIMIT: Duration = Duration::from_secs(6);

/// Fewer rounds than this tell nothing.
const ENOUGH: usize = 25;

/// What share of the time a thread must have had its core, if it did not sleep.
const HELD: f64 = 0.97;

/// Takes so many ids on one of the threads, and returns how many there were.
pub(crate) type Work<'a> = &'a (dyn Fn(u64) -> u64 + Sync);

/// How bursts are made.
#[derive(Clone, Copy)]
pub(crate) struct Bursts {
    pub(crate) threads: u32,
    /// Ids of each burst, of all threads together.
    pub(crate) ids: u64,
    /// Between two bursts.
    pub(crate) pause: Duration,
}

/// What the ratio should be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    Below(f64),
    /// Nanoseconds of ours, whatever the others take.
    Nanos(f64),
    None,
}

/// One thread's part of one burst.
#[derive(Clone, Copy)]
struct Part {
    begin: Instant,
    end: Instant,
    good: bool,
}

/// Lets both take turns, and prints how long an id takes.
pub(crate) fn compare(what: &str, bursts: Bursts, ours: Work<'_>, theirs: Work<'_>, goal: Goal) {
    let parts = run(bursts, [ours, theirs]);
    let rounds = parts.iter().map(Vec::len).min().unwrap_or(0) / 2;
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 5..rounds {
        let side = |side: usize| nanos(&parts, round * 2 + side, bursts);
        let (Some(first), Some(second)) = (side(0), side(1)) else { continue };
        // Each second round began with the other side.
        let (ours, theirs) = if round % 2 == 0 { (first, second) } else { (second, first) };
        times[0].push(ours);
        times[1].push(theirs);
        ratios.push(ours / theirs);
    }
    let good = ratios.len();
    if good < ENOUGH {
        println!("{what:<58} unknown: {good} of {rounds} rounds had the machine to themselves");
        return;
    }
    let [ours, theirs] = times.map(median);
    let ratio = median(ratios);
    let verdict = |kept: bool| if kept { "kept" } else { "MISSED" };
    let goal = match goal {
        Goal::AtMost(most) => format!("<= {most:<5} {}", verdict(ratio <= most)),
        Goal::Below(most) => format!("<  {most:<5} {}", verdict(ratio < most)),
        Goal::Nanos(most) => format!("<= {most} ns  {}", verdict(ours <= most)),
        Goal::None => String::new(),
    };
    println!("{what:<58} {ours:>9.2} {theirs:>9.2} {ratio:>6.2} {goal} ({good} rounds)");
}

/// The time of an id in one burst, if the burst counts.
fn nanos(parts: &[Vec<Part>], burst: usize, bursts: Bursts) -> Option<f64> {
    let of_burst: Vec<Part> = parts.iter().map(|thread| thread[burst]).collect();
    if of_burst.iter().any(|part| !part.good) {
        return None;
    }
    let first = of_burst.iter().map(|part| part.begin).min()?;
    let last_begin = of_burst.iter().map(|part| part.begin).max()?;
    let end = of_burst.iter().map(|part| part.end).max()?;
    let took = (end - first).as_secs_f64();
    let together = (last_begin - first).as_secs_f64() < took * 0.1;
    together.then(|| took * 1e9 / bursts.ids as f64)
}

fn run(bursts: Bursts, sides: [Work<'_>; 2]) -> Vec<Vec<Part>> {
    let (arrived, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (begin, threads) = (Instant::now(), u64::from(bursts.threads));
    let each = bursts.ids / threads;
    let all = Mutex::new(Vec::new());
    let thread = |number: u32| {
        let mut parts = Vec::new();
        for burst in 0..ROUNDS * 2 {
            let (round, second) = (burst / 2, burst % 2);
            let work = sides[((round + second) % 2) as usize];
            let wait = Instant::now() + bursts.pause;
            while Instant::now() < wait {
                std::hint::spin_loop();
            }
            if number == 0 && begin.elapsed() > LIMIT {
                stop.store(true, Ordering::Relaxed);
            }
            let (before, cpu, wall) = (switches(), cpu(), Instant::now());
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < threads * (u64::from(burst) + 1) {
                std::hint::spin_loop();
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let begin = Instant::now();
            let got = work(each);
            let end = Instant::now();
            let held = (self::cpu() - cpu).as_secs_f64() / wall.elapsed().as_secs_f64();
            let after = switches();
            let undisturbed = after.0 == before.0 && (held > HELD || after.1 > before.1);
            parts.push(Part { begin, end, good: undisturbed && got == each });
        }
        all.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(parts);
    };
    std::thread::scope(|scope| {
        for number in 0..bursts.threads {
            let thread = &thread;
            scope.spawn(move || thread(number));
        }
    });
    all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What this thread had of a core.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// How often this thread lost its core to another, and how often it gave it up.
fn switches() -> (i64, i64) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    let counts =
        |usage: Usage| (usage.involuntary_context_switches(), usage.voluntary_context_switches());
    usage.map(counts).unwrap_or_default()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
