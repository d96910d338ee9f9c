//! `leader`: who leads, and each change of leader.

use crate::arguments::StoreArguments;
use crate::claim::{self, LAST_WAIT};
use crate::exit::{self, Failure};
use crate::local_time;
use crate::text::{span, visible};
use crate::{json, output};
use clap::Args;
use lockkeeper::backend::{HolderView, LockView};
use lockkeeper::{Keeper, Name};
use serde::Serialize;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// How often a follower looks.
const GLANCE: Duration = Duration::from_millis(500);
/// And while the store does not answer.
const OUTAGE_GLANCE: Duration = Duration::from_secs(5);

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    somebody leads; with -f, that nobody reads any more
  1    nobody leads
  64   wrong usage, or a store that does not tell who leads
  69   the store is unreachable or unusable
  77   the store refused us

Examples:
  lockkeeper leader scheduler
  lockkeeper leader --json scheduler | jq -r .leader.note
  lockkeeper leader -f scheduler";

#[derive(Debug, Args)]
pub(crate) struct LeaderArguments {
    /// Print JSON, with -f a line for each change
    #[arg(long)]
    json: bool,

    /// Go on, and print a line for each change; a term that begins and ends between two looks, which
    /// are half a second apart, is not seen
    #[arg(short, long)]
    follow: bool,

    #[command(flatten)]
    store: StoreArguments,

    /// The election
    name: String,
}

pub(crate) async fn leader(asked: &LeaderArguments) -> Result<u8, Failure> {
    let name = Name::new(&asked.name)?;
    let keeper = claim::connect(&asked.store.url()?).await?;
    let outcome = match asked.follow {
        true => follow(&keeper, &name, asked.json).await,
        false => once(&keeper, &name, asked.json).await,
    };
    keeper.close(LAST_WAIT).await;
    outcome
}

async fn once(keeper: &Keeper, name: &Name, as_json: bool) -> Result<u8, Failure> {
    let view = keeper.show(name.as_str()).await?;
    let leader = leader_in(&view);
    match leader {
        _ if as_json => output::print(json::line(&Led::new(name, leader)))?,
        Some(leader) => output::print(portrait(leader))?,
        None => output::say(&format!("nobody leads {:?}", name.as_str())),
    }
    Ok(if leader.is_some() { exit::FINE } else { exit::NOTHING })
}

async fn follow(keeper: &Keeper, name: &Name, as_json: bool) -> Result<u8, Failure> {
    // The first look must succeed; later ones may fail for a while.
    let mut view = keeper.show(name.as_str()).await?;
    let mut told: Option<Option<Office>> = None;
    loop {
        let leader = leader_in(&view);
        let office = leader.map(Office::of);
        if told.as_ref() != Some(&office) {
            let text = match as_json {
                true => json::line(&Led::new(name, leader)),
                false => format!("{}  {}\n", local_time::of_day(SystemTime::now()), line(leader)),
            };
            if !output::try_print(text)? {
                return Ok(exit::FINE);
            }
            told = Some(office);
        }
        view = next_look(keeper, name).await?;
    }
}

/// What is seen at the next look that is answered.
async fn next_look(keeper: &Keeper, name: &Name) -> Result<LockView, Failure> {
    let mut silent = false;
    let mut pause = GLANCE;
    loop {
        sleep(pause).await;
        match keeper.show(name.as_str()).await {
            Ok(view) => return Ok(view),
            Err(error) if error.is_retryable() => {
                if !std::mem::replace(&mut silent, true) {
                    output::say(&format!("{}; goes on asking", Failure::from(error).message));
                }
                pause = OUTAGE_GLANCE;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Only one with a term leads: readers and permits do not.
fn leader_in(view: &LockView) -> Option<&HolderView> {
    view.holders.first().filter(|holder| holder.token.is_some())
}

/// What must change for a leader to be another one.
#[derive(Debug, PartialEq, Eq)]
struct Office {
    owner: lockkeeper::Owner,
    term: Option<lockkeeper::FencingToken>,
    note: String,
}

impl Office {
    fn of(leader: &HolderView) -> Self {
        Self { owner: leader.owner.clone(), term: leader.token, note: leader.note.clone() }
    }
}

fn who(leader: &HolderView) -> String {
    let unnamed = leader.identity.is_empty();
    visible(if unnamed { leader.owner.id() } else { &leader.identity })
}

fn term(leader: &HolderView) -> String {
    leader.token.map(|token| token.to_string()).unwrap_or_default()
}

fn line(leader: Option<&HolderView>) -> String {
    let Some(leader) = leader else { return "nobody leads".to_owned() };
    let note = match leader.note.as_str() {
        "" => String::new(),
        note => format!(" '{}'", visible(note)),
    };
    let (who, term, since) = (who(leader), term(leader), span(leader.held_for));
    format!("{who}{note} leads for {since}, term {term}")
}

fn portrait(leader: &HolderView) -> String {
    let now = SystemTime::now();
    let since = now.checked_sub(leader.held_for).unwrap_or(now);
    let since = format!("{} ({})", local_time::of(since), span(leader.held_for));
    let note = match leader.note.as_str() {
        "" => String::new(),
        note => format!("note    {}\n", visible(note)),
    };
    format!("leader  {}\n{note}since   {since}\nterm    {}\n", who(leader), term(leader))
}

/// Its field names are an interface: add, never rename.
#[derive(Serialize)]
struct Led<'a> {
    name: &'a str,
    leader: Option<LeaderJson<'a>>,
}

#[derive(Serialize)]
struct LeaderJson<'a> {
    owner: &'a str,
    identity: &'a str,
    note: &'a str,
    term: Option<u64>,
    led_ms: u64,
    expires_ms: u64,
}

impl<'a> Led<'a> {
    fn new(name: &'a Name, leader: Option<&'a HolderView>) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let leader = leader.map(|leader| LeaderJson {
            owner: leader.owner.id(),
            identity: &leader.identity,
            note: &leader.note,
            term: leader.token.map(|token| token.get()),
            led_ms: millis(leader.held_for),
            expires_ms: millis(leader.expires_in),
        });
        Self { name: name.as_str(), leader }
    }
}
