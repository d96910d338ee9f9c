//! The course of a run about ids: makes the key, starts processes, injects faults, collects.

use super::file::Log;
use super::judge::{self, Run, Taker};
use super::scheme::Opening;
use super::stage::{self, Stage};
use super::{IdsArguments, Report};
use crate::check::Verdict;
use crate::dice::Dice;
use crate::server::FakeClock;
use crate::workload::{Fault, Member, Needs, Strike, now};
use anyhow::{Context, Result, bail};
use lockkeeper::id::Order;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a process may take to get ids again after the faults, to end when told, or to take all the
/// ids of a run that counts.
const PATIENCE: Duration = Duration::from_secs(60);
const LONG_PATIENCE: Duration = Duration::from_secs(3600);
/// How long a generator waits for the store to confirm its worker number.
const WAIT: Duration = Duration::from_secs(2);
/// How long a loss may go unnoticed.
const NOTICE: Duration = Duration::from_secs(20);
/// Above what any run uses between two losses.
const FLOOR: u64 = 1_000_000_000_000;

struct Driver<'a> {
    arguments: &'a IdsArguments,
    stage: Stage,
    seed: u64,
    dice: Dice,
    members: Vec<(Member, Option<FakeClock>)>,
    started: u64,
    faults: BTreeMap<&'static str, usize>,
    losses: u64,
    /// Which server is broken next.
    turn: usize,
}

pub(super) fn run(arguments: &IdsArguments) -> Result<Report> {
    let seed = arguments.seed.unwrap_or_else(|| now() % 1_000_000);
    let faults = arguments.fault.iter().map(|fault| (fault.word(), 0)).collect();
    let mut driver = Driver {
        arguments,
        stage: Stage::set(arguments)?,
        seed,
        dice: Dice::new(seed),
        members: Vec::new(),
        started: 0,
        faults,
        losses: 0,
        turn: 0,
    };
    let order = driver.make_key()?;
    for _ in 0..arguments.processes {
        driver.start()?;
    }
    // A fault that comes before a process has begun is none of its ids.
    driver.await_ids(0)?;
    driver.break_things()?;
    let healed = now();
    driver.await_end(healed)?;
    driver.stop()?;
    let run = driver.collect(order, healed)?;
    let report = judge::judge(&run);
    print!("{report}");
    if report.verdict == Verdict::Pass && arguments.out.is_none() {
        stage::clear(&driver.stage.folder);
    } else {
        println!("files    {}", driver.stage.folder.display());
        println!("seed     {seed}");
    }
    Ok(report)
}

