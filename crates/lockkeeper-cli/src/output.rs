//! The two ways out for text. Neither panics when nobody reads.

use std::io::Write;

/// Prints a result. A reader that has gone away (`| head`) is no error.
pub(crate) fn print(text: impl AsRef<[u8]>) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_ref()).and_then(|()| out.flush());
}

/// Tells people something, on stderr, as one write so that lines of several processes do not mix.
pub(crate) fn say(message: &str) {
    let _ = std::io::stderr().write_all(format!("lockkeeper: {message}\n").as_bytes());
}

/// As [`say`], without keeping the caller from its work when stderr is stuck.
#[cfg(unix)]
pub(crate) fn say_aside(message: String) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || say(&message))
}
