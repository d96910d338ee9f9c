//! Passwords that do not stand in the file.

use crate::exit::{self, Failure};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

const LONGEST: u64 = 64 << 10;

/// The first line of a file.
pub(super) fn from_file(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let refused = |error: std::io::Error| {
        let message = format!("cannot read its password in {shown}: {error}");
        Failure::new(exit::DENIED, message)
    };
    let file = File::open(path).map_err(refused)?;
    warn_if_others_read(&file, path);
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(refused)?;
    first_line(&text, || format!("{shown} has no password in its first line"))
}

/// The first line that a command prints. What else it prints goes to stderr, as its own.
pub(super) fn from_command(words: &[String]) -> Result<String, Failure> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Failure::usage("password_command is empty"));
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| {
        Failure::new(exit::DENIED, format!("cannot run its password_command {program:?}: {error}"))
    })?;
    if !output.status.success() {
        let message = format!("its password_command {program:?} failed ({})", output.status);
        return Err(Failure::new(exit::DENIED, message));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    first_line(&printed, || format!("its password_command {program:?} printed no password"))
}

fn first_line(text: &str, missing: impl FnOnce() -> String) -> Result<String, Failure> {
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(Failure::new(exit::DENIED, missing())),
    }
}

#[cfg(unix)]
fn warn_if_others_read(file: &File, path: &Path) {
    use std::os::unix::fs::MetadataExt;
    if file.metadata().is_ok_and(|metadata| metadata.mode() & 0o077 != 0) {
        let path = path.display();
        // By the way of the library's warnings, so that it is shown and silenced as they are.
        tracing::warn!(target: "lockkeeper", "others may read the password file {path}: chmod 0600 {path}");
    }
}

#[cfg(not(unix))]
fn warn_if_others_read(_: &File, _: &Path) {}

/// `redis://host` or `redis://user@host` with this password.
pub(super) fn put_into(url: &str, password: &str) -> Result<String, Failure> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Failure::usage("its URL names no server, so it takes no password"));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, before) = user.split_once(':').unwrap_or((user, ""));
    if !before.is_empty() {
        return Err(Failure::usage("its URL has a password already"));
    }
    Ok(format!("{scheme}://{user}:{}@{hosts}{path}", encoded(password)))
}

/// In percent coding, so that nothing in it ends the password.
fn encoded(password: &str) -> String {
    let mut text = String::new();
    for byte in password.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' => text.push(byte.into()),
            // To write to a string does not fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_put_where_it_belongs() {
        for (url, whole) in [
            ("redis://host", "redis://:a%40b@host"),
            ("redis://host:7000/3?prefix=x@y", "redis://:a%40b@host:7000/3?prefix=x@y"),
            ("postgres://me@host/db", "postgres://me:a%40b@host/db"),
            ("postgres://me:@host/db", "postgres://me:a%40b@host/db"),
        ] {
            assert_eq!(put_into(url, "a@b").unwrap(), whole);
        }
        for wrong in ["sqlite:", "redis://:old@host"] {
            let failure = put_into(wrong, "a@b").unwrap_err();
            assert!(failure.code == 64 && !failure.message.contains("old"), "{failure:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_the_first_line_counts_and_what_fails_is_not_repeated() {
        let command = |line: &str| from_command(&["sh".into(), "-c".into(), line.into()]);
        assert_eq!(command("echo secret; echo more").unwrap(), "secret");
        for wrong in ["echo hunter2; exit 3", "true", "echo"] {
            let failure = command(wrong).unwrap_err();
            assert!(failure.code == 77 && !failure.message.contains("hunter2"), "{failure:?}");
        }
        assert_eq!(from_command(&[]).unwrap_err().code, 64);
    }
}
