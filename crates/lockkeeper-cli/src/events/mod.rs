//! `events`: what happens to the locks of a store, seen from outside by looking again and again.

mod lines;
mod look;
mod seen;

use crate::arguments::StoreArguments;
use crate::claim;
use crate::exit::{self, Failure};
use crate::output;
use crate::text::span;
use clap::Args;
pub(crate) use look::{Look, take};
use seen::Seen;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The shortest interval: each look reads the whole list.
const SHORTEST: Duration = Duration::from_millis(100);

pub(crate) const EXIT_CODES: &str = "\
Events:
  queued    somebody waits
  granted   somebody has the lock, with this token, after waiting this long
  released  the holder has given the lock back, or it was broken, which looks the same from outside
  expired   the holder did not renew the lock, and its time was over
  left      somebody does not wait any more, and has not got the lock

Exit codes:
  0    nobody reads any more
  64   wrong usage, or a store that does not list its locks
  69   the store is unreachable or unusable
  77   the store refused us

Examples:
  lockkeeper events -f
  lockkeeper events -f --json cron/ | jq -r 'select(.event == \"granted\") | .name'";

#[derive(Debug, Args)]
pub(crate) struct EventsArguments {
    /// Go on until interrupted; there is nothing but the future to print
    #[arg(short, long, required = true)]
    follow: bool,

    /// Time between two looks
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, default_value = "1s", allow_hyphen_values = true)]
    every: Duration,

    /// Print a line of JSON for each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,

    /// Only names that start with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

pub(crate) async fn events(asked: &EventsArguments) -> Result<u8, Failure> {
    let every = checked(asked.every)?;
    let keeper = claim::connect(&asked.store.url()?).await?;
    // What is there already did not happen now.
    let mut seen = Seen::new(take(&keeper, &asked.prefix).await?);
    let mut is_away = false;
    let mut was_cut = false;
    let mut due = Instant::now();
    loop {
        due = (due + every).max(Instant::now());
        sleep_until(due).await;
        let look = match take(&keeper, &asked.prefix).await {
            Ok(look) => look,
            // Events of an outage are told when it is over.
            Err(error) if error.is_retryable() => {
                if !std::mem::replace(&mut is_away, true) {
                    output::say(&format!("{}; goes on asking", Failure::from(error).message));
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        is_away = false;
        warn_of_cut(&look, &mut was_cut);
        let mut text = String::new();
        for event in seen.compare(look) {
            text += &if asked.json { lines::json(&event) } else { lines::human(&event) };
        }
        if !text.is_empty() && !output::try_print(text)? {
            return Ok(exit::FINE);
        }
    }
}

/// The interval, if it makes sense.
pub(crate) fn checked(every: Duration) -> Result<Duration, Failure> {
    match every < SHORTEST {
        false => Ok(every),
        true => Err(Failure::usage(format!(
            "--every is at least {}: each look reads the whole list of locks",
            span(SHORTEST)
        ))),
    }
}

fn warn_of_cut(look: &Look, was_cut: &mut bool) {
    if look.is_cut && !std::mem::replace(was_cut, true) {
        output::say(&format!(
            "there are more than {} holders and waiters: only the first are followed; give a PREFIX",
            look::MOST_CLAIMS
        ));
    }
}
