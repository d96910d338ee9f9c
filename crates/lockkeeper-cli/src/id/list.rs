//! `id workers` and `id keys`: what a store has of ids.

use super::arguments::{KeysArguments, WorkersArguments};
use super::terms;
use crate::exit::{self, Failure};
use crate::text::{span, visible};
use crate::{json, output, table};
use lockkeeper::id::{WorkerView, utc};
use serde::Serialize;
use std::time::SystemTime;

/// A worker number as `--json` has it.
#[derive(Debug, Serialize)]
struct Worker<'a> {
    key: &'a str,
    worker: u32,
    state: &'static str,
    identity: &'a str,
    since: String,
    mark: String,
}

/// A key as `--json` has it.
#[derive(Debug, Serialize)]
struct Key<'a> {
    key: &'a str,
    kind: &'static str,
    terms: String,
    made: String,
}

pub(crate) async fn workers(asked: &WorkersArguments) -> Result<u8, Failure> {
    let keeper = crate::store::open(&asked.store.url()?).await?;
    let views = keeper.id_workers(asked.key.as_deref()).await?;
    let now = SystemTime::now();
    if asked.json {
        let workers = views.iter().map(|view| Worker {
            key: &view.key,
            worker: view.number,
            state: state(view, now),
            identity: &view.identity,
            since: utc(view.since),
            mark: utc(view.mark),
        });
        output::print(json::line(&workers.collect::<Vec<_>>()))?;
    } else if views.is_empty() {
        output::say("no worker number was taken");
    } else {
        let rows: Vec<_> = views.iter().map(|view| cells(view, now)).collect();
        let titles = ["KEY", "WORKER", "STATE", "BY", "TAKEN", "IDS UP TO"];
        output::print(table::lay_out("", titles, &rows))?;
    }
    Ok(if views.is_empty() { exit::NOTHING } else { exit::FINE })
}

/// Whether a number is in use, as far as this machine's clock tells.
fn state(view: &WorkerView, now: SystemTime) -> &'static str {
    match view.held {
        false => "free",
        true if view.mark < now => "silent",
        true => "held",
    }
}

fn cells(view: &WorkerView, now: SystemTime) -> [String; 6] {
    let taken = now.duration_since(view.since).map_or_else(
        |ahead| format!("in {}", span(ahead.duration())),
        |ago| format!("{} ago", span(ago)),
    );
    [
        visible(&view.key),
        view.number.to_string(),
        state(view, now).to_owned(),
        visible(&view.identity),
        taken,
        utc(view.mark),
    ]
}

pub(crate) async fn keys(asked: &KeysArguments) -> Result<u8, Failure> {
    let keeper = crate::store::open(&asked.store.url()?).await?;
    let views = keeper.id_keys().await?;
    if asked.json {
        let keys = views.iter().map(|view| Key {
            key: &view.key,
            kind: view.kind.word(),
            terms: behind(&view.kind.to_string()).to_owned(),
            made: utc(view.made),
        });
        output::print(json::line(&keys.collect::<Vec<_>>()))?;
    } else if views.is_empty() {
        output::say("there are no ids");
    } else {
        let rows: Vec<_> = views
            .iter()
            .map(|view| {
                let kind = view.kind.word().to_owned();
                [
                    visible(&view.key),
                    kind,
                    visible(behind(&terms::shown(&view.kind))),
                    utc(view.made),
                ]
            })
            .collect();
        output::print(table::lay_out("", ["KEY", "KIND", "TERMS", "MADE"], &rows))?;
    }
    Ok(if views.is_empty() { exit::NOTHING } else { exit::FINE })
}

/// What is said behind the word for the kind.
fn behind(kind: &str) -> &str {
    kind.split_once(' ').map_or("", |(_, terms)| terms)
}
