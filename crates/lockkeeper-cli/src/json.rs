//! The JSON that `--json` prints. Its field names are an interface: add, never rename.

use lockkeeper::{Mode, Ticket};
use serde::Serialize;
use std::time::Duration;

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

/// A lock that was taken, and what keeps it.
#[derive(Debug, Serialize)]
pub(crate) struct Locked<'a> {
    name: &'a str,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    token: Option<u64>,
    ttl_ms: u64,
    ticket: &'a Ticket,
}

impl<'a> Locked<'a> {
    pub(crate) fn new(ticket: &'a Ticket) -> Self {
        let permits = match ticket.mode {
            Mode::Permit { of } => Some(of),
            _ => None,
        };
        Self {
            name: ticket.name.as_str(),
            mode: mode_word(ticket.mode),
            permits,
            token: ticket.token.map(|token| token.get()),
            ttl_ms: millis(ticket.ttl),
            ticket,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Kept<'a> {
    name: &'a str,
    kept: bool,
    valid_ms: u64,
}

impl<'a> Kept<'a> {
    /// `valid` is for how long; `None` if the ticket is no longer good.
    pub(crate) fn new(ticket: &'a Ticket, valid: Option<Duration>) -> Self {
        let name = ticket.name.as_str();
        Self { name, kept: valid.is_some(), valid_ms: millis(valid.unwrap_or_default()) }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Unlocked<'a> {
    pub(crate) name: &'a str,
    pub(crate) unlocked: bool,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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
