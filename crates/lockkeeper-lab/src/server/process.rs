//! One process with all its children.

use super::home::Home;
use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LAUNCH: &str = include_str!("launch.sh");
/// Long enough for a busy machine, and the longest that a test should wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const GLANCE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    pid_file: PathBuf,
    /// Keeps the warden, and with it the folder, as long as the process.
    _home: Arc<Home>,
}

impl Process {
    /// Starts a command in a folder; its log goes there too.
    pub(crate) fn launch(home: &Arc<Home>, folder: &Path, words: &[OsString]) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log_of(folder))?;
        let pid_file = folder.join("pid");
        let child = Command::new("/bin/sh")
            .args(["-c", LAUNCH, "launch"])
            .arg(&pid_file)
            .arg(home.marker())
            .args(words)
            .current_dir(folder)
            // The caller's environment must not change what a server does.
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", folder)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {words:?}"))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        Ok(Self { child, pid, pid_file, _home: Arc::clone(home) })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub(crate) fn pause(&self) {
        freeze(self.pid);
    }

    pub(crate) fn resume(&self) {
        thaw(self.pid);
    }

    /// Kills it and its children.
    pub(crate) fn kill(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let all = freeze(self.pid);
            for pid in &all {
                signal(*pid, Signal::SIGKILL);
            }
            let _ = self.child.wait();
            // They are init's children now, and use data and ports until they are gone.
            let end = Instant::now() + PATIENCE;
            while all.iter().any(|pid| state(*pid).is_some()) && Instant::now() < end {
                sleep(Duration::from_millis(1));
            }
        }
        let _ = std::fs::remove_file(&self.pid_file);
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&mut self, by: Signal) -> Result<()> {
        self.resume();
        signal(self.pid, by);
        self.wait(Duration::from_secs(20))?;
        Ok(())
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended()? {
                let _ = std::fs::remove_file(&self.pid_file);
                return Ok(status);
            }
            if Instant::now() > end {
                bail!("process {} does not end", self.pid);
            }
            sleep(GLANCE);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn log_of(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// Runs a command that prepares something; the warden watches it like a server.
pub(crate) fn run(home: &Arc<Home>, folder: &Path, words: &[OsString]) -> Result<()> {
    let status = Process::launch(home, folder, words)?.wait(PATIENCE)?;
    if !status.success() {
        let log = std::fs::read_to_string(log_of(folder)).unwrap_or_default();
        bail!("{words:?} failed ({status}):\n{log}");
    }
    Ok(())
}

/// Stops a process and then its children, recursively: so no child can be forked unseen.
fn freeze(pid: Pid) -> Vec<Pid> {
    signal(pid, Signal::SIGSTOP);
    let end = Instant::now() + Duration::from_secs(1);
    while state(pid).is_some_and(|state| state != 'T') && Instant::now() < end {
        sleep(Duration::from_micros(200));
    }
    let mut all = vec![pid];
    for child in children(pid) {
        all.extend(freeze(child));
    }
    all
}

fn thaw(pid: Pid) {
    for child in children(pid) {
        thaw(child);
    }
    signal(pid, Signal::SIGCONT);
}

fn children(pid: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let lists = threads
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .map(Pid::from_raw)
        .collect()
}

/// The kernel's letter for the process state; `None` if the process has ended.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next().filter(|state| !['Z', 'X'].contains(state))
}

fn signal(pid: Pid, signal: Signal) {
    match kill(pid, signal) {
        // The process may end at any time.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => eprintln!("cannot send {signal} to {pid}: {error}"),
    }
}
