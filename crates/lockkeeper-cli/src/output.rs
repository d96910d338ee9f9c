//! The two outputs for text. Neither panics when nobody reads.

use crate::exit::{self, Failure};
use std::io::Write;

/// Prints a result. A reader that has gone away (`| head`) is not an error; a full disk is.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::NO_OUTPUT, format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a message to stderr, in one write so that lines of several processes do not mix.
pub(crate) fn say(message: &str) {
    let _ = std::io::stderr().write_all(format!("lockkeeper: {message}\n").as_bytes());
}

/// As [`say`], but does not block the caller when stderr is stuck.
#[cfg(unix)]
pub(crate) fn say_aside(message: String) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || say(&message))
}
