//! Events as lines, for people and for programs.

use super::seen::{Event, Kind};
use crate::json::{line, mode_word};
use crate::local_time;
use crate::text::{span, visible};
use serde::Serialize;
use std::time::Duration;

pub(crate) fn human(event: &Event) -> String {
    let unnamed = event.identity.is_empty();
    let who = visible(if unnamed { event.owner.id() } else { &event.identity });
    let note = match event.note.as_str() {
        "" => String::new(),
        note => format!(" '{}'", visible(note)),
    };
    let mut details = Vec::new();
    if event.mode != lockkeeper::Mode::Exclusive {
        details.push(event.mode.to_string());
    }
    details.extend(event.token.map(|token| format!("token {token}")));
    details.extend(lasted(event.kind).map(|(word, time)| format!("{word} {}", span(time))));
    let time = local_time::of_day(event.at);
    let (word, name, details) = (word(event.kind), visible(&event.name), details.join(", "));
    format!("{time}  {word:<8}  {name}  {who}{note}  {details}").trim_end().to_owned() + "\n"
}

pub(crate) fn json(event: &Event) -> String {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let lasted = lasted(event.kind);
    let lasted_as =
        |wanted: &str| lasted.filter(|(word, _)| *word == wanted).map(|it| millis(it.1));
    line(&EventJson {
        at: local_time::for_programs(event.at),
        event: word(event.kind),
        name: &event.name,
        owner: event.owner.id(),
        identity: &event.identity,
        note: &event.note,
        mode: mode_word(event.mode),
        token: event.token.map(|token| token.get()),
        waited_ms: lasted_as("waited"),
        held_ms: lasted_as("held"),
    })
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Queued => "queued",
        Kind::Granted(_) => "granted",
        Kind::Released(_) => "released",
        Kind::Expired(_) => "expired",
        Kind::Left(_) => "left",
    }
}

fn lasted(kind: Kind) -> Option<(&'static str, Duration)> {
    match kind {
        Kind::Queued => None,
        Kind::Granted(waited) | Kind::Left(waited) => Some(("waited", waited)),
        Kind::Released(held) | Kind::Expired(held) => Some(("held", held)),
    }
}

/// Its field names are an interface: add, never rename.
#[derive(Serialize)]
struct EventJson<'a> {
    at: String,
    event: &'static str,
    name: &'a str,
    owner: &'a str,
    identity: &'a str,
    note: &'a str,
    mode: &'static str,
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
}
