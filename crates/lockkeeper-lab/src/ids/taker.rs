//! One process of a run: takes ids and writes them down until it is told to stop.

use super::TakeArguments;
use super::file::Log;
use super::scheme::{Opening, Source};
use crate::dice::Dice;
use crate::workload::now;
use anyhow::{Context, Result};
use lockkeeper::{Error, Keeper};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(20);
/// Written out at least so often, in nanoseconds.
const FLUSH: u64 = 10_000_000;
/// The largest batches: at leisure, and of a run that counts.
const BATCH: u64 = 500;
const LARGE_BATCH: u64 = 4_096;
/// What `/proc/uptime` is rounded down to, in nanoseconds.
const COARSE: u64 = 10_000_000;

/// Takes ids as the arguments say.
///
/// # Errors
/// When the file cannot be written, or the store's URL is wrong.
pub async fn take(arguments: TakeArguments) -> Result<()> {
    // If the driver is killed, this process must be killed too.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        stopped.store(true, Ordering::SeqCst);
    });
    let mut keepers = Vec::new();
    for store in arguments.stores.split_whitespace() {
        keepers.push(connect(store, &stop).await?);
    }
    let dice = Dice::new(arguments.seed);
    let log = Log::create(&arguments.file)?;
    let clock = Clock { faked: arguments.faked };
    let mut taker = Taker { arguments, keepers, dice, log, clock, flushed: 0, left: 0 };
    taker.left = taker.arguments.count.unwrap_or(u64::MAX);
    let outcome = taker.work(&stop).await;
    taker.log.flush()?;
    outcome
}

/// The store may be down when this process begins.
async fn connect(store: &str, stop: &AtomicBool) -> Result<Keeper> {
    loop {
        match lockkeeper::connect(store).await {
            Err(error) if error.is_retryable() && !stop.load(Ordering::SeqCst) => {
                tokio::time::sleep(PAUSE).await;
            }
            other => return other.context("the store cannot be used"),
        }
    }
}

/// The clock that all processes share, whatever clock this process is shown.
#[derive(Debug, Clone, Copy)]
struct Clock {
    faked: bool,
}

impl Clock {
    /// Not later than now.
    fn before(self) -> u64 {
        if self.faked { uptime() } else { now() }
    }

    /// Not earlier than now.
    fn after(self) -> u64 {
        if self.faked { uptime() + COARSE } else { now() }
    }
}

/// The kernel's own count, which no preloaded library changes.
fn uptime() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0);
    u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
struct Taker {
    arguments: TakeArguments,
    keepers: Vec<Keeper>,
    dice: Dice,
    log: Log,
    clock: Clock,
    flushed: u64,
    left: u64,
}

impl Taker {
    async fn work(&mut self, stop: &AtomicBool) -> Result<()> {
        let (mut floor, mut used) = (None, 0);
        while !stop.load(Ordering::SeqCst) && self.left > 0 {
            let Some(source) = self.open(floor).await? else {
                floor = self.floor(used);
                continue;
            };
            used = floor.unwrap_or(used);
            let mut lost = false;
            while !stop.load(Ordering::SeqCst) && self.left > 0 && !lost {
                let asked = self.clock.before();
                if let Err(error) = self.some(&source).await? {
                    lost = !error.is_retryable();
                    self.refused(asked, &error).await?;
                } else if self.arguments.count.is_none() {
                    let rest = if self.arguments.scheme.is_local() { 5_000 } else { 500 };
                    tokio::time::sleep(Duration::from_micros(self.dice.roll(rest))).await;
                }
            }
            if lost {
                floor = self.floor(used);
            } else if let Err(error) = source.close().await {
                self.refused(self.clock.before(), &error).await?;
            }
        }
        if self.left == 0 {
            self.log.done(self.clock.after())?;
        }
        Ok(())
    }

    async fn open(&mut self, floor: Option<u64>) -> Result<Option<Source>> {
        let asked = self.clock.before();
        let (scheme, window) = (self.arguments.scheme, self.arguments.window());
        let opening = Opening { scheme, window, floor, making: false };
        match opening.open(&self.keepers).await {
            Ok(source) => {
                self.log.opened(self.clock.before())?;
                Ok(Some(source))
            }
            Err(error) => {
                self.refused(asked, &error).await?;
                Ok(None)
            }
        }
    }

    /// What the owner of the key says, once it says something new: the driver writes it down. A floor that
    /// was used is not above what was used.
    fn floor(&self, used: u64) -> Option<u64> {
        let text = std::fs::read_to_string(&self.arguments.floor_file).unwrap_or_default();
        text.trim().parse().ok().filter(|floor| *floor > used)
    }

    /// Takes some ids, alone or in a batch, and writes them down.
    async fn some(&mut self, source: &Source) -> Result<Result<(), Error>> {
        let counting = self.arguments.count.is_some();
        let most = if counting { LARGE_BATCH } else { BATCH };
        let local = self.arguments.scheme.is_local();
        let most = if local { most } else { 20 };
        let alone = self.dice.roll(2) == 0;
        let count = (1 + self.dice.roll(most)).min(self.left);
        let asked = self.clock.before();
        let taken = if alone {
            singles(source, if local { count } else { 1 }).await
        } else {
            batch(source, count).await
        };
        let returned = self.clock.after();
        let (ids, error) = taken;
        self.left -= ids.len() as u64;
        if !ids.is_empty() {
            self.log.ids((asked, returned), ids.into_iter())?;
        }
        if returned > self.flushed + FLUSH {
            self.flushed = returned;
            self.log.flush()?;
        }
        Ok(error.map_or(Ok(()), Err))
    }

    async fn refused(&mut self, asked: u64, error: &Error) -> Result<()> {
        self.log.refused((asked, self.clock.after()), error)?;
        self.log.flush()?;
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

/// One after another. Those before an error were given.
async fn singles(source: &Source, count: u64) -> (Vec<u64>, Option<Error>) {
    let mut ids = Vec::new();
    for _ in 0..count {
        let next = match source.try_next() {
            Ok(Some(id)) => Ok(id),
            Ok(None) => source.next().await,
            Err(error) => Err(error),
        };
        match next {
            Ok(id) => ids.push(id.get()),
            Err(error) => return (ids, Some(error)),
        }
    }
    (ids, None)
}

async fn batch(source: &Source, count: u64) -> (Vec<u64>, Option<Error>) {
    match source.next_n(u32::try_from(count).unwrap_or(1)).await {
        Ok(ids) => (ids.into_iter().map(|id| id.get()).collect(), None),
        Err(error) => (Vec::new(), Some(error)),
    }
}
