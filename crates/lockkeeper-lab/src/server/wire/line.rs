//! Text protocols in which the server closes the connection after its answer.

use anyhow::Result;
use std::io::{Read, Write};

/// Sends text and returns the whole answer.
///
/// # Errors
/// When the server does not answer and close.
pub fn ask(port: u16, text: &str) -> Result<String> {
    let mut stream = super::connect(port)?;
    stream.write_all(text.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
