//! The moment between `fork` and `exec`, as a program.
//!
//! What must be done there needs `unsafe` code, which this project does without. Instead we start
//! ourselves under a hidden verb; that does it and becomes the command.

use super::terminal::Terminal;
use crate::exit::{CANNOT_EXECUTE, NO_COMMAND, USAGE};
use crate::output;
use nix::unistd::{Pid, getpgrp, getppid};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

const VERB: &str = "--become";
const WITH_TERMINAL: &str = "with-terminal";
const WITHOUT_TERMINAL: &str = "without-terminal";
/// What the process is called until it has become the command, whose own name `exec` gives it:
/// by this one tells, also of one that has ended, whether the command ever ran.
#[cfg(target_os = "linux")]
const BEFORE: &std::ffi::CStr = c"lockkeeper-shim";

/// The file this process runs, even if another was installed in its place meanwhile.
pub(crate) fn ourselves() -> Command {
    let mut command = Command::new(if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap_or_else(|_| "lockkeeper".into())
    });
    command.arg0("lockkeeper");
    command
}

/// A command line that becomes `command`.
pub(crate) fn becoming(command: &[OsString], with_terminal: bool) -> Command {
    let mut shim = ourselves();
    shim.arg(VERB)
        .arg(std::process::id().to_string())
        .arg(if with_terminal { WITH_TERMINAL } else { WITHOUT_TERMINAL })
        .args(command)
        .process_group(0);
    shim
}

/// Becomes the command, if that is what the arguments ask. Returns only an exit code.
pub(crate) fn if_asked(arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut arguments = arguments.skip(1);
    if arguments.next()? != VERB {
        return None;
    }
    let parent = arguments.next().and_then(|word| word.to_str()?.parse::<i32>().ok());
    let terminal = arguments.next();
    let (Some(parent), Some(terminal), Some(program)) = (parent, terminal, arguments.next()) else {
        return Some(USAGE);
    };
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(BEFORE);
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL) {
        output::say(&format!("the command would outlive lockkeeper: {error}"));
        return Some(CANNOT_EXECUTE);
    }
    // It may have died before the line above; then nobody holds the lock for us.
    if getppid().as_raw() != parent {
        return Some(USAGE);
    }
    if terminal == WITH_TERMINAL
        && let Some(terminal) = Terminal::controlling()
    {
        terminal.give_to(getpgrp());
    }
    let error = Command::new(&program).args(arguments).exec();
    let (code, why) = match error.kind() {
        ErrorKind::NotFound => (NO_COMMAND, "not found".to_owned()),
        _ => (CANNOT_EXECUTE, error.to_string()),
    };
    output::say(&format!("cannot run {program:?}: {why}"));
    Some(code)
}

/// Whether a process has ended without ever becoming the command. To be asked before it is waited
/// for: nothing is known of it afterwards.
#[cfg(target_os = "linux")]
pub(crate) fn never_became(process: Pid) -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    // One that lives may yet become it, after we have looked.
    let ended = matches!(
        waitid(Id::Pid(process), look),
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
    );
    // Where nobody can tell, it is taken to have run.
    let name = || std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    ended && name().trim_ascii_end() == BEFORE.to_bytes()
}

/// Elsewhere there is no telling.
#[cfg(not(target_os = "linux"))]
pub(crate) fn never_became(_: Pid) -> bool {
    false
}
