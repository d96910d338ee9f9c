//! A separate clock for one server, by `libfaketime`.

use super::faults::Unsupported;
use super::program::Clock;
use super::tool::FAKETIME;
use anyhow::Result;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The wall clock that a server sees. Its monotonic clock stays true: if that were faked too, the
/// server's own timers would hang after a jump back, which is a different fault.
#[derive(Debug)]
pub(crate) struct FakeClock {
    file: PathBuf,
    preload: OsString,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    started: Instant,
    /// Seconds ahead of the true clock at the server's start.
    offset: f64,
    rate: f64,
}

impl State {
    /// Seconds ahead of the true clock now.
    fn ahead(&self) -> f64 {
        self.offset + self.started.elapsed().as_secs_f64() * (self.rate - 1.0)
    }

    /// The library counts a rate from the start of the process, so changing only the rate would
    /// make the clock jump.
    fn set(&mut self, ahead: f64, rate: f64) {
        self.offset = ahead - self.started.elapsed().as_secs_f64() * (rate - 1.0);
        self.rate = rate;
    }
}

impl FakeClock {
    pub(crate) fn new(name: &str, clock: Clock, folder: &Path) -> Result<Self> {
        let library = FAKETIME.path()?;
        let preload = match clock {
            Clock::Preload => library.into_os_string(),
            Clock::PreloadBeforeLibc => {
                let libc = library.parent().and_then(Path::parent).map(|lib| lib.join("libc.so.6"));
                let Some(libc) = libc.filter(|file| file.exists()) else {
                    return Err(Unsupported::new("there is no libc.so.6 beside libfaketime").into());
                };
                let mut both = library.into_os_string();
                both.push(":");
                both.push(libc);
                both
            }
            Clock::Unsupported(why) => {
                return Err(
                    Unsupported::new(format!("the clock of {name} cannot be set: {why}")).into()
                );
            }
        };
        let state = State { started: Instant::now(), offset: 0.0, rate: 1.0 };
        let clock = Self { file: folder.join("clock"), preload, state: Mutex::new(state) };
        clock.change(|_| {})?;
        Ok(clock)
    }

    /// The command with the library preloaded. Only the server itself gets it.
    pub(crate) fn wrap(&self, words: Vec<OsString>) -> Vec<OsString> {
        let variable = |name: &str, value: &OsString| {
            let mut both = OsString::from(name);
            both.push("=");
            both.push(value);
            both
        };
        let mut all = vec![
            OsString::from("env"),
            variable("LD_PRELOAD", &self.preload),
            variable("FAKETIME_TIMESTAMP_FILE", &self.file.clone().into_os_string()),
            OsString::from("FAKETIME_NO_CACHE=1"),
            OsString::from("FAKETIME_DONT_FAKE_MONOTONIC=1"),
        ];
        all.extend(words);
        all
    }

    /// What shows this clock to a process that we start ourselves; its monotonic clock too, if asked for.
    pub(crate) fn environment(&self, monotonic: bool) -> Vec<(&'static str, OsString)> {
        let mut all = vec![
            ("LD_PRELOAD", self.preload.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone().into_os_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
        ];
        if !monotonic {
            all.push(("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()));
        }
        all
    }

    /// A new process counts its rate from now on; its current offset is kept.
    pub(crate) fn started(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (ahead, rate) = (state.ahead(), state.rate);
        state.started = Instant::now();
        state.set(ahead, rate);
    }

    pub(crate) fn jump_to(&self, ahead: f64) -> Result<()> {
        self.change(|state| state.set(ahead, state.rate))
    }

    pub(crate) fn run_at(&self, rate: f64) -> Result<()> {
        self.change(|state| state.set(state.ahead(), rate))
    }

    fn change(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        // Renamed into place: the server reads the file every time it reads its clock.
        let new = self.file.with_extension("new");
        let rate = if (state.rate - 1.0).abs() > 1e-9 {
            format!(" x{}", state.rate)
        } else {
            String::new()
        };
        std::fs::write(&new, format!("{:+.3}{rate}\n", state.offset))?;
        std::fs::rename(&new, &self.file)?;
        Ok(())
    }
}
