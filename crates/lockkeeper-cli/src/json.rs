//! The JSON that `--json` prints. Its field names are an interface: add, never rename.

use lockkeeper::Mode;
use serde::Serialize;

/// `value` on one line.
pub(crate) fn line(value: &impl Serialize) -> String {
    // Cannot fail: JSON can represent all strings, numbers and lists.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

#[derive(Debug, Serialize)]
pub(crate) struct Break<'a> {
    pub(crate) name: &'a str,
    pub(crate) token: u64,
    pub(crate) reason: &'a str,
    pub(crate) broken: bool,
}

/// The mode as one word, for programs.
pub(crate) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permit { .. } => "permit",
        _ => "other",
    }
}