impl Driver<'_> {
    fn window(&self) -> Duration {
        Duration::from_millis(self.arguments.window_ms)
    }

    /// Makes the key: everyone else opens one that must be there. Its first id is of the run, too.
    fn make_key(&self) -> Result<Order> {
        let runtime = tokio::runtime::Runtime::new()?;
        let (scheme, window) = (self.arguments.kind, self.window());
        let mut log = Log::create(&self.stage.file(0))?;
        runtime.block_on(async {
            let mut keepers = Vec::new();
            for store in &self.stage.stores {
                keepers.push(lockkeeper::connect(store).await.context("the store cannot be used")?);
            }
            let opening = Opening { scheme, window, floor: None, making: true };
            let source = opening.open(&keepers).await?;
            let asked = now();
            if !scheme.is_leased() {
                let id = source.next().await?;
                log.ids((asked, now()), [id.get()].into_iter())?;
            }
            source.close().await?;
            log.flush()?;
            Ok(source.order())
        })
    }

    fn start(&mut self) -> Result<()> {
        self.started += 1;
        self.members.push(self.stage.start(self.arguments, self.started, self.seed)?);
        Ok(())
    }

    /// One fault after another; each kind once before any is repeated.
    fn break_things(&mut self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.arguments.seconds);
        let mut undone = Vec::new();
        let kinds = &self.arguments.fault;
        while Instant::now() < end {
            if kinds.is_empty() {
                sleep(Duration::from_millis(50));
                continue;
            }
            if undone.is_empty() {
                undone.clone_from(kinds);
            }
            let rest = self.dice.roll(u64::try_from(self.window().as_millis())?);
            sleep(self.window() / 2 + Duration::from_millis(rest));
            let choice = self.dice.roll(undone.len() as u64);
            self.strike(undone.swap_remove(usize::try_from(choice)?))?;
        }
        Ok(())
    }

    fn strike(&mut self, fault: Fault) -> Result<()> {
        let victim = usize::try_from(self.dice.roll(self.members.len() as u64))?;
        let (window, begin) = (self.window(), now());
        let cut_off = matches!(fault, Fault::Partition | Fault::ServerPause);
        // Until there is an error: a caller waits for a while whether the store is back.
        let refused = cut_off && self.arguments.kind.is_leased();
        let ttl = if refused { window + WAIT } else { window };
        let files: Vec<_> = (1..=self.started).map(|process| self.stage.file(process)).collect();
        let felt = || !refused || files.iter().any(|file| was_cut_off(file, begin));
        let strike = Strike { fault, ttl, dice: &mut self.dice, felt: &felt };
        let hit = match fault {
            Fault::Kill => {
                self.members[victim].0.signal(Signal::SIGKILL)?;
                drop(self.members.swap_remove(victim));
                self.start()?;
                true
            }
            Fault::ClockJump => {
                let (_, clock) = &self.members[victim];
                let clock = clock.as_ref().context("the process has no clock of its own")?;
                let by = (2 * window).as_secs_f64() * 10f64.powi(i32::try_from(self.dice.roll(3))?);
                clock.jump_to(if self.dice.roll(2) == 0 { by } else { -by })?;
                sleep(window + window / 2);
                clock.jump_to(0.0)?;
                true
            }
            _ if fault.needs() == Needs::Server => {
                self.turn = (self.turn + 1) % self.stage.servers.len().max(1);
                if fault == Fault::ServerRestartEmpty {
                    // What the owner said of the loss before is not true after this one.
                    let _ = std::fs::remove_file(self.stage.floor_file());
                }
                let server = self.stage.servers.get_mut(self.turn).context("there is no server")?;
                let hit = strike.at_server(server.as_mut())?;
                if fault == Fault::ServerRestartEmpty {
                    self.tell_floor(begin)?;
                }
                hit
            }
            _ => strike.at_member(&self.members[victim].0)?,
        };
        *self.faults.entry(fault.word()).or_default() += usize::from(hit);
        Ok(())
    }

    /// The owner of the key says what is above everything that was used; not before somebody noticed the
    /// loss, which those with ranges in stock do late.
    fn tell_floor(&mut self, begin: u64) -> Result<()> {
        let end = Instant::now() + NOTICE;
        loop {
            sleep(self.window() / 2);
            let takers = self.takers()?;
            let told = |taker: &Taker| {
                taker.refusals.iter().any(|it| it.at > begin && it.message.contains("has lost"))
            };
            let noticed = !self.arguments.kind.refuses_a_loss() || takers.iter().any(told);
            if noticed || Instant::now() > end {
                break;
            }
        }
        self.losses += 1;
        let new = self.stage.folder.join("floor.new");
        std::fs::write(&new, (self.losses * FLOOR).to_string())?;
        Ok(std::fs::rename(new, self.stage.floor_file())?)
    }

    fn takers(&self) -> Result<Vec<Taker>> {
        let takers = (0..=self.started).map(|process| {
            let name = process.to_string();
            let path = self.stage.file(process);
            let alive = self.members.iter().any(|(member, _)| member.process == name);
            if !path.exists() {
                // It has not begun, or was killed before.
                return Ok(Taker { process: name, alive, ..Taker::default() });
            }
            Ok(Taker { alive, ..judge::read(&name, &path)? })
        });
        takers.collect()
    }

    /// Waits until everyone got ids again, or all that were asked for; not for ever.
    fn await_end(&mut self, healed: u64) -> Result<()> {
        if self.arguments.count.is_none() {
            return self.await_ids(healed);
        }
        let end = Instant::now() + LONG_PATIENCE;
        while Instant::now() < end {
            sleep(Duration::from_millis(200));
            let mut all = true;
            for (member, _) in &mut self.members {
                all &= member.has_ended()?;
            }
            if all {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until everyone got ids that were asked for after that moment; not for ever.
    fn await_ids(&self, since: u64) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        let got =
            |taker: &Taker| taker.generators.iter().flatten().any(|piece| piece.asked > since);
        while Instant::now() < end {
            sleep(Duration::from_millis(200));
            if self.takers()?.iter().all(|taker| !taker.alive || got(taker)) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.members.iter_mut().for_each(|(member, _)| member.tell_to_stop());
        let end = Instant::now() + PATIENCE;
        for (member, _) in &mut self.members {
            while !member.has_ended()? {
                if Instant::now() > end {
                    bail!("process {} does not stop", member.process);
                }
                sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    fn collect(&self, order: Order, healed: u64) -> Result<Run> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(since.as_nanos())?.checked_sub(now());
        let faked = self.arguments.fault.contains(&Fault::ClockJump);
        Ok(Run {
            scheme: self.arguments.kind,
            strict: order == Order::Strict,
            takers: self.takers()?,
            faults: self.faults.clone(),
            healed,
            wall: wall.filter(|_| !faked),
            coarse: self.stage.coarse(),
            least: 200,
        })
    }
}

/// Whether the process of this file was told since then that the store cannot be reached.
fn was_cut_off(file: &Path, begin: u64) -> bool {
    // One that has not begun yet has no file.
    let taker = judge::read("", file).unwrap_or_default();
    taker.refusals.iter().any(|refusal| refusal.at > begin && refusal.kind == "Unavailable")
}
