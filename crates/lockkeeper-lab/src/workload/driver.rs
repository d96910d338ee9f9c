//! Starts the processes of a run, breaks some of them, and collects what they wrote down.

use super::recorder::{Recorder, now};
use super::resource::Resources;
use super::{Fault, PREFIX, RunArguments, TTL};
use crate::dice::Dice;
use crate::history::{self, Record, What};
use anyhow::{Context, Result, bail};
use lockkeeper::backend::Reach;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the driver calls itself in the history.
const DRIVER: &str = "driver";
/// How long everyone must get his turn after the last fault.
const HEALING: Duration = Duration::from_secs(4);
/// How long a process that was told to stop may take.
const PARTING: Duration = Duration::from_secs(30);

/// A run that is over.
#[derive(Debug)]
pub struct Run {
    /// Everything that happened, in order.
    pub records: Vec<Record>,
    /// Where it was written.
    pub folder: PathBuf,
    /// The choices can be repeated with this.
    pub seed: u64,
    /// Whether the store promises to grant in order.
    pub fair: bool,
}

/// Runs the processes with their faults, and returns the history.
///
/// # Errors
/// When a process cannot be started or the history not be written.
pub fn run(arguments: &RunArguments) -> Result<Run> {
    let capability = lockkeeper::blocking::connect(&arguments.store)?.capability();
    if capability.reach == Reach::Process {
        bail!("a store that reaches no further than one process is not shared by those of a run");
    }
    let seed = arguments.seed.unwrap_or_else(|| now() % 1_000_000);
    let folder = match &arguments.out {
        Some(folder) => folder.clone(),
        None => std::env::temp_dir().join(format!("lockkeeper-lab-{}", std::process::id())),
    };
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let recorder = Recorder::append_to(&folder.join("driver.jsonl"))?;
    let resources = Resources::open(recorder.clone())?;
    let mut driver = Driver {
        arguments,
        folder: folder.clone(),
        recorder,
        resources,
        dice: Dice::new(seed),
        workers: Vec::new(),
        started: 0,
        seed,
    };
    for _ in 0..arguments.processes {
        driver.start_worker()?;
    }
    driver.break_things()?;
    driver.recorder.note(DRIVER, What::Healed);
    sleep(HEALING);
    driver.stop_workers()?;
    driver.write_down_what_is_left()?;
    Ok(Run { records: load(&folder)?, folder, seed, fair: capability.fair })
}

struct Driver<'a> {
    arguments: &'a RunArguments,
    folder: PathBuf,
    recorder: Recorder,
    resources: Resources,
    dice: Dice,
    workers: Vec<Worker>,
    started: u64,
    seed: u64,
}

struct Worker {
    process: String,
    child: Child,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Already gone, in a run that went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("no such process id")?;
        kill(Pid::from_raw(pid), signal).context("cannot signal a process of the run")
    }
}

