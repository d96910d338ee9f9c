//! One runs, the other waits and goes on at once, and a third looks at both.

use super::{Line, Pane, Session};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const FIRST: &str = "lockkeeper run backup -- ./backup.sh";
const SECOND: &str = "lockkeeper run backup -- ./restore-test.sh";
const THIRD: &str = "lockkeeper ls";

/// What a person is to see before the next thing happens.
const READING: Duration = Duration::from_millis(1500);
/// How long anything may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs `program` in three terminals, and writes down what they show.
///
/// # Errors
/// When the program cannot be run, or does not do what the picture is to show.
pub fn record(program: &Path) -> Result<Session> {
    let folder = tempfile::tempdir()?;
    // It ends when it is told to, so that what is shown meanwhile does not depend on the machine.
    script(
        folder.path(),
        "backup.sh",
        "echo 'backup: begins'; read line < go; echo 'backup: done'",
    )?;
    script(folder.path(), "restore-test.sh", "echo 'restore test: begins'; read line < stop")?;
    for pipe in ["go", "stop"] {
        nix::unistd::mkfifo(&folder.path().join(pipe), nix::sys::stat::Mode::S_IRWXU)?;
    }
    let mut stage = Stage::new(program, folder.path())?;

    let mut first = stage.start(0, FIRST)?;
    stage.until(0, "backup: begins")?;
    stage.read();
    let mut second = stage.start(1, SECOND)?;
    stage.until(1, "place 1 in the queue")?;
    stage.read();
    stage.finish(2, THIRD)?;
    stage.read();
    std::fs::write(folder.path().join("go"), "\n")?;
    stage.until(0, "backup: done")?;
    stage.until(1, "restore test: begins")?;
    first.end()?;
    stage.read();
    stage.finish(2, THIRD)?;
    stage.read();
    let length_ms = stage.now();
    std::fs::write(folder.path().join("stop"), "\n")?;
    second.end()?;
    ensure!(stage.panes[2].lines.len() >= 6, "`ls` did not show the lock twice");
    Ok(Session { panes: stage.panes, length_ms })
}

fn script(folder: &Path, name: &str, text: &str) -> Result<()> {
    let file = folder.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{text}\n"))?;
    Ok(std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))?)
}

/// A process that is ended with the recording; what it runs dies with it.
struct Running(Child);

impl Running {
    fn end(&mut self) -> Result<ExitStatus> {
        Ok(self.0.wait()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Stage<'a> {
    folder: &'a Path,
    path: String,
    began: Instant,
    panes: Vec<Pane>,
    tell: Sender<(usize, String)>,
    told: Receiver<(usize, String)>,
}

impl<'a> Stage<'a> {
    fn new(program: &Path, folder: &'a Path) -> Result<Self> {
        let program = program.canonicalize().context("there is no such program")?;
        let place = program.parent().context("the program is in no folder")?;
        let path = format!("{}:{}", place.display(), std::env::var("PATH")?);
        let (tell, told) = channel();
        let panes = ["one terminal", "another", "and a third"]
            .map(|title| Pane { title: title.to_owned(), lines: Vec::new() });
        Ok(Self { folder, path, began: Instant::now(), panes: panes.into(), tell, told })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn read(&self) {
        std::thread::sleep(READING);
    }

    fn add(&mut self, pane: usize, typed: bool, text: String) {
        let at_ms = self.now();
        self.panes[pane].lines.push(Line { at_ms, typed, text });
    }

    fn start(&mut self, pane: usize, command: &str) -> Result<Running> {
        self.add(pane, true, command.to_owned());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command} 2>&1")]).current_dir(self.folder);
        shell.env("HOME", self.folder).env("PATH", &self.path);
        for (name, _) in std::env::vars() {
            if name.starts_with("LOCKKEEPER_") || name.starts_with("XDG_") {
                shell.env_remove(name);
            }
        }
        let mut child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("it has no output")?;
        let tell = self.tell.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send((pane, line));
            }
        });
        Ok(Running(child))
    }

    /// Runs a command to its end.
    fn finish(&mut self, pane: usize, command: &str) -> Result<()> {
        let status = self.start(pane, command)?.end()?;
        ensure!(status.success(), "{command} ended with {status}");
        // A line for the head, and one for the lock.
        for _ in 0..2 {
            self.next()?;
        }
        Ok(())
    }

    /// Waits until a line of `pane` contains `text`.
    fn until(&mut self, pane: usize, text: &str) -> Result<()> {
        let seen = |pane: &Pane| pane.lines.iter().any(|line| line.text.contains(text));
        while !seen(&self.panes[pane]) {
            self.next().with_context(|| format!("{text:?} never came"))?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let (pane, line) = self.told.recv_timeout(LONGEST)?;
        self.add(pane, false, line);
        Ok(())
    }
}
