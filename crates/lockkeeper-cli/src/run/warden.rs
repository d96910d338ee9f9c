//! A process that waits for our death, to end what the command started.
//!
//! The kernel kills the command itself when we are killed, but not its children: those of a
//! `sh -c` would work on without a lock. The warden has the reading end of a pipe that only we
//! can write to, so it learns of our death whatever its cause.

use super::shim;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

const VERB: &str = "--warden";
const DISMISSED: &str = "dismissed";

pub(crate) struct Warden(Child);

impl Warden {
    pub(crate) fn start() -> std::io::Result<Self> {
        // In a group of its own, so that what is meant for ours does not end it; with nothing of
        // ours open, so that nobody waits for it.
        shim::ourselves()
            .arg(VERB)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map(Self)
    }

    /// Says which group to end.
    pub(crate) fn watch_over(&mut self, group: Pid) -> std::io::Result<()> {
        self.tell(&group.to_string())
    }

    fn tell(&mut self, word: &str) -> std::io::Result<()> {
        match &mut self.0.stdin {
            Some(pipe) => pipe.write_all(format!("{word}\n").as_bytes()),
            None => Ok(()),
        }
    }
}

impl Drop for Warden {
    /// The command has ended: what it left behind on purpose may stay.
    fn drop(&mut self) {
        // Should someone have killed the warden, there is nobody to tell.
        let _ = self.tell(DISMISSED);
        // Were it stopped, waiting for it to go by itself would keep the lock.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Is the warden, if that is what the arguments ask. Returns an exit code.
pub(crate) fn if_asked(mut arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    if arguments.nth(1)? != VERB {
        return None;
    }
    // It must outlive us by a moment, and we may be about to die of a signal to all of our name.
    let _ = SigSet::all().thread_block();
    let mut told = String::new();
    // Ends when the last writer has closed the pipe, by will or by death.
    let _ = std::io::stdin().read_to_string(&mut told);
    let mut lines = told.lines();
    let group = lines.next().and_then(|line| line.parse().ok());
    if let (Some(group @ 2..), None) = (group, lines.next()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    Some(crate::exit::FINE)
}
