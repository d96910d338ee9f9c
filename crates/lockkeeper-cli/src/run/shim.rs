//! The code between `fork` and `exec`, as a separate program.
//!
//! That code would need `unsafe`, which this project does not use. Instead we start ourselves under
//! a hidden verb; that process does the work and then execs the command.

use super::terminal::Terminal;
use crate::exit::{CANNOT_EXECUTE, NO_COMMAND, USAGE};
use crate::output;
use nix::unistd::{Pid, getpgrp, getppid};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

const VERB: &str = "--become";
const WITH_TERMINAL: &str = "with-terminal";
const WITHOUT_TERMINAL: &str = "without-terminal";
/// The name of the process until it execs the command, which gives it the command's name: so the
/// name shows, even after the process has ended, whether the command ever ran.
#[cfg(target_os = "linux")]
const BEFORE: &std::ffi::CStr = c"lockkeeper-shim";

/// The executable of this process, even if it was replaced on disk meanwhile.
pub(crate) fn ourselves() -> Command {
    let mut command = Command::new(if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap_or_else(|_| "lockkeeper".into())
    });
    command.arg0("lockkeeper");
    command
}

/// A command line that execs `command`.
pub(crate) fn becoming(command: &[OsString], with_terminal: bool) -> Command {
    let mut shim = ourselves();
    shim.arg(VERB)
        .arg(std::process::id().to_string())
        .arg(if with_terminal { WITH_TERMINAL } else { WITHOUT_TERMINAL })
        .args(command)
        .process_group(0);
    shim
}

/// Execs the command, if the arguments ask for that. Returns only on failure, with an exit code.
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
    // The parent may have died before `set_pdeathsig`; then nobody holds the lock for us.
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
        ErrorKind::NotFound => (NO_COMMAND, format!("not found{}", hint(&program))),
        _ => (CANNOT_EXECUTE, error.to_string()),
    };
    output::say(&format!("cannot run {program:?}: {why}"));
    Some(code)
}

/// What to do with a whole line that stands where a program should.
fn hint(program: &OsStr) -> &'static str {
    let is_of_a_shell = |c: char| c.is_whitespace() || "|&;<>()$`*?~".contains(c);
    match program.to_string_lossy().contains(is_of_a_shell) {
        true => ". There is no shell in between: use -c to run a line as the shell does",
        false => "",
    }
}

/// Whether a process has ended without ever running the command. Must be called before the process
/// is reaped: afterwards nothing is known about it.
#[cfg(target_os = "linux")]
pub(crate) fn never_became(process: Pid) -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    // A live process may still exec the command after we have looked.
    let ended = matches!(
        waitid(Id::Pid(process), look),
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
    );
    // If the name cannot be read, we assume that the command ran.
    let name = || std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    ended && name().trim_ascii_end() == BEFORE.to_bytes()
}

/// Other systems cannot tell.
#[cfg(not(target_os = "linux"))]
pub(crate) fn never_became(_: Pid) -> bool {
    false
}