impl Driver<'_> {
    fn start_worker(&mut self) -> Result<()> {
        self.started += 1;
        let process = self.started.to_string();
        let child = Command::new(std::env::current_exe()?)
            .arg("work")
            .args(["--store", &self.arguments.store, "--process", &process])
            .args(["--number", &process, "--clients", &self.arguments.clients.to_string()])
            .args(["--names", &self.arguments.names.to_string()])
            .args(["--work", word_of(self.arguments.work), "--seed", &self.seed.to_string()])
            .arg("--history")
            .arg(self.folder.join(format!("process-{process}.jsonl")))
            .args(["--resources", &self.resources.address.to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start a process of the run")?;
        self.workers.push(Worker { process, child });
        Ok(())
    }

    /// One fault after another, each at a process that is just then at work under a lock.
    fn break_things(&mut self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.arguments.seconds);
        let mut fault = 0;
        while Instant::now() < end {
            self.check_workers()?;
            if std::io::stdout().is_terminal() {
                let left = end.saturating_duration_since(Instant::now()).as_secs();
                print!("\r{left:4} s left, {fault} faults ");
                std::io::stdout().flush()?;
            }
            let kinds = &self.arguments.fault;
            if kinds.is_empty() {
                sleep(Duration::from_millis(200));
                continue;
            }
            let kind = kinds[index(self.dice.roll(kinds.len() as u64))];
            sleep(Duration::from_millis(300 + self.dice.roll(700)));
            if let Some(victim) = self.someone_at_work() {
                fault += 1;
                self.strike(victim, kind, fault)?;
            }
        }
        if std::io::stdout().is_terminal() {
            print!("\r");
        }
        println!("{fault} faults in {} s           ", self.arguments.seconds);
        Ok(())
    }

    /// A process that is between reading and writing at this moment.
    fn someone_at_work(&mut self) -> Option<usize> {
        let start = index(self.dice.roll(self.workers.len() as u64));
        let patience = Instant::now() + Duration::from_secs(1);
        while Instant::now() < patience {
            for offset in 0..self.workers.len() {
                let candidate = (start + offset) % self.workers.len();
                if self.resources.is_inside(&self.workers[candidate].process) {
                    return Some(candidate);
                }
            }
            sleep(Duration::from_micros(200));
        }
        None
    }

    fn strike(&mut self, victim: usize, kind: Fault, fault: u64) -> Result<()> {
        let process = self.workers[victim].process.clone();
        let kind_word = kind.word().to_owned();
        self.recorder.note(DRIVER, What::FaultBegins { fault, kind: kind_word, process });
        match kind {
            Fault::Kill => {
                self.workers[victim].signal(Signal::SIGKILL)?;
                let killed = self.workers.swap_remove(victim);
                drop(killed);
                self.start_worker()?;
            }
            Fault::Pause => {
                self.workers[victim].signal(Signal::SIGSTOP)?;
                let beyond = TTL + TTL / 4;
                sleep(beyond + Duration::from_millis(self.dice.roll(800)));
                self.workers[victim].signal(Signal::SIGCONT)?;
            }
        }
        self.recorder.note(DRIVER, What::FaultEnds { fault });
        Ok(())
    }

    /// A process that ended by itself makes the run worthless.
    fn check_workers(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            if let Some(status) = worker.child.try_wait()? {
                bail!("process {} of the run ended by itself: {status}", worker.process);
            }
        }
        Ok(())
    }

    fn stop_workers(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            drop(worker.child.stdin.take());
        }
        let patience = Instant::now() + PARTING;
        for worker in &mut self.workers {
            let status = loop {
                if let Some(status) = worker.child.try_wait()? {
                    break status;
                }
                if Instant::now() > patience {
                    bail!("process {} does not stop", worker.process);
                }
                sleep(Duration::from_millis(5));
            };
            if !status.success() {
                bail!("process {} of the run failed: {status}", worker.process);
            }
        }
        self.workers.clear();
        Ok(())
    }

    /// What the resources hold, and what is left in the store when every claim must be over.
    fn write_down_what_is_left(&self) -> Result<()> {
        for ((name, fenced), cell) in self.resources.tally() {
            let (acknowledged, present) = (cell.acknowledged, cell.value);
            self.recorder.note(DRIVER, What::Tally { name, fenced, acknowledged, present });
        }
        let keeper = lockkeeper::blocking::connect(&self.arguments.store)?;
        let patience = Instant::now() + TTL * 3;
        let left = loop {
            let left = keeper.list(PREFIX)?;
            if left.is_empty() || Instant::now() > patience {
                break left;
            }
            sleep(Duration::from_millis(20));
        };
        for view in left {
            self.recorder.note(DRIVER, What::Leftover { name: view.name.to_string() });
        }
        Ok(())
    }
}

/// The lines of one process. The last one may have been cut short by a kill.
fn read_part(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    history::read(BufReader::new(&text[..whole]))
        .with_context(|| format!("{} is no history", path.display()))
}

/// Reads a saved history: a file, or a folder of them.
///
/// # Errors
/// When it cannot be read, or is none.
pub fn load(path: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                records.extend(read_part(&path)?);
            }
        }
    } else {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        records = history::read(BufReader::new(file))
            .with_context(|| format!("{} is no history", path.display()))?;
    }
    records.sort_by_key(|record| record.at);
    Ok(records)
}

fn word_of(work: super::Work) -> &'static str {
    match work {
        super::Work::Lock => "lock",
        super::Work::Rw => "rw",
        super::Work::Permits => "permits",
        super::Work::Cancel => "cancel",
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
