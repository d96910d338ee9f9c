//! The course of a run: starts its members, injects faults, and collects what they recorded.

use super::breakable::Breakable;
use super::crew::Crew;
use super::fault::{Fault, Needs};
use super::member::Member;
use super::progress::Progress;
use super::recorder::Recorder;
use super::resource::Resources;
use super::strike::Strike;
use super::trial::Trial;
use super::worker::{Orders, Post};
use super::{PREFIX, saved};
use crate::check::Stalls;
use crate::dice::Dice;
use crate::history::{Record, What};
use anyhow::{Context, Result, bail};
use lockkeeper::backend::Capability;
use lockkeeper::{ErrorKind, Keeper};
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// What the driver calls itself in the history.
const DRIVER: &str = "driver";
/// The server's name in the history: no process has this name, so its faults affect all.
const SERVER: &str = "server";
/// How long a member may take to stop after it was told to.
const PARTING: Duration = Duration::from_secs(30);

/// The result of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// Everything that happened, in order.
    pub records: Vec<Record>,
    /// Where it was written.
    pub folder: PathBuf,
    /// The seed that reproduces the choices.
    pub seed: u64,
    /// Whether the store promises to grant in order of arrival.
    pub fair: bool,
    /// How long a name of the run may be free while someone waits for it.
    pub stalls: Stalls,
    /// What could not be inspected, one sentence each.
    pub remarks: Vec<String>,
}

pub(crate) fn run(
    trial: &Trial,
    crew: Crew,
    server: Option<Box<dyn Breakable>>,
    progress: Progress,
) -> Result<Run> {
    for fault in &trial.faults {
        crew.admits(*fault, server.is_some())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (capability, session) = runtime.block_on(try_out(&crew))?;
    // A store whose clock is coarse has a longer shortest ttl.
    let ttl = trial.ttl.max(capability.shortest_ttl);
    let trial = &Trial { ttl, healing: trial.healing.max(3 * ttl), ..trial.clone() };
    saved::make_room(&trial.out)?;
    let recorder = Recorder::append_to(&trial.out.join("driver.jsonl"))?;
    let mut driver = Driver {
        trial,
        crew,
        server,
        resources: Resources::open(recorder.clone())?,
        recorder,
        dice: Dice::new(trial.seed),
        members: Vec::new(),
        started: 0,
        progress,
        remarks: Vec::new(),
    };
    for _ in 0..trial.processes {
        driver.start_member()?;
    }
    driver.break_things()?;
    driver.recorder.note(DRIVER, What::Healed);
    sleep(trial.healing);
    driver.stop_members()?;
    driver.write_down_what_is_left(&runtime)?;
    let remarks = driver.remarks;
    let (records, folder) = (saved::load(&trial.out)?, trial.out.clone());
    // With these faults alone, every keeper and the store go on, and no release is lost.
    let harmless = !trial.faults.is_empty()
        && trial.faults.iter().all(|fault| matches!(fault, Fault::RuntimeEnd));
    let stalls = if harmless {
        Stalls::of_lost_releases(trial.ttl)
    } else {
        Stalls::beyond(trial.ttl + session)
    };
    Ok(Run { records, folder, seed: trial.seed, fair: capability.fair, stalls, remarks })
}

/// Tries the store once: a clear error now is better than the silence of every process later. Also
/// returns how long the store keeps the claims of a keeper that is gone, whatever their ttl.
async fn try_out(crew: &Crew) -> Result<(Capability, Duration)> {
    let unusable = "the store cannot be used: is it running, and is its URL right?";
    let keeper = Keeper::new(crew.backend().await.context(unusable)?)?;
    let lock = keeper.lock("lab-tries-the-store").ttl(Duration::from_secs(600));
    let tried = lock.try_acquire().await.context(unusable)?;
    // A store whose clock is coarse keeps a claim a little longer than its ttl.
    let mut session = keeper.capability().shortest_ttl;
    if let Some(guard) = tried {
        if keeper.capability().session {
            // A guard need not report its whole session as valid, but reports at least half of it.
            session = 2 * guard.remaining();
        }
        guard.release().await.context(unusable)?;
    }
    Ok((keeper.capability(), session))
}

struct Driver<'a> {
    trial: &'a Trial,
    crew: Crew,
    server: Option<Box<dyn Breakable>>,
    recorder: Recorder,
    resources: Resources,
    dice: Dice,
    members: Vec<Member>,
    started: u64,
    progress: Progress,
    remarks: Vec<String>,
}

