//! The story's end of a client.

use super::scene::Scene;
use crate::history::What;
use crate::interop::Peer;
use crate::workload::Recorder;
use anyhow::{Result, bail};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a claim was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is held.
    Held,
    /// Somebody else holds it.
    Busy,
    /// The client gave up waiting.
    TimedOut,
    /// The client does not know; what it was told.
    Unknown(String),
}

/// A process that does what it is told.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    peer: Peer,
    recorder: Recorder,
    faults: Arc<AtomicU64>,
    pause: Option<u64>,
}

impl Client {
    /// Starts one, called `A` or so, at the store with this URL.
    pub(crate) fn start(scene: &Scene<'_>, name: &str, url: &str) -> Result<Self> {
        let mut command = Command::new(scene.program());
        command.arg("act").args(["--client", &lane(name)]);
        command.arg("--history").arg(scene.history());
        command.args(["--claims", &scene.claims(1000).to_string()]);
        command.args(["--resources", &scene.resources().to_string()]);
        Ok(Self {
            name: name.to_owned(),
            peer: Peer::start(command, url)?,
            recorder: scene.recorder(),
            faults: scene.faults(),
            pause: None,
        })
    }

    /// Asks for the lock, and waits for the answer.
    pub(crate) fn lock(&mut self, name: &str, ttl: Duration, limit: Duration) -> Result<Answer> {
        self.begin_lock(name, ttl, limit)?;
        self.answer()
    }

    /// Asks for the lock without waiting for the answer.
    pub(crate) fn begin_lock(&mut self, name: &str, ttl: Duration, limit: Duration) -> Result<()> {
        self.peer.tell(&format!("lock {name} {} {}", ttl.as_millis(), limit.as_millis()))
    }

    /// Asks once.
    pub(crate) fn try_lock(&mut self, name: &str, ttl: Duration) -> Result<Answer> {
        self.peer.tell(&format!("try {name} {}", ttl.as_millis()))?;
        self.answer()
    }

    /// The answer to an earlier question.
    pub(crate) fn answer(&mut self) -> Result<Answer> {
        let said = self.peer.hear()?;
        Ok(match said.split(' ').next() {
            Some("held") => Answer::Held,
            Some("busy") => Answer::Busy,
            Some("timed-out") => Answer::TimedOut,
            Some("unknown") => Answer::Unknown(said.replacen("unknown ", "", 1)),
            _ => bail!("{} says {said:?}", self.name),
        })
    }

    /// Whether the answer is still to come.
    pub(crate) fn still_waits(&mut self) -> bool {
        self.peer.must_be_silent().is_ok()
    }

    /// Gives the lock back; whether it still held it.
    pub(crate) fn release(&mut self) -> Result<bool> {
        self.begin_release()?;
        self.released()
    }

    /// Sends the release without waiting for its answer.
    pub(crate) fn begin_release(&mut self) -> Result<()> {
        self.peer.tell("release")
    }

    /// Waits for the answer to a release.
    pub(crate) fn released(&mut self) -> Result<bool> {
        Ok(self.peer.hear()? == "released")
    }

    /// Reads the resource.
    pub(crate) fn read(&mut self) -> Result<()> {
        self.peer.tell("read")?;
        self.peer.hear().map(drop)
    }

    /// Writes one more than it read; whether the resource took it.
    pub(crate) fn write(&mut self, fenced: bool) -> Result<bool> {
        self.begin_write(fenced)?;
        self.written()
    }

    /// Tells it to write, which a paused process does when it goes on.
    pub(crate) fn begin_write(&mut self, fenced: bool) -> Result<()> {
        self.peer.tell(if fenced { "write fenced" } else { "write plain" })
    }

    /// Waits until it has written.
    pub(crate) fn written(&mut self) -> Result<bool> {
        Ok(self.peer.hear()? == "accepted")
    }

    /// Kills the process, as a power cut would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let fault = self.begins("kill");
        self.peer.kill()?;
        self.ends(fault);
        Ok(())
    }

    /// Stops the process where it is.
    pub(crate) fn pause(&mut self) -> Result<()> {
        self.pause = Some(self.begins("pause"));
        self.peer.pause()
    }

    /// Lets it go on.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        self.peer.go_on()?;
        if let Some(fault) = self.pause.take() {
            self.ends(fault);
        }
        Ok(())
    }

    fn begins(&self, kind: &str) -> u64 {
        let fault = self.faults.fetch_add(1, Ordering::SeqCst);
        let what = What::FaultBegins { fault, kind: kind.to_owned(), process: self.name.clone() };
        self.recorder.note("lab", what);
        fault
    }

    fn ends(&self, fault: u64) {
        self.recorder.note("lab", What::FaultEnds { fault, hit: true });
    }
}

/// What a client is called in the history: faults are of processes, of which clients are a part.
pub(crate) fn lane(name: &str) -> String {
    format!("{name}/1")
}
