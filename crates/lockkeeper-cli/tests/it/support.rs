//! A private store for each test, and processes that do not outlive it.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// Long enough for a busy machine; no test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    dir: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path as text, to put into a script.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.file("locks.db"))
    }

    /// `lockkeeper WORDS…`, with this world's store.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = lockkeeper(words);
        command.env("LOCKKEEPER_STORE", self.store());
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The exit code of `lockkeeper WORDS…`.
    pub(crate) fn code(&self, words: &[&str]) -> i32 {
        code(&self.output(words))
    }

    /// Starts `lockkeeper WORDS…`.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        let mut command = self.command(words);
        Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Starts `lockkeeper run OPTIONS NAME` with a command that stays, and waits until it runs.
    pub(crate) fn holder(&self, options: &[&str], name: &str) -> Running {
        let script = format!(
            "echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600",
            pid = self.file("pid")
        );
        let words = [&["run"], options, &[name, "--", "sh", "-c", &script]].concat();
        // That of a holder before says nothing of this one.
        let _ = std::fs::remove_file(self.path("pid"));
        let running = self.start(&words);
        eventually("the command runs", || self.path("pid").exists());
        running
    }

    /// The number a command wrote to `pid`.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.read("pid").trim().parse().unwrap())
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn show(&self, name: &str) -> Value {
        let output = self.output(&["show", "--json", name]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    pub(crate) fn waiters(&self, name: &str) -> usize {
        self.show(name)["waiters"].as_array().unwrap().len()
    }

    pub(crate) fn token(&self, name: &str) -> String {
        self.show(name)["holders"][0]["token"].to_string()
    }
}

/// The program, not influenced by the environment of the tests.
pub(crate) fn lockkeeper(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    for name in ["STORE", "NAME", "TOKEN", "MODE", "OWNER"] {
        command.env_remove(format!("LOCKKEEPER_{name}"));
    }
    command.env_remove("LOCKKEEPER_CONFIG").env("XDG_CONFIG_HOME", "/nonexistent");
    for name in ["RUST_LOG", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.args(words).stdin(Stdio::null());
    command
}

/// A process that is killed, with what it runs, when its test ends early.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let pid = i32::try_from(self.child().id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("lockkeeper ends", || {
            status = self.child().try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Waits for the end, for what was printed.
    pub(crate) fn finish(mut self) -> Output {
        self.wait();
        let child = self.0.take().unwrap();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(child.wait_with_output()));
        told.recv_timeout(PATIENCE).expect("something it started lives on").unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Polls until it is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    lockkeeper_lab::trials::eventually_so(what, || Ok(is_so()));
}

/// What a process does, as `ps` has it; `None` when there is none.
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim().chars().next()
}

/// Whether a process is there and not only waiting to be reaped.
pub(crate) fn is_alive(pid: Pid) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Whether the tests themselves were started with this signal ignored, as by `nohup`: then so is
/// everything they start.
pub(crate) fn is_ignored_here(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal as i32 - 1) & 1 == 1
}

pub(crate) fn children_of(parent: u32) -> Vec<Pid> {
    let wanted = format!("PPid:\t{parent}\n");
    let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let number: i32 = entry.unwrap().file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
        status.contains(&wanted).then_some(Pid::from_raw(number))
    });
    numbers.collect()
}

#[track_caller]
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("died of a signal: {output:?}"))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