impl Driver<'_> {
    fn start_member(&mut self) -> Result<()> {
        self.started += 1;
        let trial = self.trial;
        let post = Post {
            process: self.started.to_string(),
            number: self.started,
            resources: self.resources.address,
            orders: Orders {
                work: trial.work,
                clients: trial.clients,
                aside: if trial.faults.contains(&Fault::RuntimeEnd) { trial.clients } else { 0 },
                names: trial.names,
                ttl_ms: milliseconds(trial.ttl),
                toil_ms: milliseconds(trial.toil),
                seed: trial.seed,
            },
        };
        let networked = trial.faults.iter().any(|fault| fault.needs() == Needs::Network);
        self.members.push(self.crew.start(post, &trial.out, networked)?);
        Ok(())
    }

    /// Injects one fault after another, each while a member is at work under a lock.
    fn break_things(&mut self) -> Result<()> {
        let end = Instant::now() + self.trial.length;
        let kinds = &self.trial.faults;
        let (mut fault, mut undone) = (0, Vec::new());
        while Instant::now() < end {
            self.check_members()?;
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            let writes = self.resources.acknowledged();
            self.progress.say(&format!("{left:4} s left, {fault} faults, {writes} writes"));
            if kinds.is_empty() {
                sleep(Duration::from_millis(100).min(self.trial.length));
                continue;
            }
            // Each kind once before any is repeated: in a short run chance would leave some out.
            if undone.is_empty() {
                undone.clone_from(kinds);
            }
            let choice_of_kind = index(self.dice.roll(undone.len() as u64));
            let pause = self.trial.ttl / 3 + self.trial.ttl * choice(&mut self.dice, 7) / 10;
            sleep(pause);
            if let Some(victim) = self.someone_at_work() {
                fault += 1;
                self.strike(victim, undone.swap_remove(choice_of_kind), fault)?;
            }
        }
        let seconds = self.trial.length.as_secs_f32();
        self.progress.finish(&format!("{fault} faults in {seconds:.0} s"));
        Ok(())
    }

    /// A member that is between reading and writing at this moment.
    fn someone_at_work(&mut self) -> Option<usize> {
        let start = index(self.dice.roll(self.members.len() as u64));
        let patience = Instant::now() + Duration::from_secs(1);
        while Instant::now() < patience {
            for offset in 0..self.members.len() {
                let candidate = (start + offset) % self.members.len();
                if self.resources.is_inside(&self.members[candidate].process) {
                    return Some(candidate);
                }
            }
            sleep(Duration::from_micros(200));
        }
        None
    }

    fn strike(&mut self, victim: usize, kind: Fault, fault: u64) -> Result<()> {
        let process = self.members[victim].process.clone();
        let target = if kind.needs() == Needs::Server { SERVER } else { &process };
        // The work lasts as long as the fault, else it would be done before the fault has an
        // effect. Not so for forged messages: those take effect at hand-overs.
        let detains =
            matches!(kind.needs(), Needs::Network | Needs::Server) && kind != Fault::ForgedMessage;
        let detained = detains.then(|| self.resources.detain(&process));
        let (kind_word, target) = (kind.word().to_owned(), target.to_owned());
        self.recorder.note(DRIVER, What::FaultBegins { fault, kind: kind_word, process: target });
        let (ttl, felt) = (self.trial.ttl, &|| true);
        let strike = Strike { fault: kind, ttl, dice: &mut self.dice, felt };
        let hit = match (kind, &mut self.server) {
            (Fault::Kill | Fault::Stop, _) => {
                let signal = if kind == Fault::Kill { Signal::SIGKILL } else { Signal::SIGTERM };
                self.members[victim].signal(signal)?;
                drop(self.members.swap_remove(victim));
                self.start_member()?;
                true
            }
            (_, Some(server)) if kind.needs() == Needs::Server => {
                strike.at_server(server.as_mut())?
            }
            _ => strike.at_member(&self.members[victim])?,
        };
        self.recorder.note(DRIVER, What::FaultEnds { fault, hit });
        drop(detained);
        Ok(())
    }

    /// A member that ended by itself makes the run worthless.
    fn check_members(&mut self) -> Result<()> {
        for member in &mut self.members {
            if member.has_ended()? {
                bail!("process {} of the run ended by itself", member.process);
            }
        }
        Ok(())
    }

    fn stop_members(&mut self) -> Result<()> {
        self.members.iter_mut().for_each(Member::tell_to_stop);
        let patience = Instant::now() + PARTING;
        for member in &mut self.members {
            while !member.has_ended()? {
                if Instant::now() > patience {
                    bail!("process {} does not stop", member.process);
                }
                sleep(Duration::from_millis(5));
            }
        }
        self.members.clear();
        Ok(())
    }

    /// Records what the resources hold, and which claims are left when every claim must be over.
    fn write_down_what_is_left(&mut self, runtime: &Runtime) -> Result<()> {
        for ((name, fenced), cell) in self.resources.tally() {
            let (acknowledged, present) = (cell.acknowledged, cell.value);
            self.recorder.note(DRIVER, What::Tally { name, fenced, acknowledged, present });
        }
        let keeper = Keeper::new(runtime.block_on(self.crew.backend())?)?;
        let patience = Instant::now() + self.trial.ttl * 3;
        let left = loop {
            match runtime.block_on(keeper.list(PREFIX)) {
                Ok(left) if left.is_empty() || Instant::now() > patience => break left,
                Ok(_) => sleep(Duration::from_millis(20)),
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let remark = "leftovers were not looked for: this store lists nothing";
                    self.remarks.push(remark.to_owned());
                    break Vec::new();
                }
                Err(error) => return Err(error).context("cannot see what is left in the store"),
            }
        };
        for view in left {
            self.recorder.note(DRIVER, What::Leftover { name: view.name.to_string() });
        }
        Ok(())
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn choice(dice: &mut Dice, of: u32) -> u32 {
    u32::try_from(dice.roll(of.into())).unwrap_or(0)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
