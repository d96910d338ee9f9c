//! A process that waits for our death, and then kills what the command started.
//!
//! The kernel kills the command itself when we are killed, but not its children: those of a `sh -c`
//! would go on working without a lock. The warden has the read end of a pipe that only we can write
//! to, so it notices our death whatever the cause.

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
        // In its own group, so that signals for our group do not end it; with none of our outputs
        // open, so that no reader waits for it.
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

    /// Tells the warden which group to kill.
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
    /// The command has ended: processes that it left behind on purpose may stay.
    fn drop(&mut self) {
        // If someone killed the warden, there is nobody to tell.
        let _ = self.tell(DISMISSED);
        // If the warden is stopped, waiting for it to end by itself would keep the lock.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Acts as the warden, if the arguments ask for that. Returns an exit code.
pub(crate) fn if_asked(mut arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    if arguments.nth(1)? != VERB {
        return None;
    }
    // The warden must outlive us, and a signal to all processes of our name may be about to end us.
    let _ = SigSet::all().thread_block();
    let mut told = String::new();
    // Returns when the last writer has closed the pipe, on purpose or by dying.
    let _ = std::io::stdin().read_to_string(&mut told);
    let mut lines = told.lines();
    let group = lines.next().and_then(|line| line.parse().ok());
    if let (Some(group @ 2..), None) = (group, lines.next()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    Some(crate::exit::FINE)
}
