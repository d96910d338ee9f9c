//! Which process group owns the terminal.
//!
//! The command has its own process group, so that signals reach all of it. So it can read from the
//! terminal only after the terminal was given to that group.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::io::IsTerminal;

/// Lets this process, and the threads it will start, write to the terminal from the background
/// without being stopped: if it were stopped, it could not renew.
pub(crate) fn never_stop_for_output() {
    // It cannot fail for a signal that exists.
    let _ = SigSet::from(Signal::SIGTTOU).thread_block();
}

/// The controlling terminal of this process.
pub(crate) struct Terminal {
    device: File,
    modes: Option<Termios>,
}

impl Terminal {
    pub(crate) fn controlling() -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&device).ok();
        Some(Self { device, modes })
    }

    pub(crate) fn is_with(&self, group: Pid) -> bool {
        tcgetpgrp(&self.device) == Ok(group)
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.is_with(getpgrp())
    }

    /// Whether the command should get it from the start. In a pipeline it gets the terminal only
    /// when it asks: the other programs are in our group, and would be in the background.
    pub(crate) fn is_for_the_command(&self) -> bool {
        self.is_ours() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    pub(crate) fn give_to(&self, group: Pid) {
        // If the terminal is gone, there is nobody left to ask.
        let _ = without_stopping(|| tcsetpgrp(&self.device, group));
    }

    /// Takes it back from the command, which has ended.
    pub(crate) fn take_back_from(&self, group: Pid) {
        if self.is_with(group) {
            self.give_to(getpgrp());
        }
    }

    /// Restores the modes from the start, for a command that could not do so itself.
    pub(crate) fn tidy(&self) {
        if let Some(modes) = &self.modes
            && self.is_ours()
        {
            let _ = without_stopping(|| tcsetattr(&self.device, SetArg::TCSADRAIN, modes));
        }
    }
}

/// A background process that changes the terminal is stopped, unless it blocks SIGTTOU.
fn without_stopping<T>(act: impl FnOnce() -> T) -> T {
    let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let outcome = act();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    outcome
}

/// Runs `act` with the signal unblocked that [`never_stop_for_output`] blocks, because processes
/// that `act` starts inherit the mask.
pub(crate) fn with_default_mask<T>(act: impl FnOnce() -> T) -> T {
    let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_UNBLOCK);
    let outcome = act();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    outcome
}
