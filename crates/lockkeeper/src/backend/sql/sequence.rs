//! Numbers that nobody else gets, and small records: a row for each, among those of the names.
//!
//! The rows are never cleaned away. An answer that is lost takes its numbers with it: the statement
//! is sent again and reserves others, so there may be gaps and never a number twice. A record is
//! written once: whoever got no answer reads what it says.
//!
//! The numbers of an auto-increment column are the database's own. They come from a table of their
//! own, with one column that counts, which is made when it is first asked for; its rows go again.

use super::context::Context;
use super::error::{Failure, Why};
use super::requests::Step;
use crate::backend::{LAST_NUMBER, Name, Reserve, Reserved, check_record};
use crate::error::{Error, ErrorKind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a sequence is asked again that was begun between two questions.
const TRIES: u32 = 8;
/// How many numbers of the auto-increment column are taken by one statement.
const AT_ONCE: u32 = 1000;

/// As [`Sequencer::reserve`](crate::backend::Sequencer::reserve): one statement, and a look at the
/// count where that reserved nothing.
pub(super) async fn reserve(context: &Context, name: &Name, wish: &Reserve) -> Result<Reserved> {
    let count = i64::from(wish.count.max(1));
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let room = signed(wish.ceiling.min(LAST_NUMBER)).saturating_sub(count);
    for _ in 0..TRIES {
        if let Some(least) = wish.least() {
            let step = Step { count, least: signed(least), room, existing: wish.existing };
            let reserved = context.requests.reserve(name.as_str(), step).await;
            if let Some(last) = reserved.map_err(|failure| context.explain(failure))? {
                return number(last - count + 1).map(Reserved::From);
            }
        }
        let last = context.requests.last_number(name.as_str()).await;
        let last = last.map_err(|failure| context.explain(failure))?.map(number).transpose()?;
        match Reserved::of(last, wish) {
            // Begun since, by another: there is room.
            Reserved::From(_) => {}
            nothing => return Ok(nothing),
        }
    }
    let message = format!("the sequence {:?} comes and goes: try again", name.as_str());
    Err(Error::new(ErrorKind::Unavailable, message))
}

pub(super) async fn read(context: &Context, name: &Name) -> Result<Option<String>> {
    let read = context.requests.read_record(name.as_str()).await;
    read.map_err(|failure| context.explain(failure))
}

/// As [`Sequencer::write`](crate::backend::Sequencer::write).
pub(super) async fn write(
    context: &Context,
    name: &Name,
    value: &str,
    expected: Option<&str>,
) -> Result<bool> {
    check_record(value)?;
    let written = context.requests.write_record(name.as_str(), value, expected).await;
    written.map_err(|failure| context.explain(failure))
}

pub(super) async fn list(context: &Context, prefix: &str) -> Result<Vec<(Name, String)>> {
    // No name has control characters, and no text in PostgreSQL a zero byte.
    if prefix.chars().any(char::is_control) {
        return Ok(Vec::new());
    }
    let listed = context.requests.list_records(prefix).await;
    let listed = listed.map_err(|failure| context.explain(failure))?;
    let named =
        listed.into_iter().filter_map(|(name, value)| Some((Name::new(&name).ok()?, value)));
    Ok(named.collect())
}

pub(super) async fn time(context: &Context) -> Result<Option<SystemTime>> {
    let micros = context.requests.time().await.map_err(|failure| context.explain(failure))?;
    let since = u64::try_from(micros).ok().map(Duration::from_micros);
    Ok(since.and_then(|since| UNIX_EPOCH.checked_add(since)))
}

/// As [`Sequencer::auto_increment`](crate::backend::Sequencer::auto_increment).
pub(super) async fn auto_increment(context: &Context, count: u32) -> Result<Vec<u64>> {
    let mut taken = Vec::new();
    let mut left = count.max(1);
    while left > 0 {
        let some = left.min(AT_ONCE);
        for taken_now in take_ids(context, some).await? {
            taken.push(number(taken_now)?);
        }
        left -= some;
    }
    taken.sort_unstable();
    Ok(taken)
}

/// Takes numbers, and makes the table if it is not there.
async fn take_ids(context: &Context, count: u32) -> Result<Vec<i64>> {
    let requests = &context.requests;
    let explain = |failure: Failure| match failure.why() {
        Some(Why::Privilege) => denied(context),
        _ => context.explain(failure),
    };
    match requests.auto_increment(count).await {
        Err(failure) if failure.why() == Some(Why::NoTable) => {
            requests.make_ids().await.map_err(explain)?;
            requests.auto_increment(count).await.map_err(explain)
        }
        taken => taken.map_err(explain),
    }
}

/// The error for a user that may neither make nor use the table.
fn denied(context: &Context) -> Error {
    let (at, script) = (context.requests.shown(), context.requests.ids_script());
    Error::new(
        ErrorKind::Denied,
        format!(
            "{at} does not let this user make or use the table of its own numbers: have it made \
             with\n{script}"
        ),
    )
}

fn number(number: i64) -> Result<u64> {
    u64::try_from(number)
        .map_err(|_| Error::new(ErrorKind::Store, "the lock tables count below zero"))
}
