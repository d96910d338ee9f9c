//! The two outputs for text. Neither panics when nobody reads.

use crate::exit::{self, Failure};
use std::io::Write;
use tracing::Level;

/// What the command says, among all that is told by `tracing`.
pub(crate) const TARGET: &str = "lockkeeper_cli";

/// Prints a result. A reader that has gone away (`| head`) is not an error; a full disk is.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    try_print(text).map(drop)
}

/// Prints a result, and returns whether somebody still reads.
pub(crate) fn try_print(text: impl AsRef<[u8]>) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(exit::NO_OUTPUT, format!("cannot print: {error}"))),
    }
}

/// Prints a message to stderr, in one write so that lines of several processes do not mix.
pub(crate) fn say(message: &str) {
    match tracing::dispatcher::has_been_set() {
        true => tracing::info!(target: TARGET, "{message}"),
        // In the processes between `run` and its command.
        false => drop(std::io::stderr().write_all(line(message).as_bytes())),
    }
}

/// As [`say`]: why the program ends.
pub(crate) fn say_failure(failure: &Failure) {
    tracing::error!(target: TARGET, "{}", failure.message);
}

/// As [`say`], for what must not be overlooked, but does not block the caller when stderr is stuck.
pub(crate) fn say_aside(message: String) -> tokio::task::JoinHandle<()> {
    say_aside_at(Level::WARN, message)
}

/// As [`say`], but does not block the caller when stderr is stuck.
pub(crate) fn tell_aside(message: String) -> tokio::task::JoinHandle<()> {
    say_aside_at(Level::INFO, message)
}

fn say_aside_at(level: Level, message: String) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || match level {
        Level::WARN => tracing::warn!(target: TARGET, "{message}"),
        _ => tracing::info!(target: TARGET, "{message}"),
    })
}

/// A message as it stands on stderr.
pub(crate) fn line(message: &str) -> String {
    format!("lockkeeper: {message}\n")
}
