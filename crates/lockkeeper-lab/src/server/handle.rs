//! A running server.

use super::clock::FakeClock;
use super::disk::Disk;
use super::place::Place;
use super::ports::{PortTaken, listens};
use super::process::{GLANCE, PATIENCE, Process, log_of};
use super::program::Program;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How many lines of a log are shown.
const TAIL: usize = 30;

/// A running server, which can be broken and repaired; it ends when dropped.
///
/// If it is dropped during a panic, it prints the end of its log.
#[derive(Debug)]
pub struct Server {
    pub(crate) program: Box<dyn Program>,
    pub(crate) place: Place,
    pub(crate) process: Mutex<Option<Process>>,
    pub(crate) clock: Option<FakeClock>,
    pub(crate) disk: Option<Disk>,
}

impl Server {
    pub(crate) fn launch(
        program: Box<dyn Program>,
        place: Place,
        with_clock: bool,
        disk: Option<Disk>,
    ) -> Result<Self> {
        let clock = if with_clock {
            Some(FakeClock::new(program.name(), program.clock(), &place.folder)?)
        } else {
            None
        };
        let server = Self { program, place, process: Mutex::new(None), clock, disk };
        server.start_process()?;
        Ok(server)
    }

    /// The program's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.program.name()
    }

    /// Its URL as a store.
    #[must_use]
    pub fn url(&self) -> String {
        self.program.url(&self.place)
    }

    /// The port that clients use. It stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.place.port()
    }

    /// `127.0.0.1` and the port.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Its folder, ports and user.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The folder with its log and, unless it was put elsewhere, its data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.place.folder()
    }

    /// The process id, while there is a process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().and_then(|process| process.pid().as_raw().try_into().ok())
    }

    /// Its whole log.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(log_of(self.folder())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends it one request of its protocol.
    ///
    /// # Errors
    /// When there is no answer within a second or so, or not the answer of a server that is ready.
    pub fn answers(&self) -> Result<()> {
        let process = self.process();
        let Some(process) = &*process else { bail!("{} is not running", self.name()) };
        let absent = self.program.listens_on(&self.place);
        if let Some(port) = absent.into_iter().find(|port| !listens(process.pid(), *port)) {
            bail!("{} does not listen on port {port}", self.name());
        }
        self.program.ask(&self.place)
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// When it ends instead, or takes a minute; the error contains the end of its log.
    pub fn await_answer(&self) -> Result<()> {
        let begin = Instant::now();
        let mut looked_at_log = begin;
        loop {
            let Err(error) = self.answers() else { return Ok(()) };
            let ended = match &mut *self.process() {
                Some(process) => process.ended()?,
                None => bail!("{} is not running", self.name()),
            };
            if ended.is_some() || looked_at_log.elapsed() > Duration::from_secs(1) {
                looked_at_log = Instant::now();
                // Some servers do not exit when the port is taken, but retry for longer than we
                // want to wait.
                if self.since_start().to_lowercase().contains("address already in use") {
                    return Err(PortTaken(self.name().to_owned()).into());
                }
            }
            if let Some(status) = ended {
                bail!("{} ended at its start ({status})\n{}", self.name(), self.tail());
            }
            if begin.elapsed() > PATIENCE {
                return Err(error.context(format!(
                    "{} does not answer after {PATIENCE:.0?}\n{}",
                    self.name(),
                    self.tail()
                )));
            }
            sleep(GLANCE);
        }
    }

    pub(crate) fn start_process(&self) -> Result<()> {
        let words = self.program.command(&self.place)?;
        let words = match &self.clock {
            Some(clock) => clock.wrap(words),
            None => words,
        };
        let words = self.place.as_user(words)?;
        let mark = self.log().len();
        std::fs::write(self.folder().join("log-mark"), mark.to_string())?;
        let process = Process::launch(&self.place.home, self.folder(), &words)
            .with_context(|| format!("cannot start {}", self.name()))?;
        if let Some(clock) = &self.clock {
            clock.started();
        }
        *self.process() = Some(process);
        Ok(())
    }

    pub(crate) fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its log since the last start.
    fn since_start(&self) -> String {
        let mark = std::fs::read_to_string(self.folder().join("log-mark")).unwrap_or_default();
        let log = self.log();
        log.get(mark.parse().unwrap_or(0)..).unwrap_or(&log).to_owned()
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(TAIL)..];
        format!(
            "-- the end of the log of {} ({})\n{}",
            self.name(),
            self.address(),
            shown.join("\n")
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
        self.let_disk_go_on();
        *self.process() = None;
        self.disk = None;
        // The warden would remove it at the end; a long run should not fill the disk until then.
        let _ = std::fs::remove_dir_all(self.folder());
    }
}
