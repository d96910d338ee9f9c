//! The JSON that `--json` prints. Its field names are an interface: add, never rename.

use lockkeeper::Mode;
use lockkeeper::backend::{HolderView, LockView, WaiterView};
use serde::Serialize;
use std::time::Duration;

/// `value` on one line.
pub(crate) fn line(value: &impl Serialize) -> String {
    // Strings, numbers and lists have no value that JSON lacks.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

#[derive(Debug, Serialize)]
pub(crate) struct Lock<'a> {
    name: &'a str,
    holders: Vec<Holder<'a>>,
    waiters: Vec<Waiter<'a>>,
}

#[derive(Debug, Serialize)]
struct Holder<'a> {
    owner: &'a str,
    identity: &'a str,
    note: &'a str,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    token: Option<u64>,
    count: usize,
    held_ms: u64,
    expires_ms: u64,
}

#[derive(Debug, Serialize)]
struct Waiter<'a> {
    owner: &'a str,
    identity: &'a str,
    note: &'a str,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    waiting_ms: u64,
    place: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Break<'a> {
    pub(crate) name: &'a str,
    pub(crate) token: u64,
    pub(crate) reason: &'a str,
    pub(crate) broken: bool,
}

impl<'a> From<&'a LockView> for Lock<'a> {
    fn from(view: &'a LockView) -> Self {
        let waiters = view.waiters.iter().enumerate();
        Self {
            name: view.name.as_str(),
            holders: view.holders.iter().map(Holder::from).collect(),
            waiters: waiters.map(|(index, waiter)| Waiter::at(index + 1, waiter)).collect(),
        }
    }
}

impl<'a> From<&'a HolderView> for Holder<'a> {
    fn from(view: &'a HolderView) -> Self {
        Self {
            owner: view.owner.id(),
            identity: &view.identity,
            note: &view.note,
            mode: mode_word(view.mode),
            permits: permits(view.mode),
            token: view.token.map(|token| token.get()),
            count: view.count,
            held_ms: millis(view.held_for),
            expires_ms: millis(view.expires_in),
        }
    }
}

impl<'a> Waiter<'a> {
    fn at(place: usize, view: &'a WaiterView) -> Self {
        Self {
            owner: view.owner.id(),
            identity: &view.identity,
            note: &view.note,
            mode: mode_word(view.mode),
            permits: permits(view.mode),
            waiting_ms: millis(view.waiting_for),
            place,
        }
    }
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

fn permits(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Permit { of } => Some(of),
        _ => None,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
