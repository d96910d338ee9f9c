//! The command, and everything it starts: one process group.

use super::terminal::{Terminal, with_default_mask};
use super::warden::Warden;
use super::{exit, shim};
use crate::exit::Failure;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tokio::signal::unix::SignalKind;

pub(crate) struct Child {
    process: std::process::Child,
    group: Pid,
    changes: tokio::signal::unix::Signal,
    ran: bool,
    terminal: Option<Terminal>,
    _warden: Warden,
}

/// A change of the command's state.
pub(crate) enum Change {
    Ended(ExitStatus),
    Stopped(Signal),
}

impl Child {
    /// Must be called on the main thread: the kernel kills the command when the *thread* that
    /// started it ends.
    pub(crate) fn start(
        command: &[OsString],
        environment: &[(&'static str, Option<OsString>)],
    ) -> Result<Self, Failure> {
        let refused = |error: std::io::Error| {
            Failure::new(exit::CANNOT_EXECUTE, format!("cannot start the command: {error}"))
        };
        // Before the child exists, so that its end cannot be missed.
        let changes = tokio::signal::unix::signal(SignalKind::child()).map_err(refused)?;
        let terminal = Terminal::controlling();
        let with_terminal = terminal.as_ref().is_some_and(Terminal::is_for_the_command);
        let mut shim = shim::becoming(command, with_terminal);
        for (name, value) in environment {
            match value {
                Some(value) => shim.env(name, value),
                None => shim.env_remove(name),
            };
        }
        let mut warden = Warden::start().map_err(refused)?;
        let process = with_default_mask(|| shim.spawn()).map_err(refused)?;
        let group = Pid::from_raw(i32::try_from(process.id()).unwrap_or_default());
        // Without a warden the command itself still dies with us.
        let _ = warden.watch_over(group);
        Ok(Self { process, group, changes, ran: true, terminal, _warden: warden })
    }

    /// The next change of the command's state. Cancel safe.
    pub(crate) async fn change(&mut self) -> Change {
        loop {
            if shim::never_became(self.group) {
                self.ran = false;
            }
            // An error counts as "not yet": a later SIGCHLD asks again.
            if let Ok(Some(status)) = self.process.try_wait() {
                return Change::Ended(status);
            }
            if let Some(signal) = stopped(self.group) {
                return Change::Stopped(signal);
            }
            self.changes.recv().await;
        }
    }

    /// Whether the command ever began; known once it has ended.
    pub(crate) fn ran(&self) -> bool {
        self.ran
    }

    /// Sends a signal to the command and everything it started. Returns whether that was permitted:
    /// it is not if the command has changed its user.
    pub(crate) fn send(&self, signal: Signal) -> bool {
        // The processes may have ended just now, which is not an error.
        killpg(self.group, signal) != Err(Errno::EPERM)
    }

    /// Whether any process of the group is left.
    pub(crate) fn is_there(&self) -> bool {
        killpg(self.group, None).is_ok()
    }

    /// Resumes a command that was stopped for using the terminal from the background, if we can
    /// give it the terminal.
    pub(crate) fn give_terminal_and_go_on(&self) -> bool {
        let to_be_had = match &self.terminal {
            Some(terminal) if terminal.is_ours() => {
                terminal.give_to(self.group);
                true
            }
            Some(terminal) => terminal.is_with(self.group),
            None => true,
        };
        if to_be_had {
            self.send(Signal::SIGCONT);
        }
        to_be_had
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal.is_with(self.group))
    }

    /// Takes the terminal back, and restores its modes if the command was killed.
    pub(crate) fn return_terminal(&self, killed: bool) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(self.group);
            if killed {
                terminal.tidy();
            }
        }
    }
}

/// The signal that stopped the command since the last call.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn stopped(process: Pid) -> Option<Signal> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    match waitid(Id::Pid(process), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
        _ => None,
    }
}

/// Other systems have no way to ask for a stop without also reaping the end.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn stopped(_: Pid) -> Option<Signal> {
    None
}

/// As in shells.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => u8::MAX,
    }
}
