//! HTTP, just enough for one request.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};

/// The body of the answer from a server on this machine.
///
/// # Errors
/// When it does not answer, or not with success.
pub fn get(port: u16, path: &str) -> Result<String> {
    exchange(port, &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
}

/// As [`get`], sending a body of JSON.
///
/// # Errors
/// As [`get`].
pub fn post(port: u16, path: &str, body: &str) -> Result<String> {
    let length = body.len();
    exchange(
        port,
        &format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ),
    )
}

fn exchange(port: u16, request: &str) -> Result<String> {
    let mut stream = super::connect(port)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.lines().next().unwrap_or_default();
    if !status.contains(" 200 ") {
        bail!("{status}: {body}");
    }
    Ok(body.to_owned())
}
